#!/usr/bin/env bash
# Installs the Debian packages ttr builds with, if any is missing. Works as root and with sudo. With the argument `bench`
# also the libraries that the micro-benchmarks compare with, and what `make count` runs.
set -euo pipefail

packages=(
  g++ clang-14 libclang-rt-14-dev cmake ninja-build make git ccache clang-format-14 clang-tidy-14
  libhwy-dev                                     # the library's only dependency
  libcli11-dev nlohmann-json3-dev libfmt-dev     # the program
  libgtest-dev librapidcheck-dev                 # the tests
  python3 python3-numpy                          # golden vectors from their equations
  libbenchmark-dev                               # make bench
)
if [ "${1:-}" = bench ]; then packages+=(libeigen3-dev libopenblas-dev libblis-dev libdnnl-dev libxsmm-dev valgrind binutils); fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get > /dev/null; then
  echo "ttr: this script installs Debian packages and there is no apt-get here. Install by hand: ${missing[*]}" >&2
  exit 2
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "ttr: not root and no sudo. As root: apt-get install ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
echo "Installed."
