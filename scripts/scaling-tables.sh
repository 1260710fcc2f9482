#!/usr/bin/env bash
# The tables of docs/scaling.md, on an idle machine:
#
#   scripts/scaling-tables.sh path/to/ttr [FOLDER [PART...]]          without parts: all of them; FOLDER keeps what was measured
#
#   model      `ttr bench mpi` on 1 to 4 ranks, and runs of other lengths and groups that the model has not seen, then
#              scripts/scaling-model.py: the fit, the model beside every run, the predictions, those of training too if its
#              part has been measured into the same folder before (2 minutes)
#   waits      what a rank waits for, by the way that is taken (half a minute)
#   memory     1,048,576 tokens on 1 and 4 ranks: the largest peak of a rank (a quarter of a minute)
#   training   weak scaling of `ttr train`, medians of three runs in turn, and the peak of a rank in training (3 minutes)
set -eu
ttr=$(realpath "$1")
root=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
folder=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
parts=("$@")
[ $# -gt 0 ] || parts=(training model waits memory)
mkdir -p "$folder"
cd "$folder"
ranks() { mpirun --oversubscribe --allow-run-as-root -n "$@"; }  # ranks COUNT COMMAND...

bench() {  # bench FILE RANKS OPTIONS...
  local file=$1 count=$2
  shift 2
  ranks "$count" "$ttr" bench mpi --heads 8 --json "$@" > "$file"
}
part_model() {
  for count in 1 2 3 4; do bench "ranks$count.json" "$count" --time 131072; done
  for again in 1b 1c; do bench "ranks$again.json" 1 --time 131072; done  # one rank is what the others are compared with
  bench other1.json 2 --time 24576
  bench other2.json 2 --time 49152
  bench other3.json 3 --time 49152
  bench other4.json 2 --time 262144 --groups 2 --runs 3
  bench other5.json 3 --time 262144 --runs 3
  predict
}
predict() {  # weak scaling of training too, once there are runs of it in the folder
  local training=()
  [ ! -e weak-gated-deltanet-1-1.json ] || training=(--training weak-*.json)
  python3 "$root/scripts/scaling-model.py" ranks*.json --unseen other*.json "${training[@]}"
}

waits_row() {  # waits_row RANKS OPTIONS...: milliseconds, and those of waiting
  local count=$1
  shift
  ranks "$count" "$ttr" bench mpi "$@" --json | python3 -c '
import json, sys
case = json.load(sys.stdin)["cases"][0]
print("| %s | %d | %.1f | %.1f |" % (sys.argv[1], case["ranks"], 1e3 * case["seconds"], 1e3 * case["waiting"]))' "$*"
}
part_waits() {
  echo "| ttr bench mpi | ranks | ms | waiting ms, mean of the ranks |"
  echo "|---|---|---|---|"
  for count in 1 2; do
    waits_row $count softmax-attention --way ring --time 8192 --heads 4
    waits_row $count softmax-attention --way ring --time 8192 --heads 4 --pass both --runs 3
  done
  waits_row 2 forgetting-attention --way ring --time 8192 --heads 4 --pass both --runs 3
  waits_row 1 local-linear-attention --way relay --time 2048 --heads 1
  for way in relay gather; do waits_row 2 local-linear-attention --way $way --time 2048 --heads 1; done
  for groups in 1 4; do waits_row 2 gated-deltanet --way scan --time 16384 --heads 4 --batch 4 --groups $groups; done
}

part_memory() {
  echo "| ranks | peak memory of the largest rank, MB (2^20 bytes) |"
  echo "|---|---|"
  for count in 1 4; do
    ranks $count "$ttr" bench mpi gated-deltanet --time 1048576 --heads 1 --runs 1 --way scan --json > memory$count.json
    python3 -c 'import json, sys; run = json.load(open(sys.argv[1])); print("| %d | %.0f |" % (run["ranks"], run["cases"][0]["peak_bytes"] / 2**20))' \
      memory$count.json
  done
}

# peak FILE COMMAND...: runs it, and adds the largest memory that it had to the file, in MB of 2^20 bytes.
peak='import resource, subprocess, sys
code = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
with open(sys.argv[1], "a") as file: file.write("%d\n" % (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))
sys.exit(code)'
part_training() {
  echo "| layer, two blocks | tokens/s on 1 rank | on 2 | share of twice the speed |"
  echo "|---|---|---|---|"
  local text=$root/docs/scaling.md
  for turn in 1 2 3; do
    for layer in gated-deltanet mamba-2; do
      for count in 1 2; do
        ranks $count "$ttr" train "$text" --layer "$layer*2" --width 128 --heads 4 --time 512 --batch $((8 * count)) \
          --steps 12 --test 8 --every 12 --threads 1 --json > "weak-$layer-$count-$turn.json"
      done
    done
  done
  for layer in gated-deltanet mamba-2; do
    python3 - "$layer" <<'PYTHON'
import json, statistics, sys
layer = sys.argv[1]
one, two = (statistics.median(json.load(open(f"weak-{layer}-{count}-{turn}.json"))["tokens_per_second"] for turn in (1, 2, 3))
            for count in (1, 2))
print(f"| {layer} | {one:.0f} | {two:.0f} | {two / one / 2:.0%} |")
PYTHON
  done
  echo
  echo "| stack | ranks to a sequence of 16,384 tokens | peak memory of the largest rank, MB (2^20 bytes) |"
  echo "|---|---|---|"
  for _ in $(seq 40); do cat "$text"; done > long.txt
  for stack in 'gated-deltanet*2' 'softmax(rotary=yes)*2'; do
    for count in 1 4; do
      rm -f peaks.txt
      ranks $count python3 -c "$peak" peaks.txt "$ttr" train long.txt --layer "$stack" --width 128 --heads 2 --time 16384 \
        --batch 1 --test 1 --steps 1 --sequence-ranks $count
      echo "| $stack | $count | $(sort -n peaks.txt | tail -1) |"
    done
  done
}

for part in "${parts[@]}"; do
  case $part in
    model | waits | memory | training) "part_$part" ;;
    *) echo "scaling-tables: there is no part '$part'; there are model, waits, memory and training" >&2; exit 2 ;;
  esac
  echo
done
