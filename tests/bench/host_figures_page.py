# SPDX-License-Identifier: BSD-3-Clause
"""What must cross the cards of hosts, and the tables of host_figures: pure, of figures that were
taken.

A place is a list: the host of each rank. A point is one call on a place: its collective and size,
and for each contestant the times of its rounds in microseconds of the slowest rank, and the bytes
that a call moved over each card. The wire's limit of a call is the greatest time over hosts of what
must cross the host's card in its busier direction."""
import random
import statistics

from socket_figures_page import table

NEAR, MOST, SHARE = 1.25, 1.5, 0.95  # of the limit: most points, all points, how many are most
ORDERS = ["block", "round", "random"]
ORDER_NAMES = {"block": "block", "round": "round-robin", "random": "random"}
# Calls of one size N that have as many bytes for each rank as 16-byte blocks allow.
BLOCKS = {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"}
WORD = 4  # bytes of a float


# ---- places ----

def read_hosts(text):
    """[ranks of each host] of "3+1" """
    counts = [int(word) for word in text.split("+")]
    if len(counts) < 2 or min(counts) < 1:
        raise ValueError(f"{text}: two hosts or more, each with a rank")
    return counts


def place_of(counts, order, seed):
    block = [host for host, count in enumerate(counts) for _ in range(count)]
    if order == "random":
        random.Random(f"{seed} {counts}").shuffle(block)
    if order == "round":
        block = [host for turn in range(max(counts)) for host, count in enumerate(counts)
                 if turn < count]
    return block


def size_of(coll, size, ranks):
    """The bytes that a call of so many is made with: whole blocks for each rank."""
    if coll not in BLOCKS:
        return size // WORD * WORD
    return size // ranks // 16 * 16 * ranks


# ---- the limit ----

def must_cross(coll, size, place):
    """Bytes for each host that its card must move in its busier direction. The root is rank 0.
    All-reduce: its halves split evenly over the hosts, as is best where cards are equal."""
    ranks, hosts = len(place), max(place) + 1
    shares = [place.count(host) / ranks for host in range(hosts)]
    if coll == "all_reduce":
        return [2 * size * (hosts - 1) / hosts] * hosts
    if coll in ("all_gather", "reduce_scatter"):
        return [size * (1 - share) for share in shares]
    if coll in ("broadcast", "reduce"):
        return [size] * hosts
    if coll in ("gather", "scatter"):
        return [size * (1 - share if host == place[0] else share)
                for host, share in enumerate(shares)]
    if coll == "alltoall":
        return [size * ranks * share * (1 - share) for share in shares]
    return [0] * hosts


def limit_us(point):
    """rates: payload bytes per second of each host's cards."""
    return max(1e6 * most / rate for most, rate in zip(
        must_cross(point["coll"], point["size"], point["place"]), point["rates"]))


def moved_share(point, moved):
    """The time that the bytes of a call need on the busiest card, over the limit. Counters have the
    headers of a segment once for up to 64 KiB, so they add next to nothing."""
    rails = len(moved) // len(point["rates"])
    slowest = max(1e6 * max(both) / (point["rates"][i // rails] / rails)
                  for i, both in enumerate(moved))
    return slowest / limit_us(point)


def middle(values):
    return statistics.median(values)


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


class Share:
    """One contestant at one point, against the limit."""

    def __init__(self, point, who):
        found = point["who"][who]
        self.limit = limit_us(point)
        self.median = middle(found["us"])
        self.low, self.high = quartiles(found["us"])
        self.ratio = self.median / self.limit if self.limit else 0.0
        self.moved = moved_share(point, found["moved"]) if self.limit else 0.0


# ---- tables ----

def hosts_text(point):
    return "+".join(str(point["place"].count(host)) for host in range(max(point["place"]) + 1))


def size_text(size):
    """As it was asked for: whole blocks for each rank may be a little less."""
    for unit, bytes_of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= 0.99 * bytes_of:
            return f"{size / bytes_of:.3g} {unit}"
    return f"{size} B"


def name_of(point):
    return f"{hosts_text(point)} {ORDER_NAMES[point['order']]}, {point['coll']} " \
           f"{size_text(point['size'])}"


def names_of(points):
    names = {}
    for point in points:
        names.update(dict.fromkeys(point["who"]))
    return list(names)


def ms_text(us):
    return f"{us / 1000:.4g}"


def point_rows(points):
    rows = []
    for point in points:
        for who in point["who"]:
            share = Share(point, who)
            rows.append([hosts_text(point), ORDER_NAMES[point["order"]], point["coll"],
                         size_text(point["size"]), who, ms_text(share.limit),
                         ms_text(share.median), f"{ms_text(share.low)} to {ms_text(share.high)}",
                         f"{share.ratio:.2f}", f"{share.moved:.2f}"])
    return rows


def points_part(points):
    return table(["ranks of hosts", "order", "collective", "size", "who", "limit ms", "median ms",
                  "quartiles ms", "median / limit", "bytes / least bytes"], point_rows(points))


def ratios_of(point, who, other):
    """Round by round, in order; above 1 the second takes longer."""
    return sorted(b / a for a, b in zip(point["who"][who]["us"], point["who"][other]["us"]))


def beside_part(points, who, other):
    """Two contestants side by side."""
    rows = []
    for point in points:
        if who in point["who"] and other in point["who"]:
            us = [middle(point["who"][name]["us"]) for name in (who, other)]
            ratios = ratios_of(point, who, other)
            low, high = quartiles(ratios)
            rows.append([hosts_text(point), ORDER_NAMES[point["order"]], point["coll"],
                         size_text(point["size"]), f"{us[0]:.1f}", f"{us[1]:.1f}",
                         f"{middle(ratios):.2f} ({low:.2f} to {high:.2f})"])
    return table(["ranks of hosts", "order", "collective", "size", f"{who}, us", f"{other}, us",
                  f"{other} / {who} (quartiles)"], rows)


# ---- judgement ----

def judge(points, who):
    """(points, those near the limit, those above what is allowed, worst ratio, its point)"""
    shares = [(Share(point, who).ratio, i) for i, point in enumerate(points) if who in point["who"]]
    shares = [(ratio, i) for ratio, i in shares if ratio]
    if not shares:
        return 0, 0, 0, 0.0, None
    worst, at = max(shares)
    return (len(shares), sum(ratio <= NEAR for ratio, _ in shares),
            sum(ratio > MOST for ratio, _ in shares), worst, points[at])


def is_kept(points, who):
    count, near, above, _, _ = judge(points, who)
    return bool(count) and near >= SHARE * count and not above


def last_line(points, who):
    count, near, above, worst, point = judge(points, who)
    if not count:
        return f"{who}: no points with a limit"
    return (f"{who}: {near} of {count} points within {NEAR} times the wire's limit, {above} above "
            f"{MOST}, worst {worst:.2f}: {name_of(point)}")


def beside_line(points, who, other):
    ratios = [(middle(ratios_of(point, who, other)), i)
              for i, point in enumerate(points) if who in point["who"] and other in point["who"]]
    if not ratios:
        return f"{other} / {who}: no points"
    worst, at = max(ratios)
    mean = statistics.geometric_mean(ratio for ratio, _ in ratios)
    return (f"{other} / {who}: {mean:.3f} as the geometric mean of {len(ratios)} points, worst "
            f"{worst:.2f}: {name_of(points[at])}")


# ---- the page ----

def head_part(found):
    machine = found["machine"]
    lines = ["# Collectives between hosts, beside the wire's limit", "",
             f"Made by `{found['command']}` on {found['date']}. Hosts are network namespaces on a "
             "switch, each with",
             f"{found['rails']} card{'s' if found['rails'] > 1 else ''} of {found['mbit']:g} "
             "Mbit/s in each direction (token buckets). A time is that of one call on the slowest",
             "rank, the mean of a group of calls back to back; median and quartiles are of "
             f"{found['rounds']} rounds, in which all contestants take turns.",
             "`bytes / least bytes`: of the busiest card, over those that must cross.", "",
             "| | |", "| --- | --- |",
             f"| machine | {machine['cores']} cores, {machine['processor']}, {machine['memory']}, "
             f"{machine['system']} {machine['release']} |",
             f"| versions | {', '.join(found['versions'])} |", f"| seed | {found['seed']} |"]
    if found["slow"] is not None:
        lines.append(f"| slow | host {found['slow']} has half of the rate |")
    if found["notes"]:
        lines += [f"| note | {note} |" for note in found["notes"]]
    return lines + [f"| time | {found['minutes']:.1f} minutes; the load was "
                    f"{found['loads'][0]:.0f} before and {found['loads'][1]:.0f} after |", ""]


def page(found):
    points, names = found["points"], names_of(found["points"])
    lines = head_part(found)
    if found["compare"]:
        lines += beside_part(points, *found["compare"])
        return "\n".join(lines + [beside_line(points, *found["compare"])]) + "\n"
    lines += points_part(points)
    return "\n".join(lines + [last_line(points, who) for who in names]) + "\n"
