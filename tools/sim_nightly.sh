#!/bin/sh
# Random simulations on all processors for an hour, with seeds that the date gives. Ends at the
# first failure, with the seed and the command that shows it.
#
#   tools/sim_nightly.sh POLYSIL [SECONDS]
set -eu
polysil=${1:?"usage: tools/sim_nightly.sh POLYSIL [SECONDS]"}
seconds=${2:-3600}
workers=$(nproc)
chunk=20000

first=$(date -u +%Y%m%d)000000000
end=$(($(date +%s) + seconds))
echo "sim-nightly: seeds from $first, $workers at a time, for $seconds s"
while [ "$(date +%s)" -lt "$end" ]; do
  pids=
  for _ in $(seq "$workers"); do
    "$polysil" sim --seeds "$first:$chunk" &
    pids="$pids $!"
    first=$((first + chunk))
  done
  failed=
  for pid in $pids; do
    wait "$pid" || failed=yes
  done
  [ -z "$failed" ] || exit 1
done
echo "sim-nightly: all seeds before $first held"
