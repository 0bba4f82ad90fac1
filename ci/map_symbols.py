#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the names that a linker version map exports, sorted, one a line. Refuses patterns: "
  "exports are
promises, and a pattern promises what nobody has written down."""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", file.read(), flags=re.S)
names = set()
for body in re.findall(r"\{(.*?)\}", text, re.S):
    exported = True
    for word in re.findall(r"global:|local:|[^\s;]+", body):
        if word in ("global:", "local:"):
            exported = word == "global:"
        elif exported and re.search(r"[*?\[]", word):
            sys.exit(f"{sys.argv[1]}: {word} is a pattern; write the names")
        elif exported:
            names.add(word)
print("\n".join(sorted(names)))
