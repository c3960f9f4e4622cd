#!/bin/sh
# The checks of the code that are no tests. All of them run; the exit status is 1 if one fails.
#
#   tools/lint.sh BUILD      BUILD is a built folder (clang-tidy and the header check need it)
#   tools/lint.sh --format   lays out all C++ code instead
set -eu
cd "$(dirname "$0")/.."

cxx_files() { git ls-files -co --exclude-standard -- '*.h' '*.cc' | grep -v '^tests/data/'; }

if [ "${1:-}" = --format ]; then
  cxx_files | xargs clang-format -i
  exit 0
fi
build=${1:?"usage: tools/lint.sh BUILD | --format"}

failed=
stage() {
  name=$1
  shift
  began=$(date +%s)
  "$@" || failed="$failed $name"
  printf 'lint: %s took %s s\n' "$name" "$(($(date +%s) - began))" >&2
}

check_format() { cxx_files | xargs clang-format --dry-run -Werror; }

stage format check_format
stage files python3 tests/tidy/check_files.py
stage layers python3 tests/tidy/check_layers.py
stage headers python3 tests/tidy/check_headers.py "$build"
stage tidy python3 tests/tidy/check_tidy.py "$build"
[ -z "$failed" ] || {
  printf 'lint: failed:%s\n' "$failed" >&2
  exit 1
}
