#!/usr/bin/env bash
# Writes docs/layers, one page per layer, and docs/map.svg, the picture of all: from the layers' own declarations.
# usage: make-layer-pages.sh path/to/ttr [FOLDER]
set -euo pipefail
ttr=$1
folder=${2:-$(dirname "$0")/../docs/layers}
mkdir -p "$folder"
rm -f "$folder"/*.md
# The table of layers, then that of the operations; sentences begin with other words.
names=$("$ttr" layers | awk 'NR > 1 && $1 ~ /^[a-z0-9-]+$/ && $1 !~ /^(operations|state|tolerance:)$/ { print $1 }')
{
  echo "# Layers"
  echo
  echo "One page per layer, written by \`scripts/make-layer-pages.sh build/ttr\` from the declarations in \`src/zoo\`."
  echo
} > "$folder/README.md"
for name in $names; do
  "$ttr" layers "$name" --markdown > "$folder/$name.md"
  echo "* [$name]($name.md): \`$("$ttr" layers "$name" | awk '$1 == "recipe" { sub(/^recipe +/, ""); print; exit }')\`" >> "$folder/README.md"
done
"$ttr" layers --map "$folder/../map.svg"
