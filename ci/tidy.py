#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the rules of the tree that a compiler does not: heads, sizes, names, layers, texts.

    ci/tidy.py              all files that git knows or would add; exit status 1: something found
    ci/tidy.py FILE...      only what is found in these
    ci/tidy.py --self-test  each rule on small texts

A finding reads `file:line: rule: what is wrong; do this`. `tidy: allow RULE because REASON` in a
comment on that line or up to two lines above it lets one pass; for rules about whole files it
stands in the first 15 lines. Needs python3-minimal only.
"""
import os
import re
import subprocess
import sys

MAX_COLUMNS = 100
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 70
MAX_NESTING = 3
MAX_PARAMETERS = 7
MAX_FOLDER_FILES = 25  # sources of a stage of core; one algorithm is a file, so not of schedule
MIN_HEAD_LINES = 2
MAX_HEAD_LINES = 40

C_ENDINGS = (".c", ".h", ".def")
SCRIPT_ENDINGS = (".py", ".sh", ".cmake", ".map", ".txt", ".yml")
BANNED_FOLDERS = {"misc", "util", "utils", "common", "helpers"}
WHOLE_FILE_RULES = {"spdx", "head", "file-size", "file-name", "folder", "unlisted"}
# In pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/" + r"(?:work|home|root)/")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b(?!\")")
WAIVER = re.compile(r"tidy: allow ([a-z-]+)(?: because (\S.*))?")
PLAIN_ATOMIC = re.compile(
    r"\batomic_(?:store|load|exchange|compare_exchange_(?:strong|weak)|fetch_(?:add|sub|or|and|xor)"
    r"|flag_test_and_set|flag_clear)\s*\(")
# A text that begins so points at another one, or says nothing yet.
POINTING = re.compile(
    r"^(?:/\*+|//) *(?:\n \* *)?(the same|same as|as above|likewise|ditto)\b", re.M | re.I)
STRINGS = re.compile(r'(?:"(?:\\.|[^"\\])*"\s*)+')
NO_BEGINNING = set("""
    and as at because both but by do does during each either every few for from he her his if
    in into it its likewise many neither no none not of on one or other our same she so some such
    than that their them then there these they this those though to too unless until upon we what
    whatever when whenever where wherever whether which whichever while who whoever whom whose why
    with without you your""".split())
XCCL_NAME = re.compile(r"\bXCCL_[A-Z0-9_]+")
SETTING_ROW = re.compile(r"^XCCL_PARAM(?:_GUARDED)?\((\w+),", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
KEYWORDS_WITH_BLOCK = {"if", "for", "while", "switch"}


class Finding:
    def __init__(self, path, line, rule, text):
        self.path, self.line, self.rule, self.text = path, line, rule, text

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_only(text):
    """The C text with comments, strings, characters and preprocessor lines blanked, lines kept."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    text = token.sub(blank, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def matching_open(code, close):
    """The index of the ( that belongs to the ) at close; -1 if none."""
    depth = 0
    for at in range(close, -1, -1):
        if code[at] == ")":
            depth += 1
        elif code[at] == "(":
            depth -= 1
            if depth == 0:
                return at
    return -1


def word_before(code, end):
    match = re.search(r"(\w+)\s*$", code[max(0, end - 80):end])
    return match.group(1) if match else ""


def opens_block(code, at):
    """Whether the { at this index begins a block of statements, not an initializer or a type."""
    before = code[:at].rstrip()
    if not before:
        return False
    if before[-1] in ";{}:":
        return True
    if before[-1] == ")":
        begin = matching_open(before, len(before) - 1)
        word = word_before(before, begin)
        # `for_each_link(...) {` is a block; `= (struct x){` has no word before its parenthesis.
        return word in KEYWORDS_WITH_BLOCK or (word != "" and word not in ("return", "sizeof"))
    return word_before(before, len(before)) in ("else", "do")


def is_function(code, at):
    """Whether the { at depth 0 begins a function; then (name index, parameters) else None."""
    before = code[:at].rstrip()
    if not before.endswith(")"):
        return None
    end = len(before) - 1
    begin = matching_open(before, end)
    if begin < 0 or not word_before(before, begin):
        return None
    parameters = before[begin + 1:end]
    depth, commas = 0, 0
    for letter in parameters:
        depth += letter == "("
        depth -= letter == ")"
        commas += letter == "," and depth == 0
    name = before[:begin].rstrip()
    return len(name), commas + 1


def line_of(code, at):
    return code.count("\n", 0, at) + 1


def function_findings(path, code, start, end, deepest, parameters):
    first, last = line_of(code, start), line_of(code, end)
    if last - first + 1 > MAX_FUNCTION_LINES:
        yield Finding(path, first, "function-size",
                      f"a function of {last - first + 1} lines, {MAX_FUNCTION_LINES} are allowed; "
                      "give its parts names of their own")
    if deepest[0] > MAX_NESTING:
        yield Finding(path, deepest[1], "nesting",
                      f"{deepest[0]} nested blocks, {MAX_NESTING} are allowed; return early, or "
                      "move the inner block into a function")
    if parameters > MAX_PARAMETERS:
        yield Finding(path, first, "parameters",
                      f"{parameters} parameters, {MAX_PARAMETERS} are allowed; pass a struct")


def check_functions(path, code):
    code = re.sub(r'extern\s+\{', blank, code)
    stack, function, deepest = [], None, (0, 0)
    for match in re.finditer(r"[{}]", code):
        at = match.start()
        if match.group() == "{":
            if not stack:
                function, deepest = is_function(code, at), (0, 0)
                stack.append(False)
                continue
            stack.append(function is not None and opens_block(code, at))
            if sum(stack) > deepest[0]:
                deepest = (sum(stack), line_of(code, at))
        elif stack:
            stack.pop()
            if not stack and function:
                yield from function_findings(path, code, function[0], at, deepest, function[1])


def check_head(path, lines):
    c_file = path.endswith(C_ENDINGS)
    first = 1 if lines and lines[0].startswith("#!") else 0
    spdx = lines[first] if len(lines) > first else ""
    if "SPDX-License-Identifier: BSD-3-Clause" not in spdx:
        yield Finding(path, first + 1, "spdx",
                      "no license line; begin with `SPDX-License-Identifier: BSD-3-Clause` in a "
                      "comment")
        return
    if not path.endswith((".c", ".h")):
        return
    if len(lines) < 2 or not lines[1].startswith("/*"):
        yield Finding(path, 2, "head", "no head comment; say in 3 to 12 lines what the file is "
                      "for, its limits, its thread and what must hold")
        return
    count = next((i for i, line in enumerate(lines[1:], 1) if "*/" in line), len(lines))
    if c_file and not MIN_HEAD_LINES <= count <= MAX_HEAD_LINES:
        yield Finding(path, 2, "head", f"a head comment of {count} lines; 3 to 12 are right, "
                      f"more only for a drawing or a contract")


def check_lines(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield Finding(path, number, "columns", f"{len(line)} columns; break the line at "
                          f"{MAX_COLUMNS}")
        if "\t" in line:
            yield Finding(path, number, "tab", "a tab; use spaces")
        if line != line.rstrip():
            yield Finding(path, number, "trailing-space", "space at the end of the line; remove it")
    if len(lines) > MAX_FILE_LINES:
        yield Finding(path, 1, "file-size", f"{len(lines)} lines, {MAX_FILE_LINES} are allowed; "
                      f"split the file by what its parts are about")


def check_text(path, lines):
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            yield Finding(path, number, "machine-path", "a path of one machine; make it "
                          "relative, or take it from the environment")
        if UNFINISHED.search(line):
            yield Finding(path, number, "unfinished", "unfinished work in the tree; finish it, "
                          "or say in the README that it is missing")
        waiver = WAIVER.search(line)
        if waiver and not waiver.group(2):
            yield Finding(path, number, "waiver", "a waiver without a reason; write `tidy: allow "
                          f"{waiver.group(1)} because ...`")


def check_code(path, code):
    for number, line in enumerate(code.split("\n"), 1):
        if re.search(r"(?<!\w)(?<!asm )(?<!asm__ )volatile\b", line):
            yield Finding(path, number, "volatile", "volatile orders nothing between threads; "
                          "use C11 atomics, or waive it for a device register")
        if PLAIN_ATOMIC.search(line):
            yield Finding(path, number, "seq-cst", "an atomic without a memory order; use the "
                          "_explicit form and say what it pairs with")


DEVICE_STATE = re.compile(r"\bcomm(?:->|\.)cuda\b")


def check_device(path, code):
    """A device is reached through its table; the CUDA communicator is its own files' alone."""
    if not path.startswith("core/") or path.startswith("core/cuda/"):
        return
    for number, line in enumerate(code.split("\n"), 1):
        if DEVICE_STATE.search(line):
            yield Finding(path, number, "device", "comm->cuda outside core/cuda; give "
                          "struct xccl_device_ops an entry, or use one that it has")


# The stages around a communicator, and the files there that declare pointers to functions: each has
# its reason in core/comm/README.md.
ROOMS = ("join", "stream", "cuda", "call", "connect", "watch", "comm")
POINTER_FILES = {"core/comm/device_ops.h", "core/comm/comm.h", "core/comm/comm_error.h",
                 "core/join/comm_init.c", "core/stream/async_job.h", "core/watch/control_int.h"}
POINTER = re.compile(r"\(\s*\*\s*\w+\s*\)\s*\(|\b\w+_fn\s*\*")


def check_pointers(path, code):
    """A call can be followed by name, but for a few hooks."""
    parts = path.split("/")
    if parts[0] != "core" or parts[1] not in ROOMS or path in POINTER_FILES:
        return
    for number, line in enumerate(code.split("\n"), 1):
        if POINTER.search(line):
            yield Finding(path, number, "pointer", "a pointer to a function; call it by name, or "
                          "list the file in ci/tidy.py and the reason in core/comm/README.md")


def check_comments(path, text):
    """At the beginning of a line, a comment is about a function, a type or a table."""
    for match in POINTING.finditer(text):
        line = line_of(text, match.start())
        before = text[:match.start()].split("\n")[-2:-1]
        # The later lines of a comment of // may begin with anything.
        if text.startswith("//", match.start()) and before and before[0].startswith("//"):
            continue
        yield Finding(path, line, "comment-start", f"a comment that begins with `{match.group(1)}` "
                      "and points at another; say what this one does, with its noun or verb first")


def check_help(path, text):
    """The last strings of each XCCL_PARAM are the help that a user reads without the table."""
    code = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    rows = list(SETTING_ROW.finditer(code))
    for match, following in zip(rows, rows[1:] + [None]):
        row = code[match.end():following.start() if following else len(code)]
        last = (STRINGS.findall(row) or [""])[-1]
        words = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', last)).split()
        first = words[0].strip(",.:;").lower() if words else ""
        second = words[1].strip(",.:;").lower() if len(words) > 1 else ""
        if first == "the" and second in NO_BEGINNING:
            first = f"the {second}"
        if not first[:1].isalpha() or first.split()[-1] in NO_BEGINNING:
            yield Finding(path, line_of(text, match.start()), "help", f"the help of "
                          f"{match.group(1)} begins with `{first}`; begin with the noun or verb of "
                          "what it sets, then say its values, then its limits")


def read_layers(text):
    layers = {}
    for line in text.split("\n"):
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            layers.setdefault(folder.strip(), set()).update(allowed.split())
    return layers


def stage_of(path, layers):
    parts = path.split("/")
    if len(parts) > 2 and (parts[0] == "core" or parts[0] == "plugins" and parts[1] in layers):
        return parts[1]
    return parts[0] if parts[0] in ("tools", "plugins", "examples") and len(parts) > 1 else ""


def check_layers(path, lines, layers):
    stage = stage_of(path, layers)
    if not stage:
        return
    if stage not in layers:
        yield Finding(path, 1, "layer", f"the folder {stage} is not in ci/layers.txt; add it "
                      f"with the folders that it may include")
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1)
        other = name.split("/")[0]
        if ".." in name.split("/"):
            yield Finding(path, number, "layer", f"include of {name} goes up; write the path "
                          f"from core/")
        elif "/" not in name or other == stage or other not in layers:
            continue
        elif other not in layers[stage]:
            yield Finding(path, number, "layer", f"{stage} may not include {other} "
                          f"(ci/layers.txt); hand it a callback or a value from above")
        elif name.endswith("_int.h"):
            yield Finding(path, number, "layer", f"{name} is internal to {other}; use its public "
                          f"header")


def check_tree(paths, cmake_texts):
    """Rules about names and places: paths and {folder: text of its CMakeLists.txt}."""
    seen = {}
    for path in paths:
        folder, name = os.path.split(path)
        banned = BANNED_FOLDERS.intersection(folder.split("/"))
        if banned:
            yield Finding(path, 1, "folder", f"the folder {sorted(banned)[0]} says nothing; name "
                          f"it after what its files do")
        if not name.endswith((".c", ".h")):
            continue
        if name in seen:
            yield Finding(path, 1, "file-name", f"the same file name as {seen[name]}; names are "
                          f"unique, choose another")
        seen.setdefault(name, path)
        if name.endswith(".c") and not is_listed(path, cmake_texts):
            yield Finding(path, 1, "unlisted", "in no CMakeLists.txt; add it to its folder's list")


def check_folders(paths):
    """A stage of core stays small enough to read."""
    sources = {}
    for path in paths:
        parts = path.split("/")
        if parts[0] == "core" and len(parts) == 3 and path.endswith(".c"):
            sources.setdefault(parts[1], []).append(path)
    for stage, files in sources.items():
        if len(files) > MAX_FOLDER_FILES and stage != "schedule":
            yield Finding(sorted(files)[-1], 1, "folder", f"core/{stage} has {len(files)} sources, "
                          f"{MAX_FOLDER_FILES} are allowed; divide it into stages")


def is_page_of_now(path):
    """A page that speaks of the tree as it is, and not of how it was."""
    return path.endswith(".md") and path != "CHANGELOG.md" and \
        not path.startswith("tests/bench/results/")


def defines_names(path):
    """What tests set or print makes no name: a setting that is gone may still stand there."""
    return not path.startswith("tests/") or path.endswith((".h", "CMakeLists.txt"))


def check_names(texts):
    """Pages name settings that are there; those for developers (all but docs/) names of the sources
    as well. texts: {path: text or None}."""
    settings = {"XCCL_" + name
                for name in SETTING_ROW.findall(texts.get("core/base/param.def") or "")}
    known = set(settings)
    for path, text in texts.items():
        if text is not None and not path.endswith(".md") and defines_names(path):
            known.update(XCCL_NAME.findall(text))
    for path, text in texts.items():
        if text is None or not is_page_of_now(path):
            continue
        names = settings if path.startswith("docs/") else known
        for number, line in enumerate(text.split("\n"), 1):
            for name in XCCL_NAME.findall(line):
                # XCCL_IB_ stands for all that begin so.
                if name not in names and not (name.endswith("_") and
                                              any(other.startswith(name) for other in names)):
                    yield Finding(path, number, "name", f"there is no {name}: no setting of "
                                  f"core/base/param.def, nor, but for docs/, a name of the sources")


def is_listed(path, cmake_texts):
    folder, name = os.path.split(path)
    pattern = re.compile(r"(?<![\w.-])" + re.escape(name) + r"(?![\w.-])")
    while True:
        if pattern.search(cmake_texts.get(folder, "")):
            return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def waived(finding, lines):
    if finding.rule == "waiver":
        return False
    if finding.rule in WHOLE_FILE_RULES:
        near = lines[:15]
    else:
        near = lines[max(0, finding.line - 3):finding.line]
    for line in near:
        match = WAIVER.search(line)
        if match and match.group(1) == finding.rule and match.group(2):
            return True
    return False


def check_file(path, text, layers):
    """All findings about one file, waivers taken off."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    script = text.startswith("#!") or path.endswith(SCRIPT_ENDINGS) or path == ".ci/run"
    found = list(check_text(path, lines))
    if path.endswith(C_ENDINGS) or script or os.path.basename(path).startswith(".clang-"):
        found += check_head(path, lines)
        found += check_lines(path, lines)
    if path.endswith(C_ENDINGS + (".cu", ".cpp")):
        found += check_comments(path, text)
    if path.endswith("param.def"):
        found += check_help(path, text)
    if path.endswith(C_ENDINGS):
        code = code_only(text)
        found += check_code(path, code)
        found += check_device(path, code)
        found += check_pointers(path, code)
        found += check_layers(path, lines, layers)
        if not path.endswith(".def"):
            found += check_functions(path, code)
    return [finding for finding in found if not waived(finding, lines)]


def tree_paths():
    """The files that git knows or would add; without git, all but build/ and hidden folders."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True,
                         text=True,
                         check=False) if os.path.exists(".git") else None
    if git and git.returncode == 0:
        return sorted(path for path in git.stdout.split("\n") if os.path.isfile(path))
    paths = []
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__")]
        paths += [os.path.relpath(os.path.join(folder, name)) for name in names]
    return sorted(paths)


def read_text(path):
    """None for what is no text, and for inputs of tests, which may be anything."""
    if path.startswith(("tests/fuzz/corpus/", "tests/data/")):
        return None
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def main(arguments):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    if "--self-test" in arguments:
        return self_test()
    texts = {path: read_text(path) for path in tree_paths()}
    layers = read_layers(texts.get("ci/layers.txt") or "")
    cmake_texts = {os.path.dirname(path): text for path, text in texts.items()
                   if os.path.basename(path) == "CMakeLists.txt"}
    found = []
    for path, text in texts.items():
        if text is not None:
            found += check_file(path, text, layers)
    for finding in [*check_tree(list(texts), cmake_texts), *check_folders(list(texts)),
                    *check_names(texts)]:
        text = texts.get(finding.path) or ""
        if not waived(finding, text.split("\n")):
            found.append(finding)
    if arguments:
        found = [finding for finding in found if finding.path in arguments]
    for finding in sorted(found, key=lambda item: (item.path, item.line)):
        print(finding)
    print(f"tidy: {len(texts)} files, {len(found)} findings")
    return 1 if found else 0


HEAD = "/* SPDX-License-Identifier: BSD-3-Clause */\n/* What it is for.\n * Thread: any. */\n"
LONG = "void f(void)\n{\n" + "    g();\n" * 68 + "}\n"
DEEP = "void f(void)\n{\n    if (a) {\n        for (;;) {\n            while (b) {\n" \
       "                if (c) {\n                }\n            }\n        }\n    }\n}\n"
FLAT = "int g(int (*h)(int, int), int b)\n{\n    struct s s = {.a = {{1}, {2}}};\n    if (a) {\n" \
       "        x = (struct s){.a = {{{1}}}};\n    }\n}\n"
TABLE = "/* tidy: allow file-size because it is a table */\n"
EIGHT = "int f(int a, int b, int c, int d, int e, int g, int h, int i)\n{\n}\n"
SETTING = "/* SPDX-License-Identifier: BSD-3-Clause */\n" \
          "/* XCCL_PARAM(name, help) */\n" \
          'XCCL_PARAM(A, INT, "1", 0, 1, "s", "a|b",\n           "%s " "and (more)")\n' \
          'XCCL_PARAM(B, STRING, "", 0, 0, "", "", "name of \\"it\\"")\n'

# path, text, the rules that must be found in it
CASES = [
    ("core/base/a.c", HEAD + "int a;\n", []),
    ("core/base/a.c", "int a;\n", ["spdx"]),
    ("core/base/a.c", "/* SPDX-License-Identifier: BSD-3-Clause */\nint a;\n", ["head"]),
    ("core/base/a.c", "/* SPDX-License-Identifier: BSD-3-Clause */\n/* Short. */\nint a;\n",
     ["head"]),
    ("ci/run_it", "#!/bin/sh\n# SPDX-License-Identifier: BSD-3-Clause\ntrue\n", []),
    ("ci/run_it", "#!/bin/sh\ntrue\n", ["spdx"]),
    ("core/base/a.c", HEAD + "/* " + "x" * 100 + " */\n", ["columns"]),
    ("core/base/a.c", HEAD + "\tint a;\n", ["tab"]),
    ("core/base/a.c", HEAD + "int a; \n", ["trailing-space"]),
    ("core/base/a.c", HEAD + "int a;\n" * 800, ["file-size"]),
    ("core/base/a.c", HEAD + TABLE + "int a;\n" * 800, []),
    ("core/base/a.c", HEAD + LONG, ["function-size"]),
    ("core/base/a.c", HEAD + "/* tidy: allow function-size because it is a list */\n" + LONG, []),
    ("core/base/a.c", HEAD + "/* tidy: " + "allow function-size */\n" + LONG, ["function-size",
     "waiver"]),
    ("core/base/a.c", HEAD + DEEP, ["nesting"]),
    ("core/base/a.c", HEAD + FLAT, []),
    ("core/base/a.c", HEAD + EIGHT, ["parameters"]),
    ("core/base/a.c", HEAD + "volatile int a;\n", ["volatile"]),
    ("core/base/a.c", HEAD + "int f(void)\n{\n    __asm__ volatile(\"\" ::: \"memory\");\n}\n", []),
    ("core/base/a.c", HEAD + "/* volatile */ const char *a = \"volatile\";\n", []),
    ("core/base/a.c", HEAD + "/* tidy: allow volatile because a device writes it */\nvolatile "
                             "int a;\n", []),
    ("core/base/a.c", HEAD + "int f(void)\n{\n    return atomic_load(&a);\n}\n", ["seq-cst"]),
    ("core/base/a.c", HEAD + "int f(void)\n{\n    atomic_fetch_add(&a, 1);\n}\n", ["seq-cst"]),
    ("core/base/a.c", HEAD + "int f(void)\n{\n    return atomic_load_explicit(&a, b);\n}\n", []),
    ("core/base/a.c", HEAD + "/* see /wo" + "rk/x */\n", ["machine-path"]),
    ("README.md", "see /ho" + "me/me/x\n", ["machine-path"]),
    ("README.md", "see https://a.b/x and core/wo" + "rk/x\n", []),
    ("core/base/a.c", HEAD + "/* TO" + "DO: more */\n", ["unfinished"]),
    ("core/base/a.c", HEAD + '#include "comm/comm.h"\n', ["layer"]),
    ("core/comm/a.c", HEAD + '#include "base/os.h"\n#include "xccl.h"\n#include "comm_int.h"\n',
     []),
    ("core/comm/a.c", HEAD + '#include "base/os_int.h"\n', ["layer"]),
    ("core/comm/a.c", HEAD + '#include "../base/os.h"\n', ["layer"]),
    ("core/nowhere/a.c", HEAD, ["layer"]),
    ("core/comm/a.c", HEAD + "int f(void)\n{\n    return comm->cuda != NULL;\n}\n", ["device"]),
    ("core/comm/a.c", HEAD + "int f(void)\n{\n    return a->comm->cuda;\n}\n", ["device"]),
    ("core/comm/a.h", HEAD + "struct a {\n    void (*done)(struct a *a);\n};\n", ["pointer"]),
    ("core/comm/a.h", HEAD + "struct a {\n    step_fn *step;\n};\n", ["pointer"]),
    ("core/comm/comm.h", HEAD + "struct a {\n    tell_fn *tell;\n};\n", []),
    ("core/base/a.h", HEAD + "struct a {\n    void (*done)(struct a *a);\n};\n", []),
    ("core/cuda/a.c", HEAD + "int f(void)\n{\n    return comm->cuda;\n}\n", []),
    ("core/base/a.c", HEAD + "/* The same for few. */\nvoid f(void);\n", ["comment-start"]),
    ("core/base/a.h", HEAD + "/* Likewise: few. */\nvoid f(void);\n", ["comment-start"]),
    ("core/base/a.c", HEAD + "/*\n * Same as f. */\nvoid g(void)\n{\n}\n", ["comment-start"]),
    ("core/base/a.cu", "/* As above, for few. */\nvoid f(void);\n", ["comment-start"]),
    ("tests/unit/a.cpp", "// ditto\nvoid f(void);\n", ["comment-start"]),
    ("tests/unit/a.cpp", "// Few ranks have\n// the same name.\nvoid f(void);\n", []),
    ("core/base/a.c", HEAD + "/* tidy: allow comment-start because it is a quote */\n"
                             "/* The same for few. */\nvoid f(void);\n", []),
    ("core/base/a.c", HEAD + "/* Calls all that have the same name.\n * The same again. */\n"
                             "void f(void);\n", []),
    ("core/base/param.def", SETTING % "seconds between looks", []),
    ("core/base/param.def", SETTING % "How often to look", []),
    ("core/base/param.def", SETTING % "the library to open", []),
    ("core/base/param.def", SETTING % "what it is", ["help"]),
    ("core/base/param.def", SETTING % "Whether to look", ["help"]),
    ("core/base/param.def", SETTING % "the same on all ranks", ["help"]),
    ("core/base/param.def", SETTING % "of which kind", ["help"]),
    ("core/base/param.def", SETTING % "0: no look", ["help"]),
    ("core/base/param.def", "/* SPDX-License-Identifier: BSD-3-Clause */\n"
     'XCCL_PARAM(A, INT, "1", 0, 1, "s", "a", "")\n', ["help"]),
    ("tests/unit/a.c", HEAD + '#include "comm/comm.h"\n', []),
]
MANY_LISTED = " ".join(f"a{i}.c" for i in range(26))
TREE_CASES = [
    (["core/base/a.c"], {"core/base": "add_library(b a.c)"}, []),
    (["core/base/a.c"], {"core/base": "add_library(b aa.c)"}, ["unlisted"]),
    (["core/exec/host/a.c"], {"core/exec": "add_library(b host/a.c)"}, []),
    (["core/base/a.h", "core/comm/a.h"], {}, ["file-name"]),
    (["core/util/a.h"], {}, ["folder"]),
    ([f"core/base/a{i}.c" for i in range(25)], {"core/base": MANY_LISTED}, []),
    ([f"core/base/a{i}.c" for i in range(26)], {"core/base": MANY_LISTED}, ["folder"]),
    ([f"core/schedule/a{i}.c" for i in range(26)], {"core/schedule": MANY_LISTED}, []),
]

TABLE_OF_A = {"core/base/param.def": SETTING % "time", "core/base/a.h": "#define XCCL_A_BYTES 4\n"}
NAME_CASES = [
    ({"README.md": "`XCCL_A`, XCCL_B=1, XCCL_A_BYTES and XCCL_A_*\n"}, []),
    ({"docs/a.md": "`XCCL_A`, XCCL_B=1 and XCCL_*\n"}, []),
    ({"docs/a.md": "set XCCL_A_BYTES\n"}, ["name"]),
    ({"README.md": "set XCCL_C\n"}, ["name"]),
    ({"docs/a.md": "all of XCCL_C_*\n"}, ["name"]),
    ({"docs/a.md": "set XCCL_C\n", "tests/unit/a.c": '"XCCL_C"\n'}, ["name"]),
    ({"docs/a.md": "OFI_NCCL_C, not xccl_c\n"}, []),
    ({"CHANGELOG.md": "XCCL_C is gone\n", "tests/bench/results/a.md": "XCCL_C=1\n"}, []),
]


def self_test():
    layers = read_layers("base:\ncomm: base # reason\ncuda: comm\n")
    failed = 0
    for path, text, want in CASES:
        got = sorted({finding.rule for finding in check_file(path, text, layers)})
        if got != sorted(want):
            failed += 1
            print(f"self-test: {path}: found {got}, want {want} in:\n{text[:400]}")
    for paths, cmake_texts, want in TREE_CASES:
        got = sorted({finding.rule for finding in [*check_tree(paths, cmake_texts),
                                                   *check_folders(paths)]})
        if got != sorted(want):
            failed += 1
            print(f"self-test: {paths}: found {got}, want {want}")
    for texts, want in NAME_CASES:
        got = sorted({finding.rule for finding in check_names({**TABLE_OF_A, **texts})})
        if got != want:
            failed += 1
            print(f"self-test: {texts}: found {got}, want {want}")
    cases = len(CASES) + len(TREE_CASES) + len(NAME_CASES)
    print(f"tidy self-test: {cases} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
