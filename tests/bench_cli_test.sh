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
for name in f32_gflops f64_gflops L1 L2 L3 DRAM tokens_per_s d_key d_value heads time threads workspace_bytes; do
  check "json has $name, positive" all_positive "$name" out.txt
done
for name in layer form dtype useful_gflops percent_peak percent_bandwidth checked; do check "json has $name" grep -q "\"$name\"" out.txt; done

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
