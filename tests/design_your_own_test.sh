#!/usr/bin/env bash
# Executes the commands of docs/design-your-own.md and looks for what the text says of them:
#   bash design_your_own_test.sh path/to/ttr
# Every check prints one line; the script fails if any check does.
set -u
ttr=$(realpath "$1")
page=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../docs/design-your-own.md")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1
mkdir bin && ln -s "$ttr" bin/ttr
PATH=$PWD/bin:$PATH

count=0
while IFS= read -r command; do
  count=$((count + 1))
  if timeout "$patience" bash -c "$command" >"out.$count" 2>err.txt </dev/null; then ok "$command"
  else bad "$command" "$(head -c 300 err.txt)"; fi
done < <(sed -n 's/^    \$ //p' "$page")
check "the page has its commands" [ "$count" -eq 9 ]

says() {  # says NUMBER TEXT
  if grep -qF -- "$2" "out.$1"; then ok "command $1 prints $2"; else bad "command $1 does not print $2"; fi
}
says 1 "state       2KV"
says 1 "equals      no named layer"
says 2 "equals      deltanet with beta_t <- "
says 3 "equals      softmax-attention with "
says 4 '\item[Recurrence]'
says 5 "inputs "
says 5 "kernel     momentum"
says 6 " passed, 0 failed"
says 7 "nlms"
says 8 "tokens/s"
says 9 "## Derivation"
[ "$failures" -eq 0 ]
