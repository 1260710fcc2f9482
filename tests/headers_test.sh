#!/usr/bin/env bash
# Every public header by itself, without a warning of g++ and clang; and which of them C++17 takes (docs/embedding.md).
# usage: headers_test.sh [PROGRAM]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=black_box.sh
. "$here/black_box.sh"
include=$(cd "$here/../include" && pwd)
in_empty_folder
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
read -r -a mpi <<< "$(mpicxx --showme:compile 2> /dev/null)"  # ttr/mpi.h includes <mpi.h>
mpi=("${mpi[@]/#-I/-isystem}")
compiles() { "$@" "${mpi[@]}" -I "$include" -fsyntax-only > log.txt 2>&1; }  # compiles COMPILER OPTION... FILE
for header in "$include"/ttr/*.h; do
  name=ttr/$(basename "$header")
  if [ "$name" = ttr/mpi.h ] && [ ${#mpi[@]} -eq 0 ]; then continue; fi
  printf '#include "%s"\n#include "%s"\nint main() { return 0; }\n' "$name" "$name" > one.cc
  check "$name with g++" compiles g++ -std=c++20 "${warnings[@]}" one.cc
  cat one.cc | grep include | head -1 >> all.cc
done
echo 'int main() { return 0; }' >> all.cc
clang=$(command -v clang++-14 || command -v clang++)
check "all of them with clang" compiles "$clang" -std=c++20 "${warnings[@]}" all.cc
check "all of them as a user of the shared library" compiles g++ -std=c++20 -DTTR_SHARED "${warnings[@]}" all.cc
for name in c language_c export recipe status version view; do
  printf '#include "ttr/%s.h"\nint main() { return 0; }\n' "$name" > one.cc
  check "ttr/$name.h with C++17" compiles g++ -std=c++17 "${warnings[@]}" one.cc
  check "docs/embedding.md says that C++17 takes ttr/$name.h" sh -c "grep 'C++17' '$here/../docs/embedding.md' | grep -q 'ttr/$name.h'"
done
for name in c language_c export ttr version; do
  printf '#include "ttr/%s.h"\nint main(void) { return 0; }\n' "$name" > one.c
  check "ttr/$name.h with C99" compiles gcc -std=c99 "${warnings[@]}" one.c
done
if [ "$failures" -gt 0 ]; then echo "$failures failed"; exit 1; fi
