#!/usr/bin/env bash
# Linear memories in chunks add nothing to a null pointer, also while an arena only counts (families/common/scratch.h): usage:
#
#   bash null_offsets_test.sh path/to/ttr
#
# Their units are compiled by clang, whose pointer-overflow sanitizer ends a program that does; g++ has no such check.
set -u
build=$(dirname "$(realpath "$1")")
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=black_box.sh
. "$tree/tests/black_box.sh"
in_empty_folder || exit 1

cat >main.cc <<'END'
#include "ttr/ttr.h"
int main(int argc, char** argv) {
  std::size_t bytes = 0;
  for (int i = 1; i < argc; ++i) {
    const ttr::Footprint f = ttr::plan(argv[i], {2, 2, 2, 8, 8}).footprint(200);
    bytes += f.workspace + f.backward;
  }
  return bytes > 0 ? 0 : 1;
}
END
compile() {
  clang++-14 -O1 -std=c++20 -fsanitize=pointer-overflow -fsanitize-trap=pointer-overflow -I"$tree/include" -I"$tree/src" -c "$1" -o "$2"
}
units=()
for unit in scalar/decay scalar/delta channel/gated channel/dplr; do
  units+=("$(basename $unit).o")
  compile "$tree/src/families/linear/$unit.cc" "${units[-1]}" || bad "$unit.cc is compiled"
done
compile main.cc main.o && clang++-14 main.o "${units[@]}" "$build/libttr.a" -lhwy -lpthread -o counts || bad "they are linked"
for layer in linear-attention retnet deltanet gated-deltanet gla rwkv-6 rwkv-7; do
  check "$layer" ./counts $layer
done

if [ "$failures" -gt 0 ]; then echo "$failures failed"; exit 1; fi
echo "all passed"
