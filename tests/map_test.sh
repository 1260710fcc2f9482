#!/usr/bin/env bash
# docs/HACKING.md against the tree: what it names exists, every folder of src/ is on it, every file includes only what
# its room may include, and the lists of families and layers are complete; and the numbers of README.md that the tree
# knows. Reads files alone, not the program.
# Usage: map_test.sh [PROGRAM [TREE]]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=black_box.sh
. "$here/black_box.sh"
tree=$(cd "${2:-$here/..}" && pwd)
in_empty_folder
map=$tree/docs/HACKING.md

# A list of what is wrong, a line each: an empty one passes.
none() {  # none NAME LIST
  if [ -z "$2" ]; then ok "$1"; else bad "$1" "$(printf '%s' "$2" | head -12 | tr '\n' ';' | sed 's/;/; /g')"; fi
}
at_least() {  # at_least NAME NUMBER LIST: the test has found what it looks at
  local count
  count=$(printf '%s\n' "$3" | grep -c .)
  if [ "$count" -ge "$2" ]; then ok "$1: $count"; else bad "$1: $count, not $2 or more"; fi
}

# Words between backticks that look like paths: `a/b`, `a.cc`, `*_test.cc`. Not those with <names>, `ttr`'s arguments or
# what a build makes.
named=$(grep -o '`[^`]*`' "$map" | tr -d '`' | tr ' ' '\n' |
  grep -E '^[A-Za-z0-9_.*-]*(/[A-Za-z0-9_.*-]*)+$|^[A-Za-z0-9_*-]+\.(h|cc|def|inc|md|sh|py)$' | grep -E '[a-z]' |
  grep -vE '^(build|hwy|slim|/usr)/' | sort -u)
at_least "paths in the map" 60 "$named"
exists() {  # exists PATH: from the root, a folder of includes, or, without a folder, anywhere
  local folder
  for folder in "" src/ include/ src/families/; do
    compgen -G "$tree/$folder${1%/}" >/dev/null && return
  done
  case $1 in
    */*\**) compgen -G "$tree/${1%%\**}*" >/dev/null ;;
    */*) return 1 ;;
    *) [ -n "$(find "$tree/src" "$tree/include" "$tree/cli" "$tree/model" "$tree/tests" "$tree/scripts" -name "$1" -print -quit)" ] ;;
  esac
}
none "every path in the map exists" "$(for path in $named; do exists "$path" || echo "$path"; done)"

# The rooms: | `folder/` | what | `may/`, `include.h` |
sed -n '/^| room /,/^$/p' "$map" | grep '^| `' >rooms.txt
sed -n '/^| families in /,/^$/p' "$map" | grep '^| `' >groups.txt
at_least "rooms" 12 "$(cat rooms.txt)"
none "every folder of src/ is a room" "$(cd "$tree/src" && for folder in */; do
  grep -q "^| \`src/$folder\`" "$work/rooms.txt" || echo "src/$folder"
done)"
none "every folder of src/families/ is in its table" "$(cd "$tree/src/families" && for folder in */ */*/; do
  group=${folder%%/*} family=$(basename "$folder")
  row=$(grep "^| \`$group/\`" "$work/groups.txt") || { echo "$group/"; continue; }
  [ "$folder" = "$group/" ] || printf '%s' "$row" | grep -q "\`$family\`" || echo "$folder"
done)"
none "every family in the table has a folder" "$(while IFS='|' read -r _ group folders _; do
  group=$(printf '%s' "$group" | sed 's/^[^`]*`\([^`/]*\).*/\1/')
  for family in $(printf '%s' "$folders" | grep -o '`[^`]*`' | tr -d '`'); do
    [ -d "$tree/src/families/$group/$family" ] || echo "$group/$family"
  done
done <groups.txt)"

# Who may include whom. Tests lie beside the families and may include everything: *_test.cc, reference.h, and what
# includes a harness of tests/. Headers without a folder are those of the same folder.
(cd "$tree" && find include src cli model tasks mpi -name '*.h' -o -name '*.cc' -o -name '*.def' | sort) >files.txt
at_least "source files" 300 "$(cat files.txt)"
(cd "$tree" && xargs grep -HE '^ *# *include "' <"$work/files.txt" | sed 's/: *# *include "/ /; s/".*//') >includes.txt
at_least "includes" 1000 "$(cat includes.txt)"
awk '
  function room_of(file, parts) {
    if (file ~ /^src\/families\/.*_plan\.[a-z]+$/) return "src/families/**/*_plan.*"
    split(file, parts, "/")
    return file ~ /^(src|include)\// ? parts[1] "/" parts[2] "/" : parts[1] "/"
  }
  FILENAME == "rooms.txt" {
    split($0, column, "|")
    split(column[2], name, "`")
    allowed[name[2]] = column[4]
    next
  }
  FILENAME == "files.txt" { if (!(room_of($1) in allowed)) print $1 " is in no room"; next }
  FILENAME == "includes.txt" && pass == 1 { if ($2 ~ /^(families_harness|simd_fixture)\.h$/) is_test[$1]; next }
  {
    if ($1 in is_test || $1 ~ /_test\.cc$|\/reference\.h$/ || $2 !~ /\//) next
    room = room_of($1)
    own = room ~ /^src\/families\// ? "families/" : room
    sub(/^(src|include)\//, "", own)
    if (index($2, own) == 1) next
    n = split(allowed[room], word, "`")
    for (i = 2; i <= n; i += 2)
      if ($2 == word[i] || (word[i] ~ /\/$/ && index($2, word[i]) == 1)) next
    print $1 " includes " $2
  }' rooms.txt files.txt pass=1 includes.txt pass=2 includes.txt >strangers.txt
none "every file is in a room and includes what that may" "$(cat strangers.txt)"

# Lists and what they list.
rows() { sed -n "s/^$1(\([a-z0-9_]*\)).*/\1/p" "$2" | sort; }
differ() { diff "$1" "$2" | sed -n "s|^< \(.*\)|\1: $3|p; s|^> \(.*\)|\1: $4|p"; }
rows TTR_FAMILY "$tree/src/families/families.def" >family_rows.txt
find "$tree/src/families" -name '*_plan.cc' -exec sed -n 's/^const Family \([a-z0-9_]*\)_family = .*/\1/p' {} + |
  sort >family_definitions.txt
at_least "families" 30 "$(cat family_rows.txt)"
none "families.def is what the folders define" \
  "$(differ family_rows.txt family_definitions.txt 'no definition in a *_plan.cc' 'no row in families.def')"
none "every *_plan.cc defines a family" "$(find "$tree/src/families" -name '*_plan.cc' | while read -r file; do
  grep -q '^const Family [a-z0-9_]*_family = ' "$file" || echo "${file#"$tree"/}"
done)"
none "every folder of a family has a *_plan.cc" "$(cd "$tree/src/families" && for folder in */*/; do
  compgen -G "$folder*_plan.cc" >/dev/null || echo "$folder"
done)"
rows TTR_LAYER "$tree/src/zoo/layers.def" >layer_rows.txt
at_least "layers" 70 "$(cat layer_rows.txt)"
grep -E '^Declaration [a-z0-9_]+\(\) \{' "$tree"/src/zoo/*.cc | sed 's|.*/\([^/:]*\):Declaration \([a-z0-9_]*\).*|\2 \1|' |
  sort >layer_definitions.txt
none "every row of layers.def has its function in src/zoo" \
  "$(cut -d' ' -f1 layer_definitions.txt | comm -23 layer_rows.txt - | sed 's|$|: no function in src/zoo|')"
join layer_rows.txt layer_definitions.txt | cut -d' ' -f2 | sort -u >layer_files.txt
none "every file of src/zoo has its row in layers.def" "$(cd "$tree/src/zoo" && for file in *.cc; do
  case $file in layers.cc | operations.cc | settings.cc) continue ;; esac
  grep -qx "$file" "$work/layer_files.txt" || echo "$file: no row in layers.def"
done)"

none "what the program says on standard error goes through tell()" \
  "$(cd "$tree" && grep -nE 'print\(stderr|std::cerr|fprintf\(stderr' cli/*.cc cli/*.h)"

# Numbers of the README that the tree knows.
said() { sed -n "s/.*$1.*/\\1/p" "$tree/README.md" | head -1; }  # said PATTERN: what its group matches
equal() { if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: $2, and in the README '$3'"; fi; }
equal "layers" "$(wc -l <layer_rows.txt)" "$(said 'There are \([0-9]*\)\. .ttr layers')"
equal "recipes of the literature" \
  "$(sed -n '/^## The layers of the literature/,$p' "$tree/docs/recipes.md" | grep -c '^| [a-z0-9-]* | `')" \
  "$(said 'the recipes of \([0-9]*\) layers')"
equal "golden operations" "$(find "$tree/tests/golden" -mindepth 1 -maxdepth 1 -type d | wc -l)" \
  "$(said 'golden vectors of \([0-9]*\) operations')"
equal "golden files" "$(find "$tree/tests/golden" -name '*.safetensors' | wc -l)" "$(said ' operations, \([0-9]*\) files')"

echo
if [ "$failures" -gt 0 ]; then
  echo "$failures failed: mend the code, or docs/HACKING.md where the code is right"
  exit 1
fi
echo "the map agrees with the tree"
