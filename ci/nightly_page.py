#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Keeps tests/bench/results/nightly.md: the newest run of each part of ci/nightly, one row a part.

    ci/nightly_page.py PART... = PART RESULT SECONDS LOG   the parts in order, then the run to note
    ci/nightly_page.py --self-test

RESULT is `passed` or `failed`. The row says on which commit the part ran, and its last summary
line. A part that was never run says so. Needs python3-minimal only.
"""
import os
import re
import subprocess
import sys
import time

PAGE = "tests/bench/results/nightly.md"
HEAD = """# Nightly results

The newest run of each part of `ci/nightly`, written by `ci/nightly` itself. Parts may run on
different days and commits. "changed" after a commit: the work tree had changes that were not
committed.

| part | result | commit | date (UTC) | minutes | processor | last summary line |
| --- | --- | --- | --- | ---: | --- | --- |
"""
NEVER = "| {} | never run | | | | | |"
SUMMARY = re.compile(r"\d+ passed, \d+ failed|tests passed, \d+ tests failed|passed in \d+ s|"
                     r"\d+ of \d+ points within")


def read_rows(text):
    """{part: line}"""
    rows = {}
    for line in text.split("\n"):
        words = line.split("|")
        if len(words) > 2 and words[1].strip() not in ("part", "---", ""):
            rows[words[1].strip()] = line
    return rows


def page(parts, rows):
    return HEAD + "".join(rows.get(part, NEVER.format(part)) + "\n" for part in parts)


def summary(log):
    lines = [line.strip() for line in log.split("\n") if SUMMARY.search(line)]
    return lines[-1].replace("|", "/")[:120] if lines else ""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    name = run("git", "rev-parse", "--short", "HEAD") or "no git"
    changed = [line for line in run("git", "status", "--porcelain").split("\n")
               if line and not line.endswith(PAGE)]
    return name + (", changed" if changed else "")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else f"{os.cpu_count()} cores"


def self_test():
    old = page(["a", "b"], {"b": "| b | passed | 12 | d | 1 | p | s |"})
    new = read_rows(old)
    new["a"] = "| a | failed | 13 | d | 1 | p | s |"
    checks = [
        (old.split("\n")[-3:], ["| a | never run | | | | | |",
                                "| b | passed | 12 | d | 1 | p | s |", ""]),
        (page(["b", "a", "c"], new).split("\n")[-4:-1],
         ["| b | passed | 12 | d | 1 | p | s |", "| a | failed | 13 | d | 1 | p | s |",
          "| c | never run | | | | | |"]),
        (summary("x\n3 passed, 0 failed\n 4 passed, 1 failed, 2 skipped\ny\n"),
         "4 passed, 1 failed, 2 skipped"),
        (summary("xccl: 3 of 4 points within 1.25\n"), "xccl: 3 of 4 points within 1.25"),
        (summary("nothing\n"), ""),
    ]
    failed = [(got, want) for got, want in checks if got != want]
    for got, want in failed:
        print(f"self-test: got {got}, want {want}")
    print(f"nightly_page self-test: {len(checks)} cases, {len(failed)} failed")
    return 1 if failed else 0


def main(arguments):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if arguments == ["--self-test"]:
        return self_test()
    if "=" not in arguments or len(arguments) - arguments.index("=") != 5:
        print(__doc__)
        return 2
    at = arguments.index("=")
    parts, (part, result, seconds, log) = arguments[:at], arguments[at + 1:]
    rows = {}
    if os.path.exists(PAGE):
        with open(PAGE, encoding="utf-8") as file:
            rows = read_rows(file.read())
    with open(log, encoding="utf-8", errors="replace") as file:
        last = summary(file.read())
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    rows[part] = (f"| {part} | {result} | {commit()} | {date} | {int(seconds) / 60:.0f} | "
                  f"{processor()} | {last} |")
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page(parts, rows))
    print(f"{PAGE}: {rows[part]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
