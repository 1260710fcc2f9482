#!/usr/bin/env bash
# Black-box test of `ttr train`, `eval`, `generate` and `inspect`: a run and its JSON, its folder, errors as sentences that
# lose nothing, and that a run which was killed again and again at random moments writes the bytes of one that was not, on
# any number of threads.
# usage: train_cli_test.sh PATH_TO_TTR
set -u
ttr=$(realpath "$1")
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$tests/black_box.sh"
in_empty_folder || exit 2
if without_model train; then exit 0; fi

same() { if cmp -s "$2" "$3"; then ok "$1"; else bad "$1" "$2 and $3 differ"; fi; }
small=('parity(longest=8, test=12)' --layer deltanet --width 8 --heads 2 --batch 4 --test 8 --steps 12 --every 4)

expect "list of tasks" 0 out "mqar-based" train
expect "list as JSON" 0 out '"tasks"' train --json
expect "a run" 0 out "tokens per second" train "${small[@]}"
expect "nothing kept" 0 out "--out DIR keeps the model" train "${small[@]}"
expect "a run as JSON" 0 out '"scaled_accuracy"' train "${small[@]}" --json
for field in status final best sequence_accuracy state_bytes parameters train_seconds tokens_per_second settings curve; do
  check "JSON has $field" grep -q "\"$field\":" out
done
if [ "$(number_of state_bytes out)" = $((4 * (2 * 4 * 4 + 3 * 24))) ]; then ok "state bytes"; else bad "state bytes" "$(number_of state_bytes out)"; fi
expect "a recipe" 0 out "tokens per second" train "${small[@]:0:1}" --layer 'equal / linear / sgd(beta)' "${small[@]:3}"
expect "a layer with settings" 0 out "rls(ridge=1)" train "${small[@]:0:1}" --layer 'rls:ridge=1' "${small[@]:3}"
expect "--stack" 0 out "gla" train "${small[@]:0:1}" --stack gla "${small[@]:3}"
expect "unknown task" 2 err "there is no task 'chess' and no such file" train chess
expect "no task" 2 err "a task or a text file is missing" train --width 8
expect "unknown layer" 2 err "deltanet" train "${small[@]:0:1}" --layer delta-net
expect "unknown setting" 2 err "it has longest" train 'parity(long=3)'
expect "bad batch" 2 err "--batch is 0" train "${small[@]:0:1}" --batch 0
expect "bad steps" 2 err "--steps is 0" train "${small[@]:0:1}" --steps 0
for optimiser in sgd muon soap shampoo; do
  expect "$optimiser" 0 out "tokens per second" train "${small[@]}" --optimiser $optimiser --rate 0.01
done
expect "rows of numbers" 0 out "test loss" train 'linear-regression(dim=3, points=4)' --layer 'rls(ridge=1)' --width 8 --batch 4 --test 4 --steps 2

# The folder of a run, on any number of threads.
expect "in one go" 0 out "whole/model.safetensors" train "${small[@]}" --out whole --threads 1
check "the log has a line per test" [ "$(wc -l < whole/log.jsonl)" -eq 3 ]
expect "the first part" 0 out "stopped at step 8" train "${small[@]}" --out part --until 8 --threads 2
check "no model yet" [ ! -e part/model.safetensors ]
expect "the rest, without a word of settings" 0 out "from step 8 on" train --out part --resume
same "the same model" whole/model.safetensors part/model.safetensors
expect "a run that is finished" 0 out "part/model.safetensors" train --out part --resume
same "is left as it was" whole/model.safetensors part/model.safetensors
expect "the command again, to go on" 0 out "tokens per second" train "${small[@]}" --out part --resume
cp -r part before
expect "a folder with a run" 2 err "has a run in it; --resume" train "${small[@]}" --out part
expect "other settings" 2 err "--width 8 and the command line says 16" train "${small[@]:0:1}" --width 16 --out part --resume
expect "another task" 2 err "the task" train recall --out part --resume
expect "nothing to go on from" 2 err "no checkpoint to go on from" train --out nowhere --resume
check "which makes no folder" [ ! -e nowhere ]
expect "--resume without a folder" 2 err "name it with --out" train --resume
echo x > file
expect "a file for a folder" 2 err "is a file" train "${small[@]}" --out file
head -c 1000 whole/checkpoint.safetensors > part/checkpoint.safetensors
expect "a checkpoint that was cut off" 2 err "cut off" train --out part --resume
echo "These are words and no numbers at all, but there are many of them." > part/checkpoint.safetensors
expect "a foreign checkpoint" 2 err "no safetensors file" train --out part --resume
cp whole/model.safetensors part/checkpoint.safetensors
expect "a model for a checkpoint" 2 err "no state of an optimiser" train --out part --resume
cp before/checkpoint.safetensors part/checkpoint.safetensors
printf '\x01' | dd of=part/checkpoint.safetensors bs=1 seek=5000 conv=notrunc status=none
expect "a damaged checkpoint" 2 err "damaged" train --out part --resume
same "the model is still there" whole/model.safetensors part/model.safetensors
check "and the log" cmp -s before/log.jsonl part/log.jsonl

# Means of the parameters are what is tested, kept and read.
expect "ema" 0 out "tokens per second" train "${small[@]}" --ema 0.9 --out mean
expect "is said" 0 out "mean of the parameters" eval mean
expect "tests of the run" 0 out '"final"' train --out mean --resume --json
loss=$(number_of test_loss out | head -1)
# With batches of the same size, because a mean of means is rounded batch by batch.
expect "are those of eval" 0 out '"loss"' eval mean --test 8 --batch 4 --json
check "the same loss" [ "$(number_of loss out)" = "$loss" ]
rm mean/model.safetensors
expect "from the checkpoint too" 0 out '"loss"' eval mean --test 8 --batch 4 --json
check "the same loss of the checkpoint" [ "$(number_of loss out)" = "$loss" ]

# Divergence keeps the last good checkpoint.
expect "divergence" 2 err "the last good checkpoint is wild/checkpoint.safetensors" train 'linear-regression(dim=3, points=4)' \
  --layer linear-attention --width 8 --batch 4 --test 4 --steps 400 --every 1 --optimiser sgd --schedule constant \
  --warmup 0 --clip 0 --rate 1e5 --out wild
check "says when" grep -q "at step" err
expect "a checkpoint that can be read" 0 out "its checksum is right" inspect wild/checkpoint.safetensors
expect "which can be judged" 0 out '"loss"' eval wild --test 4 --json
check "its loss is a number" grep -Eq '"loss": [0-9]' out
expect "divergence as JSON" 2 out '"status": "diverged"' train 'linear-regression(dim=3, points=4)' \
  --layer linear-attention --width 8 --batch 4 --test 4 --steps 400 --optimiser sgd --schedule constant \
  --warmup 0 --clip 0 --rate 1e5 --json

# A limit on the size of files, as a disk that is full: a sentence, and what was there stays.
expect "so far" 0 out "stopped" train "${small[@]}" --out limited --until 4
cp limited/checkpoint.safetensors kept
(ulimit -f 1; "$ttr" train --out limited --resume > out 2> err < /dev/null; echo $? > code)
check "a full disk: exit 2" [ "$(cat code)" = 2 ]
check "a full disk: a sentence" grep -q "File too large; the checkpoint of step 4 is still there" err
same "a full disk: the checkpoint stays" kept limited/checkpoint.safetensors
check "a full disk: nothing else is left" [ -z "$(find limited -name '.*.safetensors.*')" ]
expect "and then the rest" 0 out "limited/model.safetensors" train --out limited --resume
same "with the same bytes" whole/model.safetensors limited/model.safetensors
(ulimit -f 1; "$ttr" train "${small[@]}" --out never > out 2> err < /dev/null; echo $? > code)
check "a disk that was full before: exit 2" [ "$(cat code)" = 2 ]

# A text of one's own.
for i in $(seq 200); do echo "the cat number $i sat on the mat and looked at the dog, which barked $((i * 7 % 13)) times."; done > 'my text, part 1.txt'
text=('my text, part 1.txt' --time 32 --width 16 --batch 8 --test 8 --steps 60 --layer gated-deltanet)
expect "a text" 0 out "bits/byte" train "${text[@]}" --out book --report book.html
check "the report has a sample" grep -q "A sample" book.html
check "the report loads nothing" sh -c '! grep -qE "(src|href)=.?https?:" book.html'
expect "eval of the held-out part" 0 out "bits/byte" eval book
expect "eval at other lengths" 0 out '"time": 128' eval book --time 16,64,128 --json
check "three rows" [ "$(number_of bits_per_byte out | wc -l)" -eq 3 ]
expect "eval of another file" 0 out "bits/byte" eval book "$tests/black_box.sh"
expect "eval of another task" 2 err "kinds of tokens" eval book parity
expect "generate" 0 out "the cat" generate book --prompt "the cat" --tokens 40
cp out once
expect "generate again" 0 out "the cat" generate book --prompt "the cat" --tokens 40
same "the same seed has the same text" once out
expect "another seed" 0 out "the cat" generate book --prompt "the cat" --tokens 40 --seed 2
check "another text" sh -c '! cmp -s once out'
check "as many bytes as asked for" [ "$(wc -c < out)" -eq 48 ]
expect "the likeliest" 0 out '"text"' generate book --prompt "the cat" --temperature 0 --json
expect "no prompt" 0 out "" generate book --tokens 3
expect "bad temperature" 2 err "--temperature is -1" generate book --temperature -1
expect "bad top-p" 2 err "--top-p is 0" generate book --top-p 0
expect "a prompt that is not numbers" 2 err "its tokens are numbers from 0 to 2" generate whole --prompt hello
expect "numbers" 0 out " " generate whole --prompt "1 2" --tokens 5
expect "no model" 2 err "there is no file or folder 'nothing'" generate nothing
mkdir empty_folder
expect "a folder without a run" 2 err "has no run in it" eval empty_folder
expect "a changed text" 0 out "stopped" train "${text[@]}" --out changed --until 10
echo more >> 'my text, part 1.txt'
expect "is noticed" 2 err "has changed since it began" train --out changed --resume
: > empty.txt
expect "an empty file" 2 err "has 0 bytes" train empty.txt
expect "a missing file" 2 err "no such file" train missing.txt
expect "a folder" 2 err "is a folder" train empty_folder
expect "inspect" 0 out "blocks.0" inspect book
expect "inspect as JSON" 0 out '"mixer": "gated-deltanet"' inspect book/checkpoint.safetensors --json
expect "inspect of a foreign file" 2 err "no safetensors file" inspect "$tests/black_box.sh"
golden=$(find "$tests/golden" -name '*.safetensors' | head -1)
expect "inspect of any safetensors file" 0 out "tensors" inspect "$golden"

# Ctrl-C and SIGTERM: a checkpoint, and the rest later.
long=('parity(longest=8, test=12)' --layer deltanet --width 8 --heads 2 --batch 4 --test 8 --steps 1000 --every 400)
expect "a long run" 0 out "finished" train "${long[@]}" --out steady --json --threads 1
for signal in INT TERM; do
  rm -rf stopped
  "$ttr" train "${long[@]}" --out stopped > out 2> err < /dev/null &
  pid=$!
  catches_interrupts $pid
  kill -s $signal $pid
  wait $pid
  code=$?
  [ $signal = INT ] && wanted=130 || wanted=143
  check "SIG$signal: exit $wanted" [ $code -eq $wanted ]
  expect "SIG$signal: the rest" 0 out "model.safetensors" train --out stopped --resume
  same "SIG$signal: the same bytes" steady/model.safetensors stopped/model.safetensors
done

# Killed 50 times at random moments, on one thread and on two in turn, with checkpoints every few steps. A run that is
# killed before its first checkpoint begins again; every life gets a little longer so that the work ends.
rm -rf killed
RANDOM=7
lives=0 kills=0
while [ $lives -lt 400 ]; do
  lives=$((lives + 1))
  "$ttr" train "${long[@]}" --out killed --checkpoint-every $((1 + RANDOM % 20)) --threads $((1 + lives % 2)) --resume > out 2> err < /dev/null &
  pid=$!
  if [ $kills -lt 50 ]; then
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    kill -9 $pid 2> /dev/null
  fi
  wait $pid 2> /dev/null
  case $? in
    137) kills=$((kills + 1)) ;;
    0) [ $kills -lt 50 ] || break
       rm -rf killed ;;  # finished too soon to be killed: once more from the start
    *) bad "a life of the run that is killed" "$(head -c 300 err)"
       break ;;
  esac
done
check "killed 50 times" [ $kills -ge 50 ]
same "50 kills: the same bytes" steady/model.safetensors killed/model.safetensors
check "50 kills: nothing is left" [ -z "$(find killed -name '.*.*.*')" ]
check "50 kills: the rows of the log" [ "$(wc -l < killed/log.jsonl)" -eq 3 ]

# One process at a time.
"$ttr" train "${long[@]:0:1}" --layer deltanet --width 8 --steps 100000000 --out busy > out 2> err < /dev/null &
pid=$!
until [ -e busy/checkpoint.safetensors ] || is_gone $pid; do sleep 0.02; done
expect "two in a folder" 2 err "another process trains in" train --out busy --resume
kill -9 $pid
wait $pid 2> /dev/null

echo
[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "ttr train, eval, generate, inspect: all passed"
