#!/usr/bin/env python3
"""Compiles every header of include/, src/ and kernels/ alone, with the flags of its layer.

check_headers.py BUILD   BUILD is a configured build folder (it has compile_commands.json and, where
                         services are generated, its proto headers: build "polysil" first)
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import source_tree

HEADER = re.compile(r"^(include/polysil|src|kernels)/(\w+)?.*\.h$")


def flags_by_layer(build):
    """Layer -> compiler and flags of one of its sources."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        layer = re.search(r"/(?:src/(\w+)|(kernels))/[^ ]*\.cc$", entry["file"])
        if not layer or "_avx" in entry["file"]:
            continue
        words = shlex.split(entry["command"])
        cut = words.index("-o")
        flags.setdefault(layer[1] or layer[2], (words[:cut], entry["directory"]))
    return flags


def compile_alone(root, build, header, flags):
    """The compiler's complaint, or None. The unit lies at a fixed place, so that ccache knows it."""
    unit = build / "headers" / (header.replace("/", "_") + ".cc")
    unit.parent.mkdir(exist_ok=True)
    text = f'#include "{root / header}"\n'
    if not unit.is_file() or unit.read_text() != text:
        unit.write_text(text)
    words, directory = flags
    result = subprocess.run(
        [*words, "-O0", "-o", f"{unit}.o", "-c", str(unit)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stderr.strip() if result.returncode else None


def main():
    root = Path(__file__).resolve().parents[2]
    build = Path(sys.argv[1]).resolve()
    flags = flags_by_layer(build)
    fallback = flags.get("daemon") or flags.get("base")
    headers = [
        name
        for name in source_tree.sources(root)
        if HEADER.match(name) and not name.startswith("tests/")
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
