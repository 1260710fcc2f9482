#!/usr/bin/env bash
# Black-box test of the program of a small experiment:   bash check.sh path/to/program
# The quick run holds what the program itself expects of its numbers (exit code 1 if not).
set -u
program=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=../../tests/black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../tests/black_box.sh"
in_empty_folder || exit 1
files() { [ "$(find "$1" -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')" = "$2" ]; }
nothing_left() { files no ''; }
refuses() {  # refuses NAME PATTERN ARGS...
  local name=$1 pattern=$2; shift 2
  refused "$name" "$pattern" "$program" --out no "$@"
}
mkdir no one two other
timeout "$patience" "$program" --quick --out one >one.txt 2>one.err
check "the quick run holds: $(head -c 300 one.err)" test $? -eq 0
check "two files and nothing else" files one 'plot.svg table.md '
timeout "$patience" "$program" --quick --out two >/dev/null 2>&1
check "the same bytes again" diff -r one two
timeout "$patience" "$program" --quick --out other --seed 7 >/dev/null 2>&1
check "other numbers with another seed" sh -c '! cmp -s one/table.md other/table.md'
check "no number is missing from the table" sh -c '! grep -qwiE "nan|inf" one/table.md'
check "the plot is closed" sh -c 'tail -c 8 one/plot.svg | grep -q "</svg>"'
check "help" sh -c '"$0" --help | grep -q -- --quick' "$program"
refuses "an unknown option" "no option '--fast'" --fast
refuses "an option without its value" "--seed needs a value" --seed
refuses "a seed that is none" "--seed is '-1'" --seed -1
refuses "a folder that is not there" "the folder 'none' does not exist" --out none
[ $failures -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
