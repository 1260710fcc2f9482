#!/usr/bin/env bash
# Every verb with standard files that are full or closed: it ends, with its own exit code if only nobody hears what it says
# on standard error, with 2 if its answer cannot be written, and no file of its own takes the place of a closed one.
# usage: standard_files_cli_test.sh PATH_TO_TTR
set -u
ttr=$(realpath "${1:?usage: standard_files_cli_test.sh TTR}")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 2
[ -w /dev/full ] || { echo "this system has no /dev/full"; exit 0; }

awk 'BEGIN {
  srand(3); print "a,b,y"
  for (i = 0; i < 100; i++) { a = rand(); b = rand(); print a "," b "," a - 2 * b + rand() / 9 }
}' > d.csv
seq 1 2000 | sed 's/$/ sheep jump over the fence/' > text.txt
"$ttr" regress d.csv --values y --layer nlms --save m.model > out 2>&1 || bad "a model to predict with" "$(head -c 300 out)"
small="--width 16 --heads 1 --time 16 --batch 2"
# shellcheck disable=SC2086
"$ttr" train text.txt $small --steps 2 --layer deltanet --out run > out 2>&1 || without_model train > out || bad "a run" "$(head -c 300 out)"

# How each verb is called: once where it has an answer, once where it has none but a sentence. NEW is a name that is new.
calls() {
  case $1 in
    regress) echo "regress d.csv --values y --layer nlms"; echo "regress missing.csv" ;;
    predict) echo "predict m.model d.csv"; echo "predict missing.model d.csv" ;;
    serve) echo "serve NEW --port 99999" ;;
    layers) echo "layers nlms"; echo "layers no-such-layer" ;;
    derive) echo "derive nlms"; echo "derive no-such-layer" ;;
    check) echo "check nlms:B1-T7-H1-K3-V5-f64-seed1"; echo "check no-such-layer" ;;
    train) echo "train parity --layer deltanet $small --steps 2 --out NEW"; echo "train no-such-task" ;;
    eval) echo "eval run text.txt"; echo "eval missing" ;;
    generate) echo "generate run --prompt 1 --tokens 2"; echo "generate missing --prompt 1" ;;
    inspect) echo "inspect run"; echo "inspect missing" ;;
    logits) echo "logits run --tokens 49"; echo "logits missing --tokens 1" ;;
    perplexity) echo "perplexity run d.csv"; echo "perplexity missing d.csv" ;;
    quantize) echo "quantize run --type q8_0 --out NEW" ;;
    sweep) echo "sweep task=parity layer=deltanet steps=2 --list --out NEW"; echo "sweep missing-file" ;;
    tasks) echo "tasks parity --count 3 --out -"; echo "tasks no-such-task" ;;
    ngram) echo "ngram text.txt --order 1"; echo "ngram missing.txt" ;;
    bench) echo "bench nlms --quick --key-dim 4 --heads 1 --time 16 --runs 1 --threads 1"; echo "bench no-such-layer" ;;
    completion) echo "completion bash"; echo "completion fish" ;;
    *) return 1 ;;
  esac
}

# code_of WORDS REDIRECTION...: the exit code of `ttr WORDS`; standard output goes to `out` and errors to `err` if nothing else is said.
count=0
code_of() {
  local words=${1//NEW/new$((count += 1))} where
  shift
  where=" < /dev/null > out 2> err $*"
  # shellcheck disable=SC2086
  eval 'timeout "$patience" "$ttr" $words' "$where"
}
# ends NAME WANTED WORDS REDIRECTION...
ends() {
  local name=$1 wanted=$2 got
  shift 2
  code_of "$@"
  got=$?
  if [ $got -ne "$wanted" ]; then wrong="$wrong; $name: exit $got, not $wanted"; fi
}
judge() {  # judge WORDS WANTED
  local own answers
  wrong=''
  code_of "$1"
  own=$?
  answers=$own
  [ $own -eq "$2" ] || wrong="; exit $own, not $2: $(head -c 200 err)"
  if [ -s out ]; then answers=2; elif [ "$2" -eq 0 ]; then wrong="$wrong; no answer"; fi
  ends "errors to a full disk" $own "$1" '2> /dev/full'
  ends "errors closed" $own "$1" '2>&-'
  ends "input closed" $own "$1" '<&-'
  ends "output to a full disk" $answers "$1" '> /dev/full'
  [ $answers -eq $own ] || grep -q 'cannot write standard output: ' err || wrong="$wrong; full disk: $(head -c 200 err)"
  ends "output closed" $answers "$1" '>&-'
  [ $answers -eq $own ] || grep -q 'cannot write standard output: ' err || wrong="$wrong; closed: $(head -c 200 err)"
  ends "both to a full disk" $answers "$1" '> /dev/full 2> /dev/full'
  ends "all closed" $answers "$1" '<&- >&- 2>&-'
  if [ -z "$wrong" ]; then ok "ttr $1"; else bad "ttr $1" "${wrong#; }"; fi
}

verbs=$("$ttr" --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && /^  [a-z]/ { print $1 }')
[ "$(wc -w <<< "$verbs")" -ge 7 ] || bad "the verbs of --help" "$verbs"
for verb in $verbs; do
  calls "$verb" > calls.txt || { bad "ttr $verb" "this test does not know how to call it"; continue; }
  while read -r words <&3; do
    case $words in *missing* | *no-such* | *fish* | *99999* | quantize*) judge "$words" 2 ;; *) judge "$words" 0 ;; esac
  done 3< calls.txt
done
for words in --help --man --version 'bench --help' 'regress d.csv --no-such-option' no-such-verb; do
  case $words in *no-such*) judge "$words" 2 ;; *) judge "$words" 0 ;; esac
done

"$ttr" layers > /dev/full 2> err
check "why a full disk" grep -qx 'ttr: cannot write standard output: No space left on device (standard output)' err
"$ttr" layers >&- 2> err
check "why a closed file" grep -qx 'ttr: cannot write standard output: it is closed (standard output)' err

# What has no end is given one by a signal.
serve() {  # serve REDIRECTION...: exit code
  eval '"$ttr" serve models --port 0 < /dev/null > out 2> err' "$*" '&'
  catches_interrupts $!
  kill -TERM $! 2> /dev/null
  wait $!
}
serve
own=$?
serve '2>&-'
check "ttr serve, errors closed" test $? -eq $own
serve '> /dev/full 2> /dev/full'
check "ttr serve, both to a full disk" test $? -eq 2

# --- rows from standard input ---
for words in 'regress - --values y' 'regress - --values y --layer rls --json' 'predict m.model -' 'predict - d.csv'; do
  # shellcheck disable=SC2086
  timeout "$patience" "$ttr" $words <&- > out 2> err
  code=$?
  if [ $code -eq 2 ] && grep -q 'standard input is closed' err && [ ! -s out ]; then ok "ttr $words, closed"
  else bad "ttr $words, closed" "exit $code: $(head -c 200 err)"; fi
done

# --- the numbers of closed files stay free ---
mkfifo pipe
"$ttr" regress - --values y --layer nlms --out p.csv --save new.model < pipe >&- 2>&- &
pid=$!
exec 4> pipe
head -51 d.csv >&4
waits_for_input $pid 4
taken=$(readlink "/proc/$pid/fd/1" "/proc/$pid/fd/2" | grep -v '^/dev/null$')
tail -50 d.csv >&4
exec 4>&-
wait $pid
if [ -z "$taken" ]; then ok "files that are opened are not standard output or error"; else bad "standard files are" "$taken"; fi
"$ttr" regress d.csv --values y --layer nlms --out wanted.csv > out 2>&1
check "what they hold is the same" cmp p.csv wanted.csv

# --- a reader that has gone ---
with_model=()
! [ -d run ] || with_model=('tasks parity --count 20000 --out -' 'generate run --prompt 1 --tokens 2000'
  "train parity --layer deltanet $small --steps 50 --every 1 --out gone")
for words in 'regress d.csv --values y --layer nlms --out -' layers "${with_model[@]}"; do
  # shellcheck disable=SC2086
  "$ttr" ${words} 2> err | head -c 1 > /dev/null
  codes=("${PIPESTATUS[@]}")
  if [ "${codes[0]}" -eq 0 ] && ! grep -q '^ttr: ' err; then ok "ttr $words | head"; else bad "ttr $words | head" "exit ${codes[0]}: $(head -c 200 err)"; fi
done

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
