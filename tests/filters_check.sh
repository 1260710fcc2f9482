#!/usr/bin/env bash
# Every pattern of a list of --gtest_filter matches a test: a test that is renamed must not slip out of a list.
# usage: filters_check.sh TEST_PROGRAM FILE
set -euo pipefail
program=$1 list=$2
failures=0 count=0
while read -r pattern; do
  case $pattern in '' | '#'*) continue ;; esac
  count=$((count + 1))
  tests=$("$program" --gtest_list_tests --gtest_filter="$pattern")
  if ! grep -q '^  ' <<< "$tests"; then
    echo "$list: '$pattern' matches no test; a test was renamed or removed: mend the line"
    failures=$((failures + 1))
  fi
done < "$list"
[ $count -gt 0 ] || { echo "$list has no pattern"; exit 1; }
[ $failures -eq 0 ] || exit 1
echo "all $count patterns match"
