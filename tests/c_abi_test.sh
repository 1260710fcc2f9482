#!/usr/bin/env bash
# The C functions as other programs see them: exported symbols, a C program, ctypes, and Rust where rustc is.
# usage: c_abi_test.sh PROGRAM (libttr_c.so is beside it)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$(dirname "$1")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -e "$build/libttr_c.so" ]; then
  echo "there is no libttr_c.so beside $1; configure with TTR_C=ON" >&2
  exit 1
fi

nm -D --defined-only "$build/libttr_c.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort > "$work/exported"
diff "$root/src/c_abi/symbols.txt" "$work/exported" || { echo "exported symbols are not those of src/c_abi/symbols.txt" >&2; exit 1; }
others=$(nm -D --defined-only "$build/libttr_c.so" | awk '$2 != "T" && $2 != "A"' | wc -l)
[ "$others" -eq 0 ] || { nm -D --defined-only "$build/libttr_c.so" | awk '$2 != "T"' >&2; echo "symbols besides functions" >&2; exit 1; }
abi=$(sed -n 's/^#define TTR_ABI_VERSION //p' "$root/include/ttr/c.h")
soname=$(objdump -p "$build/libttr_c.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libttr_c.so.$abi" ] || { echo "SONAME is $soname, not libttr_c.so.$abi" >&2; exit 1; }

# The header is C99 and C++17 without a warning, and says what the library does.
flags=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I "$root/include")
printf '#include <ttr/ttr.h>\nint main(void) { return ttr_abi_version() == TTR_ABI_VERSION ? 0 : 1; }\n' > "$work/version.c"
gcc -std=c99 "${flags[@]}" "$work/version.c" -L "$build" -lttr_c -Wl,-rpath,"$build" -o "$work/version"
"$work/version"
g++ -std=c++17 -x c++ "${flags[@]}" -include ttr/c.h -fsyntax-only - < /dev/null

gcc -std=c99 "${flags[@]}" "$root/examples/c/decode.c" -L "$build" -lttr_c -lm -Wl,-rpath,"$build" -o "$work/decode"
"$work/decode" "$work/state.safetensors"

/usr/bin/python3 "$root/tests/c_abi.py" "$build/libttr_c.so"

if command -v rustc > /dev/null; then
  rustc -D warnings -O "$root/examples/rust/decode.rs" -L "$build" -l ttr_c -C link-arg=-Wl,-rpath,"$build" -o "$work/decode_rs"
  "$work/decode_rs"
else
  echo "no rustc here: examples/rust was not compiled"
fi
