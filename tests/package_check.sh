#!/usr/bin/env bash
# ttr as other programs take it:
#   installed, and from the build tree   find_package(ttr): examples/quickstart and examples/decode
#   installed                            pkg-config: C++ and C, from a folder that was moved after installing
#   shared                               which names the libraries show, and under which SONAME
#   a fresh clone                        FetchContent with three layers in float: what is left out, and how large it is
#   a folder                             add_subdirectory: configures without a build type, and imposes none
# usage: package_check.sh SOURCE_DIR BUILD_DIR COMPILER
set -euo pipefail
source_dir=$1 build_dir=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "package: $*" >&2; exit 1; }
quietly() { "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; fail "$*"; }; }
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

quietly cmake --install "$build_dir" --prefix "$work/first"
mv "$work/first" "$work/installed"
for place in "$work/installed" "$build_dir"; do
  for example in quickstart decode; do
    quietly cmake -S "$source_dir/examples/$example" -B "$work/$example" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
      -Dttr_ROOT="$place" -DCMAKE_PREFIX_PATH="$place"
    quietly cmake --build "$work/$example"
  done
  "$work/quickstart/quickstart"
  # The server: as a whole, and stopped and continued by another process.
  "$work/decode/decode" > "$work/whole.txt"
  rm -rf "$work/stopped" && mkdir "$work/stopped"
  "$work/decode/decode" --stop 20 --save "$work/stopped" > "$work/parts.txt"
  grep -q . "$work/parts.txt" || fail "the server had served nobody when it stopped"
  cmp -s "$work/parts.txt" "$work/whole.txt" && fail "the server had served everybody when it stopped"
  "$work/decode/decode" --resume "$work/stopped" >> "$work/parts.txt"
  diff "$work/whole.txt" "$work/parts.txt" || fail "a server that was stopped and continued gave other tokens"
  rm -rf "$work/quickstart" "$work/decode"
done
# The component mpi, which a package has where MPI was found.
if find "$work/installed" -name ttr-mpi-targets.cmake | grep -q .; then
  quietly cmake -S "$source_dir/examples/cluster" -B "$work/cluster" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
    -Dttr_ROOT="$work/installed" -DCMAKE_PREFIX_PATH="$work/installed"
  quietly cmake --build "$work/cluster"
  OMPI_MCA_btl_vader_single_copy_mechanism=none quietly mpirun --oversubscribe --allow-run-as-root -n 3 \
    "$work/cluster/long_sequence" 3000
  grep -q '^3000 tokens on 3 ranks' "$work/log" || fail "examples/cluster: $(cat "$work/log")"
fi
if grep -q "^TTR_CLI:BOOL=ON" "$build_dir/CMakeCache.txt"; then "$work/installed/bin/ttr" --version; fi

# pkg-config.
folder=$(dirname "$(find "$work/installed" -name ttr.pc)")
export PKG_CONFIG_PATH=$folder
libraries=$(dirname "$folder")
# shellcheck disable=SC2046  # words
quietly "$compiler" -std=c++20 "$source_dir/examples/quickstart/quickstart.cc" -o "$work/with_pkg_config" \
  $(pkg-config --cflags --libs ttr) -Wl,-rpath,"$libraries"
"$work/with_pkg_config" > /dev/null
[ "$(pkg-config --modversion ttr)" = "$(sed -n 's/^#define TTR_VERSION "\(.*\)"/\1/p' "$source_dir/include/ttr/version.h")" ] || fail "pkg-config has another version"
# shellcheck disable=SC2046
quietly gcc -std=c99 "$source_dir/examples/c/decode.c" -o "$work/decode_c" $(pkg-config --cflags --libs ttr_c) -lm -Wl,-rpath,"$libraries"
"$work/decode_c" "$work/state.safetensors" > /dev/null

# A shared libttr shows what its headers declare: no name of a room of src/, no body of a class.
if [ -e "$libraries/libttr.so" ]; then
  nm -DC --defined-only "$libraries/libttr.so" | cut -c20- > "$work/names"
  [ "$(wc -l < "$work/names")" -gt 100 ] || fail "libttr.so shows hardly anything"
  if grep -E 'ttr::(families|zoo|prepare|simd_detail|oracle|threads|run|plan_detail|c_abi|\(anonymous)|::Body::|^std::|^hwy::' "$work/names" >&2; then
    fail "libttr.so shows names of its inside"
  fi
  nm -D --defined-only "$libraries/libttr.so" | awk '{ sub(/@.*/, "", $3); print $3 }' | grep -vE '^(_Z(N|NK|TIN|TSN|TVN)3ttr|ttr_|TTR_)' >&2 &&
    fail "libttr.so shows names of nobody"
  soname=$(objdump -p "$libraries/libttr.so" | awk '$1 == "SONAME" { print $2 }')
  wanted=libttr.so.$(sed -n 's/^#define TTR_VERSION "\(0\.[0-9]*\|[0-9]*\)\..*/\1/p' "$source_dir/include/ttr/version.h")
  [ "$soname" = "$wanted" ] || fail "SONAME is $soname, not $wanted"
  echo "libttr.so shows $(wc -l < "$work/names") names; SONAME $soname"
fi

# Language models: the library for C as installed, and what a shared libttr_language shows.
if [ -e "$folder/ttr_language_c.pc" ]; then
  # shellcheck disable=SC2046
  quietly gcc -std=c99 "$source_dir/examples/c/generate.c" -o "$work/generate_c" $(pkg-config --cflags --libs ttr_language_c) -lm -Wl,-rpath,"$libraries"
  if "$work/generate_c" "$work/no_such_model.gguf" "a" > "$work/log" 2>&1; then fail "a model that is not there was loaded"; fi
  grep -q no_such_model "$work/log" || fail "examples/c/generate.c: $(cat "$work/log")"
fi
if [ -e "$libraries/libttr_language.so" ]; then
  nm -DC --defined-only "$libraries/libttr_language.so" | cut -c20- > "$work/names"
  grep -q 'ttr::model::LanguageModel<float>::prefill' "$work/names" || fail "libttr_language.so does not show its models"
  if grep -E 'ttr::(families|zoo|prepare|simd_detail|threads|\(anonymous)|::Body::|^std::|^hwy::' "$work/names" >&2; then
    fail "libttr_language.so shows names of its inside"
  fi
fi

# A clone: what git knows of this tree, as a repository of its own.
mkdir "$work/repository"
(cd "$source_dir" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
  tar --null -T - -cf -) | tar -xf - -C "$work/repository"
(cd "$work/repository" && git init -q && git add -A &&
  git -c user.name=ttr -c user.email=ttr@localhost commit -q -m "This tree")
quietly cmake -S "$source_dir/tests/consumer" -B "$work/clone" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" "${launcher[@]}" \
  -DCMAKE_BUILD_TYPE=Release -DTTR_REPOSITORY="$work/repository" -DTTR_TARGETS=AVX2 -DTTR_BASELINE=OFF -DTTR_TYPES=f32 \
  -DTTR_LAYERS="gated-deltanet;mamba-2;softmax-attention"
quietly cmake --build "$work/clone" --target client
"$work/clone/client" > "$work/client.txt" || { cat "$work/client.txt" >&2; fail "the client failed"; }
grep -q "^rls: the layer 'rls' was left out of this build" "$work/client.txt" || fail "rls is not refused by name"
grep -q '^f64: .*TTR_TYPES' "$work/client.txt" || fail "f64 is not refused"
grep -q '^recipe: .*TTR_ORACLE' "$work/client.txt" || fail "a recipe without a kernel is not refused"
text=$(size "$work/clone/client" | awk 'NR == 2 { print $1 }')
[ "$text" -lt 2000000 ] || fail "a client of three layers has $text bytes of text, not less than 2,000,000"
echo "a client of three layers in float for AVX2: $text bytes of text"
if cmake -S "$source_dir/tests/consumer" -B "$work/bad" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTTR_FOLDER="$work/repository" \
  -DTTR_LAYERS="no-such-layer" > "$work/log" 2>&1; then fail "a layer that does not exist was taken"; fi
grep -q "TTR_LAYERS has 'no-such-layer'" "$work/log" || { cat "$work/log" >&2; fail "no sentence about no-such-layer"; }

# add_subdirectory, without a build type.
quietly cmake -S "$source_dir/tests/consumer" -B "$work/folder" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTTR_FOLDER="$work/repository"
echo "package: passed"
