#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Chooses which tests of a build ci/check runs, and says which it leaves to ci/nightly.

    ci/select_tests.py BUILD_FOLDER release|asan|tsan   lines `regex TEXT`, `whole NAMES`,
                                                        `share K/N`, `note: TEXT`
    ci/select_tests.py --touched                        the programs that belong to touched files
    ci/select_tests.py --belongs                        source files without a row in belongs.txt
    ci/select_tests.py --self-test

Touched is what the last 40 commits changed, and what is not committed; not a file that only moved,
and not what a commit of .git-blame-ignore-revs changed. tests/belongs.txt says which programs
belong to a file; they run whole, always.
release: unit, fault, sanity, sim, fuzz and cuda whole; of the rest one share of N, by XT_SEED.
asan, tsan: unit and sanity whole; of the rest only what was touched.
N is 3, or more where the measured times of tests/times.txt would not fit into the budget below.
Needs python3-minimal only.
"""
import fnmatch
import json
import os
import subprocess
import sys

COMMITS = 40
IGNORED = ".git-blame-ignore-revs"
ALWAYS = {"release": {"unit", "fault", "sanity", "sim", "fuzz", "cuda"},
          "asan": {"unit", "sanity"}, "tsan": {"unit", "sanity"}}
DRAWN = {"collective", "path", "tools", "emu"}
# Seconds that the tests of release and of one sanitizer may take together on two cores, by the
# measured times of the release build; a sanitizer takes as many times longer.
BUDGET_S = 850
SANITIZER_FACTOR = 1.6
CORES = 2
LEAST_SHARES = 3
MOST_SHARES = 30


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def read_belongs(text):
    """[(patterns, programs)] in the order of the file."""
    lines = []
    for line in text.split("\n"):
        line = line.split("#")[0].rstrip()
        if line.startswith(" ") and lines:
            lines[-1] += line
        elif line:
            lines.append(line)
    rows = []
    for line in lines:
        patterns, _, programs = line.partition(":")
        rows.append((patterns.split(), [name for name in programs.split() if name != "-"]))
    return rows


def programs_of(path, rows):
    """The programs that belong to a file; None where no row matches."""
    name = os.path.basename(path)
    for patterns, programs in rows:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            own = name[:-2] if name.startswith("test_") and name.endswith(".c") else None
            return programs + ([own] if own else [])
    return None


def changed_files():
    """Paths that the last commits and the work tree changed, without those that only moved."""
    ignored = set(read_file(IGNORED).split()) if os.path.exists(IGNORED) else set()
    log = run("git", "log", "--first-parent", f"--max-count={COMMITS}", "-M", "--name-status",
              "--format=commit\t%H")
    # First the work tree, which is no commit's.
    return changed_paths(run("git", "diff", "--name-status", "-M", "HEAD") + log, ignored) + \
        run("git", "ls-files", "-o", "--exclude-standard").split("\n")


def changed_paths(log, ignored):
    """The paths of a log of name-status lines, without those of the commits to be ignored."""
    paths, skip = [], False
    for line in log.split("\n"):
        words = line.split("\t")
        if words[0] == "commit":
            skip = words[1] in ignored
        elif len(words) > 1 and words[0] != "R100" and not skip:
            paths.append(words[-1])
    return paths


def is_source(path):
    if path.startswith("ci/vm/"):
        return not path.endswith(".md")
    return path.split("/")[0] in ("core", "plugins", "tools", "tests", "examples") and \
        path.endswith((".c", ".h", ".cu", ".cpp", ".def"))


def touched_programs(rows):
    found = set()
    for path in changed_files():
        if is_source(path):
            found.update(programs_of(path, rows) or [])
    return found


def read_times(text):
    """{program: (wall s, processor s)}"""
    times = {}
    for line in text.split("\n"):
        words = line.split("#")[0].split()
        if len(words) == 3:
            times[words[0]] = (float(words[1]), float(words[2]))
    return times


def cost_s(name, times):
    """Seconds that a test takes of a machine that runs others beside it."""
    wall, processor = times.get(name, (1.0, 1.0))
    return max(processor / CORES, wall / (3 * CORES))


def whole_of(tests, kind, touched):
    return {name for name, label in tests.items()
            if label in ALWAYS[kind] or (name in touched and label in DRAWN | {"fault"})}


def shares_for(whole, sanitized, drawn, times):
    left = BUDGET_S - sum(cost_s(name, times) for name in whole) - \
        SANITIZER_FACTOR * sum(cost_s(name, times) for name in sanitized)
    total = sum(cost_s(name, times) for name in drawn)
    shares = LEAST_SHARES
    while shares < MOST_SHARES and total / shares > left:
        shares += 1
    return shares


def choose(tests, kind, touched, times, seed):
    """tests: {name: label}. Returns lines to print."""
    whole = whole_of(tests, kind, touched)
    rest = sorted(name for name, label in tests.items()
                  if name not in whole and label in DRAWN | {"fault", "sim"})
    drawn = [name for name in rest if kind == "release"]
    lines = [f"whole {' '.join(sorted(whole))}"]
    lately = sorted(name for name in whole if tests[name] not in ALWAYS[kind])
    lines.append("note: whole, because touched lately: " + (" ".join(lately) or "none"))
    if drawn:
        shares = shares_for(whole, whole_of(tests, "asan", touched), drawn, times)
        lines.append(f"share {seed % shares}/{shares}")
        lines.append(f"note: night: {shares - 1} of {shares} cases of " + " ".join(drawn))
    elif rest:
        lines.append("note: night: all of " + " ".join(rest))
    lines.append("regex ^(" + "|".join(sorted(whole) + drawn) + ")$")
    return lines


def read_tests(folder):
    text = run("ctest", "--test-dir", folder, "--show-only=json-v1")
    tests = {}
    for test in json.loads(text)["tests"]:
        labels = [item["value"] for item in test["properties"] if item["name"] == "LABELS"]
        tests[test["name"]] = labels[0][0] if labels else ""
    return tests


def read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_row(paths, rows):
    return [path for path in paths if is_source(path) and programs_of(path, rows) is None]


def self_test():
    rows = read_belongs("# head\na_x.c: t_x\na_*: t_a\n    t_b\nb.[ch]: -\ntest_*.c: -\n")
    tests = {"u": "unit", "t_x": "tools", "t_a": "path", "f": "fault", "other": ""}
    times = read_times("t_x 10 10\nt_a 2000 10\n")
    checks = [
        (programs_of("core/q/a_x.c", rows), ["t_x"]),
        (programs_of("a_y.h", rows), ["t_a", "t_b"]),
        (programs_of("b.c", rows), []),
        (programs_of("c.c", rows), None),
        (programs_of("tests/path/test_a.c", rows), ["test_a"]),
        (without_row(["core/c.c", "core/b.c", "README.md", "ci/c.c"], rows), ["core/c.c"]),
        (cost_s("t_x", times), 5.0), (cost_s("t_a", times), 2000 / 6), (cost_s("new", times), 0.5),
        (shares_for([], [], ["t_x"], times), 3), (shares_for([], [], ["t_a"] * 9, times), 4),
        (shares_for(["t_a"] * 3, [], ["t_x"], times), MOST_SHARES),
        (shares_for([], ["t_a"], ["t_a"] * 9, times), 10),
        (choose(tests, "release", {"t_x"}, times, 4),
         ["whole f t_x u", "note: whole, because touched lately: t_x", "share 1/3",
          "note: night: 2 of 3 cases of t_a", "regex ^(f|t_x|u|t_a)$"]),
        (choose(tests, "tsan", {"t_x"}, times, 4),
         ["whole t_x u", "note: whole, because touched lately: t_x",
          "note: night: all of f t_a", "regex ^(t_x|u)$"]),
    ]
    log = "commit\tA\n\nM\ta.c\nR100\tb.c\tq/b.c\nR090\tc.c\tq/c.c\ncommit\tB\n\nM\td.c\n"
    checks += [(changed_paths(log, {"B"}), ["a.c", "q/c.c"]),
               (changed_paths("M\te.c\n" + log, {"A"}), ["e.c", "d.c"])]
    failed = [(got, want) for got, want in checks if got != want]
    for got, want in failed:
        print(f"self-test: got {got}, want {want}")
    print(f"select_tests self-test: {len(checks)} cases, {len(failed)} failed")
    return 1 if failed else 0


def main(arguments):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if arguments == ["--self-test"]:
        return self_test()
    rows = read_belongs(read_file("tests/belongs.txt"))
    if arguments == ["--touched"]:
        print("\n".join(sorted(touched_programs(rows))))
        return 0
    if arguments == ["--belongs"]:
        paths = run("git", "ls-files", "-co", "--exclude-standard").split("\n")
        missing = without_row([path for path in paths if os.path.isfile(path)], rows)
        for path in missing:
            print(f"{path}: belongs: no row of tests/belongs.txt matches its name; add it to one")
        return 1 if missing else 0
    if len(arguments) != 2 or arguments[1] not in ALWAYS:
        print(__doc__)
        return 2
    folder, kind = arguments
    seed = int(os.environ.get("XT_SEED") or "0", 0)
    times = read_times(read_file("tests/times.txt"))
    for line in choose(read_tests(folder), kind, touched_programs(rows), times, seed):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
