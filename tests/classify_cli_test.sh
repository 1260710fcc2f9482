#!/usr/bin/env bash
# `ttr regress --classify`: nothing of a later row is used, models are saved and asked, bad input is refused with a sentence.
set -uo pipefail
ttr=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
data=$here/../examples/data
data=$(realpath "$data")
# shellcheck source=tests/black_box.sh
. "$here/black_box.sh"
in_empty_folder || exit 1

weather=$data/seattle-weather.csv
run() { "$ttr" regress "$@" --values weather --keys precipitation,temp_max,temp_min,wind --horizon 1; }

# The log loss of the mix is below that of the frequencies and close to the best of its layers.
run "$weather" --json > all.json || bad "a run over the weather"
python3 - all.json <<'END' && ok "the mix is close to the best layer, and better than frequencies" || bad "losses of the weather"
import json, sys
run = json.load(open(sys.argv[1]))
loss = {l["name"]: l["classification"]["log_loss"] for l in run["layers"] + [run["baseline"]]}
mix = loss.pop("mix")
assert run["loss"] == "log loss" and run["classes"] == ["drizzle", "fog", "rain", "snow", "sun"], run["classes"]
assert mix < 0.9 * loss["frequencies"], (mix, loss)
assert mix < 1.02 * min(loss.values()), (mix, loss)
best = next(l for l in run["layers"] if l["name"] == "mix")["classification"]
assert best["calibration_error"] < 0.02 and 0.75 < best["auc"] < 0.85 and 0.6 < best["accuracy"] < 0.7, best
assert sum(b["count"] for b in best["reliability"]) == 5 * run["scored"]
END

# A future leak: rows after the 700th get other classes and other keys; all lines up to row 700 are the same bytes.
run "$weather" --out whole.csv > /dev/null || bad "predictions"
awk -F, -v OFS=, 'NR > 701 { $2 = NR % 7; $6 = NR % 2 ? "snow" : "fog" } { print }' "$weather" > altered.csv
run altered.csv --out altered-out.csv > /dev/null || bad "predictions of other rows"
if cmp -s <(head -700 whole.csv) <(head -700 altered-out.csv); then ok "no answer depends on a later row"; else bad "an answer depends on a later row"; fi
if cmp -s whole.csv altered-out.csv; then bad "the leak test cannot fail: other rows have the same answers"; else ok "and later answers do change"; fi
head -1 whole.csv | grep -q '^row,cross-entropy:rate=0.03,cross-entropy:rate=0.03.drizzle,' && ok "columns of classes and probabilities" || bad "header: $(head -c 200 whole.csv)"
python3 - whole.csv <<'END' && ok "probabilities add up to 1, and the class is the most likely one" || bad "probabilities"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
classes = ["drizzle", "fog", "rain", "snow", "sun"]
for row in rows:
    for name in ("mix", "rls:ridge=1"):
        p = {c: float(row[f"{name}.{c}"]) for c in classes}
        assert abs(sum(p.values()) - 1) < 1e-9, row
        assert p[row[name]] == max(p.values()), row
assert rows[5]["actual"] in classes
END

# In two halves, and asked without learning.
head -600 "$weather" > first.csv
{ head -1 "$weather"; tail -n +601 "$weather"; } > second.csv
run first.csv --classify --classes drizzle,fog,rain,snow,sun --save model.ttr > /dev/null || bad "--save"
"$ttr" regress second.csv --load model.ttr --out second-out.csv > /dev/null || bad "--load"
if cmp -s <(tail -n +600 whole.csv | cut -d, -f2-) <(tail -n +2 second-out.csv | cut -d, -f2-); then
  ok "a run in two halves has the same bytes"
else
  bad "a run in two halves differs"
fi
"$ttr" predict model.ttr second.csv > asked.csv 2> asked.txt && head -1 asked.csv | grep -q '^row,cross-entropy' &&
  grep -q 'log loss' asked.txt && ok "ttr predict" || bad "ttr predict: $(head -c 200 asked.txt)"

# Numbers as classes, a column of words without a word about it, two classes, a report, a table.
awk 'BEGIN { srand(4); print "x,z,label"; for (i = 0; i < 300; ++i) { x = rand() - 0.5; z = rand() - 0.5; print x "," z "," (x + z / 3 + 0.2 * (rand() - 0.5) > 0) } }' > two.csv
"$ttr" regress two.csv --classify --report two.html > two.txt || bad "two classes"
grep -q 'AUC' two.txt && grep -q 'Probabilities of .* (1)' two.txt && grep -q 'Log loss over time' two.html && ok "table and report of two classes" || bad "table: $(head -c 300 two.txt)"
sed 's/,1$/,yes/; s/,0$/,no/' two.csv > words.csv
"$ttr" regress words.csv --values label > words.txt && diff <(sed 1d two.txt | sed 's/us\/row.*//; s/(1)//' | awk '{print $1, $2, $3, $4}') <(sed 1d words.txt | sed 's/us\/row.*//; s/(yes)//' | awk '{print $1, $2, $3, $4}') > /dev/null &&
  ok "words are classes, with or without --classify" || bad "words as classes"
"$ttr" regress two.csv --classify --tune --layer logistic --layer nlms --layer mix --json > tuned.json && grep -q '"settings_tried": 5' tuned.json && ok "--tune" || bad "--tune"
printf '0.4,0.1,1\n-0.4,-0.1,0\n0.3,0.2,\n' | "$ttr" regress - --classify --classes 0,1 --layer rls:ridge=1 2> /dev/null > live.csv
[ "$(wc -l < live.csv)" -eq 4 ] && tail -1 live.csv | grep -q '^3,1,' && ok "a live stream, and a question" || bad "live: $(cat live.csv)"

nothing_left() { [ ! -e out.csv ]; }
refused "a pipe without classes" 'list its classes' "$ttr" regress <(printf 'x,c\n1,a\n2,b\n') --classify --out out.csv
printf 'x,c\n1,a\n2,a\n' > one.csv
refused "one class in a file" "one class, 'a'" "$ttr" regress one.csv --classify --out out.csv
refused "live without classes" '--classes yes,no' "$ttr" regress - --classify
refused "classes without --classify" '--classify' "$ttr" regress two.csv --classes 0,1
refused "intervals of classes" '--interval' "$ttr" regress two.csv --classify --interval 0.9
refused "many classes" 'more than 64 classes' "$ttr" regress "$weather" --classify --values date
refused "a class that was not listed" "one of the classes 0 and 2" "$ttr" regress two.csv --classify --classes 0,2 --out out.csv
refused "a class twice" 'twice' "$ttr" regress two.csv --classify --classes 0,0
refused "two columns of classes" 'one column' "$ttr" regress two.csv --classify --values x,label
refused "a setting that there is not" 'rate' "$ttr" regress two.csv --classify --layer logistic:step=1

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
