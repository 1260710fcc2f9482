#!/usr/bin/env bash
# The equations of scripts/golden against the stored vectors, and against the program on inputs that are not stored:
#   bash golden_generator_test.sh path/to/ttr
set -u
ttr=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

python=/usr/bin/python3
generate="$root/scripts/golden/generate.py"
golden() { timeout 1500 "$python" "$generate" "$@" >out.txt 2>err.txt </dev/null; }
# ends NAME CODE ARGS...: that exit code and nothing on standard error.
ends() {
  local name=$1 wanted=$2; shift 2
  golden "$@"
  local code=$?
  if [ $code -ne "$wanted" ]; then bad "$name: exit $code instead of $wanted: $(head -c 300 err.txt; grep FAILED out.txt | head -3)"; return; fi
  if [ -s err.txt ]; then bad "$name: standard error has: $(head -c 300 err.txt)"; return; fi
  ok "$name"
}

# --- the stored vectors ---
ends "the stored vectors are those of the equations" 0 --compare "$root/tests/golden"
operations=$(find "$root/tests/golden" -mindepth 1 -maxdepth 1 -type d | wc -l)
files=$(find "$root/tests/golden" -name '*.safetensors' | wc -l)
check "all of them" grep -q "^$operations operations, $files cases, 0 failed" out.txt
check "none is without an equation" grep -q "^no equation here: 0 operations" out.txt

# --- the program on inputs that are not stored ---
ends "new inputs, with gradients that agree with differences" 0 --seed 7 --out new
check "as many files" test "$(find new -name '*.safetensors' | wc -l)" -eq "$files"
check "the inputs are others" sh -c "! cmp -s new/gla/a_B2_T7_H1_K3_V5.safetensors '$root/tests/golden/gla/a_B2_T7_H1_K3_V5.safetensors'"
check "the program agrees with the equations" "$ttr" check --quiet --golden new

# Seed 722 has a relu within a step of its kink, seed 733 a query that is nearly orthogonal to the only key it sees.
ends "a difference does not step over a kink" 0 feature_map_t2r --seed 722 --out around
ends "queries that squares cannot tell from orthogonal ones are drawn again" 0 rebased --seed 733 --out around
check "the program agrees with the equations there" "$ttr" check --quiet --golden around

# --- files ---
ends "what was written is what is computed from it" 0 gla kalman lact titans_memory_depth2 --compare new --tolerance 1e-13
ends "seed 0 draws the stored inputs" 0 kalman --out again
"$python" - "$root/scripts/golden" "$root/tests/golden/kalman" again/kalman >out.txt <<'PYTHON'
import sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import tensors
for path in sorted(Path(sys.argv[2]).iterdir()):
    stored, again = tensors.read(path)[0], tensors.read(Path(sys.argv[3], path.name))[0]
    assert list(stored) == list(again), path
    for name in stored:
        if name.startswith(('in.', 'grad_out.')):
            assert stored[name].tobytes() == again[name].tobytes(), name
    tensors.write(Path('copy.safetensors'), *tensors.read(path))
    assert Path('copy.safetensors').read_bytes() == path.read_bytes(), path
print('same')
PYTHON
check "bit for bit, and a file read and written is the same file" grep -q '^same$' out.txt

# --- what must fail ---
file=$(find new/nlms -name 'a_*')
printf '\x40' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 1)) conv=notrunc 2>dd.txt
ends "a changed number" 1 nlms --compare new
check "it is named" grep -q "^FAILED  nlms/a_.*grad_in\..* differs by" out.txt
ends "a changed number, as JSON" 1 nlms gla --compare new --json
check "one failed" grep -q '"failed": 1' out.txt
check "which JSON can be read" "$python" -m json.tool out.txt json.txt
head -c 100 "$file" >half.bin && mv half.bin "$file"
ends "half a file" 1 nlms --compare new
check "it is said" grep -q "is no safetensors file" out.txt
rm "$file"
ends "a missing file" 1 nlms --compare new
cp new/gla/a_B2_T7_H1_K3_V5.safetensors new/gla/extra.safetensors
ends "a file that is no case" 1 gla --compare new
check "the remedy is said" grep -q "add it to its cases" out.txt
mkdir -p other/unheard_of
ends "a folder without the files" 1 --compare other
check "an operation without an equation is counted" grep -q "^no equation here: 1 operations of other: unheard_of" out.txt

# --- what is refused ---
refuses() { local name=$1 pattern=$2; shift 2; refused "$name" "$pattern" "$python" "$generate" "$@"; }
refuses "nothing to do" "what is to be done"
refuses "an unknown operation" "no operation 'kalmann'.*'kalman'" kalmann --list
refuses "an operation without an equation" "'unheard_of' is in other, but has no equation" unheard_of --compare other
refuses "an unknown option" "unrecognized arguments: --frob" --frob
refuses "no such folder" "there is no folder 'nowhere'" --compare nowhere
refuses "a seed for stored inputs" "--seed draws inputs" --compare new --seed 3
refuses "a seed that is none" "from 0 to" gla --out x --seed -1
refuses "writing over a file" "exists. --force" kalman --out again
ends "unless told to" 0 kalman --out again --force
refused "no numpy" "has no numpy.*install-dependencies.sh" "$python" -S "$generate" --list

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
