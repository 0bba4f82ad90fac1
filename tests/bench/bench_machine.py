# SPDX-License-Identifier: BSD-3-Clause
"""The machine of a page of figures: what it is, how much of it others used, and preference over
them."""
import os
import platform
import sys


def value_of(path, key):
    """Of a line "key : value"; "" when there is none."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    return ""


def machine():
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        control = file.read().strip()
    memory = value_of("/proc/meminfo", "MemTotal").split()
    return {"processor": value_of("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "memory": f"{round(int(memory[0]) / (1 << 20))} GiB" if memory else "",
            "system": platform.system(), "release": platform.release(), "congestion": control}


def prefer():
    """The scheduler's preference for all that is started from here on."""
    try:
        os.setsid()
    except PermissionError:
        pass  # it leads a group already
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write("-20")
    except OSError as error:
        print(f"# --prefer: {error}", file=sys.stderr)


class Load:
    """Processor time that others have used since it was made, as a part of the machine."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        return sum(ticks), ticks[3] + ticks[4], own

    def others(self):
        total, idle, own = (b - a for a, b in zip(self.begin, self.now()))
        return max(0.0, (total - idle - own) / max(1, total))
