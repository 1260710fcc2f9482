#!/usr/bin/env bash
# Black-box test of what `ttr` does on the ranks of mpirun: train, sweep and bench mpi.   bash mpi_cli_test.sh path/to/ttr
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0
ranks() { mpirun --oversubscribe --allow-run-as-root -n "$@"; }  # ranks COUNT COMMAND...

check "ttr itself has no MPI" sh -c "! ldd '$ttr' | grep -q libmpi"

# Training: the same bits from run to run, and with --reproducible on any number of ranks.
train=("$ttr" train 'parity(longest=8, test=8, labels=all)' --layer deltanet --width 16 --heads 1 --steps 12 --batch 7
  --test 8 --every 6 --threads 1 --quiet --seed 3)
ranks 3 "${train[@]}" --out three > three.txt 2> three.err
check "three ranks train: $(tail -c 300 three.err)" test -s three/model.safetensors
check "the first rank alone speaks" test "$(grep -c . three.txt)" -eq 2
ranks 3 "${train[@]}" --out again > again.txt 2>&1
check "the same bits in the next run" cmp three/model.safetensors again/model.safetensors
"${train[@]}" --reproducible --out r1 > r1.txt 2>&1
for count in 2 4 7; do
  ranks $count "${train[@]}" --reproducible --out r$count > r.txt 2>&1
  check "the bits of one process on $count ranks" cmp r1/model.safetensors r$count/model.safetensors
done
check "and the same tests" test "$(cut -f1-5 r1.txt)" = "$(cut -f1-5 r.txt)"

# A run that is taken up by another number of ranks; every method of optimisers has its own state to hand over.
for method in adamw soap; do
  how=(--optimiser $method --reproducible --ema 0.9 --groups 'embedding: rate=0.5')
  "${train[@]}" "${how[@]}" --out whole.$method > w.txt 2>&1
  ranks 4 "${train[@]}" "${how[@]}" --out part.$method --until 5 > p.txt 2>&1
  ranks 3 "${train[@]}" "${how[@]}" --out part.$method --until 9 --resume > p.txt 2>&1
  "${train[@]}" "${how[@]}" --out part.$method --resume > p.txt 2>&1
  check "$method on 4, 3 and 1 ranks" cmp whole.$method/model.safetensors part.$method/model.safetensors
done

# Sequences in pieces: groups of ranks hold them together. The numbers of one process, the same bits from run to run, with
# --reproducible for any number of groups, and checkpoints that any number of ranks goes on from.
long=("$ttr" train 'parity(longest=24, test=24, labels=all)' --layer 'gated-deltanet, softmax(rotary=yes), gla(shift=yes)'
  --width 16 --heads 2 --steps 8 --batch 4 --test 8 --every 4 --threads 1 --quiet --seed 3)
near() {  # near FILE FILE: all numbers within 2e-4 of each other
  paste -d' ' <(grep -oE '[0-9]+\.[0-9]+' "$1") <(grep -oE '[0-9]+\.[0-9]+' "$2") |
    awk 'NF != 2 || ($1 - $2) ^ 2 > 4e-8 { bad = 1 } END { exit bad || NR == 0 }'
}
loss_lines() { grep -oE '"(train_|test_)?loss": [0-9.e-]+' "$1"; }
"${long[@]}" --json --out s1 > s1.json 2> s.err
loss_lines s1.json > s1.txt
for shape in "2 2" "3 3" "4 2" "8 4"; do
  read -r count size <<< "$shape"
  ranks "$count" "${long[@]}" --sequence-ranks "$size" --json --out "s$count" > s.json 2> s.err
  loss_lines s.json > s.txt
  check "losses of one process on $count ranks, $size to a sequence: $(tail -c 300 s.err)" near s1.txt s.txt
done
ranks 4 "${long[@]}" --sequence-ranks 2 --json --out again4 > s.json 2> s.err
check "the same bits in the next run with pieces" cmp s4/model.safetensors again4/model.safetensors
ranks 2 "${long[@]}" --sequence-ranks 2 --reproducible --out g1 > s.txt 2> s.err
ranks 6 "${long[@]}" --sequence-ranks 2 --reproducible --out g3 > s.txt 2>> s.err
check "the same bits on one and three groups: $(tail -c 300 s.err)" cmp g1/model.safetensors g3/model.safetensors
ranks 4 "${long[@]}" --sequence-ranks 4 --until 4 --out taken > s.txt 2> s.err
cp -r taken taken2
"${long[@]}" --resume --json --out taken > s.json 2>> s.err
loss_lines s.json > s.txt
check "a run on 4 ranks to a sequence, then on one: $(tail -c 300 s.err)" near s1.txt s.txt
ranks 2 "${long[@]}" --sequence-ranks 2 --resume --json --out taken2 > s.json 2> s.err
loss_lines s.json > s.txt
check "and on 2: $(tail -c 300 s.err)" near s1.txt s.txt
ranks 3 "${long[@]}" --sequence-ranks 2 > s.txt 2> s.err
check "groups of two among three" grep -q 'ttr: --sequence-ranks is 2 and there are 3 ranks' s.err
"${long[@]}" --sequence-ranks 2 > s.txt 2> s.err
check "pieces without mpirun" grep -q 'ttr: --sequence-ranks is 2 and there is 1 rank;' s.err
ranks 4 "$ttr" train 'parity(longest=3, test=3)' --sequence-ranks 4 > s.txt 2> s.err
check "more ranks than tokens of a sequence" grep -q 'ttr: a sequence of [0-9]* tokens* cannot be divided among 4 ranks' s.err
ranks 2 "$ttr" train 'parity(longest=8, test=8)' --layer slstm --sequence-ranks 2 > s.txt 2> s.err
check "a block that cannot be divided" grep -q "ttr: the block 'slstm' reads its own last answer" s.err

# A rank that dies: a sentence with its number and the last checkpoint; the run goes on from there on another number.
rm -rf killed
mpirun --oversubscribe --allow-run-as-root -n 3 "$ttr" train 'parity(longest=8)' --layer deltanet --width 16 --steps 1000000 \
  --batch 6 --test 6 --threads 1 --quiet --out killed --checkpoint-every 5 --every 1000000 > killed.txt 2> killed.err &
job=$!
for _ in $(seq 600); do  # until there is a checkpoint of a step
  [ "$(grep -ao '"step":"[1-9][0-9]*"' killed/checkpoint.safetensors 2> /dev/null | head -1)" ] && break
  sleep 0.1
done
victim=""
for process in $(pgrep -P "$job"); do
  tr '\0' '\n' < "/proc/$process/environ" 2> /dev/null | grep -qx 'OMPI_COMM_WORLD_RANK=1' && victim=$process
done
check "there is a rank 1" test -n "$victim"
[ -n "$victim" ] && kill -9 "$victim"
wait "$job"
check "the job has failed" test $? -ne 0
check "who has died: $(grep '^ttr:' killed.err)" grep -q '^ttr: rank 1 of 3 (process' killed.err
check "and where to go on from" grep -q 'the last checkpoint is killed/checkpoint.safetensors, of step [1-9]' killed.err
step=$(sed -n 's/.*checkpoint.safetensors, of step \([0-9]*\).*/\1/p' killed.err | head -1)
ranks 2 "$ttr" train --resume --out killed --until $((step + 10)) --threads 1 --json > on.json 2> on.err
check "it goes on, on two ranks: $(tail -c 300 on.err)" grep -q "\"step\": $((step + 10))" on.json

# Bad use ends every rank with a sentence.
ranks 4 "$ttr" train parity --batch 3 > bad.txt 2> bad.err
check "fewer sequences than ranks" grep -q 'ttr: --batch is 3 and there are 4 ranks' bad.err
ranks 2 "$ttr" train nothing.txt > bad.txt 2> bad.err
check "a task that is not there" grep -q '^ttr: ' bad.err

# A sweep hands its runs to ranks.
cat > sweep.txt <<'TEXT'
title = Parity
task  = parity(longest=8, test=8, labels=all)
layer = deltanet | GLA: gla
width = 8
heads = 1
rate  = 1e-3 | 1e-2
seed  = 1 | 2
steps = 3
batch = 4
test  = 8
best  = rate
mean  = seed
TEXT
ranks 3 "$ttr" sweep sweep.txt --out sweep --jobs 1 > sweep.out 2> sweep.err
check "a sweep on three ranks: $(tail -c 300 sweep.err)" test "$(find sweep/runs -name '*.json' | wc -l)" -eq 8
check "nothing but results" test "$(find sweep/runs -type f | wc -l)" -eq 8
check "one table" test "$(grep -cE '^(deltanet|GLA) ' sweep.out)" -eq 2

# Counts of messages and bytes are those of the formula (exit code 1 if not).
for count in 1 2 4; do
  ranks $count "$ttr" bench mpi gated-deltanet mamba-2 gla log-linear-attention --quick --pass both --json > bench.json 2> bench.err
  check "counts on $count ranks: $(tail -c 300 bench.err)" test $? -eq 0
  check "all compared" test "$(grep -c '"as_formula": true' bench.json)" -eq 8
done
ranks 3 "$ttr" bench mpi gated-deltanet log-linear-attention --quick --batch 6 --groups 3 --json > bench.json 2> bench.err
check "counts with sequences in groups: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 4
for count in 2 3 4 5; do
  ranks $count "$ttr" bench mpi softmax-attention forgetting-attention unnormalised-softmax --way ring --quick --batch 2 \
    --pass both --time 101 --json > bench.json 2> bench.err
  check "counts of a ring of $count: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 3
done
ranks 3 "$ttr" bench mpi softmax-attention forgetting-attention --way ring --quick --time 100 --json > bench.json 2> bench.err
check "forwards alone: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 2
for pass in forward both; do
  ranks 3 "$ttr" bench mpi local-linear-attention --way gather --quick --key-dim 8 --pass $pass --time 50 --json > bench.json 2> bench.err
  check "counts of lists of pairs, $pass: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 1
  ranks 3 "$ttr" bench mpi short-convolution rotary softmax-attention:window=8 --way halo --quick --pass $pass --time 100 --json \
    > bench.json 2> bench.err
  check "counts of a halo, $pass: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 3
done

if [ "$failures" -gt 0 ]; then echo "$failures failed"; exit 1; fi
