#!/bin/sh
# Makes other files of the model of the examples, for comparisons: the weights of
# models/SmolLM2-135M-Instruct.Q4_1.gguf as Q8_0, Q4_K_M, F16 and BF16, and, where vLLM is
# installed, folders with the same weights in bf16 and in 8 bits, which is what vLLM reads. Speed is
# what they are for: what Q4_1 lost does not come back.
#
#   bench/peers/models.sh          prints the path of each file; makes what is missing (2 minutes)
set -eu
cd "$(dirname "$0")/../.."
folder=${POLYSIL_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/polysil-peers}
out=$folder/models
source=models/SmolLM2-135M-Instruct.Q4_1.gguf
name=SmolLM2-135M-Instruct

say() { printf 'peers: %s\n' "$*" >&2; }

[ -f "$source" ] || {
  say "there is no $source; make model fetches it"
  exit 1
}
quantize=$folder/llama-11434/build/bin/llama-quantize
[ -x "$quantize" ] || {
  say "there is no llama-quantize; bench/peers/install.sh llama builds it"
  exit 1
}
mkdir -p "$out"
for type in Q8_0 Q4_K_M F16 BF16; do
  file=$out/$name.$type.gguf
  if [ ! -f "$file" ]; then
    say "making $file"
    "$quantize" --allow-requantize "$source" "$file.part" "$type" >"$file.log" 2>&1 || {
      say "llama-quantize failed, see $file.log"
      exit 1
    }
    mv "$file.part" "$file"
  fi
  printf '%s\n' "$file"
done

python=$folder/vllm/bin/python
if [ -x "$python" ]; then
  for form in bf16 w8a8; do
    checkpoint=$out/$name.$form
    if [ ! -f "$checkpoint/config.json" ]; then
      say "making $checkpoint"
      rm -rf "$checkpoint.part"
      "$python" bench/peers/make_checkpoint.py "$form" "$source" "$checkpoint.part" >&2
      mv "$checkpoint.part" "$checkpoint"
    fi
    printf '%s\n' "$checkpoint"
  done
fi
