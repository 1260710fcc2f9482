#!/usr/bin/env bash
# Builds examples/quickstart against the installed library and against the build tree, and runs it.
# usage: package_check.sh SOURCE_DIR BUILD_DIR COMPILER
set -euo pipefail
source_dir=$1 build_dir=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build_dir" --prefix "$work/installed" > "$work/install.log"
for place in "$work/installed" "$build_dir"; do
  rm -rf "$work/build"
  cmake -S "$source_dir/examples/quickstart" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
    -Dttr_ROOT="$place" -DCMAKE_PREFIX_PATH="$place" > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
  "$work/build/quickstart"
done
"$work/installed/bin/ttr" --version
