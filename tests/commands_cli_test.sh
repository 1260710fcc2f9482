#!/usr/bin/env bash
# Every command that the program prints is run as it is printed, by a shell:   bash commands_cli_test.sh path/to/ttr
# Collected from `ttr layers X` (all layers, a grid of recipes), from --help, from errors, and from the strings of the
# sources, so that a new one is run as well. Long ones are given an option that shortens them; what stands for
# something else (NAME, FILE) is replaced. What is recommended for a stream must not diverge there.
set -u
ttr=$(realpath "$1")
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1
mkdir bin && ln -s "$ttr" bin/ttr
PATH="$PWD/bin:$PATH"

awk 'BEGIN { srand(1); print "a,b,c,y"
  for (i = 0; i < 300; ++i) { a = 4 * rand() - 2; b = 4 * rand() - 2; c = 4 * rand() - 2
    printf "%.6f,%.6f,%.6f,%.6f\n", a, b, c, a - b + 0.5 * c + 0.1 * rand() } }' > data.csv
with_model=yes
if without_model train > /dev/null; then with_model=no; fi

typed() { timeout "$patience" bash -c "$1" > out 2> err < /dev/null; }  # a line as somebody types it
runs() {  # runs NAME LINE [what must not be in the answer]
  typed "$2"
  local code=$?
  if [ $code -ne 0 ]; then bad "$1: $2" "exit code $code: $(head -c 300 err)"
  elif [ -n "${3:-}" ] && grep -q "$3" out; then bad "$1: $2" "$(grep -m 1 "$3" out)"
  else ok "$1: $2"; fi
}

# ---------------------------------------------------------------------------------- streams: layers and recipes
# On rows of a file, and on the built-in process, whose 64 keys are longer.
stream_of() { ttr layers "$1" | sed -n 's/^stream  *//p'; }
converges() {
  local line
  line=$(stream_of "$1")
  case $line in
    "ttr regress data.csv "*) runs "$1" "$line --warmup 100 --out preds.csv" diverged ;;
    "no: "*) ok "$1 has no stream" ;;
    *) bad "$1" "no line about streams: $line" ;;
  esac
}
for name in $(ttr layers --json | sed -n 's/^    "name": "\([a-z0-9-]*\)",*$/\1/p'); do converges "$name"; done
converges rls:decay=0.99,ridge=1e-3

recipes=(
  'equal / linear / sgd(beta, momentum)' 'equal / linear / sgd(beta, momentum, nesterov)' 'equal / linear / sgd'
  'equal / linear / sgd(beta)' 'equal / linear / sgd(beta, decay)' 'equal / linear / sgd(beta, leak)'
  'equal / linear / sgd(beta, shrink)' 'equal / linear / sgd(3, beta)' 'equal / linear / sgd(beta, decay(key))'
  'equal / linear / sgd(longhorn, decay)' 'equal / linear / sgd(flow)' 'equal / linear / sgd(beta, mirror=sinh)'
  'equal / linear / sgd(beta, adam)' 'equal / linear / sgd(beta) | keys(unit)' 'equal / linear / sgd(beta) | huber(c)'
  'equal / linear(elu1) / sgd(beta)' 'equal / linear(polynomial) / sgd(beta)' 'equal / linear(taylor2) / sgd'
  'equal / linear(hedgehog) / sgd(beta)' 'equal / kernel(exp) / sgd(beta)' 'equal / kernel(polynomial) / sgd(beta)'
  'equal / constant / sgd(beta)' 'equal / mlp(2) / sgd(beta)' 'equal / mlp(2) / minibatch(16, rate)'
  'equal / linear / minibatch(16, rate)' 'equal / linear / minibatch(4)' 'equal / swiglu / minibatch(16, rate)'
  'equal / linear / gd(1)' 'equal / linear / gd(4)' 'gate / linear / gd(1)' 'equal / linear / gd(4, step)'
  'decay(0.98) / linear / gd(1) | normalise(unit)' 'equal / linear / descend(1)' 'equal / linear / descend(3, step)'
  'equal / linear(elu1) / gd(1) | normalise(keysum)' 'equal / linear / exact' 'gate / linear / exact(ridge)'
  'equal / linear / apa(4, mu)' 'equal / linear / kalman(process, noise)' 'equal / linear / cg(4, ridge)'
  'near(exp) / constant / exact' 'near(gauss, bandwidth) / local(1) / exact(ridge, relative)'
  'window(64) / linear / exact(ridge)' 'equal / kernel(gauss) / gd(1)' 'equal / linear / irls(3, ridge) | huber(c)')
for recipe in "${recipes[@]}"; do
  converges "$recipe"
  line=$(stream_of "$recipe")
  case $line in
    "ttr regress data.csv "*) runs "$recipe" "${line/data.csv /--time 300 --seeds 1 } --report built-in.html" ;;
    *) continue ;;
  esac
  # The loss of the last window of the built-in process: finite, and below a hundred times that of answering zero.
  awk -v name="$recipe" 'NR > 1 && /^equal|^gate|^decay|^near|^window/ && $0 !~ / ran / { found = 1
    if ($0 ~ /diverged|e\+|inf|nan/) exit 1 } END { exit !found }' out ||
    bad "$recipe diverges on the built-in process" "$(grep -m 1 -F " / " out)"
done

# A learned map has the same matrix for all rows, so a stream has it, whether the layer or a recipe asks for it.
answers() { ttr regress data.csv --layer "$1" --warmup 0 --out "$2" > out 2> err; }
answers hedgehog layer.csv
answers 'equal / linear(hedgehog) / gd(1) | normalise(keysum, eps=1e-6)' recipe.csv
check "the layer and the recipe of Hedgehog answer alike" \
  sh -c "test -s layer.csv && tail -n +2 layer.csv > one && tail -n +2 recipe.csv > two && cmp one two"
for map in hedgehog hedgehog_exp hedgehog_softmax2 t2r favor favor_relu rfa dijiang rebased; do
  expect "linear($map) on a stream says what its matrices are" 0 out "of the feature map is" \
    regress data.csv --layer "equal / linear($map) / gd(1) | normalise(keysum, eps=1e-6)"
done
refused "linear(cosformer) on a stream, like the layer" "length that is known beforehand.*length=10000" \
  ttr regress data.csv --layer 'equal / linear(cosformer) / gd(1)'
refused "cosformer names a recipe that runs" "write the recipe, 'equal / linear\(cosformer, length=10000\)" \
  ttr regress data.csv --layer cosformer
advised=$(ttr regress data.csv --layer cosformer 2>&1 | grep -o "'equal[^']*'")
runs "the recipe that cosformer names" "ttr regress data.csv --layer $advised" diverged

# --------------------------------------------------------------------------------------------- the help's examples
ngrams=$(seq 1 200 | tr '\n' ' ')
for i in 1 2 3 4 5 6 7 8; do echo "It was $i $ngrams"; done > book.txt
shortened() {  # what makes a long command short
  case $1 in
    "ttr regress") echo "--time 64 --seeds 1" ;;
    "ttr check") echo "nlms --quiet" ;;
    "ttr bench rls-stability") echo "--steps 1000" ;;
    "ttr bench "*) echo "--quick" ;;
    "ttr train "*) echo "--steps 2" ;;
    "ttr generate "*) echo "--tokens 4" ;;
  esac
}
ttr --help | sed -n '/^Examples:/,$p' | sed -n 's/^  \(ttr .*\)/\1/p' > examples
check "there are examples" test "$(wc -l < examples)" -ge 8
while read -r line; do
  command=${line%%  *}  # the meaning follows after two blanks, or after one where the line is full
  command=${command% predict each row from the rows before it}
  case $with_model$command in no"ttr t"[ar]* | no"ttr ge"*) continue ;; esac
  runs "example" "$command $(shortened "$command")"
done < examples

# --------------------------------------------------------------------- commands between backquotes in the sources
# Those with a hole that the program fills are what the parts above and other tests run.
# shellcheck disable=SC2016
grep -rhE '"[^"]*`ttr [^`]*`' "$tree"/{cli,src,model,tasks,language} --include='*.cc' --include='*.h' |
  grep -vE '^ *(//|\*)' | grep -oE '`ttr [^`]*`' | sort -u | tr -d '`' | grep -v '[{[]' > said
check "the sources print commands" test "$(wc -l < said)" -gt 15
while read -r line; do
  read -r -a words <<< "$line"
  verb=${words[1]}
  case $with_model$verb in noeval | nogenerate | nongram | notasks | notrain | nosweep) continue ;; esac
  last=${words[-1]}
  # `ttr serve`, `ttr regress --save`: what a verb and its options are called.
  if [ "$verb" = "$last" ] && [[ $last != --* ]]; then
    check "said: $line" sh -c "ttr $verb --help | grep -q '^Usage: ttr $verb'"
    continue
  elif [[ $last == --* && $last != --help ]]; then
    check "said: $line" sh -c "ttr ${words[*]:1:${#words[@]}-2} --help | grep -q -e '^  $last '"
    continue
  fi
  case $verb in
    tasks | train) name=parity ;;
    *) name=nlms ;;
  esac
  line=${line//NAME/$name} line=${line//VERB/regress} line=${line//FILE/book.txt} line=${line//TASK/parity}
  line=${line% ...}
  runs "said" "$line $(shortened "$line")"
done < said

# --------------------------------------------------------------------------------------------------------- errors
refused "slstm is a block of a model" "ttr train TASK --stack slstm" ttr layers slstm
if [ $with_model = yes ]; then runs "what it advises" "ttr train parity --stack slstm --steps 2"; fi
gzip -k data.csv
refused "a packed stream" "zcat FILE \| ttr regress -" sh -c 'cat data.csv.gz | ttr regress -'
runs "what it advises" "zcat data.csv.gz | ttr regress -"

# Commands in results and reports come from the words of the call.
runs "a report" "ttr regress data.csv --layer 'equal / linear / sgd(nlms, momentum)' --report 'a b.html'"
command=$(grep -oE "ttr regress data.csv [^<]*" 'a b.html' | head -1 | sed "s/&#39;/'/g; s/&quot;/\"/g; s/&amp;/\&/g")
runs "the command of a report" "$command"

if [ "$failures" -gt 0 ]; then echo "$failures failed"; exit 1; fi
echo "all passed"
