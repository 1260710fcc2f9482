# What the black-box tests share, to be sourced. `in_empty_folder` comes first; paths must be absolute before it.
# `ok` and `bad` print a line, and `bad` counts in `failures`; `check NAME COMMAND...` does one of them.
# `refused NAME PATTERN COMMAND...`: exit code 2, a sentence on standard error that matches, nothing on standard output or
# disk; a test that looks at the disk defines `nothing_left`. `number_of NAME FILE`: values in JSON, a line each.
# `expect NAME CODE FILE TEXT ARGUMENT...` runs the program at $ttr: its exit code, and a text in its `out` or `err`.
# `without_model VERB`: whether $ttr was built without ttr::model, which has this verb; says so.
# `catches_interrupts PID` and `waits_for_input PID DESCRIPTOR` return when that is so: no test guesses how long a machine
# takes. `patience` is for what hangs. Nothing here exits: a test ends in words of its own, and not with 0 if `failures` is not.
# shellcheck shell=bash

failures=0
patience=1500  # seconds

in_empty_folder() {
  work=$(mktemp -d) || return
  trap 'rm -rf "$work"' EXIT
  cd "$work" || return
}

ok() { printf 'ok      %s\n' "$1"; }
bad() {  # bad NAME [DETAIL]
  failures=$((failures + 1))
  printf 'FAILED  %s\n' "$1"
  [ -z "${2:-}" ] || printf '        %s\n' "$2"
}
check() { local name=$1; shift; if "$@"; then ok "$name"; else bad "$name"; fi; }

nothing_left() { true; }
refused() {
  local name=$1 pattern=$2; shift 2
  timeout "$patience" "$@" >stdout.txt 2>stderr.txt </dev/null
  local code=$?
  if [ $code -ne 2 ]; then bad "$name: exit $code instead of 2: $(head -c 300 stderr.txt)"; return; fi
  if ! grep -qE -- "$pattern" stderr.txt; then bad "$name: message is: $(head -c 300 stderr.txt)"; return; fi
  if [ -s stdout.txt ]; then bad "$name: wrote to standard output"; return; fi
  if ! nothing_left; then bad "$name: left files behind"; return; fi
  ok "$name"
}

expect() {
  local name=$1 code=$2 file=$3 text=$4
  shift 4
  timeout "$patience" "$ttr" "$@" > out 2> err < /dev/null
  local got=$?
  if [ "$got" -eq "$code" ] && grep -qF -- "$text" "$file"; then ok "$name"
  else bad "$name" "exit code $got, expected $code with '$text'; $(head -c 300 out) $(head -c 300 err)"; fi
}
without_model() {
  if "$ttr" "$1" --help > /dev/null 2>&1; then return 1; fi
  echo "this program was built without ttr::model"
}

number_of() { grep -o "\"$1\": *[^,}]*" "$2" | sed 's/.*: *//; s/ *$//'; }

of_process() { awk -v field="$2:" '$1 == field { print $2 }' "/proc/$1/status" 2>/dev/null; }  # of_process PID FIELD
is_gone() { case $(of_process "$1" State) in '' | Z) true ;; *) false ;; esac; }
catches_interrupts() {  # it has a handler of SIGINT (bit 1 of the mask), or is gone
  local caught
  until is_gone "$1"; do
    caught=$(of_process "$1" SigCgt)
    [ $((16#${caught:-0} & 2)) -eq 0 ] || return 0
    sleep 0.02
  done
}
# What a process was when all its threads slept: the threads, and how often they have been woken. Nothing if one is awake.
asleep() {
  awk '$1 == "State:" { awake += $2 != "S"; threads = threads " " FILENAME } /ctxt_switches/ { woken += $2 }
    END { if (!awake) print threads, woken }' /proc/"$1"/task/*/status 2>/dev/null
}
waits_for_input() {  # it has read all that was written to the pipe, and slept from one look to the next, or it is gone
  local now before=""
  catches_interrupts "$1"
  until is_gone "$1"; do
    now=$(asleep "$1")
    if [ -n "$now" ] && [ "$now" = "$before" ] && ! read -r -t 0 -u "$2"; then return 0; fi
    before=$now
    sleep 0.02
  done
}
