#!/bin/sh
# Installs what this project needs from Debian 12 and makes .venv, the Python environment of the
# checkout. Run by `make`; safe to run again: with everything there it takes no network and no time.
#
#   tools/bootstrap.sh serve   what building and serving need
#   tools/bootstrap.sh test    that, and what the tests need
#   tools/bootstrap.sh list    prints the package names of "test", one a line
set -eu
cd "$(dirname "$0")/.."

# Name of a Debian package, then what it is for.
serve_packages='
g++                       the compiler
cmake                     configures the build
ninja-build               runs it
make                      runs the commands of the Makefile
ccache                    makes the second build of the same code cheap
pkg-config                finds PCRE2, utf8proc, hwloc and curl
libgrpc++-dev             gRPC face
libgrpc-dev               its core
protobuf-compiler         schemas to C++
protobuf-compiler-grpc    services to C++
libprotobuf-dev           messages
libabsl-dev               Status; also under gRPC
libspdlog-dev             log
libfmt-dev                messages
libboost1.81-dev          HTTP face: Asio and Beast
libboost-json1.81-dev     JSON
libyaml-cpp-dev           configuration files
libcli11-dev              command line
prometheus-cpp-dev        metrics
libpcre2-dev              pre-tokenizer
libutf8proc-dev           Unicode normalisation
libssl-dev                SHA-256
libhwloc-dev              cores and caches
libcurl4-openssl-dev      HTTP client of the load generator
libsimde-dev              vector code on machines other than x86
libgtest-dev              test programs (the build describes them, serving or not)
libgmock-dev              matchers of the test programs
libbenchmark-dev          bench programs, likewise
ca-certificates           lets pip trust its index
python3                   runs pip and the checks
python3-venv              .venv, which brings its own pip
'
test_packages='
curl                      one of the clients of the end-to-end tests
procps                    looks at the daemon as a person would
util-linux                setarch, which the thread sanitizer needs on some kernels
clang-format              layout of the code
clang-tidy                static checks
'

say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

names() { printf '%s\n' "$1" | awk 'NF { print $1 }'; }

# Of the names in $1, those that are not installed; all of them where there is no dpkg.
missing_of() {
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $1 2>/dev/null |
    awk '$1 == "installed" { print $2 }') || true
  printf '%s\n' $1 | awk -v have="$installed" '
    BEGIN { n = split(have, list, "\n"); for (i = 1; i <= n; i++) there[list[i]] = 1 }
    !($1 in there)'
}

# apt-get as root. Waits for dpkg's lock itself; update_lists waits for the lock of the lists.
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@"
}

update_lists() {
  attempt=1
  until apt update; do
    [ "$attempt" -lt 6 ] || fail "apt-get update failed $attempt times"
    say "apt-get update failed, perhaps because another one runs; trying again in 10 s"
    attempt=$((attempt + 1))
    sleep 10
  done
}

install_packages() {
  wanted=$1
  missing=$(missing_of "$wanted")
  [ -n "$missing" ] || return 0
  count=$(printf '%s\n' "$missing" | wc -l)
  by_hand="apt-get install --no-install-recommends $(printf '%s ' $missing)"
  command -v apt-get >/dev/null 2>&1 ||
    fail "this is not a Debian system (no apt-get). The names in Debian 12 of what is missing:
$missing"
  if [ "$(id -u)" -eq 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=sudo
  else
    fail "packages are missing ($count) and this user may not install them. As root, run:
  apt-get update && $by_hand"
  fi
  say "installing what is missing ($count):" $missing
  update_lists
  # shellcheck disable=SC2086  # one word a package
  apt install --no-install-recommends $missing ||
    fail "the installation failed. To see more, run as root: $by_hand"
  missing=$(missing_of "$wanted")
  [ -z "$missing" ] || fail "still missing after the installation:" $missing
  say "packages are installed"
}

# .venv with the pip of the distribution, and for "test" the pinned clients. Stamps say what it has,
# so that a finished environment is recognised without Python.
make_venv() {
  python=/usr/bin/python3
  python_stamp=$(readlink -f "$python")
  if [ "$(cat .venv/.python 2>/dev/null)" != "$PWD $python_stamp" ]; then
    say "making .venv"
    rm -rf .venv
    "$python" -m venv .venv || fail "python3 -m venv failed"
    printf '%s %s\n' "$PWD" "$python_stamp" >.venv/.python
  fi
  [ "$1" = test ] || return 0
  requirements=tests/e2e/requirements.txt
  wanted=$(cksum <"$requirements")
  if [ "$(cat .venv/.requirements 2>/dev/null)" != "$wanted" ]; then
    say "installing the Python clients of the tests into .venv"
    .venv/bin/python -m pip install --disable-pip-version-check --no-input -q -r "$requirements" ||
      fail "pip could not install $requirements; is there a network?"
    printf '%s\n' "$wanted" >.venv/.requirements
    say ".venv is ready"
  fi
}

case ${1:-serve} in
serve)
  install_packages "$(names "$serve_packages")"
  make_venv serve
  ;;
test)
  install_packages "$(names "$serve_packages$test_packages")"
  make_venv test
  ;;
list)
  names "$serve_packages$test_packages"
  ;;
*)
  fail "unknown argument '$1'; use serve, test or list"
  ;;
esac
