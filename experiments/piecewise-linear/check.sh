#!/usr/bin/env bash
# Black-box test of the experiment's program:   bash check.sh path/to/piecewise_linear
# Every check prints one line; the script fails if any check does.
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c, awk or grep
set -u
program=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=../../tests/black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../tests/black_box.sh"
in_empty_folder || exit 1

holds() { [ "$(find "$1" -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')" = "$2" ]; }
files='plot.svg results.json table.md '

nothing_left() { holds no ''; }
# refuses NAME PATTERN ARGS...
refuses() {
  local name=$1 pattern=$2; shift 2
  rm -rf no; mkdir no
  refused "$name" "$pattern" "$program" --out no "$@"
}

mkdir one three other
timeout 120 "$program" --quick --out one --threads 1 >one.txt 2>one.err
check "the quick sweep runs" test $? -eq 0
check "three files and nothing else" holds one "$files"
timeout 120 "$program" --quick --out three --threads 3 >/dev/null 2>&1
check "the same bytes with three threads" diff -r one three
timeout 120 "$program" --quick --out other --seed 7 >/dev/null 2>&1
check "other numbers with another seed" sh -c '! cmp -s one/results.json other/results.json'
check "nine cells of ten layers" test "$(grep -c '"settings_tried"' one/results.json)" = 90
for layer in 'local linear attention' 'RLS told of each change'; do
  check "the table has $layer" grep -q "^| $layer | [*]*[0-9]" one/table.md
done
# Deterministic, and far from its border: two to four times.
check "local linear attention beats RLS everywhere" grep -q 'better overall than RLS | 9 of 9' one/table.md
check "the plot is closed" sh -c 'tail -c 8 one/plot.svg | grep -q "</svg>"'
mkdir single
timeout 120 "$program" --quick --dims 1 --segments 4 --seeds 1 --centre 0 --out single >single.txt 2>single.err
check "one cell of the smallest size, one sequence" test $? -eq 0
check "without a standard error" grep -q '^| RLS | [*]*[0-9.e-]*[*]* (' single/table.md
check "help" sh -c '"$0" --help | grep -q -- --quick' "$program"

refuses "an unknown option" "no option '--fast'" --fast
refuses "an option without its value" "--seeds needs a value" --seeds
refuses "a number that is none" "--seeds is 'ten'; it must be a whole number from 1 to" --seeds ten
refuses "a number with a tail" "--seeds is '4x'" --seeds 4x
refuses "no sequences" "--seeds is '0'" --seeds 0
refuses "a negative seed" "--seed is '-1'" --seed -1
refuses "a list with a hole" "--dims is ''; it must be a whole number" --dims 4,
refuses "a list that falls" "--dims is '8,4'; the numbers must increase" --dims 8,4
refuses "a segment too long" "--segments has 256; with --quick a sequence has 256 tokens" --quick --segments 256
refuses "a centre that is none" "--centre is 'far'" --centre far
refuses "a folder that is not there" "the folder 'none' does not exist" --quick --out none

mkdir interrupted
cp one/table.md interrupted/
"$program" --quick --seeds 10000 --out interrupted >stdout.txt 2>stderr.txt &
pid=$!
for _ in $(seq 100); do  # its hidden files come after its handler
  [ -n "$(find interrupted -name '.plot.svg.*')" ] && break
  sleep 0.1
done
kill -INT $pid
wait $pid
check "Ctrl-C ends with 130" test $? -eq 130
check "and a sentence" grep -q 'Interrupted by Ctrl-C: nothing was written' stderr.txt
check "and leaves an earlier table alone" sh -c '[ "$(ls -A interrupted)" = table.md ] && cmp -s one/table.md interrupted/table.md'

[ $failures -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
