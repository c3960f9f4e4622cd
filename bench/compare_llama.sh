#!/bin/sh
# Speed of one stream against llama.cpp on the same file, in interleaved rounds, as ratios.
# LLAMA_SERVER names a llama-server; without it one is built (bench/build_llama.sh).
#
#   bench/compare_llama.sh [--rounds N] [--threads N]
set -eu
cd "$(dirname "$0")/.."
llama=${LLAMA_SERVER:-$(bench/build_llama.sh)}
exec python3 bench/compare_llama.py --llama "$llama" --polysil build/release/bin/polysil \
  --model models/SmolLM2-135M-Instruct.Q4_1.gguf "$@"
