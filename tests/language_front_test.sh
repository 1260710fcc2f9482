#!/usr/bin/env bash
# Language models as other languages see them: the symbols of libttr_language_c, a C program, Python; and what holds for every
# architecture (python/tests/test_language.py).
# usage: language_front_test.sh PROGRAM (libttr_language_c.so and libttr_c.so are beside it)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$(dirname "$1")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library="$build/libttr_language_c.so"
[ -e "$library" ] || { echo "there is no libttr_language_c.so beside $1; configure with TTR_C=ON" >&2; exit 1; }

nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort > "$work/exported"
diff "$root/language/c_abi/symbols.txt" "$work/exported" || { echo "exported symbols are not those of language/c_abi/symbols.txt" >&2; exit 1; }
abi=$(sed -n 's/^#define TTR_LM_ABI_VERSION //p' "$root/include/ttr/language_c.h")
soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "libttr_language_c.so.$abi" ] || { echo "SONAME is $soname, not libttr_language_c.so.$abi" >&2; exit 1; }

/usr/bin/python3 "$root/scripts/checkpoints/check.py" --write "$work/models" > /dev/null
flags=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I "$root/include")
gcc -std=c99 "${flags[@]}" "$root/examples/c/generate.c" -L "$build" -lttr_language_c -Wl,-rpath,"$build" -o "$work/generate"
"$work/generate" "$work/models/rwkv-7" 8 "$work/state.safetensors" > "$work/c.txt"
"$1" generate "$work/models/rwkv-7" "1 2 3 " --tokens 8 --temperature 0 --fixed > "$work/program.txt"
[ "1 2 3 $(cat "$work/c.txt")" = "$(cat "$work/program.txt")" ] || { echo "C says '$(cat "$work/c.txt")', the program '$(cat "$work/program.txt")'" >&2; exit 1; }

export TTR_LIBRARY="$build/libttr_c.so" TTR_LANGUAGE_LIBRARY="$library" PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1
mkdir "$work/edges" && /usr/bin/python3 "$root/scripts/checkpoints/edges.py" "$work/edges"
export TTR_CHECKPOINTS="$work/models" TTR_EDGES="$work/edges"
cd "$root/python/tests"
/usr/bin/python3 -m unittest -q test_language
echo "language models from C and Python: all passed"
