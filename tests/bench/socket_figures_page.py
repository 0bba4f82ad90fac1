# SPDX-License-Identifier: BSD-3-Clause
"""The page and the drawing of socket_figures: ratios, verdicts, Markdown, SVG.

Figures are lists, one value a round; a ratio is taken round by round."""
import os
import statistics

PATH_NAMES = {"tcp4": "TCP over loopback, IPv4", "tcp6": "TCP over loopback, IPv6",
              "unix": "Unix sockets", "veth": "TCP over veth, two network namespaces"}
BANDWIDTH_LEAST, LATENCY_MOST, FLOWS_LEAST, CPU_MOST = 0.95, 1.25, 0.95, 1.0
FAIR_LEAST = 0.5  # of an equal share
SURE, SURE_Z = 0.03, 1.28  # of a median; 1.28 deviations for four of five
COLOURS = ["#2f7ed8", "#e8710a", "#12a06a", "#d93355"]


def size_text(size):
    for unit, bytes_of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_of:
            return f"{size // bytes_of} {unit}"
    return f"{size} B"


def median(values):
    return statistics.median(values) if values else float("nan")


class Ratio:
    """Ours over theirs, round by round."""

    def __init__(self, ours, theirs):
        self.values = sorted(a / b for a, b in zip(ours, theirs) if b)
        self.median = median(self.values)

    def is_sure(self):
        """Whether the true median is within SURE of this one, at four chances of five. It asks how
        far the values are apart, not on which side of a limit they lie."""
        count = len(self.values)
        reach = SURE_Z * count ** 0.5 / 2
        low, high = int(count / 2 - reach), int(count / 2 + reach)
        if low < 0 or high >= count:
            return False
        return self.values[high] - self.values[low] <= 2 * SURE * self.median

    def __str__(self):
        if not self.values:
            return "-"
        return f"{self.median:.2f} ({self.values[0]:.2f} to {self.values[-1]:.2f})"


class Figures:
    def __init__(self, found):
        self.points = {tuple(tuple(part) if isinstance(part, list) else part
                             for part in entry["point"]): entry["values"]
                       for entry in found["points"]}
        self.failed = []

    def of(self, what, path=None):
        return {point: values for point, values in self.points.items()
                if point[0] == what and (path is None or point[1] == path)}

    def paths(self, what):
        return [path for path in PATH_NAMES if self.of(what, path)]

    def verdict(self, good, what):
        if not good:
            self.failed.append(what)
        return "yes" if good else "**no**"


def best(values, who):
    """The way of that program with the best median, of those with one thread a process."""
    names = [name for name in values if name.startswith(who) and "threads" not in name]
    return max(names, key=lambda name: median(values[name]["gb_per_s"]))


def best_raw(values):
    return best(values, "raw")


def two_threads(values):
    """What two of them a process reach, one a direction: for the eye, as ours has one."""
    if "raw, two threads" not in values:
        return "-"
    return f"{median(values['raw, two threads']['gb_per_s']):.2f}"


def table(head, rows):
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    line = "| " + " | ".join(f"{{:>{width}}}" for width in widths) + " |"
    rule = "| " + " | ".join("-" * (width - 1) + ":" for width in widths) + " |"
    return [line.format(*head), rule] + [line.format(*row) for row in rows] + [""]


def bandwidth_ratio(values):
    return Ratio(values[best(values, "xccl")]["gb_per_s"], values[best_raw(values)]["gb_per_s"])


def least_cpu(values, names):
    return min(names, key=lambda name: median(values[name]["cpu_s_per_gib"]))


def cpu_sides(values):
    """Our way with the least processor time, and theirs."""
    return (least_cpu(values, [name for name in values if name.startswith("xccl")]),
            least_cpu(values, [name for name in values if not name.startswith("xccl")]))


def cpu_ratio(values):
    own, theirs = cpu_sides(values)
    return Ratio(values[own]["cpu_s_per_gib"], values[theirs]["cpu_s_per_gib"])


# ---- parts of the page ----

def bandwidth_part(figures):
    lines = ["## Bandwidth", "",
             "One connection, messages of one size, GB/s of both directions together where there "
             "are two. `cpu` is the",
             "processor time of both processes in seconds a GiB, `busy` the cores that our busier "
             "process keeps at work. Of both",
             "programs the way with the best median counts, of those with one thread a process; "
             "`2 threads` is what bare sockets",
             "reach with one a direction.", ""]
    for path in figures.paths("bandwidth"):
        rows = []
        for (_, _, size, directions), values in sorted(figures.of("bandwidth", path).items(),
                                                       key=lambda item: (item[0][3], item[0][2])):
            ours, raw = values[best(values, "xccl")], values[best_raw(values)]
            ratio = bandwidth_ratio(values)
            what = f"{size_text(size)} over {path}, {directions} direction(s): {ratio}"
            rows.append([size_text(size), str(directions), f"{median(ours['gb_per_s']):.2f}",
                         "sleeping" if best(values, "xccl") == "xccl --wait" else "asking",
                         f"{median(raw['gb_per_s']):.2f}", best_raw(values)[5:],
                         two_threads(values), str(ratio),
                         f"{median(ours['cpu_s_per_gib']):.3f}",
                         f"{median(raw['cpu_s_per_gib']):.3f}",
                         f"{median(ours['busy_cores']):.2f}",
                         figures.verdict(ratio.median >= BANDWIDTH_LEAST, what)])
        lines += [f"### {PATH_NAMES[path]}", ""]
        lines += table(["size", "dir", "xccl", "works", "raw", "raw works", "2 threads", "ratio",
                        "cpu", "raw cpu", "busy", f">= {BANDWIDTH_LEAST}"], rows)
    return lines


def latency_part(figures):
    rows = []
    for path in figures.paths("latency"):
        values = figures.of("latency", path)["latency", path, 8, 1]
        for ours, raw in (("xccl", "raw, asking"), ("xccl --wait", "raw, sleeping")):
            ratio = Ratio(values[ours]["latency_us"], values[raw]["latency_us"])
            judged = figures.verdict(ratio.median <= LATENCY_MOST, f"8 B over {path}: {ratio}") \
                if raw.endswith("asking") else "-"
            rows.append([PATH_NAMES[path], raw[5:], f"{median(values[ours]['latency_us']):.2f}",
                         f"{median(values[ours]['latency_p99_us']):.2f}",
                         f"{median(values[raw]['latency_us']):.2f}",
                         f"{median(values[raw]['p99_us']):.2f}",
                         f"{median(values['two' + raw[3:]]['latency_us']):.2f}", str(ratio),
                         judged])
    return ["## Latency of 8 bytes", "", "Half a round trip in microseconds, both sides asking all "
            "the time or both sleeping. The raw program's message", "comes back on the connection "
            "on which it went; `two`: on another one, as with XCCL, whose connections have one "
            "direction.", ""] + table(
                ["path", "sides", "xccl", "p99", "raw", "raw p99", "raw, two", "ratio",
                 f"<= {LATENCY_MOST}"], rows)


def flows_part(figures):
    lines = ["## Several flows", "",
             "Connections driven by one thread a side that asks; GB/s of all of them. `to one "
             "flow` is our total over that of one flow,", "`least` what the slowest flow had when "
             "the quickest ended, as part of an equal share.", ""]
    for path in figures.paths("flows"):
        rows = []
        points = sorted(figures.of("flows", path).items(), key=lambda item: item[0][2:])
        for (_, _, size, flows), values in points:
            ours, raw = values["xccl"], values["raw, asking"]
            one = figures.points["flows", path, size, 1]["xccl"]
            ratio = bandwidth_ratio(values)
            share = median(ours["least_flow_gb_per_s"]) * flows / median(ours["gb_per_s"])
            good = ratio.median >= FLOWS_LEAST and share >= FAIR_LEAST
            rows.append([size_text(size), str(flows), f"{median(ours['gb_per_s']):.2f}",
                         f"{median(raw['gb_per_s']):.2f}", str(ratio),
                         f"{Ratio(ours['gb_per_s'], one['gb_per_s']).median:.2f}",
                         f"{min(share, 1):.2f}", f"{median(ours['cpu_s_per_gib']):.3f}",
                         figures.verdict(good, f"{flows} flows of {size_text(size)} over {path}: "
                                               f"{ratio}, least {share:.2f}")])
        lines += [f"### {PATH_NAMES[path]}", ""]
        lines += table(["size", "flows", "xccl", "raw", "ratio", "to one flow", "least", "cpu",
                        f">= {FLOWS_LEAST}"], rows)
    return lines


def nccl_part(figures):
    lines = ["## Beside NCCL's way with sockets", "",
             "`raw_sockets split`: a message is cut into equal parts over N connections, moved by "
             "T helper threads a side besides the", "caller. Judged is the least processor time "
             "of ours against the least of all of theirs.", ""]
    for path in figures.paths("nccl"):
        rows = []
        for (_, _, size, _), values in sorted(figures.of("nccl", path).items()):
            own, ratio = cpu_sides(values)[0], cpu_ratio(values)
            for name, value in values.items():
                judged = figures.verdict(ratio.median <= CPU_MOST, f"processor time at "
                                         f"{size_text(size)} over {path}: {ratio}") \
                    if name == own else ""
                busy = value.get("busy_cores", value.get("busy"))
                rows.append([size_text(size), name, f"{median(value['gb_per_s']):.2f}",
                             f"{median(value['cpu_s_per_gib']):.3f}", f"{median(busy):.2f}",
                             str(ratio) if name == own else "", judged])
        lines += [f"### {PATH_NAMES[path]}", ""]
        lines += table(["size", "who", "GB/s", "cpu s/GiB", "busy", "cpu ratio to the least",
                        f"<= {CPU_MOST:.1f}"], rows)
    return lines


def settings_part(figures):
    rows = []
    for (_, path, size, (streams, threads)), values in figures.of("settings").items():
        ours = values["xccl"]
        rows.append([PATH_NAMES[path], size_text(size), str(streams), str(threads),
                     f"{median(ours['gb_per_s']):.2f}", f"{median(ours['cpu_s_per_gib']):.3f}",
                     f"{median(ours['busy_cores']):.2f}"])
    return ["## Streams and helper threads", "", "`XCCL_SOCKET_STREAMS` and `XCCL_SOCKET_THREADS`; "
            "the caller sleeps (`--wait`).", ""] + table(
                ["path", "size", "streams", "threads", "GB/s", "cpu s/GiB", "busy"], rows)


def congestion_part(figures):
    rows = []
    for (_, rate, size, _), values in figures.of("congestion").items():
        for name, value in values.items():
            ratio = Ratio(values["cubic"]["gb_per_s"], values["bbr"]["gb_per_s"])
            rows.append([rate, size_text(size), name, f"{median(value['gb_per_s']):.3f}",
                         f"{median(value['cpu_s_per_gib']):.3f}",
                         str(ratio) if name == "cubic" else ""])
    if not rows:
        return []
    return ["## Congestion control", "", "One raw stream, asleep when it cannot go on. `1gbit` and "
            "`100mbit` are the veth pair behind a token bucket.", ""] + table(
                ["path", "size", "control", "GB/s", "cpu s/GiB", "cubic to bbr"], rows)


# ---- the drawing ----

def panel(title, series, sizes, top):
    """Lines over sizes: series is [(name, {size: GB/s}, dashed)]."""
    left, right, high, wide = 70, 20, 220, 760
    most = max(max(values.values()) for _, values, _ in series) * 1.1

    def place(size, value):
        step = (wide - left - right) / max(1, len(sizes) - 1)
        return left + sizes.index(size) * step, top + high - value / most * high

    out = [f'<text x="{left}" y="{top - 10}" font-size="14">{title}</text>']
    for tick in range(5):
        x, y = left, top + high - tick / 4 * high
        out.append(f'<line class="grid" x1="{x}" x2="{wide - right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{most * tick / 4:.1f}</text>')
    for size in sizes:
        out.append(f'<text x="{place(size, 0)[0]:.1f}" y="{top + high + 18}" '
                   f'text-anchor="middle">{size_text(size)}</text>')
    for i, (_, values, dashed) in enumerate(series):
        points = " ".join("{:.1f},{:.1f}".format(*place(size, values[size]))
                          for size in sizes if size in values)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        out.append(f'<polyline class="line" stroke="{COLOURS[i // 2 % len(COLOURS)]}"{dash} '
                   f'points="{points}"/>')
    return out


def drawing(figures):
    sizes = sorted({point[2] for point in figures.of("bandwidth")})
    paths = figures.paths("bandwidth")
    out, top = [], 60 + 20 * len(paths)
    for i, path in enumerate(paths):
        y, colour = 48 + 20 * i, COLOURS[i % len(COLOURS)]
        out.append(f'<line class="line" stroke="{colour}" x1="70" x2="100" y1="{y - 4}" '
                   f'y2="{y - 4}"/><text x="108" y="{y}">{PATH_NAMES[path]}</text>')
    for directions in (1, 2):
        series = []
        for path in paths:
            points = {point[2]: values for point, values in figures.of("bandwidth", path).items()
                      if point[3] == directions}
            series.append((path, {size: median(values[best(values, "xccl")]["gb_per_s"])
                                  for size, values in points.items()}, False))
            series.append((path, {size: median(values[best_raw(values)]["gb_per_s"])
                                  for size, values in points.items()}, True))
        title = "One direction, GB/s" if directions == 1 else "Both directions together, GB/s"
        out += panel(title, series, sizes, top + 20 + (directions - 1) * 290)
    height = top + 2 * 290
    head = ['<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {height}" width="780" '
            f'height="{height}" font-family="sans-serif" font-size="12">',
            "<style>", ".paper { fill: #ffffff } text { fill: #222222 } .grid { stroke: #d8d8d8 }",
            ".line { fill: none; stroke-width: 2 }", "@media (prefers-color-scheme: dark) {",
            ".paper { fill: #16181c } text { fill: #e4e4e4 } .grid { stroke: #3a3e45 } }",
            "</style>", '<rect class="paper" width="100%" height="100%"/>',
            '<text x="70" y="26" font-size="17">net-socket (lines) beside bare sockets (dashes)'
            "</text>"]
    return "\n".join(head + out + ["</svg>", ""])


# ---- the page ----

def head_part(found, name):
    spent = "quick mode" if found["quick"] else "full mode"
    flags = (" --quick" if found["quick"] else "") + ("" if found["pin"] else " --no-pin")
    machine = found["machine"]
    return ["# net-socket beside bare sockets", "",
            f"Made by `tests/bench/socket_figures{flags}` on {found['date']} from the release "
            "build; the same command repeats it.",
            "Bandwidth: one pair of processes has net-socket and bare sockets (`bare_net.c`: "
            "nothing but payload) as plugins and moves the", "same memory through both, "
            f"{found['pairs']} rounds each in turns; a few such pairs. Else `xccl net perf` and "
            "`raw_sockets` run in turn, a round each. A", "ratio is ours over theirs of the same "
            "round, median (lowest to highest). All bytes are compared before the timed part or in "
            "the", "last message behind it.", "", "| | |", "| --- | --- |",
            f"| machine | {machine['cores']} cores, {machine['processor']} |",
            f"| system | Linux {machine['release']}, its congestion control is "
            f"{machine['congestion']} |",
            f"| rounds | {found['rounds']}, {spent}, {found['minutes']:.0f} minutes; "
            f"{found.get('more', 0)} more where ratios lay far apart |",
            f"| others | used {100 * found['others']:.0f} % of the machine in the median round, "
            f"{100 * found['others_most']:.0f} % in the worst; {found['again']} were made again |",
            "", f"![bandwidth over sizes]({name}.svg)", ""]


def write(found, folder, name):
    """Writes page and drawing; the points outside their limits."""
    figures = Figures(found)
    parts = []
    for part in (latency_part, bandwidth_part, flows_part, nccl_part, settings_part,
                 congestion_part):
        parts += part(figures)
    limits = ["## Limits", ""]
    limits += [f"- outside: {line}" for line in figures.failed] or ["All points are inside."]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".md"), "w", encoding="utf-8") as file:
        file.write("\n".join(head_part(found, name) + limits + [""] + parts).rstrip() + "\n")
    with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as file:
        file.write(drawing(figures))
    return figures.failed
