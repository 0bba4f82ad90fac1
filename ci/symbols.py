#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks layers and circles of files by the linker's symbols.

    ci/symbols.py [--build FOLDER]         what breaks a rule; exit status 1: something does
    ci/symbols.py --show [FOLDER...]       the largest circle of each folder and its files; with
                                           folders (core/comm) also each reference inside a circle
    ci/symbols.py --self-test              the rules on small objects that gcc compiles

File A refers to file B if an object of A needs a symbol that an object of B defines. The objects
are those of core/, plugins/ and tools/ in build/release, or in the FOLDER of --build. gcc-nm reads
them: plain nm sees nothing in an object that holds only gcc's intermediate code. A call that the
compiler inlined before it wrote the symbols does not show.

The rules:
  - a folder refers to the folders that ci/layers.txt allows, and to no other; tools/ may also use
    what libxccl.so exports (core/libxccl.map);
  - no circle of files goes through two folders;
  - the largest circle of files inside a folder has as many files as ci/circles.txt says, or 1,
    which is no circle. The number must be the real one, so it falls with the circle.
A folder is core/STAGE with all below it, plugins/NAME, tools/NAME, or plugins or tools for the
files directly in it.
A finding reads `file (symbol) -> file: what is wrong; what to do`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tidy

ROOTS = ("core", "plugins", "tools")
OBJECT = re.compile(r"(.*?)/CMakeFiles/([^/]+)\.dir/(.*)\.o$")
SHOWN_EDGES = 5


def folder_of(path):
    """core/exec/host/a.c is of core/exec, plugins/net-ib/a.c of plugins/net-ib."""
    return "/".join(path.split("/")[:-1][:2])


class Graph:
    """References between files: edges[file][file] is the set of symbols."""

    def __init__(self, files):
        self.edges = {path: {} for path in files}

    def add(self, source, target, symbol):
        if source != target:
            self.edges[source].setdefault(target, set()).add(symbol)

    def folders(self):
        return sorted({folder_of(path) for path in self.edges})

    def inside(self, folder):
        """The files of one folder and the references between them."""
        part = Graph([path for path in self.edges if folder_of(path) == folder])
        for source in part.edges:
            for target, symbols in self.edges[source].items():
                if target in part.edges:
                    part.edges[source][target] = symbols
        return part

    def references(self):
        return [(source, target, sorted(self.edges[source][target]))
                for source in sorted(self.edges) for target in sorted(self.edges[source])]


def circles(edges):
    """The strongly connected components of more than one file, the largest first (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def enter(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        return node, iter(sorted(edges[node]))

    def leave(node):
        if low[node] != index[node]:
            return
        at = stack.index(node)
        if len(stack) - at > 1:
            found.append(sorted(stack[at:]))
        del stack[at:]

    for root in sorted(edges):
        path = [] if root in index else [enter(root)]
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                leave(node)
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
            elif target not in index:
                path.append(enter(target))
            elif target in stack:
                low[node] = min(low[node], index[target])
    return sorted(found, key=lambda circle: (-len(circle), circle))


def largest(edges):
    found = circles(edges)
    return len(found[0]) if found else 1


# ---- objects ----

def source_of(path, build):
    """The source file and the target of an object, by its place in the build folder."""
    match = OBJECT.match(os.path.relpath(path, build))
    if not match:
        return None, None
    folder, target, name = match.groups()
    # CMake writes __ for the .. of a source that lies above its target.
    return os.path.normpath(os.path.join(folder, name.replace("__/", "../"))), target


def list_objects(build, sources):
    """{object: (source, target)}, without objects whose source is gone from the tree."""
    objects = {}
    for root in ROOTS:
        for folder, _, names in os.walk(os.path.join(build, root)):
            for name in names:
                path = os.path.join(folder, name)
                source, target = source_of(path, build)
                if source in sources:
                    objects[path] = (source, target)
    return objects


def read_symbols(objects):
    """{object: (defined, needed)}; fails when an object has symbols that cannot be read."""
    program = shutil.which("gcc-nm") or "nm"
    output = subprocess.run([program, "--format=posix", "--extern-only"] + sorted(objects),
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    symbols, defined, needed = {}, set(), set()
    for line in output.split("\n"):
        if line.endswith(":") and line[:-1] in objects:
            defined, needed = symbols.setdefault(line[:-1], (set(), set()))
            continue
        words = line.split()
        if len(words) > 1:
            (needed if words[1] in "Uwv" else defined).add(words[0])
        if words and words[0] == "__gnu_lto_slim":
            sys.exit(f"symbols: {program} cannot read the intermediate code of gcc in an object; "
                     "install gcc-nm, which comes with gcc")
    return symbols


def build_graph(objects, symbols):
    """A symbol is looked up in the same target first, as each plugin has one table of that name."""
    definers = {}
    for path, (defined, _) in symbols.items():
        for symbol in defined:
            definers.setdefault(symbol, []).append(objects[path])
    graph = Graph({source for source, _ in objects.values()})
    for path, (_, needed) in symbols.items():
        source, target = objects[path]
        for symbol in needed:
            found = definers.get(symbol, [])
            near = [definer for definer in found if definer[1] == target]
            for definer in near or found:
                graph.add(source, definer[0], symbol)
    return graph


def list_sources():
    sources = set()
    for root in ROOTS:
        for folder, _, names in os.walk(root):
            sources |= {os.path.join(folder, name) for name in names if name.endswith(".c")}
    return sources


# ---- rules ----

def reference(source, target, symbols):
    more = f" and {len(symbols) - 2} more" if len(symbols) > 2 else ""
    return f"{source} ({', '.join(symbols[:2])}{more}) -> {target}"


def check_built(sources, graph):
    """Folders without any object are those of plugins whose headers this machine does not have."""
    built = set(graph.folders())
    for path in sorted(sources):
        folder = folder_of(path)
        if path not in graph.edges and (folder in built or folder.startswith("core/")):
            yield f"{path}: no object of it was built; build the preset release first"


def check_layers(graph, layers, public):
    for source, target, symbols in graph.references():
        upper, lower = tidy.stage_of(source, layers), tidy.stage_of(target, layers)
        if upper == "tools":
            symbols = [symbol for symbol in symbols if symbol not in public]
            if not symbols:
                continue
        # Files directly in plugins/ are of the stage plugins, too.
        if upper != lower and lower not in layers.get(upper, ()):
            yield (f"{reference(source, target, symbols)}: {upper} may not use {lower} "
                   "(ci/layers.txt); move the fact below both, or hand it down as a value or a "
                   "callback")


def check_across(graph):
    for circle in circles(graph.edges):
        folders = sorted({folder_of(path) for path in circle})
        if len(folders) == 1:
            continue
        for source, target, symbols in graph.references():
            if source in circle and target in circle and folder_of(source) != folder_of(target):
                yield (f"{reference(source, target, symbols)}: part of a circle of {len(circle)} "
                       f"files through {' and '.join(folders)}; let one of them hand a callback "
                       "or a value to the other")


def closing_edges(part, allowed):
    """The references without which the largest circle would be as small as is allowed."""
    for source, target, symbols in part.references():
        del part.edges[source][target]
        size = largest(part.edges)
        part.edges[source][target] = set(symbols)
        if size <= allowed:
            yield source, target, symbols


def too_large(part, folder, allowed):
    circle = circles(part.edges)[0]
    edges = list(closing_edges(part, allowed))
    text = f"closes a circle of {len(circle)} files in {folder}, {allowed} may be in one"
    if not edges:
        edges = [edge for edge in part.references() if edge[0] in circle and edge[1] in circle][:1]
        text = (f"one of many references in a circle of {len(circle)} files in {folder}, "
                f"{allowed} may be in one")
    for source, target, symbols in edges[:SHOWN_EDGES]:
        yield (f"{reference(source, target, symbols)}: {text} (ci/circles.txt); pass a callback, "
               f"or move what both need into a file below them (`ci/symbols.py --show {folder}` "
               "lists the circle)")


def check_inside(graph, allowed):
    for folder in graph.folders():
        part = graph.inside(folder)
        size, limit = largest(part.edges), allowed.get(folder, 1)
        if size > limit:
            yield from too_large(part, folder, limit)
        elif size < limit:
            mend = f"write {size}" if size > 1 else "remove its line"
            yield (f"ci/circles.txt: {folder}: {limit} files are written, the largest circle has "
                   f"{size}; {mend}")


def check_circles_file(allowed, sources):
    folders = {folder_of(path) for path in sources}
    for folder in sorted(set(allowed) - folders):
        yield f"ci/circles.txt: {folder}: no file of the tree is there; remove the line"


def check_all(graph, sources, layers, public, allowed):
    return [*check_built(sources, graph), *check_layers(graph, layers, public),
            *check_across(graph), *check_inside(graph, allowed),
            *check_circles_file(allowed, sources)]


def read_public():
    """The names that libxccl.so exports."""
    return set(subprocess.run([sys.executable, "ci/map_symbols.py", "core/libxccl.map"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.split())


def read_circles(text):
    allowed = {}
    for line in text.split("\n"):
        line = line.split("#")[0].strip()
        if line:
            folder, _, number = line.partition(":")
            allowed[folder.strip()] = int(number)
    return allowed


# ---- what there is ----

def show(graph, chosen):
    for folder in graph.folders():
        if chosen and folder not in chosen:
            continue
        part = graph.inside(folder)
        found = circles(part.edges)
        edges = sum(len(targets) for targets in part.edges.values())
        print(f"{folder}: {len(part.edges)} files, {edges} references between them, largest "
              f"circle {largest(part.edges)}")
        for circle in found:
            print(f"  circle of {len(circle)}: "
                  + " ".join(os.path.relpath(path, folder) for path in circle))
            for source, target, symbols in part.references() if chosen else []:
                if source in circle and target in circle:
                    print(f"    {os.path.relpath(source, folder)} -> "
                          f"{os.path.relpath(target, folder)}: {' '.join(symbols)}")


def list_compiled(build):
    """The sources that the build knows; None without a list. Some need what a machine lacks."""
    path = os.path.join(build, "compile_commands.json")
    if not os.path.exists(path):
        return None
    return {os.path.relpath(entry["file"]) for entry in json.loads(read(path))}


def load(build):
    """The graph of the tree in the working folder, and its source files."""
    sources = list_sources()
    compiled = list_compiled(build)
    if compiled is not None:
        for path in sorted(sources - compiled):
            print(f"note: {path} is not part of this build")
        sources &= compiled
    objects = list_objects(build, sources)
    if not objects:
        sys.exit(f"symbols: no objects in {build}; build the preset release first")
    return build_graph(objects, read_symbols(objects)), sources


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description="layers and circles by the linker's symbols")
    parser.add_argument("--build", default="build/release", metavar="FOLDER")
    parser.add_argument("--show", nargs="*", metavar="FOLDER")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    graph, sources = load(arguments.build)
    if arguments.show is not None:
        show(graph, arguments.show)
        return 0
    found = check_all(graph, sources, tidy.read_layers(read("ci/layers.txt")), read_public(),
                      read_circles(read("ci/circles.txt")))
    absent = {folder_of(path) for path in sources} - set(graph.folders())
    for folder in sorted(absent):
        print(f"note: {folder} was not built here and not looked at")
    for line in found:
        print(line)
    print(f"symbols: {len(graph.edges)} files, {len(graph.references())} references, "
          f"{len(found)} findings")
    return 1 if found else 0


# ---- self-test ----

LAYERS = "base:\ncomm: base\napi: comm base\nkit: base\nplugins: kit base\ntools: base\n"
PUBLIC = {"call"}
GOOD = {
    "core/base/log.c": "void log_it(void) {}\n",
    "core/comm/comm.c": "void log_it(void); void comm_go(void) { log_it(); }\n",
    "core/comm/host/walk.c": "void comm_go(void); void comm_walk(void) { comm_go(); }\n",
    "core/api/call.c": "void comm_go(void); void call(void) { comm_go(); }\n",
    "tools/tool.c": "void log_it(void); void call(void);\n"
                    "void tool(void) { log_it(); call(); }\n",
    "plugins/export.c": "void log_it(void); void send_it(void) { log_it(); }\n",
    "plugins/net-a/send.c": "void send_it(void); void go(void) { send_it(); }\n",
    "plugins/kit/greet.c": "void log_it(void); void greet(void) { log_it(); }\n",
    "plugins/net-a/meet.c": "void greet(void); void meet(void) { greet(); }\n",
}


def ring(folder, names):
    """Files of a folder of which each calls the next one, and the last the first."""
    files = {}
    for name, following in zip(names, names[1:] + names[:1]):
        files[f"{folder}/{name}.c"] = (f"void {following}_f(void);\n"
                                       f"void {name}_f(void) {{ {following}_f(); }}\n")
    return files


# what it is, files besides GOOD (None: not compiled), ci/circles.txt, words of each finding
CASES = [
    ("a clean tree", {}, "", []),
    ("a symbol past its layer",
     {"core/base/up.c": "void comm_go(void); void up(void) { comm_go(); }\n",
      "core/base/log.c": "void log_it(void) {}\n",
      "core/comm/comm.c": "void comm_go(void) {}\n"}, "",
     ["core/base/up.c (comm_go) -> core/comm/comm.c: base may not use comm"]),
    ("a tool that uses more than what is exported",
     {"tools/tool.c": "void comm_go(void); void call(void);\n"
                      "void tool(void) { comm_go(); call(); }\n"}, "",
     ["tools/tool.c (comm_go) -> core/comm/comm.c: tools may not use comm"]),
    ("a folder that uses upward what is exported",
     {"core/base/up.c": "void call(void); void up(void) { call(); }\n",
      "core/api/call.c": "void call(void) {}\n"}, "",
     ["core/base/up.c (call) -> core/api/call.c: base may not use api"]),
    ("a plugin that uses a stage above base",
     {"plugins/net-a/up.c": "void comm_go(void); void up(void) { comm_go(); }\n"}, "",
     ["plugins/net-a/up.c (comm_go) -> core/comm/comm.c: plugins may not use comm"]),
    ("a kit that uses a plugin",
     {"plugins/kit/up.c": "void go(void); void up(void) { go(); }\n"}, "",
     ["plugins/kit/up.c (go) -> plugins/net-a/send.c: kit may not use plugins"]),
    ("a symbol that is a variable",
     {"core/base/up.c": "extern int comm_now; int *up(void) { return &comm_now; }\n",
      "core/comm/now.c": "int comm_now = 1;\n"}, "",
     ["core/base/up.c (comm_now) -> core/comm/now.c: base may not use comm"]),
    ("a circle through two plugins",
     {"plugins/net-a/there.c": "void b_f(void); void a_f(void) { b_f(); }\n",
      "plugins/net-b/back.c": "void a_f(void); void b_f(void) { a_f(); }\n"}, "",
     ["net-a/there.c (b_f) -> plugins/net-b/back.c: part of a circle of 2 files through "
      "plugins/net-a and plugins/net-b",
      "net-b/back.c (a_f) -> plugins/net-a/there.c: part of a circle"]),
    ("a circle in a folder without a line", ring("core/comm", ["one", "two"]), "",
     ["core/comm/one.c (two_f) -> core/comm/two.c: closes a circle of 2 files in core/comm, 1 may",
      "core/comm/two.c (one_f) -> core/comm/one.c: closes a circle of 2 files in core/comm, 1 may"
      ]),
    ("a circle through a folder below", {**ring("core/comm", ["one"]), **{
        "core/comm/one.c": "void two_f(void); void one_f(void) { two_f(); }\n",
        "core/comm/host/two.c": "void one_f(void); void two_f(void) { one_f(); }\n"}},
     "core/comm: 2", []),
    ("a circle as large as its number", ring("core/comm", ["one", "two", "three"]),
     "core/comm: 3 # known", []),
    ("a circle larger than its number", {
        **ring("core/comm", ["one", "two", "three"]),
        "core/comm/one.c": "void two_f(void); void four_f(void);\n"
                           "void one_f(void) { two_f(); four_f(); }\n",
        "core/comm/four.c": "void one_f(void); void four_f(void) { one_f(); }\n"}, "core/comm: 3",
     ["core/comm/four.c (one_f) -> core/comm/one.c: closes a circle of 4 files in core/comm, 3 may",
      "core/comm/one.c (four_f) -> core/comm/four.c: closes a circle of 4",
      *["of 4 files in core/comm, 3 may be in one"] * 3]),
    ("a circle that no single reference makes small", {
        **ring("core/comm", ["one", "two"]),
        "core/comm/one.c": "void two_f(void); void two_g(void); void three_f(void);\n"
                           "void one_f(void) { two_f(); three_f(); }\n",
        "core/comm/two.c": "void one_f(void); void three_f(void);\n"
                           "void two_f(void) { one_f(); three_f(); }\n",
        "core/comm/three.c": "void one_f(void); void two_f(void);\n"
                             "void three_f(void) { one_f(); two_f(); }\n"}, "",
     ["core/comm/one.c (three_f) -> core/comm/three.c: one of many references in a circle of 3"]),
    ("a number that is too large", ring("core/comm", ["one", "two"]), "core/comm: 3",
     ["ci/circles.txt: core/comm: 3 files are written, the largest circle has 2; write 2"]),
    ("a number where there is no circle", {}, "core/comm: 2",
     ["core/comm: 2 files are written, the largest circle has 1; remove its line"]),
    ("a number of a folder that is gone", {}, "core/gone: 2",
     ["ci/circles.txt: core/gone: no file of the tree is there; remove the line"]),
    ("a file without an object", {"core/comm/late.c": None}, "",
     ["core/comm/late.c: no object of it was built"]),
    ("a plugin that was not built", {"plugins/net-c/all.c": None}, "", []),
]


def object_of(path):
    """Where CMake puts the object of a source: a target for each folder, export.c in net-a's."""
    if path == "plugins/export.c":
        return "build/release/plugins/net-a/CMakeFiles/net-a.dir/__/export.c.o"
    folder = folder_of(path)
    name = os.path.relpath(path, folder)
    return f"build/release/{folder}/CMakeFiles/{os.path.basename(folder)}.dir/{name}.o"


def compile_tree(files, flags):
    """Writes the files into the working folder and compiles them."""
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text or "")
        if text is not None:
            os.makedirs(os.path.dirname(object_of(path)), exist_ok=True)
            subprocess.run(["gcc", *flags, "-c", path, "-o", object_of(path)], check=True)


def run_case(files, numbers, flags):
    """The findings about a tree of these files, in a folder of its own."""
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            compile_tree({**GOOD, **files}, flags)
            # An object whose source has been removed is left in a build folder.
            compile_tree({"core/base/gone.c": "void comm_go(void); void g(void) { comm_go(); }\n"},
                         flags)
            os.remove("core/base/gone.c")
            graph, sources = load("build/release")
            return check_all(graph, sources, tidy.read_layers(LAYERS), PUBLIC,
                             read_circles(numbers))
        finally:
            os.chdir(home)


def self_test():
    failed = 0
    for name, files, numbers, want in CASES:
        # With -flto alone an object holds intermediate code only, as those of net-socket do.
        for flags in (["-O1"], ["-O1", "-flto"]):
            found = run_case(files, numbers, flags)
            if len(found) != len(want) or any(
                    not any(words in line for line in found) for words in want):
                failed += 1
                print(f"self-test: {name} ({' '.join(flags)}): found {found}, want {want}")
    print(f"symbols self-test: {2 * len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
