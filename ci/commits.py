#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the messages of the commits since the one from which the rules hold.

    ci/commits.py              exit status 1: a commit breaks a rule
    ci/commits.py FROM         the commits after FROM instead
    ci/commits.py --self-test  the rules on the commits of a temporary repository

The rules:
  - a title has at most 60 characters and reads `area: what it does now`;
  - the area is a folder that is there in the commit or its parent, by its path (core/comm) or its
    last name (comm); it is `tree` if the changed files have no folder in common;
  - a commit that changes a .c file has a body. Trailers (Signed-off-by: and the like) are none.
Merges are not looked at. Nothing is, where git, the history or the first commit is not there, as in
a tarball or a shallow clone. A finding reads `commit "title": what is wrong; what to do`.
"""
import os
import re
import subprocess
import sys
import tempfile

# The rules hold for what comes after it.
BASE = "4b2b82efbc59fc97a17f42916f84026b3a4707b8"
MAX_TITLE = 60
WHOLE_TREE = "tree"
TITLE = re.compile(r"([^\s:]+): \S")
TRAILER = re.compile(r"([A-Z][a-z]+(-[a-z]+)*-(by|to)|Change-Id|Fixes|Closes|Refs|Link|Cc): ")


def git(*arguments):
    """What git prints, or None when it fails or is not there."""
    try:
        run = subprocess.run(["git", *arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    return run.stdout.decode("utf-8", "replace") if run.returncode == 0 else None


def folders_of(commit):
    """Paths and last names of all folders of a commit; none when there is no such commit."""
    paths = (git("ls-tree", "-r", "-d", "--name-only", commit) or "").split("\n")
    return set(paths) | {os.path.basename(path) for path in paths}


def has_body(lines):
    return any(line.strip() and not TRAILER.match(line) for line in lines)


def check_area(commit, area, changed):
    if area == WHOLE_TREE:
        top = os.path.commonpath([os.path.join("/", os.path.dirname(path)) for path in changed]
                                 or ["/"])
        if top != "/":
            yield f"all files are in {top[1:]}; name that folder instead of `{WHOLE_TREE}`"
    elif area not in folders_of(commit) and area not in folders_of(commit + "^"):
        yield (f"`{area}` is no folder of the tree; begin with the folder, as `core/comm: ` or "
               "`comm: `")


def check_commit(commit):
    """What is wrong with one commit: (title, text) pairs."""
    lines = git("show", "--no-patch", "--format=%B", commit).rstrip().split("\n")
    shown = git("-c", "core.quotePath=false", "diff-tree", "--root", "--no-commit-id",
                "--no-renames", "--name-only", "-r", commit)
    changed = shown.split("\n")[:-1]
    title = lines[0]
    if len(title) > MAX_TITLE:
        yield title, f"a title of {len(title)} characters, {MAX_TITLE} are allowed; shorten it"
    match = TITLE.match(title)
    if not match:
        yield title, "no area; write `area: what it does now`, the area being a folder"
    else:
        for text in check_area(commit, match.group(1), changed):
            yield title, text
    if any(path.endswith(".c") for path in changed) and not has_body(lines[1:]):
        yield title, "a .c file changes and there is no body; say why and how it was checked"


def check_since(base):
    """(commits, findings) after base, or None when the history does not reach back to it."""
    if git("merge-base", "--is-ancestor", base, "HEAD") is None:
        return None
    commits = git("rev-list", "--reverse", "--no-merges", f"{base}..HEAD").split()
    found = [f'{commit[:12]} "{title}": {text}'
             for commit in commits for title, text in check_commit(commit)]
    return len(commits), found


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    base = arguments[0] if arguments else BASE
    checked = check_since(base)
    if checked is None:
        print(f"note: commit messages were not checked: the history of commit {base[:12]} is not "
              "here")
        return 0
    for line in checked[1]:
        print(line)
    print(f"commits: {checked[0]} commits, {len(checked[1])} findings")
    return 1 if checked[1] else 0


# ---- self-test ----

BODY = "\n\nIt was slow. 3 us before, 2 us now."
SIGNED = "\n\nSigned-off-by: A Name <name@example.org>"
# message, files that the commit changes (^: removes), words of each finding
CASES = [
    ("core/comm: a call is shorter" + BODY, ["core/comm/a.c"], []),
    ("comm: a call is shorter" + BODY + SIGNED, ["core/comm/a.c"], []),
    ("exec/cuda: a call is shorter", ["core/exec/cuda/a.h"], ["`exec/cuda` is no folder"]),
    ("core/exec/cuda: a call is shorter", ["core/exec/cuda/a.h"], []),
    ("net-a: a call is shorter", ["plugins/net-a/README.md"], []),
    ("net-new: a plugin of its own" + BODY, ["plugins/net-new/a.c"], []),
    ("net-new: the plugin goes" + BODY, ["^plugins/net-new/a.c"], []),
    ("net-new: the plugin is gone" + BODY, ["core/comm/a.c"], ["`net-new` is no folder"]),
    ("tree: names are shorter" + BODY, ["core/comm/a.c", "tests/unit/test_a.c"], []),
    ("tree: the page says more", ["README.md"], []),
    ("tree: names are shorter" + BODY, ["core/comm/a.c", "core/exec/a.c"],
     ["all files are in core; name that folder"]),
    ("comm: " + "x" * 54, ["core/comm/a.h"], []),
    ("comm: " + "x" * 55, ["core/comm/a.h"], ["a title of 61 characters"]),
    ("review: calls are shorter" + BODY, ["core/comm/a.c"], ["`review` is no folder"]),
    ("README: the page says more", ["README.md"], ["`README` is no folder"]),
    ("comm, exec: calls are shorter" + BODY, ["core/comm/a.c"], ["no area"]),
    ("a call is shorter" + BODY, ["core/comm/a.c"], ["no area"]),
    ("comm:a call is shorter" + BODY, ["core/comm/a.c"], ["no area"]),
    ("comm: a call is shorter", ["core/comm/a.c"], ["there is no body"]),
    ("comm: a call is shorter" + SIGNED, ["core/comm/a.c"], ["there is no body"]),
    ("comm: a call is shorter\n\nChecked: by hand.", ["core/comm/a.c"], []),
    ("comm: a file goes", ["^core/comm/a.c"], ["there is no body"]),
    ("wip", ["core/comm/a.c"], ["no area", "there is no body"]),
]


def commit_files(message, files):
    for name in files:
        path = name.lstrip("^")
        if path != name:
            os.remove(path)
            continue
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(message + "\n")
    git("add", "--all")
    if git("commit", "-q", "--allow-empty", "-m", message) is None:
        sys.exit("commits self-test: git commit failed")
    return git("rev-parse", "HEAD").strip()


def fill_repository():
    """Makes a repository of the working folder and all commits of CASES, gives the first."""
    git("init", "-q", "-b", "main")
    for key, value in (("user.name", "A Name"), ("user.email", "name@example.org"),
                       ("commit.gpgSign", "false"), ("core.hooksPath", "none")):
        git("config", key, value)
    base = commit_files("no rule holds here", ["core/exec/a.c"])
    for message, files, _ in CASES:
        commit_files(message, files)
    return base


def compare_cases(found):
    """How many findings are not those of CASES, in their order."""
    wanted = [(message.split("\n")[0], words) for message, _, want in CASES for words in want]
    failed = 0
    for line, (title, words) in zip(found, wanted):
        if f'"{title}": ' not in line or words not in line:
            failed += 1
            print(f"self-test: found {line}, want {title}: {words}")
    if len(found) != len(wanted):
        failed += 1
        print(f"self-test: {len(found)} findings, want {len(wanted)}: {found}")
    return failed


def compare_merge(base):
    """A merge is not looked at, whatever its title is."""
    before = check_since(base)
    git("checkout", "-q", "-b", "side", base)
    commit_files("exec: a side" + BODY, ["core/exec/b.c"])
    git("checkout", "-q", "main")
    if git("merge", "-q", "--no-ff", "-m", "a merge without an area", "side") is None:
        sys.exit("commits self-test: git merge failed")
    after = check_since(base)
    if (after[0], after[1]) == (before[0] + 1, before[1]):
        return 0
    print(f"self-test: after a merge {after}, want one commit more than {before}")
    return 1


def self_test():
    home = os.getcwd()
    # Git would look at the repository that a hook runs in.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["GIT_CEILING_DIRECTORIES"] = os.path.dirname(folder)
        try:
            failed = check_since(BASE) is not None
            base = fill_repository()
            failed += check_since(BASE) is not None
            failed += compare_cases(check_since(base)[1])
            failed += compare_merge(base)
        finally:
            os.chdir(home)
    print(f"commits self-test: {len(CASES) + 3} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
