#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes tests/times.txt from a run of all tests: how long each takes, and how much work it is.

    rm -f RESULTS build/release/Testing/Temporary/CTestCostData.txt
    XT_RESULTS=RESULTS ctest --test-dir build/release -j 3
    ci/test_times.py build/release RESULTS

The wall time is ctest's, the processor time the harness's. ctest orders the tests by them and runs
side by side what leaves cores idle; ci/select_tests.py keeps ci/check short by them. A new test
needs no row until it takes more than some seconds. Needs python3-minimal only.
"""
import os
import sys

HEAD = """# SPDX-License-Identifier: BSD-3-Clause
# Measured times of whole test programs on two cores: name, seconds of wall time, seconds of
# processor time. ci/test_times.py writes this file and says how. No row: under a second.
"""


def read_wall(path):
    """{test: s}; the file ends with a line of dashes and the failed tests."""
    wall = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if len(words) == 3:
                wall[words[0]] = float(words[2])
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
    if len(arguments) != 2:
        print(__doc__)
        return 2
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    wall = read_wall(os.path.join(arguments[0], "Testing/Temporary/CTestCostData.txt"))
    processor = read_processor(arguments[1])
    # Tests that run one program in several settings share its processor time.
    program = {test: max((name for name in processor if test.startswith(name)), key=len,
                         default=None) for test in wall}
    with open("tests/times.txt", "w", encoding="utf-8") as out:
        out.write(HEAD)
        for test in sorted(wall):
            name = program[test]
            runs = sum(1 for other in wall if program[other] == name and wall[other] >= 0.5)
            if name and wall[test] >= 1 and not test.endswith("_cuda"):
                out.write(f"{test:<32}{wall[test]:8.1f}{processor[name] / max(runs, 1):8.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
