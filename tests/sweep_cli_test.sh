#!/usr/bin/env bash
# Black-box test of `ttr sweep`:   bash sweep_cli_test.sh path/to/ttr
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

cat >sweep.txt <<'TEXT'
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
x     = rows.step
y     = rows.test_loss

[long]
layer = deltanet
steps = 100000000
TEXT

runs() { find "$1/runs" -name '*.json' | wc -l; }

"$ttr" sweep sweep.txt --out first >first.txt 2>first.err
check "a sweep runs: $(head -c 300 first.err)" test $? -eq 0
check "quiet in a pipe" test ! -s first.err
check "eight runs" test "$(runs first)" -eq 8
check "nothing but results" test "$(find first | wc -l)" -eq 13
check "two lines of a table" test "$(grep -cE '^(deltanet|GLA) .* ± ' first.txt)" -eq 2
check "a table in Markdown" grep -q '^| GLA | .* |$' first/table.md
check "a plot that is closed" sh -c 'tail -c 8 first/plot.svg | grep -q "</svg>"'
check "results name command and date" grep -q '"command": "ttr sweep sweep.txt --out first"' first/results.json

# What is there is not run again: a result that was changed by hand stays.
one=$(find first/runs -name '*.json' | head -n 1)
cp "$one" kept.json
sed -i 's/"date": "[^"]*"/"date": "once upon a time"/' "$one"
rm "$(find first/runs -name '*.json' | tail -n 1)"
"$ttr" sweep sweep.txt --out first >/dev/null
check "what is missing is run" test "$(runs first)" -eq 8
check "what is there is not" grep -q 'once upon a time' first/results.json
"$ttr" sweep sweep.txt 'seed=1|2|3' --out first >/dev/null
check "a change runs what is new" test "$(runs first)" -eq 12
check "and keeps the rest" grep -q 'once upon a time' "$one"

# The same numbers, whatever the number of processes.
"$ttr" sweep sweep.txt --out second --jobs 1 >second.txt
check "the same table with one process" diff <(head -n 4 first.txt) <(head -n 4 second.txt)
check "--json prints the results" test "$("$ttr" sweep sweep.txt --out second --json | grep -c '"result":')" -eq 8
check "--list runs nothing" test "$("$ttr" sweep sweep.txt --out third --list | grep -c '^ttr train ')" -eq 8
check "and makes no folder" test ! -e third

# Settings that are no run leave nothing behind.
"$ttr" sweep task=parity layer=nothing --out never >/dev/null 2>never.err
check "an unknown layer" test $? -eq 2 -a ! -e never
check "is named" grep -q "there is no layer 'nothing'" never.err

# What the scores must satisfy decides the exit code; files have the names that are asked for.
"$ttr" sweep sweep.txt 'expect=deltanet > -1; GLA > deltanet + 2' --out second --name other >/dev/null 2>second.err
check "an expectation that fails" test $? -eq 1
check "is named" grep -q 'not as expected: GLA > deltanet + 2: ' second.err
check "the others are not" test "$(wc -l <second.err)" -eq 1
check "files by name" test -s second/other.json -a -s second/other.md -a -s second/other.svg

# A run that diverges is a result; the others go on.
"$ttr" sweep sweep.txt 'rate=1e-3|1e30' clip=0 best=seed mean=rate steps=30 --out wild >wild.txt 2>wild.err
check "a run may diverge: $(head -c 300 wild.err)" test $? -eq 0
check "the table says so" grep -q 'diverged' wild.txt

# An interrupt ends the children, leaves nothing half done and says how to go on.
"$ttr" sweep sweep.txt --variant long --out stopped --jobs 2 >stopped.txt 2>stopped.err &
sweep=$!
children() { ps -o pid= --ppid "$sweep" 2>/dev/null | tr -d ' '; }
until [ "$(children | wc -l)" -eq 2 ]; do kill -0 $sweep 2>/dev/null || break; sleep 0.05; done
pids=$(children)
for pid in $pids; do catches_interrupts "$pid"; done
kill -TERM $sweep
wait $sweep
check "an interrupted sweep says so with its code" test $? -eq 143
check "and how to go on" grep -q '0 of 4 runs are done, and the same command goes on' stopped.err
gone() { for pid in $pids; do ! kill -0 "$pid" 2>/dev/null || return 1; done; }
check "its children are gone" gone
check "no result is half there" test "$(find stopped -type f | wc -l)" -eq 0

# kill -9: the children do not outlive the sweep.
"$ttr" sweep sweep.txt --variant long --out killed --jobs 2 >/dev/null 2>&1 &
sweep=$!
until [ "$(children | wc -l)" -eq 2 ]; do kill -0 $sweep 2>/dev/null || break; sleep 0.05; done
pids=$(children)
for pid in $pids; do catches_interrupts "$pid"; done
kill -KILL $sweep
wait $sweep 2>/dev/null
for ((i = 0; i < patience * 10; i++)); do gone && break; sleep 0.1; done
check "the children of a killed sweep end too" gone

mkdir empty
nothing_left() { [ -z "$(find empty -type f)" ]; }
refused "no such file" "the sweep 'none.txt' cannot be read" "$ttr" sweep none.txt --out empty
refused "no such variant" "no variant 'fast'; the text has long" "$ttr" sweep sweep.txt --variant fast --out empty
refused "no task" "names no task" "$ttr" sweep rate=1 --out empty
refused "an option that ttr train has not" "--colour" "$ttr" sweep sweep.txt colour=red --out empty
refused "an unknown layer" "no layer named 'deltanat'|deltanat" "$ttr" sweep sweep.txt layer=deltanat --out empty
refused "a folder that is a file" "'sweep.txt/runs' cannot be made" "$ttr" sweep sweep.txt --out sweep.txt
refused "an expectation of nobody" "'mlstm'; the table has" "$ttr" sweep sweep.txt 'expect=mlstm > 1' --out first
refused "no jobs" "--jobs is -1" "$ttr" sweep sweep.txt --jobs -1 --out empty
[ $failures -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
