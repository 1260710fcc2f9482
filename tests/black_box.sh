# What the black-box tests share, to be sourced. `in_empty_folder` comes first; paths must be absolute before it.
# `ok` and `bad` print a line, and `bad` counts in `failures`; `check NAME COMMAND...` does one of them.
# `refused NAME PATTERN COMMAND...`: exit code 2, a sentence on standard error that matches, nothing on standard output or
# disk; a test that looks at the disk defines `nothing_left`. `number_of NAME FILE`: values in JSON, a line each.
# Nothing here exits: a test ends in words of its own, and not with 0 if `failures` is not.
# shellcheck shell=bash

failures=0

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
  timeout 60 "$@" >stdout.txt 2>stderr.txt </dev/null
  local code=$?
  if [ $code -ne 2 ]; then bad "$name: exit $code instead of 2: $(head -c 300 stderr.txt)"; return; fi
  if ! grep -qE -- "$pattern" stderr.txt; then bad "$name: message is: $(head -c 300 stderr.txt)"; return; fi
  if [ -s stdout.txt ]; then bad "$name: wrote to standard output"; return; fi
  if ! nothing_left; then bad "$name: left files behind"; return; fi
  ok "$name"
}

number_of() { grep -o "\"$1\": *[^,}]*" "$2" | sed 's/.*: *//; s/ *$//'; }
