#!/usr/bin/env python3
"""Holds the text of the project to docs/style.md, as far as a program can see it.

check_files.py [ROOT]   prints one line a violation; exits 1 if there is any
"""

import re
import sys
from pathlib import Path

import source_tree

COLUMNS_MAX = 100
FILE_LINES_MAX = 500
FILE_LINES_LIMIT = 800
FUNCTION_LINES_MAX = 70
# The comment that excuses a long file or function, at its head: "// Over 500 lines: <why>".
LONG_FILE = re.compile(r"^// Over 500 lines: \S", re.M)
LONG_FUNCTION = re.compile(r"^\s*// Over 70 lines: \S")

SOURCES = r"^(include|src|kernels|tests|bench)/.*\.(h|cc)$"
PRODUCT = r"^(include|src|kernels)/.*\.(h|cc)$"
HEADERS = r"^(include|src|kernels|tests)/.*\.h$"
DECIDING = r"^src/(core|kv|sched|spec|engine|plan)/"
TESTS = r"^tests/.*\.(h|cc|py)$"
# Text of others, kept as it came.
FOREIGN = re.compile(r"^(LICENSE$|tests/data/|tests/tidy/)")

# (files, pattern, message); applied to code without comments and literals.
CODE_RULES = [
    (HEADERS, r"#\s*include\s*<iostream>", "a header does not include <iostream>"),
    (HEADERS, r"\busing\s+namespace\b", "a header opens no namespace for its includers"),
    (PRODUCT, r"\bthrow\b(?!\s*;)", "nothing is thrown; return a Status"),
    (PRODUCT, r"\bassert\s*\(", "use CHECK, which stays on in release"),
    (
        PRODUCT,
        r"\w+ForTest(ing|s)?\b",
        "no methods for tests; if a test needs it, the seam is wrong",
    ),
    (r"^src/(?!daemon|cli)", r"\b(std::)?getenv\s*\(", "no environment variables below daemon"),
    (
        r"^(src/(?!daemon|cli|base/check)|include/|kernels/)",
        r"\bstd::(cout|cerr|clog)\b|\bf?printf\s*\(",
        "nothing below daemon prints; base/log.h is for messages",
    ),
    (
        DECIDING,
        r"\bstd::(hash|unordered_\w+)\b",
        "std::hash differs between libraries: use the project's own hashes or an ordered container",
    ),
    (
        r"^src/(core|kv|sched|spec)/|^src/engine/engine_core",
        r"\b(rand|time|clock_gettime)\s*\(|\bstd::(random_device|mt19937)|\bnow\s*\(\)",
        "deciding code takes time and chance from outside",
    ),
    (
        TESTS,
        r"\bsleep_(for|until)\b|\busleep\s*\(|\bnanosleep\s*\(",
        "tests do not sleep; wait for what you need",
    ),
    (TESTS, r"\bDISABLED_", "no disabled tests"),
    (
        SOURCES,
        r"\b(?:class|struct|enum|enum class|using)\s+"
        r"(?!KvManager\b)\w*(Manager|Handler|Helper|Helpers|Util|Utils|Impl)\b(?!;)",
        "not a name here: Manager (but KvManager), Handler, Helper, Util, Impl",
    ),
    (SOURCES, r"\b(?:class|struct)\s+(Base|Context|Data|Info)\b", "a name that says nothing"),
]
# Applied to the whole text of a file.
TEXT_RULES = [
    (
        r"\.(h|cc|py|sh|cmake|proto)$|Makefile$",
        r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))",
        "needs an issue number, as TODO(#12)",
    ),
    (r".", r"(?<![\w.])/(work|root|home)/\w", "a path of one machine"),
    (
        r".",
        r"(?i)\b(claude|anthropic|copilot|chatgpt|ai-generated)\b",
        "names a tool, not the project",
    ),
    (r".", r"(?i)\b(pypi\.org|pythonhosted\.org|deb\.debian\.org)\b", "names a registry's host"),
    (r".", r"^(<{7}|>{7}|={7})( |$)", "left over from a merge"),
    (r".", r"[ \t]+$", "space at the end of the line"),
    (r".", r"\r", "carriage return"),
    (r"^(?!Makefile|.*\.mk$)", r"\t", "tab"),
    (
        r"\.(h|cc|py|sh|cmake|proto)$|^(Makefile|CMakeLists.txt)$",
        r"^(?!.*https?://).{%d,}$" % (COLUMNS_MAX + 1),
        f"longer than {COLUMNS_MAX} columns",
    ),
    (r"\.(h|cc)$", r"Licensed under the Apache License", "the licence is in LICENSE, once"),
]
BAD_FILE_NAME = re.compile(
    r"(^|/)(common|utils?|misc|helpers?)(/|\.(h|cc|py)$)|_(utils?|helpers?|impl)\.(h|cc)$"
)


def scan(rules, name, text):
    for files, pattern, message in rules:
        if not re.search(files, name):
            continue
        for match in re.finditer(pattern, text, re.M):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: '{match[0].strip()[:60]}': {message}"


def check_head(name, text):
    """A header: '#pragma once' after a head comment."""
    if not re.match(HEADERS, name):
        return
    if not text.startswith("//"):
        yield f"{name}:1: a header begins with a comment: what it is, what it is not, who owns it"
    if not re.search(r"^#pragma once$", text, re.M):
        yield f"{name}:1: no #pragma once"


def check_length(name, text):
    lines = text.count("\n")
    if not re.match(SOURCES, name) or lines <= FILE_LINES_MAX:
        return
    if lines > FILE_LINES_LIMIT:
        yield f"{name}:{lines}: {lines} lines; the limit is {FILE_LINES_LIMIT}"
    elif not LONG_FILE.search(text):
        yield (
            f"{name}:{lines}: {lines} lines; over {FILE_LINES_MAX} it needs a comment "
            "'// Over 500 lines: <why>'"
        )


def function_spans(code):
    """(first, last) line numbers, from 1, of the outermost functions of stripped code."""
    depth = 0
    open_at = None  # depth and line of the function that is open
    head = 0  # where the current declaration began
    for match in re.finditer(r"[{};]", code):
        position, token = match.start(), match.group(0)
        if token == "{":
            before = code[head:position]
            container = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", before)
            if open_at is None and "(" in before and not container:
                first = code.count("\n", 0, head + len(before) - len(before.lstrip())) + 1
                open_at = depth, first
            depth += 1
        elif token == "}":
            depth -= 1
            if open_at is not None and depth == open_at[0]:
                yield open_at[1], code.count("\n", 0, position) + 1
                open_at = None
        head = match.end()


def check_functions(name, text, code):
    if not re.match(r"^(include|src|kernels|bench)/.*\.(h|cc)$", name):
        return
    # Preprocessor lines hold unbalanced braces at times; they are no part of a function's text.
    code = re.sub(r"^[ \t]*#.*(\\\n.*)*", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.M)
    lines = text.split("\n")
    for first, last in function_spans(code):
        length = last - first + 1
        if length <= FUNCTION_LINES_MAX:
            continue
        above = first - 2
        while above >= 0 and lines[above].lstrip().startswith("//"):
            if LONG_FUNCTION.match(lines[above]):
                break
            above -= 1
        else:
            yield (
                f"{name}:{first}: a function of {length} lines; over {FUNCTION_LINES_MAX} it needs "
                "a comment '// Over 70 lines: <why>' above"
            )


def type_names(code):
    """(qualified name, line) of the classes, structs and enums that stripped code defines at the scope
    of named namespaces."""
    scopes = []  # the name of a named namespace; None for any other pair of braces
    head = 0
    for match in re.finditer(r"[{};]", code):
        before = code[head : match.start()]
        head = match.end()
        if match[0] == "}":
            del scopes[-1:]
        elif match[0] == "{":
            namespace = re.search(r"\bnamespace\s+([\w:]+)\s*$", before)
            kind = re.search(r"\b(?:class|struct|enum|union)\s+(\w+)\b(?!::)[^();]*$", before)
            if kind and None not in scopes and "template" not in before:
                yield "::".join([*scopes, kind[1]]), code.count("\n", 0, match.start()) + 1
            scopes.append(namespace[1] if namespace else None)


def check_names(root):
    """One program holds all of src/: two types of one name are one type to its linker."""
    first = {}
    for name in source_tree.sources(root):
        if not re.match(PRODUCT, name):
            continue
        code = source_tree.strip((root / name).read_text())
        code = re.sub(r"^[ \t]*#.*$", "", code, flags=re.M).replace("enum class", "enum")
        for type_name, line in type_names(code):
            if type_name in first:
                yield f"{name}:{line}: '{type_name}' is defined at {first[type_name]} too"
            first[type_name] = f"{name}:{line}"


def check_file(root, name):
    try:
        text = (root / name).read_bytes().decode()
    except UnicodeDecodeError:
        if re.match(SOURCES, name):
            yield f"{name}:1: not UTF-8"
        return
    if text and not text.endswith("\n"):
        yield f"{name}:{text.count(chr(10)) + 1}: no newline at the end"
    if BAD_FILE_NAME.search(name):
        yield f"{name}:1: files are named after what flows through them"
    yield from scan(TEXT_RULES, name, text)
    yield from check_head(name, text)
    yield from check_length(name, text)
    if re.search(r"\.(h|cc)$", name):
        code = source_tree.strip(text)
        yield from scan(CODE_RULES, name, code)
        yield from check_functions(name, text, code)


def check(root):
    for name in source_tree.files(root):
        if not FOREIGN.match(name):
            yield from check_file(root, name)
    yield from check_names(root)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    problems = list(check(root))
    print("\n".join(problems + [f"files: {len(problems)} violations"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
