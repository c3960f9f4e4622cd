"""The files of the checkout, for the checks in this folder."""

import os
import re
import subprocess
from pathlib import Path

SOURCE = re.compile(r"^(include|src|kernels|tests|bench)/.*\.(h|cc)$")


def files(root):
    """Paths under `root` that are committed or would be, sorted; all but build/ and dot folders where
    there is no git."""
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode == 0:
        names = [name for name in git.stdout.split("\0") if name]
    else:
        names = []
        for folder, subfolders, leaves in os.walk(root):
            subfolders[:] = [s for s in subfolders if s not in ("build", "models") and s[0] != "."]
            names += [os.path.relpath(os.path.join(folder, leaf), root) for leaf in leaves]
    return sorted(name for name in names if (Path(root) / name).is_file())


def sources(root):
    return [name for name in files(root) if SOURCE.match(name)]


def strip(text):
    """`text` with the insides of comments and literals blanked; lines keep their numbers and columns."""
    out = []
    i = 0
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.S,
    )
    for match in pattern.finditer(text):
        token = match.group(0)
        # A quote inside a number (1'000) is no character literal.
        if token[0] == "'" and match.start() and text[match.start() - 1].isalnum():
            continue
        if match.start() < i:
            continue
        out.append(text[i : match.start()])
        if token.startswith(("//", "/*")):
            out.append(re.sub(r"[^\n]", " ", token))
        else:
            out.append(token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1])
        i = match.end()
    out.append(text[i:])
    return "".join(out)
