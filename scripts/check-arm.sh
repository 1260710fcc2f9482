#!/usr/bin/env bash
# Builds for 64-bit Arm (NEON) with Debian's cross compiler and runs the checks under qemu-user: kernels against the literal
# solver, golden vectors, and unit tests. Installs what is missing; the libraries for Arm are Debian's too, unpacked beside the
# build and not installed. qemu runs an instruction at a time: this is about right and wrong, not about speed.
#
#   scripts/check-arm.sh          every layer, golden vectors, unit tests of products, plans and slots (make qemu)
#   scripts/check-arm.sh quick    five layers, unit tests of products and kernels (.ci/run)
set -euo pipefail
cd "$(dirname "$0")/.."
quick=${1:-}
[ -z "$quick" ] || [ "$quick" = quick ] || { echo "usage: check-arm.sh [quick]" >&2; exit 2; }
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
missing=()
for package in g++-aarch64-linux-gnu qemu-user; do
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

# Debian's libraries for Arm, with lists and status of apt of our own: the machine's packages stay as they are.
root=$PWD/build-arm-libraries
libraries=(libhwy-dev libfmt-dev libgtest-dev librapidcheck-dev nlohmann-json3-dev libcli11-dev libboost-dev)
wanted='libhwy|libfmt|libgtest|librapidcheck|nlohmann-json3|libcli11|libboost'
if [ "$(cat "$root/complete" 2> /dev/null)" != "${libraries[*]}" ]; then
  rm -rf "$root"
  mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial"
  : > "$root/apt/status"
  cat > "$root/apt/apt.conf" << END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$root/apt";
Dir::State::lists "$root/apt/lists";
Dir::State::status "$root/apt/status";
Dir::Cache "$root/apt/cache";
END
  export APT_CONFIG=$root/apt/apt.conf
  apt-get update -qq
  apt-get install -qq -y --download-only --no-install-recommends -o Debug::NoLocking=1 \
    "${libraries[@]}" > /dev/null
  unset APT_CONFIG
  for file in "$root"/apt/cache/archives/*.deb; do
    if [[ $(basename "$file") =~ ^($wanted) ]]; then dpkg -x "$file" "$root"; fi
  done
  rm -rf "$root/apt"
  echo "${libraries[*]}" > "$root/complete"
fi

jobs=$(nproc)
build() {  # build FOLDER TARGET... -- OPTION...
  local folder=$1 targets=()
  shift
  while [ "$1" != -- ]; do targets+=("$1"); shift; done
  shift
  cmake -S . -B "$folder" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" -DTTR_ARM_ROOT="$root" \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -Wno-psabi" -DTTR_WERROR=ON -DTTR_C=OFF -DTTR_INSTALL=OFF "$@" > /dev/null
  cmake --build "$folder" -j "$jobs" --target "${targets[@]}"
}
run() { qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" "$@"; }

quick_tests='Simd*:Attention.Kernels:Attention.AgainstLoops*:Attention.Packed:Attention.PastAlone:Attention.ClosedGate'
quick_tests+=':Attention.NothingSeen:Attention.NotANumber*:Attention.FarFromZero:Attention.LargeLogits:Attention.Softmax*'
quick_tests+=':LinearReference.*'
if [ "$quick" = quick ]; then
  build build-arm-quick ttr ttr_tests -- -DTTR_MODEL=OFF -DTTR_CLI=OFF -DTTR_TYPES="f32;f64" \
    -DTTR_LAYERS="gated-deltanet;mamba-2;gla;rwkv-7;softmax-attention" -DTTR_TEST_FILES="simd;linear;attention"
  # Products, and the kernels of these layers against a plain reference, forwards and backwards.
  # The longest are left out: `make qemu` has them.
  run build-arm-quick/tests/ttr_tests --gtest_brief=1 --gtest_filter="$quick_tests"
  # Whole plans.
  aarch64-linux-gnu-g++ -std=c++20 -O1 -Iinclude tests/consumer/client.cc build-arm-quick/libttr.a -pthread -Wl,--gc-sections \
    -L "$root/usr/lib/aarch64-linux-gnu" -lhwy -o build-arm-quick/client
  run build-arm-quick/client | tee build-arm-quick/client.txt
  [ "$(grep -c /NEON build-arm-quick/client.txt)" -eq 3 ]
else
  build build-arm ttr_program ttr_tests -- -DTTR_TEST_FILES="simd;simd_chunk;half;plan;prepared;slots;saved_state;operations;axes"
  run build-arm/ttr layers gated-deltanet | grep NEON
  run build-arm/ttr check --quiet
  run build-arm/ttr check --quiet --golden tests/golden
  run build-arm/tests/ttr_tests --gtest_brief=1
fi
