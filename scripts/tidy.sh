#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library and the program, as build/compile_commands.json compiles them:
#
#   scripts/tidy.sh                   every file
#   scripts/tidy.sh --part 2/3        the second third
#   scripts/tidy.sh --changed REV     what differs from REV; a header by way of one file that includes it
#   scripts/tidy.sh FILE...           these
#
# Quiet but for one line when all is well; exit code 1 if not. The zoo is compiled as unity files and looked at as such.
# Files that Highway includes in themselves once per instruction set are left out: clang-tidy would look at the same lines
# once per set. Their headers' portable parts are seen through other files.
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c
set -euo pipefail
cd "$(dirname "$0")/.."
tool=clang-tidy-14
database=build/compile_commands.json
fail() { echo "tidy: $1" >&2; exit 2; }
command -v "$tool" > /dev/null || fail "there is no $tool; scripts/install-dependencies.sh installs it"
[ -f "$database" ] || fail "there is no $database; \`make configure\` writes it"

mapfile -t all < <(sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$database" | sort -u |
  grep -E "^$PWD/(src|cli|build/CMakeFiles/ttr_zoo)" | grep -v '_test\.cc$' | xargs grep -L HWY_TARGET_INCLUDE)
[ ${#all[@]} -gt 0 ] || fail "$database names no file of src/ or cli/; \`make configure\` writes it anew"

unit_of() {  # the file of the database by which a file is compiled or seen; nothing if there is none
  local name=$1 word
  case $name in
    src/zoo/*.cc) printf '%s\n' "${all[@]}" | grep ttr_zoo | xargs grep -l "/$name\"" || true ;;
    *.cc) printf '%s\n' "${all[@]}" | grep -x "$PWD/$name" || true ;;
    *.h | *.def | *.inc)
      word=$(basename "$name")
      printf '%s\n' "${all[@]}" | xargs grep -lE "#include [\"<](.*/)?${word//./\\.}[\">]" | head -n 1 || true ;;
  esac
}

files=()
case ${1:-} in
  '') files=("${all[@]}") ;;
  --part)
    if ! [[ $# -eq 2 && $2 =~ ^([1-9][0-9]?)/([1-9][0-9]?)$ && ${BASH_REMATCH[1]} -le ${BASH_REMATCH[2]} ]]; then
      fail "'${*:2}' is not a part; --part 2/3 is the second third"
    fi
    for ((i = BASH_REMATCH[1] - 1; i < ${#all[@]}; i += BASH_REMATCH[2])); do files+=("${all[i]}"); done ;;
  --changed)
    if [ $# -ne 2 ] || ! git rev-parse --verify --quiet "$2^{commit}" > /dev/null; then
      fail "'${*:2}' is not a commit; --changed HEAD~1 looks at what differs from the commit before"
    fi
    mapfile -t files < <({ git diff --name-only --diff-filter=d "$2"; git ls-files --others --exclude-standard; } |
      while read -r name; do unit_of "$name"; done | sort -u) ;;
  -*) fail "there is no option '$1'; there are --part I/N and --changed REV" ;;
  *)
    for name in "$@"; do
      unit=$(unit_of "${name#"$PWD"/}")
      [ -n "$unit" ] || fail "$name is not compiled by itself in the library or the program, or is one that is left out"
      files+=("$unit")
    done ;;
esac
if [ ${#files[@]} -eq 0 ]; then echo "tidy: no file of the library or the program to look at"; exit 0; fi

# Warnings of the compiler are the compilers' own matter: here they would be errors of another compiler's options.
export tool
if ! printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 sh -c '
    output=$("$tool" -p build --quiet --extra-arg=-Wno-everything "$1" 2> /dev/null) && exit 0
    printf "%s\n" "tidy: $1" "$output"
    exit 1' sh; then
  echo "tidy: see above; .clang-tidy has the list of checks" >&2
  exit 1
fi
echo "tidy: ${#files[@]} files are clean"
