"""How the build compiles its sources, for checks that read them with another compiler or alone."""

import json
import os
import re
import shlex

# Of GCC alone, or about precompiled headers: a check reads the headers that a source names.
FOREIGN = re.compile(r"-fno-tree-\w+|-fpch-\S+|-Winvalid-pch")


def read(build, root):
    """{path below root: (words before -o, folder)}."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        while words and not re.search(r"(\+\+|g?cc|clang)(-\d+)?$", words[0]):
            words.pop(0)  # ccache and what sets its environment
        words = words[: words.index("-o")]
        kept = []
        skip = False
        for word in words:
            if skip or word == "-include":
                skip = not skip
            elif not FOREIGN.fullmatch(word):
                kept.append(word)
        found[os.path.relpath(entry["file"], root)] = (kept, entry["directory"])
    return found


def write(folder, root, commands):
    """A compile_commands.json of `commands` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        {"file": str(root / name), "directory": directory, "arguments": [*words, "-c", str(root / name)]}
        for name, (words, directory) in commands.items()
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
