#!/usr/bin/env bash
# Black-box test of memory that is asked for before it is taken, and of signals that arrive within a long row, step or case:
#   bash limits_cli_test.sh path/to/ttr
# Limits are set by `ulimit`, so that nothing depends on the machine; a signal is sent when the process has what the work takes.
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
in_empty_folder || exit 1
nothing_left() { [ -z "$(find . -name '.*.??????' -o -name 'bad_out*' | head -1)" ]; }

# table FILE COLUMNS ROWS: numbers, the last column y
table() { awk -v n="$2" -v rows="$3" 'BEGIN { srand(5); for (i = 1; i <= n; i++) printf "x%d,", i; print "y"; for (r = 0; r < rows; r++) { for (i = 0; i < n; i++) printf "%.3f,", rand(); printf "%.3f\n", rand() } }' >"$1"; }
# limited KB ARGUMENT...: with an address space of so many kilobytes
limited() { (ulimit -v "$1"; shift; timeout "$patience" "$ttr" "$@" </dev/null); }
# too_large NAME KB PATTERN ARGUMENT...: refused with a sentence that matches, before anything is written
too_large() {
  local name=$1 most=$2 pattern=$3 code; shift 3
  limited "$most" "$@" >stdout.txt 2>stderr.txt
  code=$?
  if [ $code -ne 2 ]; then bad "$name: exit $code instead of 2: $(head -c 300 stderr.txt)"; return; fi
  if ! grep -qE -- "$pattern" stderr.txt; then bad "$name: message is: $(head -c 300 stderr.txt)"; return; fi
  if [ -s stdout.txt ]; then bad "$name: wrote to standard output"; return; fi
  if ! nothing_left; then bad "$name: left files behind"; return; fi
  ok "$name"
}

# --- memory ---
free='[0-9.]+ [MG]B are free \(limit: ulimit -v\)'
memory_is_asked_for() {
  table wide.csv 10000 3
  too_large "a layer says what it keeps, needs and which would do" 1000000 \
    "^ttr: rls keeps 800 MB for 10001 keys and needs [0-9.]+ GB at its peak; $free; nlms needs [0-9.]+ MB: --layer nlms" \
    regress wide.csv --values y --layer rls --out bad_out.csv
  too_large "so do several" 1000000 "nlms and kalman keep 80[0-9] MB for 10001 keys and need [0-9.]+ GB at their peak; $free" \
    regress wide.csv --values y --layer nlms --layer kalman
  too_large "and the settings that --tune tries" 1000000 "rls keeps [0-9.]+ GB for 10001 keys" \
    regress wide.csv --values y --layer rls --tune
  limited 1000000 regress wide.csv --values y --json >wide.json 2>err
  check "the default set leaves out what is quadratic" test $? -eq 0
  check "and keeps nlms" grep -q '"name": "nlms"' wide.json
  check "the layers left out are named" sh -c "tr -d '\n ' <wide.json | grep -q '\"layers_left_out\":\[\"rls\"'"
  limited 1000000 regress wide.csv --values y >wide.txt 2>err
  check "with the bound" grep -q 'Left out rls.* the default set has them up to 2000' wide.txt
  table narrow.csv 5 40
  limited 1000000 regress narrow.csv --values y --json >narrow.json 2>err
  check "few keys leave nothing out" sh -c "tr -d '\n ' <narrow.json | grep -q '\"layers_left_out\":\[\]'"
  too_large "lags" 1000000 "rls keeps .* keys and needs" regress narrow.csv --values y --lags 3000 --layer rls
  too_large "the built-in process" 1000000 "100000 seeds of 100000 steps needs [0-9.]+ TB of memory, and $free" \
    regress --seeds 100000 --time 100000
  too_large "a case of ttr bench" 1000000 "needs [0-9.]+ [GT]B of memory, and $free" bench gla --time 100000000 --heads 64
  too_large "a case of ttr check" 1000000 "this needs [0-9.]+ [GT]B of memory in one piece, and $free" \
    check 'nlms:B1000-T1000000-H8-K10-V5-f64-seed1'
  too_large "a tensor that no number of bytes counts" 1000000 "more bytes than any machine" \
    check 'nlms:B1000000-T1000000-H1000000-K1000-V1000-f64-seed1'
  for layer in based rebased dpfp; do
    too_large "features of $layer are counted" 1000000 "features of a key, and a plan takes" \
      layers $layer --footprint --key-dim 50000000 --value-dim 1 --time 64
  done
  too_large "a dimension" 1000000 "key_dim is 2000000000; it can be 1 to 67108864" \
    layers local-linear-attention --footprint --key-dim 2000000000
  too_large "scratch that grows with the square of the time" 1000000 "more bytes than any machine has" \
    layers kernel-regression --footprint --time 3000000000
  if ! without_model train >/dev/null; then
    too_large "a batch" 1000000 "needs [0-9.]+ [GT]B of memory in one piece, and $free|more bytes than any machine" \
      train parity --batch 2000000000 --steps 1
  fi
}

# --- the service ---
a_request_may_be_too_large() {
  : >address.json
  (ulimit -v 2000000; exec "$ttr" serve models --port 0 --json >address.json 2>errors.txt) & server=$!
  until [ -s address.json ] || is_gone $server; do sleep 0.02; done
  port=$(sed 's/.*:\([0-9]*\)".*/\1/' address.json)
  client() { timeout "$patience" python3 "$here/serve_client.py" "$port" "$@"; }
  answer=$(client request PUT /models/large '{"keys": ["y"], "values": ["y"], "lags": 20000, "layers": ["rls"]}' 507)
  check "a model that does not fit is refused with its bytes" grep -qE "rls keeps 3\.2 GB for 20001 keys and needs [0-9.]+ GB at its peak; $free" <<<"$answer"
  body=$(seq 12000 | awk '{ list = list (NR > 1 ? ", " : "") "\"k" $1 "\"" } END { print "{\"keys\": [" list "], \"values\": [\"y\"], \"layers\": [\"rls\"]}" }')
  answer=$(client request PUT /models/wide "$body" 507)
  check "so is one of many columns" grep -qE "rls keeps 1\.2 GB for 12001 keys and needs [0-9.]+ GB at its peak; $free" <<<"$answer"
  kill -TERM $server; wait $server
  check "and the service ends as asked" test $? -eq 0
}

# A sanitizer wants terabytes of address space for itself.
if limited 1000000 layers nlms >out 2>err; then memory_is_asked_for; a_request_may_be_too_large
else ok "limits are left out: this program needs more by itself"; fi

# --- signals ---
worked() { awk '{ print $14 + $15 }' "/proc/$1/stat" 2>/dev/null; }  # worked PID: hundredths of a second
# ended_within NAME CODE SIGNAL HUNDREDTHS ARGUMENT...: signalled when the process has had so much of a processor. `timeout`
# passes a signal on; a second one that comes at once changes nothing.
ended_within() {
  local name=$1 code=$2 signal=$3 work=$4 process had got; shift 4
  timeout -s KILL "$patience" "$ttr" "$@" >out 2>err </dev/null &
  local waits=$!
  until process=$(pgrep -P $waits); do is_gone $waits && break; done
  catches_interrupts "$process"
  until is_gone "$process" || { had=$(worked "$process"); [ "${had:-0}" -ge "$work" ]; }; do sleep 0.02; done
  kill -s "$signal" "$process" 2>/dev/null && kill -s "$signal" "$process" 2>/dev/null
  wait $waits; got=$?
  if [ $got -eq "$code" ] && nothing_left; then ok "$name"; else bad "$name: exit $got instead of $code" "$(tail -c 300 err)"; fi
}
# The first row of this layer takes a second or two, every later one a solve of 7380 features on the oracle: half a minute
# or more. A block of several rows has begun after three times the first, none of which counts, because nobody waits for it.
table slow.csv 120 6
slow='near(exp) / linear(taylor2) / exact(ridge=1)'
head -n 2 slow.csv >first.csv
TIMEFORMAT=%U
first=$({ time "$ttr" regress first.csv --values y --raw --layer "$slow" >out 2>err; } 2>&1)
first=$(awk -v seconds="$first" 'BEGIN { print int(300 * seconds) + 50 }')
ended_within "SIGTERM within a row" 143 TERM "$first" regress slow.csv --values y --raw --layer "$slow" --out p.csv --report r.html
check "the row is not waited for" grep -qE '^Interrupted by SIGTERM after 1 row\. p.csv and r.html hold these rows' err
check "what was complete is written" test "$(wc -l <p.csv)" -eq 2
check "the report too" grep -q 'interrupted after 1 row' r.html
ended_within "Ctrl-C within a row of a run that saves" 130 INT "$first" regress slow.csv --values y --raw --layer "$slow" --save slow.ttr
check "the model holds what was before the row" grep -q 'after 1 row\. slow.ttr holds these rows' err
ended_within "and can be read" 143 TERM 300 regress --load slow.ttr --resume slow.csv

ended_within "a case of ttr check" 143 TERM 100 check 'rls:B2-T60000-H4-K100-V100-f64-seed1'
check "of which nothing is said" grep -q '^0 passed, 0 failed' out
ended_within "ttr bench" 143 TERM 100 bench rls --key-dim 2048 --time 4096
ended_within "the built-in process" 143 TERM 100 regress --seeds 50 --time 100000 --report process.html
if ! without_model train >/dev/null; then
  ended_within "a step of ttr train" 143 TERM 100 train parity --batch 300000 --steps 3 --out run --json
  check "the run is as it was before the step" grep -q '"tokens": 0,' out
  check "and its checkpoint is there" test -s run/checkpoint.safetensors
fi

if [ "$failures" -gt 0 ]; then echo "$failures failed"; exit 1; fi
echo "all passed"
