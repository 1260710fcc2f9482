#!/usr/bin/env bash
# Black-box test of `ttr bench`:   bash bench_cli_test.sh path/to/ttr
# Small sizes: what is tested is the program, not the speed. Every check prints one line.
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c, awk or grep
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

# runs NAME CODE ARGS...: that exit code, nothing on standard error unless the code is 2 or 130.
runs() {
  local name=$1 wanted=$2; shift 2
  timeout "$patience" "$ttr" bench "$@" >out.txt 2>err.txt </dev/null
  local code=$?
  if [ $code -ne "$wanted" ]; then bad "$name: exit $code instead of $wanted: $(head -c 300 err.txt; tail -c 300 out.txt)"; return; fi
  if [ "$wanted" -lt 2 ] && [ -s err.txt ]; then bad "$name: standard error has: $(head -c 300 err.txt)"; return; fi
  ok "$name"
}
refuses() { local name=$1 pattern=$2; shift 2; refused "$name" "$pattern" "$ttr" bench "$@"; }  # refuses NAME PATTERN ARGS...
all_positive() { number_of "$1" "$2" | awk 'BEGIN { n = 0 } { n++; if (!($1 > 0)) bad = 1 } END { exit bad || n == 0 }'; }
count_of() { grep -o -- "$1" "$2" | wc -l; }

small="--quick --key-dim 8 --heads 2 --time 40 --runs 3"

# --- layers ---
runs "the standard table" 0 --quick --json
check "it has gla, mamba-1, softmax decoding and a training step" sh -c \
  'grep -q "\"gla\"" out.txt && grep -q "\"mamba-1\"" out.txt && grep -q "\"step\"" out.txt && grep -q "forward+backward" out.txt'
for name in f32_gflops f64_gflops L1 L2 L3 DRAM tokens_per_s d_key d_value heads time threads workspace_bytes bytes_per_token; do
  check "json has $name, positive" all_positive "$name" out.txt
done
for name in layer form dtype useful_gflops percent_peak percent_bandwidth executed_flops_per_token limited_by checked; do check "json has $name" grep -q "\"$name\"" out.txt; done
check "json has limit_tokens_per_s, positive or null" sh -c "grep '\"limit_tokens_per_s\"' out.txt | awk '!/: null/ && !(\$2 > 0) { bad = 1 } !/: null/ { n++ } END { exit bad || n == 0 }'"

# shellcheck disable=SC2086
runs "all forms, passes, types and threads of a layer" 0 gated-deltanet $small --form all --pass forward,both,step --dtype f32,f64 --threads 1,2 --json
# forward and both in four forms, a step, each in two types and with one and two threads
check "36 cases" test "$(count_of '"layer"' out.txt)" = 36
check "nothing was refused" grep -q '"refused": \[\]' out.txt
check "cases were compared with the oracle" test "$(count_of '"checked": "oracle' out.txt)" = 36
check "half of them on two threads" test "$(count_of '"threads": 2' out.txt)" -ge 18
# shellcheck disable=SC2086
runs "settings and recipes" 0 'rls:ridge=0.1,decay=0.9' 'equal / linear / sgd(beta, decay)' $small --threads 1 --json
check "no count of operations: null" grep -q '"useful_gflops": null' out.txt
# shellcheck disable=SC2086
runs "decoding with kept pairs" 0 softmax-attention local-linear-attention $small --pass step --threads 1
check "a table" grep -q 'tokens/s' out.txt
# Counted in one run: a decayed sum forwards by the token loop is 3 K V multiply-adds of a token and head (factor, write, read).
runs "executed operations" 0 retnet --quick --key-dim 16 --heads 2 --time 40 --runs 3 --form recurrent --threads 1 --json
check "3 K V multiply-adds" test "$(number_of executed_flops_per_token out.txt)" = 3072.0
runs "a kernel that does not count" 0 mamba-1 --quick --key-dim 8 --heads 1 --time 40 --runs 3 --threads 1 --json
check "no executed operations: null" grep -q '"executed_flops_per_token": null' out.txt
check "and so no limit" sh -c 'grep -q "\"limit_tokens_per_s\": null" out.txt && grep -q "\"limited_by\": null" out.txt'
runs "a table of what is not counted" 0 rls --quick --threads 1 --report rls.html
check "which has no limit, and a share of the bandwidth that is not 0" awk -F '  +' '/% limit/ { for (i = 1; i <= NF; i++) at[$i] = i }
  $1 == "rls" { found = 1; wrong = $at["% peak"] != "-" || $at["kflop"] != "-" || $at["% limit"] != "-" || !($at["% bandwidth"] > 0) }
  END { exit wrong || !found }' out.txt
check "and no bar" sh -c '! grep -q "<rect[^>]*><title>rls" rls.html'

# --- the choice of a form ---
runs "bench forms over kinds of gates" 0 forms --quick --gates gentle,mixed --json
check "every family is there" test "$(count_of '"family"' out.txt)" -ge 16
refuses "gates that do not exist" "furious" forms --quick --gates furious
refuses "vectors that no machine has" "vectors" forms --quick --vectors 7

# --- gates ---
# shellcheck disable=SC2086
runs "gates of every kind" 0 gla mamba-2 $small --gates gentle,mixed,strong,channel,token,-1 --form best,recurrent --pass forward,both --threads 1 --json
check "48 cases" test "$(count_of '"layer"' out.txt)" = 48
check "eight of each kind" test "$(count_of '"gates": "mixed"' out.txt)" = 8
check "json has the best of the runs" all_positive best_tokens_per_s out.txt
mv out.txt gates.json
# shellcheck disable=SC2086
runs "gates are part of what is compared" 0 gla $small --gates mixed,-2 --threads 1 --compare gates.json
check "mixed gates were there" sh -c "grep 'gates mixed' out.txt | grep -qE '[0-9]\.[0-9][0-9]\$'"
check "gates of -2 were not" sh -c "grep 'gates -2' out.txt | grep -qE -- '-\$'"
# shellcheck disable=SC2086
runs "--processor-time" 0 gla $small --threads 1 --processor-time --json
check "json has tokens_per_s of processor time, positive" all_positive tokens_per_s out.txt
refuses "processor time of two threads" "--processor-time is for one thread" gla --threads 1,2 --processor-time
# shellcheck disable=SC2086
runs "key heads" 0 gla $small --heads 2,3 --key-heads 0,1 --threads 1,2 --json
check "json has the key heads" sh -c "grep -q '\"key_heads\": *1' out.txt && grep -q '\"key_heads\": *3' out.txt"
refuses "key heads that do not divide" "heads must be a multiple of key heads" gla --heads 3 --key-heads 2
write_gates() { # FILE NAME NUMBER: a tensor of two such numbers
  /usr/bin/python3 -c 'import json, struct, sys
head = json.dumps({sys.argv[2]: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<ff", float(sys.argv[3]), float(sys.argv[3])))' "$@"
}
write_gates mine.safetensors gk -3
# shellcheck disable=SC2086
runs "gates of a file" 0 gla $small --gates mine.safetensors --threads 1 --json
check "they are named" grep -q '"gates": "mine.safetensors"' out.txt
write_gates bad.safetensors gk 0.25
refuses "a file of gates that grow" "bad.safetensors has the gate 0.25" gla --gates bad.safetensors --threads 1
refuses "unknown gates" "there are no gates 'wild'" gla --gates wild
refuses "gates that grow" "--gates is 0.5; gates are natural logs of factors" gla --gates 0.5
refuses "no file of gates" "nothing.safetensors" gla --gates nothing.safetensors
refuses "a layer without gates" "deltanet has no gates of its own" deltanet --gates mixed

# --- comparing and reporting ---
# shellcheck disable=SC2086
runs "a run to compare with" 0 gla $small --threads 1 --json
mv out.txt earlier.json
# shellcheck disable=SC2086
runs "--compare" 0 gla nlms $small --threads 1 --compare earlier.json --report r.html
check "a column of ratios" grep -q 'x earlier' out.txt
check "a ratio for the case that was there" sh -c "grep '^gla' out.txt | grep -qE '[0-9]\.[0-9][0-9]\$'"
check "none for the one that was not" sh -c "grep '^nlms' out.txt | grep -qE -- '-\$'"
check "the report has bars and no foreign address" sh -c \
  'grep -q "Share of the roofline" r.html && grep -q "<rect" r.html && [ "$(grep -o "https\?://[^\"]*" r.html | sort -u)" = http://www.w3.org/2000/svg ]'
check "no other file is left" test "$(find . -name '.*.??????' | wc -l)" = 0

# --- stability ---
runs "rls-stability" 0 rls-stability --steps 3000 --dim 8 --json
check "51 rows" test "$(count_of '"keys"' out.txt)" = 51
check "all passed" test "$(count_of '"passed": true' out.txt)" = 51
check "nothing was infinite" test "$(count_of '"not_finite": 0' out.txt)" = 51
number_of max_error out.txt | awk '{ if (!($1 > 0 && $1 <= 1e-5)) bad = 1 } END { exit bad }'
check "errors are below the target, and not zero" test $? -eq 0
cp out.txt first.json
runs "again" 0 rls-stability --steps 3000 --dim 8 --json
check "the same numbers" cmp -s out.txt first.json
runs "another seed" 0 rls-stability --steps 3000 --dim 8 --seed 9 --json
check "other numbers" sh -c '! cmp -s out.txt first.json'

# --- growth and attention ---
runs "growth" 0 growth gla softmax-attention --quick --dim 8 --json --report g.html
check "both kinds of state" sh -c 'grep -q "\"fixed\"" out.txt && grep -q "\"pairs\"" out.txt'
check "times and memory" sh -c 'grep -q us_per_token out.txt && grep -q peak_bytes out.txt'
check "footprints" all_positive footprint_bytes out.txt
check "the report has the plots" test "$(count_of '<div class="wide"><svg' g.html)" = 4
check "and those of narrow pages" test "$(count_of '<div class="narrow"><svg' g.html)" = 4
runs "attention" 0 attention --quick --dim 8 --json
for name in forward_s backward_s backward_over_forward forward_ratio backward_ratio; do check "json has $name, positive" all_positive "$name" out.txt; done
for name in forward_peak_bytes with_backward_peak_bytes; do check "json has $name" grep -q "\"$name\"" out.txt; done

# --- prompts of few tokens ---
runs "short prompts" 0 short --quick --json gla rwkv-7
check "short: json has largest_jump, positive" all_positive largest_jump out.txt
check "short: two layers" test "$(count_of '"us_per_token"' out.txt)" = 2
runs "short prompts, as a table" 0 short --quick mamba-2
check "short: a table" grep -q 'largest jump' out.txt
refuses "short: no lengths" "--longest is 2; it can be 3 to 256" short --longest 2
refuses "short: no size" "--dim has 0; it can be 1 to 4096" short --dim 0

# --- what cannot be ---
refuses "unknown layer" "did you mean 'gla'" glaa
refuses "unknown form" "the forms are best" gla --form fast
refuses "absent form" "has no form chunk: rotations go token by token" rls --form chunk
refuses "unknown pass" "forward, both or step" gla --pass twice
refuses "unknown type" "f32, f64, bf16 or f16" gla --dtype f8
refuses "no heads" "--heads is 0" gla --heads 0
refuses "no threads" "--threads is 0" gla --threads 0
refuses "no runs" "--runs is 0" gla --runs 0
refuses "no earlier file" "cannot read nothing.json" gla --compare nothing.json
echo 'no json' >bad.json
refuses "earlier file is no JSON" "is not JSON" gla --compare bad.json
echo '{"cases": [{"layer": "gla"}]}' >bad.json
refuses "earlier file lacks a field" "has a case without " gla --compare bad.json
refuses "report in a folder that is not there" "cannot write" gla --report nowhere/r.html
refuses "too few steps" "--steps is 5; it can be 1000" rls-stability --steps 5
refuses "too wide" "--dim is 1000" rls-stability --dim 1000
refuses "one token" "--time is 1" attention --time 1
refuses "growth of nothing" "--longest is 3" growth --longest 3
refuses "an option of another part" "--steps" gla --steps 5000

# --- latency ---
runs "latency" 0 latency gated-deltanet softmax-attention --steps 2000 --key-dim 8 --heads 2 --slots 3 --pairs 20 --json
check "three cases of two layers" test "$(count_of '"case"' out.txt)" = 6
for name in median_ns p99_ns p99_99_ns worst_ns clock_ns steps batch; do check "latency: $name, positive" all_positive "$name" out.txt; done
number_of median_ns out.txt >m.txt; number_of p99_ns out.txt >p.txt; number_of worst_ns out.txt >w.txt
check "latency: median, tail and worst are in order" sh -c 'paste -d" " m.txt p.txt w.txt | awk "{ if (\$1 > \$2 || \$2 > \$3) bad = 1 } END { exit bad || NR != 6 }"'
if grep -q '"allocations": null' out.txt; then check "latency: only sanitizers cannot count" grep -q __asan_init "$ttr"
else check "latency: no allocation" test "$(count_of '"allocations": 0' out.txt)" = 6; fi
if ! grep -q system_calls_why_not out.txt; then check "latency: no system call" test "$(count_of '"system_calls": 0' out.txt)" = 6; fi
check "latency: pairs of softmax" test "$(count_of '"pairs": 20' out.txt)" = 3
runs "latency of the oracle, which allocates" 0 latency 'equal / kernel(laplace) / exact(ridge=0.1)' --steps 100 --key-dim 2 --heads 1 --slots 2 --pairs 3 --json
if ! grep -q '"allocations": null' out.txt; then check "latency: allocations are counted" all_positive allocations out.txt; fi
refuses "latency: few steps" "--steps is 5; it can be 100" latency --steps 5
refuses "latency: one slot" "--slots is 1" latency --slots 1
refuses "latency: no layer" "no layer 'gated-deltane'" latency gated-deltane

# --- states in fewer bytes ---
runs "states in fewer bytes" 0 state --quick --dim 8 --json gated-deltanet softmax-attention
for name in state_bytes f32_state_bytes step_seconds f32_step_seconds; do
  check "state: json has $name, positive" all_positive "$name" out.txt
done
check "state: bf16, and bf16, f16 and i8" test "$(count_of '"state_type"' out.txt)" = 4
# Values that do not depend on keys: a mean over 20,000 of them is small, and relative to it what bf16 rounds off does not vanish.
runs "a state of pairs" 0 state --type bf16 --dim 4 --tokens 20000 --call 1024 --bytes 4096 --runs 1 --json softmax-attention
check "an error of 2^-9 or more" sh -c 'grep "\"state\":" out.txt | tail -1 | awk "{ exit !(\$2 > 0.002 && \$2 < 0.1) }"'
runs "states in fewer bytes, as a table" 0 state --quick --dim 8 --type bf16 gla
check "state: a table" grep -q 'error 1e+03' out.txt
refuses "state: a solver" "rls keeps" state --quick rls
refuses "state: i8 of a matrix" "i8 is for those" state --quick --type i8 gla
refuses "state: few tokens" "--tokens is 5; it can be 1000" state --tokens 5

# --- training ---
runs "training a small model" 0 train --quick --layer gated-deltanet --layer 'gla(conv=4)' --threads 1,2 --json
for name in tokens_per_s step_s parameters f32_gflops first_loss mixer_forward mixer_backward product_forward product_input product_weight norm activation head optimiser; do
  check "training: json has $name, positive" all_positive "$name" out.txt
done
check "training: four cases" test "$(count_of '"layer"' out.txt)" = 4
check "training: the same first loss on one and two threads" test "$(number_of first_loss out.txt | sort -u | wc -l)" = 2
check "training: no count of operations of a block with settings: null" grep -q '"percent_peak": null' out.txt
runs "training, as a table" 0 train --quick --layer softmax
check "training: a table of shares" grep -q 'mixer bwd' out.txt
refuses "training an unknown layer" "there is no layer 'nonsense'" train --quick --layer nonsense
refuses "training on no thread" "--threads is 0; it can be 1 to 256" train --quick --threads 0
refuses "heads that do not divide the width" "does not divide the width" train --width 30 --heads 4
refuses "training on one sequence" "at least two sequences" train --quick --batch 1

# --- Ctrl-C ---
"$ttr" bench rls-stability --steps 1000000 >out.txt 2>err.txt </dev/null &
pid=$!
catches_interrupts $pid
kill -INT $pid
wait $pid
check "Ctrl-C: exit 130" test $? -eq 130
check "Ctrl-C: a sentence" grep -q interrupted err.txt

if [ $failures -ne 0 ]; then echo "$failures checks failed"; exit 1; fi
