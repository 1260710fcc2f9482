#!/usr/bin/env bash
# docs/layers and docs/map.svg are what the program would write today.
# usage: layer_pages_test.sh path/to/ttr
set -euo pipefail
root=$(dirname "$0")/..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$root/scripts/make-layer-pages.sh" "$1" "$work/layers"
if ! diff -r "$work/layers" "$root/docs/layers" > "$work/difference"; then
  head -20 "$work/difference"
  echo "docs/layers is out of date: run scripts/make-layer-pages.sh build/ttr"
  exit 1
fi
if ! cmp "$work/map.svg" "$root/docs/map.svg"; then
  echo "docs/map.svg is out of date: run scripts/make-layer-pages.sh build/ttr"
  exit 1
fi
echo "$(ls "$work/layers" | wc -l) pages are up to date"
