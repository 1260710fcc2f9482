#!/usr/bin/env bash
# Compiles the library for 64-bit Arm (NEON) with Debian's cross compiler, which it installs if it is missing. Nothing is
# linked or run: that needs such a machine. `scripts/check-neon.sh quick` only checks the syntax of what is written on vectors.
set -euo pipefail
cd "$(dirname "$0")/.."
compiler=aarch64-linux-gnu-g++
if ! command -v "$compiler" > /dev/null; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu > /dev/null
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Highway's headers are the same for every machine; the rest of the system's are not.
ln -s /usr/include/hwy "$folder/hwy"
mapfile -t files < <(find src -name "*.cc" ! -name "*_test.cc" | sort)
how=(-O1 -c)
if [ "${1:-}" = quick ]; then mapfile -t files < <(find src/simd src/threads src/families src/prepare -name "*_simd.cc" -o -path "src/prepare/*_f??.cc" -o -path "src/simd/*.cc" -o -path "src/threads/*.cc" | sort); how=(-fsyntax-only); fi
export folder compiler
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I {} sh -c '
  object=$folder/$(echo {} | tr / _).o
  "$compiler" -std=c++20 -Wall -Wextra -Wshadow -Werror -Wno-restrict -Wno-psabi -isystem "$folder" -Iinclude -Isrc '"${how[*]}"' {} -o "$object" || {
    echo "ttr: {} does not compile for NEON" >&2
    exit 255
  }'
echo "${#files[@]} files compile for NEON"
