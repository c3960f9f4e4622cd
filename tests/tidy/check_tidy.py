#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) on the sources of src/ and kernels/.

  check_tidy.py BUILD [FILE...]   BUILD is a built folder

A file that passed is not checked again as long as its preprocessed text, the flags and .clang-tidy
stay the same: what passed is kept by digest in the user's cache folder.
"""

import concurrent.futures
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import compile_commands

ROOT = Path(__file__).resolve().parents[2]
# clang 14 has no name for a feature of the processor that this one asks for.
SKIPPED = {"kernels/cpu/dispatch.cc"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "polysil-tidy"


def checked(name, names):
    """Product sources; of `names` only, if there are any."""
    if name in SKIPPED or not re.match(r"(src|kernels)/.*\.cc$", name):
        return False
    return not names or name in names


def digest(name, command, settings):
    """Of everything that a verdict depends on; None if the preprocessor fails."""
    words, directory = command
    text = subprocess.run(
        [*words, "-E", "-P", str(ROOT / name)], cwd=directory, capture_output=True, check=False
    )
    if text.returncode:
        return None
    # The preprocessed text has no comments, but a NOLINT is one: the source itself counts too.
    flags = " ".join(words[1:]).replace(str(ROOT), ".").encode()
    parts = [settings, flags, (ROOT / name).read_bytes(), text.stdout]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check(database, name, command, settings):
    """clang-tidy's complaint about one file, or None."""
    key = digest(name, command, settings)
    stamp = CACHE / key if key else None
    if stamp and stamp.is_file():
        return None
    run = subprocess.run(
        ["clang-tidy", "--quiet", "-p", str(database), name],
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
    commands = compile_commands.read(build, ROOT)
    files = {name: commands[name] for name in commands if checked(name, sys.argv[2:])}
    database = build / "tidy"
    compile_commands.write(database, ROOT, files)
    problems = 0
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(check, database, name, command, settings)
            for name, command in files.items()
        ]
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
