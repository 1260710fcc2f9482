#!/usr/bin/env bash
# Every experiment runs in its quick mode:   bash experiments_test.sh path/to/ttr
set -u
ttr=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
failures=0 count=0
for script in "$root"/experiments/*/run.sh; do
  [ -e "$script" ] || continue
  folder=$(dirname "$script")
  name=$(basename "$folder")
  count=$((count + 1))
  before=$(cd "$folder" && find . -type f -exec cksum {} + | sort)
  if output=$(cd / && TTR="$ttr" timeout 1500 bash "$script" --quick 2>&1); then
    if [ "$before" = "$(cd "$folder" && find . -type f -exec cksum {} + | sort)" ]; then printf 'ok      %s\n' "$name"
    else printf 'FAILED  %s: the quick run changed files of its folder\n' "$name"; failures=$((failures + 1)); fi
  else
    printf 'FAILED  %s\n%s\n' "$name" "$output"
    failures=$((failures + 1))
  fi
done
# The command that runs all of them knows each, and can read the committed results.
if listed=$(bash "$root/experiments/run-all.sh" --list) && hours=$(sed -n 's/.*core: \([0-9.]*\) hours on two.*/\1/p' <<<"$listed") &&
  awk -v h="$hours" 'BEGIN { exit !(h > 0) }' && [ "$(grep -c '^| [a-z]' <<<"$listed")" -eq $((count + 1)) ]; then
  printf 'ok      run-all.sh --list: %s hours\n' "$hours"
else printf 'FAILED  run-all.sh --list\n%s\n' "$listed"; failures=$((failures + 1)); fi
bash "$root/experiments/run-all.sh" nothing 2>/dev/null
if [ $? -ne 2 ]; then echo "FAILED  run-all.sh with an unknown name"; failures=$((failures + 1)); fi
if [ $count -eq 0 ]; then echo "there is no experiment in $root/experiments"; exit 1; fi
if [ $failures -gt 0 ]; then echo "$failures experiments failed"; exit 1; fi
echo "all $count experiments ran"
