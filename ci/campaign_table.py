#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a table of rounds of the campaign (tests/fault/campaign), which XT_FIGURES has collected.

    ci/campaign_table.py FILE...    a line for each fault and transport
    ci/campaign_table.py --self-test

A line of a file is a round: seed, fault, transport, ranks, calls, bad, seconds of the longest
destroy after an error, then seconds from the deed to the error of each rank that had one. bad:
findings of the judge. Needs python3-minimal only.
"""
import sys

HEAD = f"{'fault':16} {'over':8} {'rounds':>6} {'bad':>4} {'calls':>8} {'errors':>6} " \
    f"{'median':>7} {'99 %':>7} {'longest':>7} {'destroy':>7}"


def read_rounds(lines):
    """{(fault, transport): [rounds, bad, calls, destroy, [seconds]]}"""
    rows = {}
    for line in lines:
        words = line.rstrip("\n").split("\t")
        if len(words) < 7:
            continue
        row = rows.setdefault((words[1], words[2]), [0, 0, 0, 0.0, []])
        row[0] += 1
        row[1] += int(words[5]) > 0
        row[2] += int(words[4])
        row[3] = max(row[3], float(words[6]))
        row[4] += [float(word) for word in words[7:]]
    return rows


def quantile(values, share):
    """The value below which this share lies, of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def format_rows(rows):
    lines = [HEAD]
    for (fault, transport), (rounds, bad, calls, destroy, seconds) in sorted(rows.items()):
        seconds.sort()
        times = " ".join(f"{value:7.3f}" for value in (
            quantile(seconds, 0.5), quantile(seconds, 0.99), seconds[-1])) if seconds else ""
        lines.append(f"{fault:16} {transport:8} {rounds:6} {bad:4} {calls:8} {len(seconds):6} "
                     f"{times:23} {destroy:7.3f}")
    total = [sum(row[i] for row in rows.values()) for i in range(3)]
    lines.append(f"{'all':16} {'':8} {total[0]:6} {total[1]:4} {total[2]:8} "
                 f"{sum(len(row[4]) for row in rows.values()):6}")
    return lines


def self_test():
    lines = ["0x1\ta kill\ttcp\t3\t100\t0\t0.0100\t0.0300\t0.0100\n",
             "0x2\ta kill\ttcp\t2\t50\t1\t0.0200\t0.0200\n",
             "0x3\tnothing\tshm\t2\t800\t0\t0.0000\n", "cut off"]
    rows = read_rounds(lines)
    assert rows[("a kill", "tcp")] == [2, 1, 150, 0.02, [0.03, 0.01, 0.02]]
    out = format_rows(rows)
    assert out[1].split() == ["a", "kill", "tcp", "2", "1", "150", "3", "0.020", "0.030", "0.030",
                              "0.020"], out[1]
    assert out[2].split() == ["nothing", "shm", "1", "0", "800", "0", "0.000"], out[2]
    assert out[3].split() == ["all", "3", "1", "950", "3"]


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    lines = []
    for path in sys.argv[1:]:
        with open(path, encoding="ascii") as file:
            lines += file.readlines()
    print("\n".join(format_rows(read_rounds(lines))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
