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

# Messages in parts: what is longer than one of MPI's may be, here very short ones.
ranks 3 env TTR_MPI_MESSAGE=1000 "${train[@]}" --out parts > s.txt 2> s.err
check "the same bits with parameters and gradients in parts: $(tail -c 300 s.err)" cmp three/model.safetensors parts/model.safetensors
ranks 4 env TTR_MPI_MESSAGE=100 "${long[@]}" --sequence-ranks 2 --json --out parts4 > s.json 2> s.err
check "and with states and blocks of a ring in parts: $(tail -c 300 s.err)" cmp s4/model.safetensors parts4/model.safetensors

# One rank of a launcher that does not say how many there are, or of srun with one task, is no several.
one=("$ttr" train 'parity(longest=8, test=8)' --layer deltanet --width 8 --heads 1 --steps 2 --batch 4 --test 4 --threads 1)
mkdir alone && cp "$ttr" alone/ttr
for started in 'PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1' OMPI_COMM_WORLD_SIZE=1 PMI_SIZE=1; do
  # shellcheck disable=SC2086
  env $started alone/ttr "${one[@]:1}" > s.txt 2> s.err
  check "one rank ($started) trains without MPI: $(tail -c 300 s.err)" grep -q '^ *2 ' s.txt
done
PMIX_RANK=0 "${one[@]}" > s.txt 2> s.err
check "a rank (PMIX_RANK alone) trains with it: $(tail -c 300 s.err)" grep -q '^ *2 ' s.txt
refused "and says the truth without ttr-mpi" '^ttr: this process was started as a rank of MPI \(PMIX_RANK\), and this ttr has no MPI' \
  env PMIX_RANK=0 alone/ttr "${one[@]:1}"
refused "bench mpi without ttr-mpi" '^ttr: this is done with MPI, and this ttr has no MPI' alone/ttr bench mpi
refused "several ranks without ttr-mpi" '^ttr: several ranks of MPI have been started' env OMPI_COMM_WORLD_SIZE=2 alone/ttr "${one[@]:1}"
"$ttr" bench mpi gated-deltanet --quick > s.txt 2> s.err
check "bench mpi without mpirun: $(tail -c 300 s.err)" grep -q '^1 rank, 512 tokens' s.txt

# rank_process JOB RANK: the process of that rank of an mpirun.
rank_process() {
  local process
  for process in $(pgrep -P "$1"); do
    tr '\0' '\n' < "/proc/$process/environ" 2> /dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$process"
  done
}
# endless FOLDER RANKS OPTIONS...: training that does not end, as $job, until there is a checkpoint of a step.
endless() {
  local folder=$1 count=$2
  shift 2
  rm -rf "$folder"
  mpirun --oversubscribe --allow-run-as-root -n "$count" "$ttr" train 'parity(longest=8)' --layer deltanet --width 16 --steps 1000000 \
    --batch 6 --test 6 --threads 1 --quiet --out "$folder" --checkpoint-every 5 --every 1000000 "$@" > endless.txt 2> endless.err &
  job=$!
  for _ in $(seq 600); do
    [ "$(grep -ao '"step":"[1-9][0-9]*"' "$folder/checkpoint.safetensors" 2> /dev/null | head -1)" ] && break
    sleep 0.1
  done
}

# A rank that dies: a sentence with its number and the last checkpoint; the run goes on from there on another number.
endless killed 3
victim=$(rank_process "$job" 1)
check "there is a rank 1" test -n "$victim"
[ -n "$victim" ] && kill -9 "$victim"
wait "$job"
check "the job has failed" test $? -ne 0
check "who has died: $(grep '^ttr:' endless.err)" grep -q '^ttr: rank 1 of 3 (process' endless.err
check "and where to go on from" grep -q 'the last checkpoint is killed/checkpoint.safetensors, of step [1-9]' endless.err
step=$(sed -n 's/.*checkpoint.safetensors, of step \([0-9]*\).*/\1/p' endless.err | head -1)
ranks 2 "$ttr" train --resume --out killed --until $((step + 10)) --threads 1 --json > on.json 2> on.err
check "it goes on, on two ranks: $(tail -c 300 on.err)" grep -q "\"step\": $((step + 10))" on.json

# The same while ranks wait for each other inside of a sequence.
endless pieces 4 --sequence-ranks 2
victim=$(rank_process "$job" 3)
[ -n "$victim" ] && kill -9 "$victim"
wait "$job"
check "the job with pieces has failed" test $? -ne 0
check "who has died of a sequence: $(grep '^ttr:' endless.err)" grep -q '^ttr: rank 3 of 4 (process' endless.err
check "and the checkpoint" grep -q 'the last checkpoint is pieces/checkpoint.safetensors, of step [1-9]' endless.err

# A rank that does not come, as one of another machine that has died: those that wait, in a sequence or for its gradients, say
# who does not answer.
export TTR_MPI_PATIENCE=8
endless still 4 --sequence-ranks 2
victim=$(rank_process "$job" 1)
[ -n "$victim" ] && kill -STOP "$victim"
for _ in $(seq 600); do grep -q '^ttr:' endless.err && break; sleep 0.1; done
[ -n "$victim" ] && kill -9 "$victim"
wait "$job"
check "the job has failed" test $? -ne 0
check "who does not answer: $(grep '^ttr:' endless.err)" \
  grep -qE "^ttr: rank [0-9] has waited [0-9]+ seconds for others: rank 1 of 4 \(process $victim on .*\) does not answer; the last checkpoint is still/checkpoint.safetensors, of step [1-9]" endless.err
unset TTR_MPI_PATIENCE

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

ranks 3 "$ttr" sweep sweep.txt --list > list.out 2> list.err
check "a list is printed once" test "$(wc -l < list.out)" -eq 8
mkdir blocked && ln -s /proc blocked/runs  # where nobody makes files
timeout "$patience" mpirun --oversubscribe --allow-run-as-root -n 2 "$ttr" sweep sweep.txt --out blocked --jobs 1 > blocked.out 2> blocked.err
code=$?
check "a claim that cannot be made: exit code $code" test $code -eq 2
check "and a sentence: $(tail -c 300 blocked.err)" grep -qE "^ttr: the file 'blocked/runs/.*.claim' cannot be made: " blocked.err

# A rank of a sweep or a benchmark that is told to end: the others end too.
sed 's/^steps = .*/steps = 100000000/' sweep.txt > endless-sweep.txt
for rank in 0 2; do
  mpirun --oversubscribe --allow-run-as-root -n 3 "$ttr" sweep endless-sweep.txt --out stopped --jobs 1 > stop.out 2> stop.err &
  job=$!
  for _ in $(seq 600); do [ "$(find stopped/runs -name '*.out' 2> /dev/null | wc -l)" -eq 3 ] && break; sleep 0.1; done
  victim=$(rank_process "$job" $rank)
  [ -n "$victim" ] && kill -TERM "$victim"
  timeout 60 tail --pid="$job" -f /dev/null
  check "a sweep ends when rank $rank is told to" is_gone "$job"
  is_gone "$job" || kill "$job"
  wait "$job"
  check "with a sentence: $(tail -c 300 stop.err)" grep -q '^ttr: stopped; 0 of 8 runs are done' stop.err
  check "and leaves nothing" test "$(find stopped/runs -type f | wc -l)" -eq 0
done
mpirun --oversubscribe --allow-run-as-root -n 3 "$ttr" bench mpi gla --runs 100000000 --time 4096 > stop.out 2> stop.err &
job=$!
victim=""
while [ -z "$victim" ] && ! is_gone "$job"; do victim=$(rank_process "$job" 1); sleep 0.1; done
catches_interrupts "$victim"
kill -TERM "$victim"
timeout 60 tail --pid="$job" -f /dev/null
check "a benchmark ends when one rank is told to" is_gone "$job"
is_gone "$job" || kill "$job"
wait "$job"
check "and has failed" test $? -ne 0

# What a rank holds: of four a quarter, beside what the program and MPI take anyway.
peak() {  # peak RANKS TOKENS: bytes of the largest rank
  ranks "$1" "$ttr" bench mpi gated-deltanet --way scan --heads 1 --runs 1 --time "$2" --json > peak.json 2> peak.err
  number_of peak_bytes peak.json | cut -d. -f1
}
whole=$(($(peak 1 131072) - $(peak 1 1024))) quarter=$(($(peak 4 131072) - $(peak 4 1024)))
check "131,072 tokens on one rank ($whole bytes) are more than 100 MB" test "$whole" -gt 100000000
check "and on four $quarter each" test $((quarter * 10)) -lt $((whole * 4))

# Counts of messages and bytes are those of the formula (exit code 1 if not).
for count in 1 2 4 6; do
  ranks $count "$ttr" bench mpi gated-deltanet mamba-2 gla log-linear-attention --quick --pass both --json > bench.json 2> bench.err
  code=$?
  check "counts on $count ranks: $(tail -c 300 bench.err)" test $code -eq 0
  check "all compared" test "$(grep -c '"as_formula": true' bench.json)" -eq 8
done
ranks 3 "$ttr" bench mpi gated-deltanet log-linear-attention --quick --batch 6 --groups 3 --json > bench.json 2> bench.err
check "counts with sequences in groups: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -eq 4
ranks 3 env TTR_MPI_MESSAGE=10000 "$ttr" bench mpi gated-deltanet softmax-attention --quick --json --way relay --way scan --way ring --way gather > bench.json 2> bench.err
check "counts with messages in parts: $(tail -c 300 bench.err)" test "$(grep -c '"as_formula": true' bench.json)" -ge 3
check "and none that differs" test "$(grep -c '"as_formula": false' bench.json)" -eq 0
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
