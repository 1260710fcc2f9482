#!/usr/bin/env bash
# Black-box test of `ttr train`: the list of tasks, a run and its JSON, errors as sentences, and that a run which was
# stopped and taken up again writes the bytes of one that was not, on any number of threads.
# usage: train_cli_test.sh PATH_TO_TTR
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 2
"$ttr" train --help > /dev/null 2>&1 || { echo "this program was built without ttr::model"; exit 0; }

expect() {  # expect NAME CODE FILE TEXT ARGUMENT...
  local name=$1 code=$2 file=$3 text=$4
  shift 4
  "$ttr" train "$@" > out 2> err < /dev/null
  local got=$?
  if [ "$got" -eq "$code" ] && grep -qF -- "$text" "$file"; then ok "$name"
  else bad "$name" "exit code $got, expected $code with '$text'; $(head -c 300 out) $(head -c 300 err)"; fi
}
small=('parity(longest=8, test=12)' --stack deltanet --width 8 --heads 2 --batch 4 --test 8 --steps 12 --every 4)

expect "list of tasks" 0 out "mqar-based"
expect "list as JSON" 0 out '"tasks"' --json
expect "a run" 0 out "tokens per second" "${small[@]}"
expect "a run as JSON" 0 out '"scaled_accuracy"' "${small[@]}" --json
expect "unknown task" 2 err "there is no task 'chess'" chess
expect "unknown layer" 2 err "deltanet" "${small[@]:0:1}" --stack delta-net
expect "unknown setting" 2 err "it has longest" 'parity(long=3)'
expect "bad batch" 2 err "--batch is 0" "${small[@]:0:5}" --batch 0
expect "no checkpoint" 2 err "cannot be opened" --resume nothing.safetensors
echo "These are words and no numbers at all, but there are many of them." > foreign
expect "a foreign file" 2 err "no safetensors file" --resume foreign

expect "in one go" 0 out "checkpoint whole" "${small[@]}" --checkpoint whole --threads 1
expect "the first part" 0 out "checkpoint part" "${small[@]}" --checkpoint part --until 8 --threads 2
expect "the rest" 0 out "checkpoint part" --resume part --every 4 --test 8
if cmp -s whole part; then ok "the same bytes"; else bad "the same bytes" "a run that was taken up again differs"; fi
head -c 1000 whole > cut
expect "a file that was cut off" 2 err "cut off" --resume cut

for optimiser in sgd muon soap; do
  expect "$optimiser" 0 out "tokens per second" "${small[@]}" --optimiser $optimiser --rate 0.01
done
expect "rows of numbers" 0 out "test loss" 'linear-regression(dim=3, points=4)' --stack 'rls(ridge=1)' --width 8 --batch 4 --test 4 --steps 2
echo
[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "ttr train: all passed"
