#!/usr/bin/env bash
# Black-box test of `ttr train` on tasks of recall: they begin with a convolution unless the layer has one or its settings
# say otherwise, what runs is printed and kept, layers as a reader types them learn, and a run that learns nothing says
# what to try. usage: train_recall_cli_test.sh PATH_TO_TTR
set -u
ttr=$(realpath "$1")
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$tests/black_box.sh"
in_empty_folder || exit 2
if without_model train; then exit 0; fi

mqar='mqar(vocabulary=10, time=16, pairs=2)'
tiny=(--width 4 --heads 1 --mlp none --batch 2 --test 2 --steps 2 --threads 1)
begins() {  # begins STACK TASK OPTION...: the stack that runs, in the heading
  local stack=$1; shift
  expect "$*: $stack" 0 out "$stack: " train "$@" "${tiny[@]}"
}
begins 'linear-attention(conv=2)' "$mqar" --layer linear-attention
begins 'linear-attention(conv=0)' "$mqar" --layer 'linear-attention(conv=0)'
begins 'linear-attention(conv=4)' "$mqar" --layer 'linear-attention(conv=4)'
begins 'softmax(conv=2, window=8)*2, deltanet' "$mqar" --layer 'softmax(window=8)*2, deltanet'
begins '{equal / linear / sgd(beta)}' "$mqar" --layer 'equal / linear / sgd(beta)'  # recipes have one of four taps
begins 'rwkv-7' "$mqar" --layer rwkv-7                                             # which has a token shift
begins 'slstm' "$mqar" --layer slstm
for task in mqar-based mqar-forgetting recall mad-recall mad-noisy-recall mad-fuzzy-recall; do
  begins 'retnet(conv=2)' $task --layer retnet
done
for task in parity mad-copy; do begins 'linear-attention' $task --layer linear-attention; done

# The record of a run, and what else is chosen where nothing is said.
expect "as JSON" 0 out '"layer": "linear-attention(conv=2)"' train "$mqar" --layer linear-attention "${tiny[@]}" --json
check "and of its settings" [ "$(grep -c '"layer": "linear-attention(conv=2)"' out)" -eq 2 ]
check "the rate" [ "$(number_of rate out | head -1)" = 0.01 ]
check "few tokens: a head of its own" grep -q '"tied": false' out
expect "many tokens" 0 out '"tied": true' train 'mqar(vocabulary=512, time=16, pairs=2)' "${tiny[@]}" --json
expect "--tied=false" 0 out '"tied": false' train 'mqar(vocabulary=512, time=16, pairs=2)' "${tiny[@]}" --tied=false --json
expect "--rate" 0 out '"rate": 0.003' train "$mqar" "${tiny[@]}" --rate 3e-3 --json
expect "another optimiser" 0 out '"rate": 0.005' train "$mqar" "${tiny[@]}" --optimiser sgd --json
expect "another task" 0 out '"rate": 0.005' train parity "${tiny[@]}" --json
expect "is said" 0 out 'of a task of recall, unless given: conv=2 (conv=0: none), --rate 0.01, --tied (--tied=false: not)' \
  train 'mqar(vocabulary=512, time=16, pairs=2)' --layer linear-attention "${tiny[@]}"
expect "the page of the task" 0 out "never holds both as a pair" tasks mqar
check "says how to do without" grep -q "conv=0" out
expect "no other page does" 0 out "parity" tasks parity
check "of parity" sh -c '! grep -q convolution out'

# --resume: of a run that began with it, and of one that an earlier version began without it.
part=("$mqar" --layer linear-attention "${tiny[@]}" --out part)
expect "a part" 0 out "stopped at step 1" train "${part[@]}" --until 1
expect "the same words go on" 0 out "linear-attention(conv=2): " train "${part[@]}" --resume
expect "others do not" 2 err "the command line says linear-attention(conv=0)" train "$mqar" --layer 'linear-attention(conv=0)' \
  --out part --resume
for words in '' "--layer linear-attention"; do
  mkdir old
  cp "$tests/saved_runs/mqar-linear-attention.safetensors" old/checkpoint.safetensors
  # shellcheck disable=SC2086
  expect "an older run goes on as it began: $words" 0 out "linear-attention: 156 parameters" train --out old --resume $words
  check "to its end" [ -e old/model.safetensors ]
  rm -r old
done

# What a reader types learns, in seconds at a small size; without the convolution it does not, and says what to try.
small=('mqar(vocabulary=64)' --batch 16 --steps 200 --test 64 --json)
for layer in linear-attention rls; do
  expect "$layer" 0 out '"status": "finished"' train "${small[@]}" --layer $layer
  check "$layer learns" awk -v a="$(number_of accuracy out | head -1)" 'BEGIN { exit !(a > 0.93) }'
  check "and needs no advice" grep -q '"advice": null' out
done
expect "conv=0" 0 out 'try the layer without conv=0, which keeps a key from its value, --steps 80 or' \
  train "${small[@]:0:3}" --steps 40 --test 64 --layer 'linear-attention(conv=0)'
check "as the last line" sh -c 'tail -1 out | grep -q "^no test did better than a guess (0.2500); try"'
expect "a rate that is too small" 0 out 'try --rate 0.01, ' \
  train "${small[@]:0:3}" --steps 5 --test 64 --layer rls --rate 1e-9 --json
expect "on any task" 0 out \
  'no test did better than a guess (0.5000); try --rate 3.3e-10, --rate 3e-09, --steps 4, --width 8 or another --layer' \
  train 'parity(longest=8, test=12)' --layer linear-attention --width 4 --batch 2 --test 64 --steps 2 --rate 1e-9
expect "of one question in a sequence" 0 out 'labels=seen in the task' train recall "${tiny[@]}"
expect "not of a run that was stopped" 0 out "stopped at step 1" \
  train "${small[@]:0:3}" --steps 5 --until 1 --layer rls --rate 1e-9 --out half
check "which may yet learn" sh -c '! grep -q "a guess" out'

echo
[ $failures -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
