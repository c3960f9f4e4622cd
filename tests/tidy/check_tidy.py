#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) on the sources of src/ and kernels/.

  check_tidy.py BUILD [FILE...]   BUILD is a built folder

A file that passed is not checked again as long as its preprocessed text, the flags and .clang-tidy
stay the same: what passed is kept by digest in the user's cache folder.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# clang 14 has no name for a feature of the processor that this one asks for.
SKIPPED = {"kernels/cpu/dispatch.cc"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polysil-tidy"


def entries(build, names):
    """compile_commands.json's entries of product sources; of `names` only, if there are any."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = os.path.relpath(entry["file"], ROOT)
        if name in SKIPPED or not re.match(r"(src|kernels)/.*\.cc$", name):
            continue
        if not names or name in names:
            yield name, entry


def digest(entry, settings):
    """Of everything that a verdict depends on; None if the preprocessor fails."""
    words = [w for w in shlex.split(entry["command"]) if not w.endswith("ccache")]
    cut = words.index("-o")
    text = subprocess.run(
        [*words[:cut], "-E", "-P", entry["file"]],
        cwd=entry["directory"],
        capture_output=True,
        check=False,
    )
    if text.returncode:
        return None
    # The preprocessed text has no comments, but a NOLINT is one: the source itself counts too.
    flags = " ".join(words[1:cut]).replace(str(ROOT), ".").encode()
    parts = [settings, flags, Path(entry["file"]).read_bytes(), text.stdout]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check(build, name, entry, settings):
    """clang-tidy's complaint about one file, or None."""
    key = digest(entry, settings)
    stamp = CACHE / key if key else None
    if stamp and stamp.is_file():
        return None
    run = subprocess.run(
        ["clang-tidy", "--quiet", "-p", str(build), name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return run.stdout.strip() or run.stderr.strip()
    if stamp:
        stamp.touch()
    return None


def main():
    build = Path(sys.argv[1]).resolve()
    settings = (ROOT / ".clang-tidy").read_bytes()
    CACHE.mkdir(parents=True, exist_ok=True)
    files = list(entries(build, sys.argv[2:]))
    problems = 0
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, build, name, entry, settings) for name, entry in files]
        for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            if job.result():
                problems += 1
                # A finding in a header comes once for each source that includes it.
                for finding in re.split(r"\n(?=\S+:\d+:\d+: (?:error|warning))", job.result()):
                    if finding not in seen:
                        seen.add(finding)
                        print(finding, flush=True)
            if done % 20 == 0:
                print(f"tidy: {done} of {len(files)} files", file=sys.stderr, flush=True)
    print(f"tidy: {len(files)} files, {problems} with findings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
