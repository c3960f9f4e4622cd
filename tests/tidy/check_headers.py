#!/usr/bin/env python3
"""Compiles headers of include/, src/ and kernels/ alone, with the flags of their layer.

check_headers.py BUILD   BUILD is a configured build folder (it has compile_commands.json and, where
                         services are generated, its proto headers: build "polysil" first)

A header that a source of its layer includes before all others is left to clang-tidy (check_tidy.py),
which reads that source without precompiled headers.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

import compile_commands
import source_tree

HEADER = re.compile(r"^(include/polysil|src|kernels)/(\w+)?.*\.h$")
SOURCE = re.compile(r"^(?:src/(\w+)|(kernels))/.*\.cc$")
FIRST_INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def flags_by_layer(commands):
    """Layer -> compiler and flags of one of its sources."""
    flags = {}
    for name, words_and_folder in commands.items():
        layer = SOURCE.match(name)
        if layer and "_avx" not in name:
            flags.setdefault(layer[1] or layer[2], words_and_folder)
    return flags


def included_first(root):
    """Headers that a source includes before all others, as paths below root."""
    found = set()
    for name in source_tree.sources(root):
        first = FIRST_INCLUDE.search((root / name).read_text()) if SOURCE.match(name) else None
        if first:
            found |= {f"src/{first[1]}", f"include/{first[1]}", first[1]}
    return found


def compile_alone(root, build, header, flags):
    """The compiler's complaint, or None."""
    words, directory = flags
    unit = build / "headers" / (header.replace("/", "_") + ".cc")
    unit.parent.mkdir(exist_ok=True)
    unit.write_text(f'#include "{root / header}"\n')
    result = subprocess.run(
        [*words, "-fsyntax-only", str(unit)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stderr.strip() if result.returncode else None


def main():
    root = Path(__file__).resolve().parents[2]
    build = Path(sys.argv[1]).resolve()
    flags = flags_by_layer(compile_commands.read(build, root))
    fallback = flags.get("daemon") or flags.get("base")
    known = included_first(root)
    headers = [
        name for name in source_tree.sources(root) if HEADER.match(name) and name not in known
    ]
    problems = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            pool.submit(
                compile_alone, root, build, name, flags.get(HEADER.match(name)[2], fallback)
            ): name
            for name in headers
        }
        for job in concurrent.futures.as_completed(jobs):
            if job.result():
                problems += 1
                print(f"{jobs[job]}:1: does not compile alone:\n{job.result()}")
    print(f"headers: {len(headers)} compiled alone, {problems} do not")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
