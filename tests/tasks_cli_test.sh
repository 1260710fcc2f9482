#!/usr/bin/env bash
# Black-box test of `ttr tasks` and `ttr ngram`: lists, samples, files in every format that other programs read, errors as
# sentences that leave nothing behind.
# usage: tasks_cli_test.sh PATH_TO_TTR
set -u
ttr=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$here/black_box.sh"
in_empty_folder || exit 2
if without_model tasks; then exit 0; fi

python() {  # python NAME CODE: what must hold, with json and numpy
  if /usr/bin/python3 -c "import json, numpy as np
$2" > py.out 2>&1; then ok "$1"; else bad "$1" "$(tail -3 py.out)"; fi
}

expect "the list" 0 out "permutation-tracking" tasks
expect "the list as JSON" 0 out '"mad-fuzzy-recall"' tasks --json
while read -r task; do
  expect "$task is explained" 0 out "sequence 3 of seed 1" tasks "$task"
done < <("$ttr" tasks | sed -n 's/^\([a-z][a-z-]*\) .*/\1/p' | grep -vx text)
expect "labels under their tokens" 0 out "  label " tasks 'modular(longest=9, test=9)'
expect "as JSON" 0 out '"samples"' tasks parity --json
expect "unknown task" 2 err "there is no task 'chess'" tasks chess
expect "a bad count" 2 err "--count is -3" tasks parity --count -3
expect "a text without a file" 2 err "text(file=PATH)" tasks text
expect "another ending" 2 err ".jsonl, .csv, .npz or .npy" tasks parity --out data.xls
expect "no such folder" 2 err "nowhere" tasks parity --out nowhere/data.csv
expect "lengths in an .npy" 2 err "write an .npz" tasks parity --count 50 --out data.npy
expect "rows in an .npy" 2 err "write an .npz" tasks linear-regression --count 5 --out data.npy
left=$(find . -name '*data*')
if [ -n "$left" ]; then bad "nothing is left of what failed" "$left"; else ok "nothing is left of what failed"; fi

mqar='mqar(vocabulary=64, time=32, pairs=4)'
for ending in jsonl csv npz npy; do
  expect "$ending" 0 out "20 training sequences" tasks "$mqar" --count 20 --seed 3 --out "data.$ending"
done
expect "test data" 0 out '"test": true' tasks "$mqar" --count 20 --seed 3 --test --out test.npz --json
python "all formats have the same data" "
z = np.load('data.npz')
assert sorted(z.files) == ['labels', 'lengths', 'tokens'] and z['tokens'].dtype == np.int32
both = np.load('data.npy')
assert both.shape == (20, 2, 32)
assert (both[:, 0] == z['tokens']).all() and (both[:, 1] == z['labels']).all() and (z['lengths'] == 32).all()
lines = [json.loads(line) for line in open('data.jsonl')]
assert len(lines) == 20 and all(line['tokens'] == list(t) for line, t in zip(lines, z['tokens']))
table = np.genfromtxt('data.csv', delimiter=',', names=True)
assert (table['token'] == z['tokens'].ravel()).all() and (table['label'] == z['labels'].ravel()).all()
assert not (np.load('test.npz')['tokens'] == z['tokens']).all()
assert ((z['labels'] >= 0).sum(1) == 4).all()"
expect "rows" 0 out "7 training" tasks 'linear-regression(dim=3, points=5)' --count 7 --out rows.npz
expect "rows as a table" 0 out "7 training" tasks 'linear-regression(dim=3, points=5)' --count 7 --out rows.csv
python "rows and targets" "
z = np.load('rows.npz')
assert z['rows'].shape == (7, 10, 3) and z['targets'].shape == (7, 10, 1) and z['rows'].dtype == np.float32
assert (z['counted'][:, ::2] == 1).all() and (z['rows'][:, 1::2, 0] == z['targets'][:, ::2, 0]).all()
table = np.genfromtxt('rows.csv', delimiter=',', names=True)
assert np.allclose(table['row2'].reshape(7, 10), z['rows'][:, :, 1])"
expect "several lengths" 0 out "30 training" tasks 'parity(longest=9, test=9)' --count 30 --out parity.npz
python "lengths" "
z = np.load('parity.npz')
assert z['lengths'].min() < z['lengths'].max() == z['tokens'].shape[1]
assert all((row[n:] == 0).all() and (row[:n] > 0).all() for row, n in zip(z['tokens'], z['lengths']))"
expect "more begins as fewer" 0 out '"tokens"' tasks "$mqar" --count 5 --seed 3 --out -
if head -5 data.jsonl | cmp -s - out; then ok "five of twenty"; else bad "five of twenty" "they differ"; fi
expect "a curriculum" 0 out '"tokens"' tasks 'word-problem(curriculum=10)' --step 0 --count 1 --out -
python "begins with two elements" "assert len(json.loads(open('out').readline())['tokens']) == 3"

printf 'aab%.0s' {1..40} > text.txt
expect "counting" 0 out "best" ngram text.txt --order 2
expect "counting as JSON" 0 out '"best_order"' ngram text.txt --order 2 --held-bytes 30 --json
python "order 2 of a text with period 3" "
r = json.load(open('out'))
assert r['train_bytes'] == 90 and r['held_bytes'] == 30 and len(r['bits_per_byte']) == 3
assert r['best_order'] == 2 and r['bits_per_byte'][2] < 0.2 < 0.8 < r['bits_per_byte'][0] < 1.1"
expect "compressors" 0 out "gzip" ngram text.txt --compressors
expect "no file" 2 err "'nothing.txt' cannot be read" ngram nothing.txt
: > empty.txt
expect "an empty file" 2 err "0 bytes" ngram empty.txt
expect "a bad order" 2 err "order is 9" ngram text.txt --order 9
expect "a bad share" 2 err "--held is 1" ngram text.txt --held 1
"$here/../scripts/get-text.sh" shakespeare > out 2> err
if [ $? -eq 2 ] && grep -q "one of sotu, austen and moby" err; then ok "no such text"; else bad "no such text" "$(cat err)"; fi

echo
[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "ttr tasks: all passed"
