"""The commands of the documents are run as they stand, but for the port.

A fenced block is run if a comment stands before it: <!-- test: server --> (shell commands against
a running daemon), <!-- test: python --> (a program against it), <!-- test: shell --> (commands).
"""

import os
import re
import subprocess

import pytest
from daemon import POLYSIL, ROOT, SANITIZED

BLOCK = re.compile(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)#:\s]+)(#[^)]*)?\)")


def blocks(kind):
    return [
        pytest.param(block[2], id=f"{path.name}-{number}")
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
        for number, block in enumerate(BLOCK.finditer(path.read_text()), 1)
        if block[1] == kind
    ]


def run(command, text):
    result = subprocess.run(
        [*command, text],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def here(text, daemon):
    return text.replace("127.0.0.1:8080", f"{daemon.host}:{daemon.port}").replace(
        "127.0.0.1:50051", daemon.grpc
    )


@pytest.mark.parametrize("text", blocks("server"))
def test_commands_against_the_daemon(daemon, text):
    # --fail-with-body: an HTTP error is a failed command, as a reader would see it.
    output = run(
        ["bash", "-euo", "pipefail", "-c"],
        "curl() { command curl -sS --fail-with-body \"$@\"; }\n" + here(text, daemon),
    )
    assert output.strip()


@pytest.mark.parametrize("text", blocks("python"))
def test_programs_against_the_daemon(daemon, text):
    assert run([ROOT / ".venv/bin/python", "-c"], here(text, daemon)).strip()


@pytest.mark.skipif(
    SANITIZED or "release" not in POLYSIL.parts, reason="they build and run release"
)
@pytest.mark.parametrize("text", blocks("shell"))
def test_commands(text):
    assert run(["bash", "-euo", "pipefail", "-c"], text).strip()


def test_the_readme_shows_both_clients_and_the_command_line():
    for kind in ("server", "python", "shell"):
        assert any("README" in block.id for block in blocks(kind)), kind


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in LINK.finditer(path.read_text()):
            target = (path.parent / link[1]).resolve()
            assert target.exists(), f"{path.name}: {link[0]}"


def test_make_targets_of_the_documents_exist():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"(?:^|`)make ([a-z0-9-]+)", path.read_text(), re.M):
            assert target in targets, f"{path.name}: make {target}"


def test_make_help_is_the_default_and_lists_the_commands():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    text = subprocess.run(
        ["make"], cwd=ROOT, capture_output=True, text=True, check=True, env=environment
    ).stdout
    for target in ["serve", "test", "build", "model", "demo", "bench", "lint"]:
        assert re.search(rf"^make {target} ", text, re.M), text
