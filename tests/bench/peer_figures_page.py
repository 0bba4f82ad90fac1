# SPDX-License-Identifier: BSD-3-Clause
"""The page, the drawings and the judgement of peer_figures: pure, of figures that were taken.

A point is one call: path, ranks, collective, size. For each contestant it has one time a round, in
microseconds of the slowest rank; None where the contestant sat out. A ratio is the best peer's time
over ours, so above 1 XCCL is quicker: its median over rounds, with the lowest and the highest."""
import math
import os
import statistics

from socket_figures_page import size_text, table

KIB, MIB = 1 << 10, 1 << 20
PATH_NAMES = {"shm": "shared memory", "tcp": "TCP on all sides"}
PLAIN = "xccl"  # processes with private buffers: what is judged
OURS = {PLAIN: "XCCL", "xccl-alloc": "XCCL, xcclMemAlloc",
        "xccl-registered": "XCCL, registered", "xccl-threads": "XCCL, threads",
        "xccl-no-record": "XCCL, no counters"}
PEERS = {"openmpi": "Open MPI", "openmpi-ucx": "Open MPI, UCX", "mpich": "MPICH"}
LIMITS = {"limits": "bare loops"}
LOSS_MOST = 0.15  # of a kept ratio

# What is promised: who, beside whom, over which path with how many ranks, where, at least how much.
# "best": the best peer; a name: that contestant; PLAIN: our own private buffers.
PROMISES = [
    (PLAIN, "best", "shm", (2,), ("all_reduce",), 8, 128, 1.2),
    (PLAIN, "limits", "shm", (2,), ("all_reduce",), 512, 512, 1.0),
    (PLAIN, "best", "shm", (2,), ("all_reduce",), 512, 256 * MIB, 1.5),
    (PLAIN, "limits", "shm", (2,), ("all_reduce",), 512, 256 * MIB, 1 / 1.25),
    (PLAIN, "limits", "shm", (2,), ("barrier",), 0, 0, 1 / 2.5),
    (PLAIN, "best", "shm", (2,), ("all_gather", "alltoall"), 128 * KIB, 256 * MIB, 1.5),
    (PLAIN, "best", "shm", (2,), ("sendrecv",), 0, 256 * MIB, 1.2),
    (PLAIN, "best", "shm", (2,), ("broadcast",), 128 * KIB, 2 * MIB, 2.0),
    (PLAIN, "best", "shm", (2,), ("reduce",), 32 * MIB, 256 * MIB, 2.0),
    (PLAIN, "best", "shm", (2,), ("reduce_scatter",), 32 * MIB, 256 * MIB, 3.0),
    (PLAIN, "best", "shm", (2,), (), 0, 256 * MIB, 1.0),
    ("xccl-alloc", PLAIN, "shm", (2,), ("all_reduce",), 128 * KIB, 256 * MIB, 1.5),
    ("xccl-threads", PLAIN, "shm", (2,), (), 0, 256 * MIB, 1.0),
    (PLAIN, "best", "shm", (4, 8), ("all_reduce",), 8, 8, 1.0),
    (PLAIN, "best", "shm", (4, 8), ("all_reduce",), 512 * KIB, 8 * MIB, 1.5),
    (PLAIN, "best", "tcp", (2,), (), 0, 2 * KIB, 1.0),
    (PLAIN, "best", "tcp", (2,), ("all_reduce",), 2 * MIB, 256 * MIB, 1.7),
    (PLAIN, "best", "tcp", (2,), ("sendrecv", "all_gather"), 8 * MIB, 256 * MIB, 1.5),
]
EQUAL = 0.97  # identical programs differ by as much: "not slower" is from here on


def known(values):
    return [value for value in values if value is not None]


def middle(values):
    """The median of what was measured; NaN of nothing."""
    values = known(values)
    return statistics.median(values) if values else math.nan


def best_peer(times):
    """The peer with the least median; None without peers."""
    there = [name for name in PEERS if known(times.get(name, []))]
    return min(there, key=lambda name: middle(times[name]), default=None)


class Ratio:
    """Theirs over ours, round by round where both took part."""

    def __init__(self, theirs, ours):
        self.values = sorted(a / b for a, b in zip(theirs, ours) if a is not None and b)
        self.median = statistics.median(self.values) if self.values else math.nan

    def __str__(self):
        if not self.values:
            return "-"
        return f"{self.median:.2f} ({self.values[0]:.2f} to {self.values[-1]:.2f})"


def ratio_of(point, ours=PLAIN, other="best"):
    """Of a point, or None when one of the two was not measured there."""
    times = point["times"]
    theirs = best_peer(times) if other == "best" else other
    if not known(times.get(ours, [])) or not known(times.get(theirs, [])):
        return None
    return Ratio(times[theirs], times[ours])


def key_of(point):
    return f"{point['path']} {point['ranks']} {point['coll']} {point['size']}"


def us_text(value):
    if math.isnan(value):
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


# ---- judgement ----

def ratios_of(points):
    """{key: ratio to the best peer} of all points that have one: what is kept."""
    found = {key_of(point): ratio_of(point) for point in points}
    return {key: round(ratio.median, 3) for key, ratio in found.items() if ratio}


def losses(points, kept):
    """[(point, ratio, kept ratio)] of the points that have lost more than is allowed."""
    lost = []
    for point in points:
        ratio, old = ratio_of(point), kept.get(key_of(point))
        if ratio and old and ratio.median < old * (1 - LOSS_MOST):
            lost.append((point, ratio.median, old))
    return lost


def judge(points):
    """Rows of the table of promises: [promise, points, least ratio, where, kept]."""
    rows = []
    for ours, other, path, ranks, colls, low, high, least in PROMISES:
        found = [(ratio.median, point) for point in points
                 if point["path"] == path and point["ranks"] in ranks
                 and (not colls or point["coll"] in colls) and low <= point["size"] <= high
                 for ratio in [ratio_of(point, ours, other)] if ratio]
        if not found:
            continue
        worst, where = min(found, key=lambda item: item[0])
        bar = EQUAL if least == 1.0 else least
        good = sum(value >= bar for value, _ in found)
        beside = {"best": "the best peer", PLAIN: "private buffers"}.get(other, LIMITS.get(other))
        sizes = f"{size_text(low)} to {size_text(high)}" if high > low else size_text(low)
        rows.append([", ".join(colls) or "all", path, " and ".join(map(str, ranks)), sizes,
                     OURS[ours], beside, f"{least:.2f}", f"{good} of {len(found)}",
                     f"{worst:.2f} at {size_text(where['size'])} ({where['coll']})"])
    return rows


# ---- the page ----

def names_of(points):
    """Contestants in their order, of those that were measured at all."""
    there = {name for point in points for name in point["times"] if known(point["times"][name])}
    return {name: text for group in (OURS, PEERS, LIMITS) for name, text in group.items()
            if name in there}


def point_row(point, names):
    peer = best_peer(point["times"])
    ratio = ratio_of(point)
    return ([size_text(point["size"])] +
            [us_text(middle(point["times"].get(name, []))) for name in names] +
            [PEERS.get(peer, "-"), str(ratio or "-")])


def groups_of(points):
    """{(path, ranks): {collective: [points by size]}}"""
    groups = {}
    for point in points:
        colls = groups.setdefault((point["path"], point["ranks"]), {})
        colls.setdefault(point["coll"], []).append(point)
    for colls in groups.values():
        for found in colls.values():
            found.sort(key=lambda point: point["size"])
    return groups


def tables_part(groups, name):
    lines = []
    for (path, ranks), colls in groups.items():
        title = f"{ranks} ranks, {PATH_NAMES[path]}"
        lines += [f"## {title}", ""]
        if any(point["size"] for points in colls.values() for point in points):
            lines += [f"![{title}: time over size]({drawing_name(name, path, ranks)})", ""]
        for coll, points in colls.items():
            names = names_of(points)
            lines += [f"### {coll}, {title}", ""]
            lines += table(["size"] + list(names.values()) + ["best peer", "best / XCCL"],
                           [point_row(point, names) for point in points])
    return lines


def record_part(points):
    """What counters and recorder cost: differences of the medians, in nanoseconds."""
    rows = []
    for point in points:
        times = point["times"]
        if known(times.get("xccl-no-record", [])):
            off, on = middle(times["xccl-no-record"]), middle(times[PLAIN])
            rows.append([str(point["ranks"]), point["coll"], size_text(point["size"]),
                         us_text(on), us_text(off), f"{1000 * (on - off):.0f} ns"])
    if not rows:
        return []
    return ["## Counters and recorder", "", "On, which is the default, beside `XCCL_RECORD=0`; us.",
            ""] + table(["ranks", "collective", "size", "on", "off", "cost"], rows)


def extras_part(extras):
    lines = []
    if extras.get("late"):
        rows = [[str(row["ranks"]), f"{row['late_us'] / 1000:g} ms", f"{row['cost_us']:.2f} us",
                 f"{100 * row['cpu_part']:.0f} %"] for row in extras["late"]]
        lines += ["## A late rank", "",
                  "All-reduce of 8 B. `cost` is the time from the late rank's coming to the return "
                  "of the slowest of the others, `cpu`", "what one of them uses of a core while it "
                  "waits.", ""]
        lines += table(["ranks", "late by", "cost", "cpu"], rows)
    if extras.get("idle"):
        row = extras["idle"]
        lines += [f"An idle communicator of {row['ranks']} ranks uses "
                  f"{100 * row['cpu_part']:.4f} % of a core in each process (promised: below "
                  "0.1 %).", ""]
    if extras.get("one"):
        lines += [f"A call on a communicator of one rank takes {extras['one']['call_ns']:.1f} ns "
                  "(promised: 40 ns).", ""]
    return lines


def drawing_name(name, path, ranks):
    return f"{name}-{path}-{ranks}.svg"


def lines_of(colls):
    """What plot_lines reads: a panel for each collective, ours as lines, others dashed."""
    names = names_of([point for points in colls.values() for point in points])
    out = []
    for coll, points in colls.items():
        for who, text in names.items():
            dash = "" if who in OURS else "~"
            for point in points:
                value = middle(point["times"].get(who, []))
                if point["size"] and not math.isnan(value):
                    out.append(f"{coll}: time of one call, us\t{dash}{text}\t{point['size']}\t"
                               f"{value:.6g}")
    return out


def head_part(found):
    machine = found["machine"]
    rounds = found["rounds"]
    return ["# XCCL beside its peers on host memory", "",
            f"Made by `{found['command']}` on {found['date']} from the release build; the same "
            "command repeats it.",
            "Float, sum. All contestants take turns, a group of calls each, in an order drawn anew "
            f"for each of {rounds} rounds;",
            "those not at work sleep. A time is that of one call on the slowest rank in "
            "microseconds, the median of the rounds.",
            "Every contestant's result was checked. `best / XCCL` is the best peer's time over "
            "that of XCCL as processes with",
            "private buffers, round by round: median (lowest to highest), above 1 XCCL is quicker. "
            "A size is that of the larger",
            "buffer; all is out of place but broadcast, which MPI has in place only. Private "
            "memory is taken anew for each",
            "three rounds.", "",
            "| | |", "| --- | --- |",
            f"| machine | {machine['cores']} cores, {machine['processor']}, {machine['memory']} |",
            f"| system | {machine['system']} {machine['release']}, congestion control "
            f"{machine['congestion']} |",
            f"| versions | {', '.join(found['versions'])} |",
            f"| cores | {found['pinned']} |",
            f"| seed | {found['seed']} |",
            f"| time | {found['minutes']:.0f} minutes, {rounds} rounds"
            + (f"; not to its end: {found['stopped']}" if found.get("stopped") else "") + " |",
            f"| others | used {100 * found['others']:.0f} % of the machine meanwhile; the load was "
            f"{found['loads'][0]:.0f} before and {found['loads'][1]:.0f} after |", ""]


def promises_part(points):
    rows = judge(points)
    if not rows:
        return []
    return ["## What is promised", "", "`kept`: at how many of the sizes measured; `not slower` is "
            f"from {EQUAL} on.", ""] + table(
                ["collective", "path", "ranks", "sizes", "of", "beside", "at least", "kept",
                 "least"], rows)


def page(found, name):
    groups = groups_of(found["points"])
    lines = head_part(found) + promises_part(found["points"]) + extras_part(found["extras"])
    lines += record_part(found["points"]) + tables_part(groups, name)
    return "\n".join(lines).rstrip() + "\n"


def write(found, folder, name, draw):
    """The page, and by draw(title, note, lines, file) a drawing for each path and number of
    ranks."""
    os.makedirs(folder, exist_ok=True)
    for (path, ranks), colls in groups_of(found["points"]).items():
        lines = lines_of(colls)
        if lines:
            draw(f"{ranks} ranks, {PATH_NAMES[path]}: XCCL (lines) beside peers (dashes)",
                 found["command"], lines, os.path.join(folder, drawing_name(name, path, ranks)))
    with open(os.path.join(folder, name + ".md"), "w", encoding="utf-8") as file:
        file.write(page(found, name))
