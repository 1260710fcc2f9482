#!/usr/bin/env bash
# Black-box tests of every verb of the program but the data handling of `regress` (regress_cli_test.sh): help, exit codes, the
# fields of --json (docs/json.md), derivations, checks by name and golden folders.
# usage: cli_test.sh PATH_TO_TTR
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c, awk or grep
set -u
[ $# -eq 1 ] || { echo "usage: cli_test.sh PATH_TO_TTR" >&2; exit 2; }
ttr=$(realpath "$1")
golden=$(realpath "$(dirname "$0")")/golden
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 2
checks=0

# run WANTED_EXIT_CODE ARGUMENT...: leaves standard output and error in `out` and `err`.
run() {
  local wanted=$1
  shift
  what="ttr $*"
  checks=$((checks + 1))
  "$ttr" "$@" > out 2> err < /dev/null
  local code=$?
  [ "$code" -eq "$wanted" ] || bad "$what" "exit code $code, expected $wanted; stderr: $(head -c 300 err)"
}

# has FILE TEXT...: each fixed text is in the file of the last run.
has() {
  local file=$1 text
  shift
  for text in "$@"; do
    checks=$((checks + 1))
    grep -qF -- "$text" "$file" || bad "$what" "no '$text' in its $file: $(head -c 300 "$file")"
  done
}

has_not() {
  local file=$1 text
  shift
  for text in "$@"; do
    checks=$((checks + 1))
    ! grep -qF -- "$text" "$file" || bad "$what" "unexpected '$text' in its $file"
  done
}

nothing_in() {
  checks=$((checks + 1))
  [ ! -s "$1" ] || bad "$what" "unexpected $1: $(head -c 300 "$1")"
}

count_is() {  # count_is WANTED COUNT MEANING
  checks=$((checks + 1))
  [ "$1" = "$2" ] || bad "$what" "$3: $2, expected $1"
}

# Reads a file as one JSON value; fails on anything that is not, e.g. nan, a trailing comma or a line of text.
is_json() {
  checks=$((checks + 1))
  awk '
    function blank() { sub(/^[ \t\r\n]+/, "", s) }
    function value(  c) {
      if (bad) return
      blank(); c = substr(s, 1, 1)
      if (c == "{") { members("}", 1); return }
      if (c == "[") { members("]", 0); return }
      if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/) ||
          match(s, /^(true|false|null)/)) s = substr(s, RLENGTH + 1)
      else bad = 1
    }
    function members(close_, named) {
      s = substr(s, 2); blank()
      if (substr(s, 1, 1) == close_) { s = substr(s, 2); return }
      while (!bad) {
        blank()
        if (named) {
          if (!match(s, /^"([^"\\]|\\.)*"/)) { bad = 1; return }
          s = substr(s, RLENGTH + 1); blank()
          if (substr(s, 1, 1) != ":") { bad = 1; return }
          s = substr(s, 2)
        }
        value(); blank()
        if (substr(s, 1, 1) == close_) { s = substr(s, 2); return }
        if (substr(s, 1, 1) != ",") bad = 1
        s = substr(s, 2)
      }
    }
    { s = s $0 "\n" }
    END { value(); blank(); exit bad || s != "" }' "$1" || bad "$what" "its $1 is not JSON: $(head -c 300 "$1")"
}

# fields FILE NAME...: JSON with these names.
fields() {
  local file=$1 name
  is_json "$file"
  shift
  for name in "$@"; do has "$file" "\"$name\":"; done
}

# An error under --json: nothing on standard output, {error: {message, where}} on standard error, exit code 2.
json_error() {
  run 2 "$@"
  nothing_in out
  fields err error message where
}

# An error as a sentence.
sentence() {
  run 2 "$@"
  nothing_in out
  has err "ttr: "
}

# help, version, the command line
run 0 --version
has out "ttr "
count_is 1 "$(grep -cE '^ttr [0-9]+\.[0-9]+\.[0-9]+$' out)" "version lines"
run 0 --help
has out regress layers derive check --version
run 0 regress --help
has out --keys --values --layer --bias --standardize --lags --horizon --window --out --report --svg --on-bad --header --json \
  --seeds --time --seed --covariance --order --threads
run 0 layers --help
has out --json --map --heads --key-dim --value-dim name
run 0 derive --help
has out --latex --json recipe
run 0 check --help
has out --golden --json --quiet LAYER:CASE
sentence
has err "a verb is missing"
sentence mend
has err "--help"
for verb in regress layers "derive nlms" check; do
  # shellcheck disable=SC2086
  sentence $verb --no-such-option
  has err "--no-such-option"
done
sentence layers nlms surplus
has err surplus
sentence derive
has err recipe
json_error --json
json_error layers --no-such-option --json

# layers
names="linear-attention retnet mamba-2 deltanet gated-deltanet nlms longhorn leaky-lms rls softmax-attention
local-linear-attention kernel-regression"
run 0 layers
for name in $names; do
  count_is 1 "$(grep -c "^$name " out)" "lines of $name"
done
layers_listed=$(awk 'NR > 1 && $1 ~ /^[a-z0-9-]+$/ && $1 !~ /^(operations|state|tolerance:)$/ { n++ } END { print n + 0 }' out)
has out "recipe" "forms" "state bytes" "paper" "equal / linear / sgd(beta, decay)"
run 0 layers --json
fields out name recipe paper family inputs forms state_bytes tolerance shape meaning f64 f32
count_is "$layers_listed" "$(grep -c '"state_bytes":' out)" "objects with state_bytes"
count_is "$layers_listed" "$(grep -c '"recipe":' out)" "objects with a recipe"
for name in $names; do
  run 0 layers "$name"
  has out "$name" "recipe" "equation" "scale" "paper" "kernel" "forms" "tolerance" "state" "inputs" "outputs" "traps"
done
run 0 layers --footprint --heads 2 --key-dim 8 --value-dim 8 --time 64 --json
count_is "$layers_listed" "$(grep -c '"backward_bytes":' out)" "objects with backward_bytes"
run 0 layers softmax-attention --footprint --time 8192
has out softmax-attention backward
sentence layers --footprint --time 0
sentence layers --footprint --markdown
run 0 layers gated-deltanet --json
fields out name recipe paper family inputs forms state_bytes tolerance title equation scale departure traps outputs states \
  settings stream_default golden differentiable optional state_grows
has out '"family": "delta"' '"recipe": "equal / linear / sgd(beta, decay)"' '"state_bytes": 16392'
run 0 layers gated-deltanet --json --heads 2 --key-dim 8 --value-dim 4
has out '"state_bytes": 264'
run 0 layers softmax-attention --json
has out '"family": "attention"' '"state_grows": true'
run 0 layers rls
has out "forms      step, recurrent" "no chunk:" "no parallel:"
run 0 layers mesanet
has out "forms      step, recurrent, chunk, parallel"
has_not out "no chunk:"
run 0 layers softmax-attention:causal=no --json
has_not out '"recurrent"'
has out '"parallel"' '"chunk: every query sees all pairs'
sentence layers mesanet:colour=1
has err "colour"
sentence layers nlsm
has err "nlsm" "did you mean 'nlms'"
json_error layers nlsm --json
has err "did you mean 'nlms'"
run 2 layers --heads 0
has err "heads is 0"
run 0 layers --map map.svg
nothing_in out
has map.svg "<svg" "</svg>" "$(wc -w <<<"$(grep -o '</text></g>' map.svg)") layers by how" ">gated-deltanet</text>" ">local-linear-attention</text>"
run 0 layers --map -
has out "</svg>"
rm map.svg
sentence layers --map nowhere/map.svg
has err "nowhere"
sentence layers --map ""
sentence layers nlms --map map.svg
has err "leave out the name"
json_error layers --json --map map.svg

# derive: named and unnamed recipes
derives() {  # derives RECIPE TEXT...
  local recipe=$1
  shift
  run 0 derive "$recipe"
  nothing_in err
  has out "recipe      $recipe" "objective   " "gradient    " "recurrence  " "read-out    " "state       " "cost        " \
    "forms       " "equals      " "near        " "$@"
}
derives 'equal / linear / gd(1)' "equals      linear-attention" "S_t = S_{t-1} + k_t v_t'"
derives 'equal / linear / sgd(beta, decay)' "equals      gated-deltanet" "deltanet (solver: sgd(beta))" "cost        4KV"
derives 'near(exp) / constant / exact' "equals      softmax-attention" "no scan: the state is the list of pairs"
derives 'equal / kernel(exp) / exact(ridge)' "equals      kernel-regression"
derives 'equal / linear / gd(4, step=auto)' "equals      no named layer" "K^2 + KV"
derives 'decay(0.98) / linear / exact(ridge=0.01)' "equals      no named layer" "0.98 H_{t-1}"
derives 'gate(key, beta) / linear / gd(1)' "equals      gla with v_t <- beta_t v_t" "mamba-2 (weights: gate(beta))"
derives 'near(gauss) / constant / exact | keys(unit)' "equals      softmax-attention with q_t <- q_t/|q_t|" "because     " "Eq. 51"
derives 'equal / linear / sgd(beta, decay) | dot' "equals      mamba-2" "simple-gla with v_t <- beta_t v_t"
derives 'equal / mlp(2) / sgd(beta) | huber(c)' "equals      no named layer" "no scan: the memory is no linear function of its past"
derives 'near(exp) / local(2) / exact(ridge)' "equals      no named layer"
derives 'window(64) / linear / exact(ridge=0.001)' "equals      no named layer"
derives 'equal / linear / sgd(beta, momentum, nesterov)' "equals      no named layer"
derives 'equal / linear / kalman(process, noise)' "equals      kalman"
derives 'decay(0.98) / linear / exact' "equals      no named layer" "kappa_t = P_{t-1} k_t/(0.98 + k_t' P_{t-1} k_t)" \
    "cost        2K^2 + 3KV"
run 0 derive efla
has out "[Lei, Zhang, Poria 2025, arXiv 2512.12602 (EFLA)]" "sources     equal: textbook"
run 0 derive mamba-3
has out "departure   queries and keys are biased and turned before the regression"
run 0 derive mamba-3 --json
has out '"departure": "queries and keys' '"sources"'
run 0 derive intention
has out "recurrence  None: every query sees all N pairs of its call" "state       none" "forms       parallel" "no scan:"
run 0 derive 'equal/linear/sgd( beta ,decay )'
has out "recipe      equal / linear / sgd(beta, decay)"
run 0 derive 'gate / linear / sgd(beta)'
has out "remarks     " "equal / linear / sgd(beta, decay)"
run 0 derive nlms
has out "recipe      equal / linear / sgd(nlms)" "equals      nlms"
run 0 derive nlms:mu=1
has out "recipe      equal / linear / sgd(nlms=1)"
run 0 derive 'equal / linear / sgd(beta)' --latex
has out '\beta_t' '^\top' '$S_t = ' '\begin{description}' '\item[Equals] deltanet' '\end{description}'
run 0 derive 'equal / kernel(exp) / gd(1)' --latex
has out '\item[Equals] unnormalised-softmax' '\item[Because] \texttt{near(exp) / constant / gd(1)}: '
has_not out "equals      "
run 0 derive 'equal / linear / sgd(beta)' --json
fields out recipe objective gradient recurrence readout state_size cost_per_token forms simplest equals equals_with \
    because neighbours remarks
has out '"deltanet"'
run 0 derive 'equal / linear / sgd(beta)' --json --latex
fields out recipe objective recurrence
has out '\\beta_t'

sentence derive 'equal / linar / gd(1)'
has err "linar" 'did you mean `linear`' "column 9 of the recipe"
sentence derive 'equal / linear / gd(0)'
has err "column"
sentence derive 'equal / linear'
has err "column"
sentence derive 'near(exp) / mlp(2) / sgd(beta)'
sentence derive ''
sentence derive no-such-layer
has err "no-such-layer"
sentence derive nlms:colour=1
has err "colour" "mu, eps"
json_error derive 'equal / linar / gd(1)' --json
has err '"where": "column 9 of the recipe"'

# check
run 0 check nlms
has out " forms " " forms-gradient " " oracle " " oracle-gradient " " gradient " " split " " step " " batch " "nlms(mu=1):" " passed, 0 failed"
has_not out FAILED
count_is "$(awk '/ passed, / { print $1 }' out)" "$(grep -c ' ok' out)" "lines that say ok"
run 0 check nlms --quiet
count_is 1 "$(grep -c '' out)" "lines"
run 0 check 'rls(ridge=input):B2-T7-H1-K3-V5-f64-seed1'
has out "rls(ridge=input):B2-T7-H1-K3-V5-f64-seed1" " of ridge"
count_is 0 "$(grep -v ' passed, ' out | grep -vcF 'rls(ridge=input):B2-T7-H1-K3-V5-f64-seed1')" "lines of another case"
run 0 check nlms:B1-T3-H1-K2-V2-f32-seed4 deltanet:B1-T5-H2-G1-K3-V2-C2-f64-seed9
has out "nlms:B1-T3-H1-K2-V2-f32-seed4" "deltanet:B1-T5-H2-G1-K3-V2-C2-f64-seed9"
run 0 check nlms:B1-T3-H1-K2-V2-f64-seed1 --json
fields out layer case check form dtype error tolerance passed
has out '"layer": "nlms"' '"case": "B1-T3-H1-K2-V2-f64-seed1"' '"dtype": "f64"' '"passed": true'
has_not out '"passed": false'
for form in recurrent chunk parallel step; do has out "\"form\": \"$form\""; done
sentence check nlms:B2-Q7
has err "Q7" "B2-T7-H1-K3-V5-f64-seed1"
sentence check nlms:B2-T7
has err "no type"
sentence check 'nlms('
sentence check nlsm
has err "did you mean 'nlms'"
json_error check nlms:B2-Q7 --json
TTR_TARGET=NO_SUCH_SET sentence check nlms
TTR_TARGET=NO_SUCH_SET sentence check --recipes 3
has err NO_SUCH_SET
sets=$(sed -n 's/.*there is \(.*\)\. Leave.*/\1/p' err | tr -d ,)
[ -n "$sets" ] || bad "ttr check nlms" "no instruction sets in its sentence: $(head -c 300 err)"
count_is "$(wc -w <<<"$sets")" "$(tr ' ' '\n' <<<"$sets" | sort -u | wc -l)" "different names among the instruction sets '$sets'"
for set in $sets; do
  TTR_TARGET=$set run 0 check nlms:B1-T9-H1-K5-V3-f32-seed1
  TTR_TARGET=$set run 0 layers nlms
  has out "/$set"
done

# check of a recipe
run 0 check 'equal / linear / gd(4):B1-T5-H2-G1-K3-V2-f64-seed1'
has out "equal / linear / gd(4):B1-T5-H2-G1-K3-V2-f64-seed1" " gradient " " split " " passed, 0 failed"
run 0 check 'equal / linear / sgd(beta, decay)' --quiet
count_is 1 "$(grep -c '' out)" "lines"
sentence check 'equal / linear / gd(4'
sentence check 'equal / linear / gd(4):B2-Q7'
has err "Q7"

# check --recipes
run 0 check --recipes 300 --seed 5
has out "family " "oracle " "300 recipes: " " 300 passed, 0 failed"
cp out first
run 0 check --recipes 300 --seed 5
count_is 0 "$(diff out first | grep -c '')" "lines that differ between two runs of a seed"
# Local polynomials of order 7 and 8 far from their keys; a step of rounding alone that a q-norm makes large, which any move of the
# inputs shows if it is short enough.
run 0 check --recipes 1 --seed 17013772
run 0 check --recipes 1 --seed 413380059
run 0 check --recipes 1 --seed 991000509
run 0 check --recipes 50 --quiet
count_is 1 "$(grep -c '' out)" "lines"
run 0 check --recipes 50 --json
fields out seed recipes passed failed families failures
has out '"family": "oracle"' '"error_f64"' '"seed": 1'
sentence check --recipes 0
has err "--recipes is 0"
sentence check --recipes many
sentence check --seed 3
has err "--recipes"
sentence check nlms --recipes 3
has err "nlms"
sentence check --recipes 3 --long
json_error check --recipes -1 --json

# check --long: a million tokens, so the words around it and a short run
run 0 check --help
has out "--long" "a million tokens"
sentence check --long softmax-attention
has err "softmax-attention keeps its pairs"
sentence check --long l2-norm
has err "l2-norm is an operation"
sentence check --long 'nlms(mu=1'
has err "no closing parenthesis"
sentence check --long nlms --golden "$golden"
has err "--golden"
json_error check --long nlsm --json
has err "did you mean 'nlms'"
for wrong in 0 -5 999 1000000001; do
  sentence check --long nlms --tokens "$wrong"
  has err "--tokens is $wrong; it can be 1000 to"
done
sentence check --long nlms --tokens many
has err "--tokens"
sentence check nlms --tokens 2000
has err "--long"
sentence check nlms --list
has err "--long"
run 0 check --long --tokens 20000 nlms lact
has out "float against double after" " 1e3 " " 1e4 " " 2e4 " "4 passed, 0 failed"
run 0 check --long --tokens 1234 log-linear-attention --json
has out '"case": "T1234-H1-K4-V4"' '"layer": "log-linear-attention(levels=12)"' '"check": "long"'
run 0 check --long --list
has out nlms rls titans
has_not out softmax-attention l2-norm

# check --golden
sentence check --golden "$work/missing"
has err "$work/missing"
mkdir empty
sentence check --golden empty
has err "no .safetensors file below empty"
json_error check --golden empty --json
sentence check --golden "$golden" no_such_op
has err no_such_op
run 0 check --golden "$golden" nlms
has out "nlms/" " golden " " f64 " " f32 " " passed, 0 failed"
for form in step recurrent chunk parallel; do has out " $form "; done
has_not out FAILED
sample=$(find "$golden/nlms" -name '*.safetensors' | sort | head -n 1)

mkdir -p unknown/no_such_op unknown/nlms
cp "$sample" unknown/no_such_op/a.safetensors
cp "$sample" unknown/nlms/a.safetensors
run 1 check --golden unknown
has out "no_such_op/a" "no layer claims this operation" ", 1 failed" "nlms/a"
run 1 check --golden unknown no_such_op --json
fields out layer case check form dtype error tolerance passed
has out '"passed": false' '"case": "no_such_op/a"'

# Files that are cut, empty, rubbish, or whose numbers are wrong: a failed row each, never a crash.
size=$(wc -c < "$sample")
mkdir -p broken/nlms
head -c 100 "$sample" > broken/nlms/cut_in_header.safetensors
head -c $((size - 8)) "$sample" > broken/nlms/cut_in_data.safetensors
: > broken/nlms/empty.safetensors
printf '\377\377\377\377\377\377\377\377rubbish' > broken/nlms/rubbish.safetensors
printf '\002\000\000\000\000\000\000\000{}' > broken/nlms/no_tensors.safetensors
{ head -c $((size / 2)) "$sample"; head -c 64 /dev/zero; tail -c +$((size / 2 + 65)) "$sample"; } > broken/nlms/zeroed.safetensors
for file in broken/nlms/*.safetensors; do
  name=$(basename "$file" .safetensors)
  mkdir -p "one/$name/nlms"
  cp "$file" "one/$name/nlms/"
  run 1 check --golden "one/$name"
  has out "nlms/$name" FAILED
done
run 1 check --golden broken --json
is_json out
run 1 check --golden broken --quiet
has_not out " ok"

# regress: the fields of --json
printf 'a,b,y\n1,2,3\n2,1,4\n3,5,6\n4,4,8\n' > data.csv
run 0 regress data.csv --layer nlms --layer 'equal / linear / sgd(beta=0.1, decay=0.01)' --json
fields out rows skipped predictions scored keys values loss window_rows interrupted layers name recipe mse r2 windows us_per_row \
  state_bytes kernel diverged_at baseline
has out '"rows": 4' '"keys": 3' '"name": "nlms"' '"recipe": "equal / linear / sgd(nlms=0.5)"' '"state_bytes": 32'
nothing_in err
run 0 regress --json --seeds 2 --time 16 --layer nlms --report process.html
fields out rows loss process seeds time covariance order window_bounds interrupted layers name recipe mse r2 windows \
  windows_standard_error us_per_row state_bytes kernel
has out '"rows": 32' '"naive forecast"'
json_error regress missing.csv --json
has err missing.csv
json_error regress data.csv --layer no-such-layer --json
json_error regress data.csv --keys c --json
printf '1,2\nx,3\n' > text.csv
json_error regress text.csv --header no --json
has err "line 2"

# A reader that goes away ends the program quietly; a full disk is an error.
for verb in "layers" "derive nlms" "check nlms" "check --golden broken"; do
  what="ttr $verb | head -c 1"
  # shellcheck disable=SC2086
  code=$({ "$ttr" $verb 2> err; echo $? > code; } | head -c 1 > /dev/null; cat code)
  [ "$verb" = "check --golden broken" ] || count_is 0 "$code" "exit code"
  nothing_in err
done
if [ -w /dev/full ]; then
  what="ttr layers > /dev/full"
  "$ttr" layers > /dev/full 2> err
  count_is 2 "$?" "exit code"
  has err "cannot write"
fi

echo "$checks checks, $failures failed"
[ "$failures" -eq 0 ]
