#!/usr/bin/env python3
"""Holds every #include of include/, src/ and kernels/, and every add_layer of CMakeLists.txt, against
layers.txt.

  check_layers.py [ROOT]   prints one line a violation; exits 1 if there is any
"""

import fnmatch
import re
import sys
from pathlib import Path

import source_tree

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


class Table:
    """layers.txt as written."""

    def __init__(self, path):
        self.layers = {}
        self.libraries = {}
        self.denials = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = line.split("#")[0].split()
            if words:
                try:
                    getattr(self, "_" + words[0])(words[1:])
                except (AttributeError, IndexError, ValueError):
                    raise SystemExit(f"{path}:{number}: cannot be read: {line.strip()}") from None

    def _layer(self, words):
        name, pub_word, pub, priv_word, priv, *use = words
        if (pub_word, priv_word) != ("pub", "priv") or (use and use[0] != "use"):
            raise ValueError(name)
        self.layers[name] = {
            "pub": [] if pub == "-" else pub.split(","),
            "priv": [name] + ([] if priv == "-" else priv.split(",")),
            "use": use[1:],
        }

    def _library(self, words):
        self.libraries[words[0]] = words[1:]

    def _deny(self, words):
        pattern, *headers = words
        braces = re.match(r"(.*)\{(.*)\}(.*)$", pattern)
        names = [braces[1] + w + braces[3] for w in braces[2].split(",")] if braces else [pattern]
        self.denials.append((names, [h.strip("<>") for h in headers]))

    def library_of(self, header):
        for name, prefixes in self.libraries.items():
            for prefix in prefixes:
                if header == prefix or (prefix.endswith("/") and header.startswith(prefix)):
                    return name
                if "/" in prefix and header.startswith((prefix + "/", prefix + ".")):
                    return name
        return None


def allows(list_, name):
    return "*" in list_ or name in list_


def place_of(name):
    """("priv", layer) or ("pub", layer) of a file, or None."""
    parts = name.split("/")
    if parts[0] == "kernels":
        return "priv", "kernels"
    if parts[0] == "src" and len(parts) > 2:
        return "priv", parts[1]
    if name.startswith("include/polysil/") and len(parts) > 3:
        return "pub", parts[2]
    return None


def ours(header, root):
    """("priv", layer) or ("pub", layer) that a quoted include names, or None if it is not found."""
    if header.startswith("polysil/v1/"):
        return "priv", "proto"
    if (root / "include" / header).is_file():
        return place_of("include/" + header)
    if header.startswith("kernels/") and (root / header).is_file():
        return "priv", "kernels"
    if (root / "src" / header).is_file():
        return place_of("src/" + header)
    return None


def check_include(root, table, name, quote, header):
    """What is wrong with one include, or None."""
    kind, layer = place_of(name)
    rules = table.layers[layer]
    library = table.library_of(header)
    if library is not None:
        return (
            None
            if allows(rules["use"], library)
            else (f"layer '{layer}' may not use {library} ({header})")
        )
    if quote == "<":
        outside = "/" in header or header.endswith(".hpp")
        return f"<{header}> is of no library that layers.txt lists" if outside else None
    target = ours(header, root)
    if target is None:
        return f'"{header}" is not a full path from include/, src/ or the root'
    target_kind, target_layer = target
    if kind == "pub" and target_kind == "priv":
        return f'a header of include/ may not include "{header}" of src/'
    if not allows(rules[target_kind], target_layer):
        side = "include/polysil/" if target_kind == "pub" else "src/"
        return f"layer '{layer}' may not include {side}{target_layer} (\"{header}\")"
    return None


def check_includes(root, table):
    for name in source_tree.sources(root):
        if place_of(name) is None:
            continue
        _, layer = place_of(name)
        if layer not in table.layers:
            yield f"{name}:1: '{layer}' is not a layer of layers.txt"
            continue
        text = (root / name).read_text()
        denied = [
            h
            for names, headers in table.denials
            if any(fnmatch.fnmatch(name, n) for n in names)
            for h in headers
        ]
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            problem = check_include(root, table, name, match[1], match[2])
            if match[2] in denied:
                problem = f"deciding code holds no <{match[2]}>: it comes in from outside"
            if problem:
                yield f"{name}:{line}: {problem}"


def check_table(table):
    """The private side of the table must have an order, bottom to top."""
    below = {
        name: [p for p in rules["priv"] if p not in (name, "*", "proto")]
        for name, rules in table.layers.items()
    }
    placed = set()
    while below:
        ready = [name for name, deps in below.items() if placed.issuperset(deps)]
        if not ready:
            yield "layers.txt: these layers include each other in a circle: " + ", ".join(below)
            return
        placed.update(ready)
        for name in ready:
            del below[name]


def check_cmake(root, table):
    path = root / "CMakeLists.txt"
    text = path.read_text() if path.is_file() else ""
    for match in re.finditer(r"^add_layer\((\w+) DEPS([\w\s]*?)(?:LIBS|TEST_DEPS|\))", text, re.M):
        layer, deps = match[1], match[2].split()
        line = text.count("\n", 0, match.start()) + 1
        if layer not in table.layers:
            yield f"CMakeLists.txt:{line}: '{layer}' is not a layer of layers.txt"
            continue
        rules = table.layers[layer]
        for dep in deps:
            if not allows(rules["pub"] + rules["priv"], dep):
                yield f"CMakeLists.txt:{line}: layer '{layer}' may not link {dep}"


def check(root):
    table = Table(Path(__file__).parent / "layers.txt")
    yield from check_table(table)
    yield from check_cmake(root, table)
    yield from check_includes(root, table)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    problems = list(check(root))
    print("\n".join(problems + [f"layers: {len(problems)} violations"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
