#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Are the files and functions that core/README.md names really there?

Each row of its table of steps names files and functions in backquotes; every function must occur
in one of the row's files. Other files that the page names must exist. Prints what is not so.
"""
import os
import re
import sys

CORE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "core")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    page = read(os.path.join(CORE, "README.md"))
    bad = []
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \| (.*) \|$", page, re.M)
    if len(rows) != 10:
        bad.append(f"{len(rows)} steps in the table; it promises ten")
    for number, files, functions in rows:
        paths = [os.path.join(CORE, name) for name in re.findall(r"`([^`]+)`", files)]
        missing = [path for path in paths if not os.path.isfile(path)]
        if missing:
            bad.append(f"step {number}: there is no {', '.join(missing)}")
            continue
        text = "".join(read(path) for path in paths)
        for name in re.findall(r"`([^`]+)`", functions):
            if not re.search(rf"\b{re.escape(name)}\(", text):
                bad.append(f"step {number}: {name} is not in {files}")
    for name in re.findall(r"`((?:[a-z]+/)+[a-z_]+\.[ch])`", page):
        root = os.path.dirname(CORE) if name.startswith("plugins/") else CORE
        if not os.path.isfile(os.path.join(root, name)):
            bad.append(f"there is no {name}")
    for line in bad:
        print("core/README.md: " + line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
