#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Brings tests/times.txt up to date from a run of tests: how long each takes, how much work it is.

    XT_RESULTS=RESULTS ctest --test-dir build/release -j 3 > OUTPUT
    ci/test_times.py OUTPUT RESULTS [NAME...]    rows of all tests of the run, or of these

The wall time is ctest's, the processor time the harness's. ctest orders the tests by them and runs
side by side what leaves cores idle; ci/select_tests.py keeps ci/check short by them. The run must
not have drawn a share of a test's cases. Needs python3-minimal only.
"""
import os
import re
import sys

PAGE = "tests/times.txt"
HEAD = """# SPDX-License-Identifier: BSD-3-Clause
# Measured times of whole test programs on two cores: name, seconds of wall time, seconds of
# processor time. ci/test_times.py writes this file and says how. No row: under a second.
"""
ENDED = re.compile(r" Test +#\d+: (\S+) .*?([0-9.]+) sec$")


def read_rows(path):
    """{test: (wall s, processor s)}"""
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if len(words) == 3:
                rows[words[0]] = (float(words[1]), float(words[2]))
    return rows


def read_wall(path):
    """{test: s}"""
    wall = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            ended = ENDED.search(line.rstrip())
            if ended and "(Disabled)" not in line:
                wall[ended.group(1)] = float(ended.group(2))
    return wall


def read_processor(path):
    """{program: s}"""
    processor = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.rstrip("\n").split("\t")
            processor[words[0]] = processor.get(words[0], 0.0) + int(words[5]) / 1000
    return processor


def main(arguments):
    if len(arguments) < 2:
        print(__doc__)
        return 2
    wall, processor = read_wall(arguments[0]), read_processor(arguments[1])
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    rows = read_rows(PAGE) if os.path.exists(PAGE) else {}
    # Tests that run one program in several settings share its processor time.
    program = {test: max((name for name in processor if test.startswith(name)), key=len,
                         default=None) for test in wall}
    for test in arguments[2:] or wall:
        if program.get(test) and not test.endswith("_cuda"):
            runs = sum(1 for other in wall if program[other] == program[test] and
                       not other.endswith("_cuda"))
            rows[test] = (wall[test], processor[program[test]] / runs)
    with open(PAGE, "w", encoding="utf-8") as out:
        out.write(HEAD)
        for test, (seconds, work) in sorted(rows.items()):
            if seconds >= 1:
                out.write(f"{test:<32}{seconds:8.1f}{work:8.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
