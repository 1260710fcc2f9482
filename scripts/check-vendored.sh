#!/usr/bin/env bash
# A program that brings its own Highway: Debian's source package of it, by add_subdirectory, and ttr beside it in the same way
# (tests/consumer). Three layers in float, which are built and run.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build-vendored
mkdir -p "$root"
if [ -z "$(find "$root" -maxdepth 1 -name 'highway*' -type d)" ]; then
  # Lists of apt of our own, of sources: this machine's lists stay as they are.
  apt=$root/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
  for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    [ ! -e "$list" ] || sed -e 's/^Types: .*/Types: deb-src/' -e 's/^deb /deb-src /' "$list" > "$apt/parts/$(basename "$list")"
  done
  [ ! -e "$apt/parts/sources.list" ] || mv "$apt/parts/sources.list" "$apt/parts/all.list"
  cat > "$apt/apt.conf" << END
APT::Sandbox::User "root";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/parts";
END
  export APT_CONFIG=$apt/apt.conf
  apt-get update -qq
  (cd "$root" && apt-get source -qq --download-only highway)
  unset APT_CONFIG
  mkdir "$root/unpacked"
  tar -xf "$root"/highway_*.orig.tar.* -C "$root/unpacked"
  mv "$root"/unpacked/* "$root/highway"
  rm -rf "$apt" "$root/unpacked"
fi
cmake -S tests/consumer -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHIGHWAY_FOLDER="$root/highway" -DTTR_FOLDER="$PWD" \
  -DTTR_LAYERS="gated-deltanet;mamba-2;softmax-attention" -DTTR_TYPES=f32 -DTTR_TARGETS=AVX2 -DTTR_BASELINE=OFF > "$root/configure.log" || { cat "$root/configure.log"; exit 1; }
cmake --build "$root/build" -j "$(nproc)" --target client
"$root/build/client"
if ldd "$root/build/client" | grep libhwy; then
  echo "the client uses the system's Highway" >&2
  exit 1
fi
echo "with a Highway of its own: $(size "$root/build/client" | awk 'NR == 2 { print $1 }') bytes of text"
