#!/usr/bin/env bash
# The standard set: every experiment, one after another, each with its own progress display; sweeps run as many trainings at a
# time as there are cores.
#
#   experiments/run-all.sh [NAME ...]       all of them, or those named; results go where each README says
#   experiments/run-all.sh --quick [NAME]   their quick variants, which keep nothing
#   experiments/run-all.sh --list           their names and the seconds that their committed results took
#
# Stopped or killed it goes on where it was: trainings that have ended are kept in results/runs, and the long one of text/ in
# its checkpoint. To begin anew remove experiments/*/results/runs. The exit code is 1 if an experiment failed, after the others.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
option=
case "${1:-}" in
  --quick | --list) option=$1; shift ;;
  -*) echo "run-all.sh: '$1' is unknown; the options are --quick and --list" >&2; exit 2 ;;
esac
names=("$@")
if [ $# -eq 0 ]; then
  for script in "$here"/*/run.sh; do names+=("$(basename "$(dirname "$script")")"); done
fi
for name in "${names[@]}"; do
  [ -f "$here/$name/run.sh" ] || { echo "run-all.sh: there is no experiment '$name'; run-all.sh --list names them" >&2; exit 2; }
done

if [ "$option" = --list ]; then
  exec /usr/bin/python3 - "$here" "${names[@]}" <<'P'
import glob
import json
import sys

here, names, total = sys.argv[1], sys.argv[2:], 0.0
print("| experiment | trainings | seconds of one core |\n|---|---|---|")
for name in names:
    runs = {}  # by command: two plots may show the same trainings
    for path in glob.glob(f"{here}/{name}/results/*.json"):
        result = json.load(open(path))
        for run in result.get("runs", []):
            runs[run["command"]] = run["seconds"]
        if "curve" in result:  # the answer of ttr train, on two threads
            runs[path] = 2 * result["seconds"]
    seconds = sum(runs.values())
    total += seconds
    print(f"| {name} | {len(runs)} | {seconds:.0f} |" if runs else f"| {name} | none | |")
print(f"\n{total:.0f} seconds of one core: {total / 7200:.2f} hours on two.")
P
fi

failed=()
SECONDS=0
for i in "${!names[@]}"; do
  printf '[%d/%d, %d min] %s\n' $((i + 1)) ${#names[@]} $((SECONDS / 60)) "${names[$i]}" >&2
  bash "$here/${names[$i]}/run.sh" ${option:+"$option"} || failed+=("${names[$i]}")
done
printf '%d experiments, %d min %d s\n' ${#names[@]} $((SECONDS / 60)) $((SECONDS % 60)) >&2
if [ ${#failed[@]} -gt 0 ]; then
  echo "run-all.sh: failed: ${failed[*]}" >&2
  exit 1
fi
