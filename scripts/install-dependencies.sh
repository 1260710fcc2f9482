#!/usr/bin/env bash
# Installs the Debian packages ttr builds with, if any is missing. Works as root and with sudo. With the argument `bench`
# also the libraries that the micro-benchmarks compare with, and what `make count` runs; with `torch` what `make test-torch`
# needs, with `notebooks` what runs examples/notebooks.
set -euo pipefail

packages=(
  g++ clang-14 libclang-rt-14-dev cmake ninja-build make git ccache clang-format-14 clang-tidy-14
  libhwy-dev                                     # the library's only dependency
  libcli11-dev nlohmann-json3-dev libfmt-dev     # the program
  libpcre2-dev libutf8proc-dev                   # tokenizers of published models
  libboost-dev                                   # ttr serve: Beast and Asio, headers alone
  libopenmpi-dev openmpi-bin                     # ttr::mpi
  libgtest-dev librapidcheck-dev pkg-config zstd # the tests; ttr regress reads .zst by the program, as .gz
  python3 python3-numpy                          # golden vectors from their equations; the Python front
  mypy python3-pip python3-venv                  # its types, its wheel
  libbenchmark-dev                               # make bench
)
if [ "${1:-}" = bench ]; then packages+=(libeigen3-dev libopenblas-dev libblis-dev libdnnl-dev libxsmm-dev valgrind binutils); fi
torch=(python3-torch python3-sklearn python3-pandas)
case "${1:-}" in
  torch) packages+=("${torch[@]}") ;;
  notebooks) packages+=("${torch[@]}" jupyter-nbconvert python3-nbclient python3-ipykernel python3-matplotlib) ;;
esac
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
