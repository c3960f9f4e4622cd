#!/bin/sh
# Builds and runs every micro-benchmark, bench/<layer>_bench.cc, one after the other.
#
#   bench/run.sh BUILD [arguments of Google Benchmark]
set -eu
cd "$(dirname "$0")/.."
build=${1:?"usage: bench/run.sh BUILD [arguments]"}
shift

programs=
for source in bench/*_bench.cc; do
  [ -f "$source" ] || continue
  name=$(basename "$source" _bench.cc)
  programs="$programs bench_$name"
done
[ -n "$programs" ] || {
  echo "bench: there is no bench/*_bench.cc" >&2
  exit 1
}
# shellcheck disable=SC2086  # one word a program
ninja -C "$build" $programs
for program in $programs; do
  printf '=== %s\n' "$program"
  "$build/bin/$program" "$@"
done
