#!/usr/bin/env bash
# The tables of docs/scaling.md: `ttr bench mpi` on 1 to 4 ranks, and runs of other lengths and groups that the model has not
# seen, then scripts/scaling-model.py. On an idle machine.   scripts/scaling-tables.sh path/to/ttr [folder]
set -eu
ttr=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
run() {  # run FILE RANKS OPTIONS...
  local file=$1 count=$2
  shift 2
  mpirun --oversubscribe --allow-run-as-root -n "$count" "$ttr" bench mpi --heads 8 --json "$@" > "$file"
}
for count in 1 2 3 4; do run "ranks$count.json" "$count" --time 131072; done
for again in 1b 1c; do run "ranks$again.json" 1 --time 131072; done  # one rank is what the others are compared with
run other1.json 2 --time 24576
run other2.json 2 --time 49152
run other3.json 3 --time 49152
run other4.json 2 --time 262144 --groups 2 --runs 3
run other5.json 3 --time 262144 --runs 3
python3 "$here/scaling-model.py" ranks*.json --unseen other*.json
