#!/usr/bin/env bash
# Black-box test of what a person with data meets in `ttr regress`:   bash streams_cli_test.sh path/to/ttr
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c, awk or grep
set -u
ttr=$(realpath "$1")
data=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../examples/data")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

# of LAYER FIELD FILE: a field of one layer of the JSON.
of() {
  awk -v name="\"$1\"," -v field="\"$2\":" '$1 == "\"name\":" { here = ($0 ~ "\"name\": " name "?$") || index($0, "\"name\": " name) }
    here && $1 == field { sub(/,$/, "", $2); print $2; exit }' "$3"
}
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a ~ /^-?[0-9]/ && b ~ /^-?[0-9]/ && a + 0 < b + 0) }'; }
run() { "$ttr" regress "$@" --json >a.json 2>a.err; }

# --- 1: large numbers, and a layer that fails alone ---
awk 'function normal() { return sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand()) }
  BEGIN { srand(3); v = log(2e7); print "volume"; for (t = 0; t < 600; t++) { v = 0.7 * v + 0.3 * log(2.5e7) + 0.25 * normal(); printf "%d\n", exp(v) } }' >volume.csv
run volume.csv --keys volume --values volume --lags 5
check "large numbers: exit 0" test $? -eq 0
for layer in rls rls:decay=0.98,ridge=1 mix; do
  check "large numbers: $layer beats the naive forecast" below 0 "$(of $layer skill a.json)"
done
run volume.csv --lags 5 --layer affine-projection:mu=0.1,eps=0.001,p=5
check "large numbers: affine projection does not diverge" sh -c 'grep -q "\"diverged_at\": null" a.json && [ "$0" = null ] && awk -v r="$1" "BEGIN { exit !(r > -5) }"' "$(of affine-projection:mu=0.1,eps=0.001,p=5 diverged_at a.json)" "$(of affine-projection:mu=0.1,eps=0.001,p=5 r2 a.json)"
"$ttr" regress volume.csv --raw --lags 5 --layer rls:decay=0.99 --layer nlms >a.txt 2>a.err
check "a layer that cannot go on does not take the others along" sh -c '[ '$?' -eq 0 ] && grep -q "^nlms  *[0-9]" a.txt && grep -q "^rls:decay=0.99  *diverged at row" a.txt'
check "and it is said why, and what helps" grep -q '^rls:decay=0.99 diverged at row .*: the row has no answer in this precision; give a larger ridge.*without --raw' a.txt
check "in rows, not in the words of a program" sh -c '! grep -qwE "sequence|token|head" a.txt'
printf 'a,price\n1,1e308\n2,-1e308\n3,5\n4,6\n5,7\n' >jump.csv
"$ttr" regress jump.csv --keys price --values a --lags 1 --horizon 1 --diff --raw --layer rls:decay=0.99 --warmup 0 >a.txt 2>a.err
check "a key that is infinite is told by its column" grep -q "diverged at row .*: the key 'price, lag 1' is -inf; every number must be finite" a.txt

# --- 2: options swallow no file ---
awk 'BEGIN { srand(7); print "a,b,y"; for (t = 0; t < 300; t++) { a = rand(); b = rand(); printf "%.6f,%.6f,%.6f\n", a, b, 2 * a - 3 * b + 0.01 * rand() } }' >data.csv
for options in "--layer rls" "--values y" "--keys a,b" "--layer nlms --layer rls"; do
  # shellcheck disable=SC2086
  run $options data.csv
  check "$options before the file" sh -c '[ '$?' -eq 0 ] && grep -q "\"rows\": 300" a.json'
done

# --- 3: the intercept is free ---
awk 'function normal() { return sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand()) }
  BEGIN { srand(5); print "a,b,y"; for (t = 0; t < 1000; t++) { a = normal(); b = normal(); printf "%.6f,%.6f,%.6f\n", 1000 + a, 1000 + b, 5 + 2 * a - 3 * b + 0.1 * normal() } }' >shift.csv
run shift.csv --layer rls --layer rls:decay=0.995
check "shifted keys: rls ($(of rls mse a.json))" below "$(of rls mse a.json)" 0.0115
run shift.csv --raw --bias --layer rls
check "shifted keys, raw with a bias ($(of rls mse a.json))" below "$(of rls mse a.json)" 0.02

# --- 4: standardising does not hurt ---
run "$data/co2.csv" --values co2 --lags 13 --layer rls
scaled=$(of rls mse a.json)
run "$data/co2.csv" --values co2 --lags 13 --raw --bias --layer rls
check "CO2: rls is no worse in units of deviations ($scaled, $(of rls mse a.json))" below "$scaled" "$(awk -v m="$(of rls mse a.json)" 'BEGIN { print 1.05 * m }')"
run "$data/co2.csv" --values co2 --lags 13 --layer rls --interval 0.9
scaled=$(of rls last_width a.json)
run "$data/co2.csv" --values co2 --lags 13 --raw --bias --layer rls --interval 0.9
check "CO2: intervals in these units are no wider ($scaled, $(of rls last_width a.json))" below "$scaled" "$(awk -v w="$(of rls last_width a.json)" 'BEGIN { print 1.1 * w }')"

# --- 5: warm-up ---
awk 'BEGIN { print "x,y"; for (t = 0; t < 60; t++) print t % 7 "," 1000 + t % 7 }' >level.csv
run level.csv --layer rls
check "the first rows are not scored" sh -c 'grep -q "\"warmup\": 3" a.json && grep -q "\"scored\": 57" a.json'
check "and so do not decide" below "$(of rls mse a.json)" 1
run level.csv --layer rls --warmup 0
check "--warmup 0 scores them" sh -c 'grep -q "\"scored\": 60" a.json'
head -3 level.csv >short.csv
"$ttr" regress short.csv --layer rls >a.txt 2>a.err
check "a stream within the warm-up is scored" grep -q 'ended within the warm-up' a.txt
refused "warm-up of a word" "--warmup" "$ttr" regress level.csv --warmup few
refused "a warm-up as long as the file" "--warmup 60 leaves nothing to score: 'level.csv' has 60 rows with a value; give less than 60" \
  "$ttr" regress level.csv --warmup 60 --out warm.csv --report warm.html
check "and nothing is written" sh -c '[ -z "$(ls | grep "^warm")" ]'
awk 'BEGIN { print "g,x,y"; for (t = 0; t < 60; t++) print "g" t % 3 "," t % 7 "," t % 5 }' >groups.csv
refused "a warm-up longer than every group" "no group of 'groups.csv' has more than 20 rows with a value" "$ttr" regress groups.csv --group g --warmup 30
"$ttr" regress level.csv --layer rls --warmup 100 --save m.ttr >a.txt 2>a.err
check "a model that is saved may be warm later, and nothing is the best yet" sh -c '[ '$?' -eq 0 ] && [ -s m.ttr ] && ! grep -q best a.txt && grep -q "No row was scored: the warm-up (--warmup) is 100 rows long" a.txt'
"$ttr" regress level.csv --load m.ttr --json >a.json 2>a.err
check "and scores what comes after it" sh -c 'grep -q "\"scored\": 20" a.json && grep -q "\"best\": \"" a.json'
"$ttr" regress - --layer rls --warmup 100 <level.csv >a.txt 2>a.err
check "a live stream may end within it" sh -c '[ '$?' -eq 0 ] && [ "$(wc -l <a.txt)" = 61 ]'

# --- windows ---
for window in 0 -1 99999999999; do
  refused "a window of $window rows" "--window $window is out of range; give 1 to 1000000000 rows" "$ttr" regress level.csv --window $window
done
"$ttr" regress level.csv --layer rls --window 1000 >a.txt 2>a.err
check "a window longer than the file has the rows that there are" grep -q "first 57 rows  last 57 rows" a.txt

# --- errors that are no number are never the best ---
awk 'BEGIN { print "x,y"; for (t = 0; t < 60; t++) print t % 7 "," (t % 2 ? "-" : "") 1 + t % 3 "e200" }' >huge.csv
for layers in "--layer rls --layer nlms" "--raw --layer nlms:mu=1.9 --layer mix" "--raw --layer rls:decay=0.9 --layer rls"; do
  # shellcheck disable=SC2086
  "$ttr" regress huge.csv $layers >a.txt 2>a.err
  check "infinite errors: no line is the best ($layers)" sh -c '[ '$?' -eq 0 ] && ! grep -qE " best( |$)" a.txt && grep -q "No error is finite" a.txt'
done
run huge.csv --layer rls
check "infinite errors: the best is null" sh -c 'grep -q "\"best\": null" a.json && ! grep -q "\"p_versus_best\": [0-9]" a.json'
awk 'BEGIN { print "x,y"; for (t = 0; t < 60; t++) print (t == 40 ? "1e300" : t % 7) "," 1000 + t % 7 }' >one.csv
run one.csv --raw --warmup 0 --layer 'equal / linear / sgd(beta=0.5)' --layer nlms
check "a layer that is lost is not the best" grep -qE '"best": "(nlms|naive)"' a.json

# --- 6: divergence ---
"$ttr" regress data.csv --raw --layer 'equal / linear / sgd(beta=30)' --layer rls >a.txt 2>a.err
check "a divergence is called one" grep -q '^equal / linear / sgd(beta=30) .*diverged at row' a.txt
check "and no number is longer than a column" test -z "$(grep -E '[0-9]{25}' a.txt)"
check "and a remedy is named" grep -q 'diverged at row .*without --raw' a.txt
run data.csv --raw --layer 'equal / linear / sgd(beta=30)'
check "json: the remedy" grep -q '"remedy"' a.json

# --- 7: layers of which advice was given that nobody could follow ---
for layer in rwkv-6 gated-kalmanet comba mamba-3 hgrn-2; do
  run data.csv --layer $layer
  check "$layer runs" test $? -eq 0
done

# --- 8: dates and other text ---
awk 'BEGIN { print "date,x,y,place"; for (t = 1; t <= 28; t++) printf "2024-02-%02d,%d,%d,north\n", t, t % 5, 3 * (t % 5) }' >dates.csv
"$ttr" regress dates.csv --layer rls >a.txt 2>a.err
check "columns of text are left out, and it is said" sh -c '[ '$?' -eq 0 ] && grep -q "Left out the columns place and date" a.txt'
refused "a date as a key" "'2024-02-01' .* not a number.*columns of text, dates among them, must be left out" "$ttr" regress dates.csv --keys date,x --values y
awk 'BEGIN { print "date,place"; for (t = 1; t <= 9; t++) printf "2024-02-%02d,north\n", t }' >words.csv
refused "nothing but text" "column" "$ttr" regress words.csv

# --- 9: a row without a value is a question ---
printf 'x,y\n1,2\n2,4\n3,6\n4,\n5,10\n6,NA\n7,\n8,16\n' >questions.csv
run questions.csv --raw --layer nlms:mu=1 --warmup 0 --out p.csv
check "questions are counted" sh -c 'grep -q "\"questions\": 3" a.json && grep -q "\"scored\": 5" a.json'
check "and answered, the value is empty" sh -c 'grep -qx "4,8," p.csv && grep -qx "6,12," p.csv && grep -qx "7,14," p.csv && grep -qx "8,16,16" p.csv'

# --- 10: endings ---
refused "--out of another kind" "written as .csv or .npy, not as .parquet" "$ttr" regress data.csv --out p.parquet
check "and nothing is written" test ! -e p.parquet

# --- 11: many keys ---
awk 'BEGIN { srand(1); for (t = 0; t < 12; t++) { for (k = 0; k < 301; k++) printf "%.3f%s", rand(), k < 300 ? "," : "\n" } }' >wide.csv
run wide.csv --layer rls:decay=0.99 --layer rls
check "many keys: no factorisation per row" sh -c '[ "$(grep -c "\"kernel\": \"givens" a.json)" = 2 ] && grep -q "the ridge fades with the pairs and is renewed key by key, in turn, because with 301 keys" a.json'
mkfifo in.pipe
"$ttr" regress - --layer rls:decay=0.99 --out live.csv <in.pipe >a.txt 2>live.err &
pid=$!
exec 3<>in.pipe
cat wide.csv >&3
waits_for_input $pid 3
kill -TERM $pid; wait $pid; code=$?
exec 3>&-
check "many keys: SIGTERM is honoured" sh -c "[ $code -eq 143 ] && [ \"\$(wc -l <live.csv)\" = 13 ] && grep -q 'Interrupted by SIGTERM after 12 rows' live.err"

# --- 13: the report on narrow pages ---
"$ttr" regress data.csv --interval 0.9 --report r.html >a.txt 2>a.err
check "report: a plot for wide and one for narrow pages" sh -c '[ "$(grep -c "<div class=\"narrow\"><svg" r.html)" = 2 ] && grep -q "max-width: 700px" r.html'
check "report: the band has the colour of its layer's line" sh -c 'band=$(grep -o "class=\"band f[0-9]" r.html | head -1 | tail -c 2); name=$(grep -o "of [^ ]*, the line of least" r.html | head -1 | cut -d" " -f2 | sed "s/,$//"); grep -q "class=\"line h$band\"[^>]*><title>$name</title>" r.html'
check "report: the actual line is on top" sh -c 'awk "/<title>actual/ { a = NR } /class=.line h[0-9].*<title>(rls|kalman|mix)/ { if (a && !done) { bad = 1 } } /<.g>/ { if (a) done = 1 } END { exit bad }" r.html'

# --- 14: files and words as people write them ---
printf '# made by a sensor\n# twice a day\nx|y\n1|2\n2|4\n3|6\n' >bars.csv
run bars.csv --layer nlms
check "comments and bars" sh -c '[ '$?' -eq 0 ] && grep -q "\"rows\": 3" a.json'
printf 'x  y\n1   2\n 2 4\n3 6 \n' >blanks.txt
run blanks.txt --values y --layer nlms
check "blanks" sh -c '[ '$?' -eq 0 ] && grep -q "\"rows\": 3" a.json'
printf 'x;y\n1,5;2\n2,5;4,25\n3;6\n' >comma.csv
run comma.csv --layer nlms
check "decimal commas" sh -c '[ '$?' -eq 0 ] && grep -q "\"rows\": 3" a.json'
printf '[{"x": 1, "y": 2}]\n' >rows.json
refused "a list in JSON" "is a list in JSON; .*jq -c" "$ttr" regress rows.json
refused "a layer in capitals" "no layer 'RLS'; did you mean 'rls'" "$ttr" regress data.csv --layer RLS
refused "a column in capitals" "no column 'Y', did you mean 'y'" "$ttr" regress data.csv --values Y
refused "an option cut short" "did you mean --lags" "$ttr" regress data.csv --lag 3
refused "--seeds with a file" "--seeds is about the built-in process" "$ttr" regress data.csv --seeds 3
refused "several options of the built-in process" "--seeds and --time are about" "$ttr" regress data.csv --time 99 --seeds 3

# --- good by default ---
"$ttr" regress data.csv >a.txt 2>a.err
check "a table with the mix" sh -c 'grep -q "^mix " a.txt && grep -q "^mix is a weighted mean, in the end of nlms" a.txt'
for set in co2:13 nile:3 sunspots:12 elnino:13 electrical:13; do
  name=${set%:*}
  run "$data/$name.csv" --values "$name" --lags "${set#*:}"
  best=$(awk '/"mse"/ { gsub(/,/, ""); print $2 }' a.json | head -5 | sort -g | head -1)
  check "mix is close to the best layer: $name ($(of mix mse a.json), $best)" below "$(of mix mse a.json)" "$(awk -v b="$best" 'BEGIN { print 1.05 * b }')"
done
run "$data/nile.csv" --values nile --lags 3 --tune --layer rls --layer mix
tuned=$(of rls mse a.json)
check "--tune: settings are tried" sh -c 'grep -q "\"settings_tried\": 25" a.json && grep -q "\"settings_best\": \"rls:" a.json'
run "$data/nile.csv" --values nile --lags 3 --layer rls
check "--tune helps on the Nile ($tuned, $(of rls mse a.json))" below "$tuned" "$(of rls mse a.json)"
run data.csv --tune --layer nlms --interval 0.9
check "--tune with --interval" sh -c '[ '$?' -eq 0 ] && grep -q "\"kind\": \"conformal\"" a.json'

# --- measures ---
run "$data/electrical.csv" --values electrical --lags 13 --season 12 --layer rls --layer nlms
for name in rmse mae skill seasonal_skill p_versus_best; do check "json has $name" grep -q "\"$name\"" a.json; done
check "the seasonal forecast is a baseline" grep -q '"seasonal_baseline"' a.json
expected=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "electrical") c = i } NR > 1 { y[n++] = $c } END { for (t = 28; t < n; t++) { e = y[t] - y[t - 12]; s += e * e; k++ } printf "%.9g", s / k }' "$data/electrical.csv")
check "and right ($expected)" sh -c 'sed -n "/seasonal_baseline/,\$p" a.json | grep -m1 "\"mse\"" | grep -q "$(echo '"$expected"' | cut -c1-8)"'

check "intervals: pinball loss" sh -c '"$0" regress data.csv --interval 0.9 --layer rls --json | grep -q "\"pinball_loss\": [0-9]"' "$ttr"

# --- columns as they come ---
"$ttr" regress "$data/nile.csv" --values nile --keys nile --lags 3 --layer rls --out a.csv >a.txt 2>a.err
"$ttr" regress "$data/nile.csv" --values nile --keys nile --lags 1-3 --layer rls --out b.csv >a.txt 2>a.err
check "--lags 1-3 are the last three rows" cmp -s a.csv b.csv
lagged=$(awk -F, 'NR > 1 { x[n++] = $2 } END { for (t = 3; t + 1 < n; t++) { p = a * x[t] + b * x[t - 3]; e = x[t + 1] - p; s += e * e; c++; k = x[t]^2 + x[t - 3]^2; a += e * x[t] / k; b += e * x[t - 3] / k } printf "%.9g", s / c }' "$data/nile.csv")
run "$data/nile.csv" --values nile --keys nile --lags 1,4 --raw --warmup 0 --layer nlms:mu=1
check "--lags 1,4 agrees with a literal loop ($lagged)" sh -c 'awk -v a="$0" -v b="$1" "BEGIN { d = a / b - 1; exit !(d < 1e-8 && d > -1e-8) }"' "$(of nlms:mu=1 mse a.json)" "$lagged"
changes=$(awk -F, 'NR > 1 { x[n++] = $2 } END { for (t = 1; t + 1 < n; t++) { d = x[t] - x[t - 1]; p = x[t] + w * d; e = x[t + 1] - p; s += e * e; c++; if (d != 0) w += e / d } printf "%.9g", s / c }' "$data/nile.csv")
run "$data/nile.csv" --values nile --keys nile --lags 1 --diff --raw --warmup 0 --layer nlms:mu=1
check "--diff agrees with a literal loop ($changes)" sh -c 'awk -v a="$0" -v b="$1" "BEGIN { d = a / b - 1; exit !(d < 1e-8 && d > -1e-8) }"' "$(of nlms:mu=1 mse a.json)" "$changes"
run "$data/seattle-weather.csv" --values temp_max --keys wind --layer rls
plain=$(of rls mse a.json)
run "$data/seattle-weather.csv" --values temp_max --keys wind --dates date --layer rls
dated=$(of rls mse a.json)
run "$data/seattle-weather.csv" --values temp_max --keys wind --dates date --categories weather --layer rls
check "dates help ($dated, $plain)" below "$dated" "$(awk -v m="$plain" 'BEGIN { print 0.4 * m }')"
check "and so do words ($(of rls mse a.json))" below "$(of rls mse a.json)" "$(awk -v m="$dated" 'BEGIN { print 0.95 * m }')"
refused "a date that is none" "'2024-02-30' .* is not a date such as" "$ttr" regress <(printf 'day,y\n2024-02-29,1\n2024-02-30,2\n') --dates day --values y
run "$data/elnino.csv" --values elnino --lags 2 --layer rls
plain=$(of rls mse a.json)
run "$data/elnino.csv" --values elnino --lags 2 --season 12 --fourier 2 --layer rls
check "sines of the season help ($(of rls mse a.json), $plain)" below "$(of rls mse a.json)" "$(awk -v m="$plain" 'BEGIN { print 0.7 * m }')"
run "$data/seattle-weather.csv" --keys temp_max --values temp_max --lags 2 --with wind,precipitation --dates date --layer rls
check "columns beside lags" sh -c 'grep -q "\"keys\": 12" a.json'
awk 'BEGIN { srand(9); print "a,b,y"; for (t = 0; t < 200; t++) { a = rand(); b = rand(); if (t % 7 == 3) { print "," b "," 2 * last - b } else { print a "," b "," 2 * a - b; last = a } } }' >gaps.csv
awk -F, 'NR == 1 { print; next } { if ($1 == "") $1 = last; last = $1; print $1 "," $2 "," $3 }' gaps.csv >filled.csv
"$ttr" regress gaps.csv --missing last --layer rls --out a.csv >a.txt 2>a.err
"$ttr" regress filled.csv --layer rls --out b.csv >a.txt 2>a.err
check "--missing last is the file filled by hand" cmp -s a.csv b.csv
for way in mean indicator; do
  run gaps.csv --missing $way --layer rls
  check "--missing $way" sh -c '[ '$?' -eq 0 ] && grep -q "\"rows\": 200" a.json'
done
run gaps.csv --missing skip --layer rls
check "--missing skip" grep -q '"skipped": 29' a.json
refused "missing keys by default" "empty" "$ttr" regress gaps.csv
awk 'BEGIN { print "v"; for (t = 0; t < 60; t++) print (t % 9 == 4 ? "NA" : t % 5) }' >holes.csv
run holes.csv --lags 2 --missing last --layer rls
check "a series with holes: they are questions" sh -c '[ '$?' -eq 0 ] && grep -q "\"questions\": 7" a.json'
"$ttr" regress data.csv --layer rls --out a.csv >a.txt 2>a.err
gzip -c data.csv >data.csv.gz
"$ttr" regress data.csv.gz --layer rls --out b.csv >a.txt 2>a.err
check "a packed file" cmp -s a.csv b.csv
head -c 900 data.csv.gz >cut.gz
refused "a packed file that is cut off" "could not unpack all" "$ttr" regress cut.gz --layer rls
refused "a packed stream" "gzip-compressed; unpack it first" sh -c 'cat data.csv.gz | "$0" regress -' "$ttr"
for options in "--lags 1,12 --diff" "--lags 3 --dates month --missing last" "--lags 2 --season 12 --fourier 2"; do
  # shellcheck disable=SC2086
  "$ttr" regress "$data/elnino.csv" --values elnino --keys elnino $options --layer rls --out all.csv >a.txt 2>a.err &&
    "$ttr" regress <(head -301 "$data/elnino.csv") --values elnino --keys elnino $options --layer rls --save m.ttr >a.txt 2>a.err &&
    "$ttr" regress <(head -1 "$data/elnino.csv"; tail -n +302 "$data/elnino.csv") --load m.ttr --out part.csv >a.txt 2>a.err
  check "saved and loaded: the same bits with $options" sh -c '[ '$?' -eq 0 ] && [ -s part.csv ] && tail -n 400 all.csv | cut -d, -f2- | cmp -s - part.tail' _ "$(tail -n 400 part.csv | cut -d, -f2- >part.tail)"
done

# --- coefficients ---
awk 'BEGIN { srand(2); print "a,b,y"; for (t = 0; t < 400; t++) { a = 50 + 10 * rand(); b = rand(); printf "%.6f,%.6f,%.6f\n", a, b, 7 + 2 * a - 3 * b } }' >exact.csv
run exact.csv --layer rls:ridge=1e-9 --layer kalman --layer softmax-attention --coefficients
check "coefficients are those of the file's units" sh -c 'grep -A1 "\"coefficient\"" a.json | tr -d " ,\n" | grep -q . && awk "/\"coefficients\"/ { n++ } END { exit n != 2 }" a.json'
check "a, b and the intercept" sh -c 'awk -F: "/\"coefficient\":/ { c[n++] = \$2 + 0 } END { exit !(c[0] > 1.9999 && c[0] < 2.0001 && c[1] > -3.0001 && c[1] < -2.9999 && c[2] > 6.99 && c[2] < 7.01) }" a.json'
"$ttr" regress "$data/nile.csv" --values nile --keys nile --lags 1,3 --layer rls --coefficients >a.txt 2>a.err
check "coefficients of lags" sh -c 'grep -q "^nile, lag 1 " a.txt && grep -q "^nile, lag 3 " a.txt && grep -q "^intercept " a.txt'

# --- a model outlives the program ---
whole() { cut -d, -f2- "$1" | tail -n "$2"; }  # the last lines without their row numbers
head -421 "$data/elnino.csv" >some.csv
head -181 some.csv >first.csv
{ head -1 some.csv; tail -n +182 some.csv; } >second.csv
for options in "--lags 13" "--lags 5 --tune --layer rls --layer nlms --layer mix" "--lags 3 --horizon 4 --layer rls --layer kalman --interval 0.9" \
  "--lags 2 --season 12 --layer softmax-attention --layer rwkv-7" "--lags 4 --layer kalman --layer window-rls --interval 0.8"; do
  # shellcheck disable=SC2086
  "$ttr" regress some.csv $options --out all.csv --json >whole.json 2>a.err &&
    "$ttr" regress first.csv $options --save m.ttr >a.txt 2>a.err && "$ttr" regress second.csv --load m.ttr --out part.csv --json >part.json 2>a.err
  check "saved and loaded: exit 0 with $options" test $? -eq 0
  check "saved and loaded: the same bits with $options" sh -c '[ -s part.csv ] && cmp -s all.tail part.tail' _ "$(whole all.csv 230 >all.tail; whole part.csv 230 >part.tail)"
  for file in whole part; do sed -e '/"columns_left_out": \[\]/d' -e '/"columns_left_out": \[$/,/\]/d' $file.json | grep -v us_per_row >$file.txt; done
  check "saved and loaded: the same scores with $options" cmp -s whole.txt part.txt
done
"$ttr" regress "$data/elnino.csv" --lags 13 --out all.csv >a.txt 2>a.err
mkfifo feed.pipe
"$ttr" regress - --lags 13 --keys elnino --values elnino --out part.csv --save k.ttr --checkpoint-every 100 <feed.pipe >a.txt 2>a.err &
pid=$!
exec 3<>feed.pipe
head -400 "$data/elnino.csv" >&3
waits_for_input $pid 3
kill -KILL $pid; wait $pid 2>/dev/null
exec 3>&-
"$ttr" regress "$data/elnino.csv" --load k.ttr --resume --out rest.csv >a.txt 2>a.err
check "kill -9: the last checkpoint goes on" sh -c '[ '$?' -eq 0 ] && [ "$(sed -n 2p rest.csv | cut -d, -f1)" -le 401 ]'
lines=$(($(wc -l <rest.csv) - 1))
check "kill -9: the same bits as if nothing had happened ($lines rows)" sh -c '[ '$lines' -ge 330 ] && tail -n '$lines' all.csv | cmp -s - rest.tail' _ "$(tail -n +2 rest.csv >rest.tail)"
"$ttr" regress questions.csv --raw --layer nlms:mu=1 --save q.ttr >a.txt 2>a.err
cp q.ttr before.ttr
printf 'x\n9\n10\n' >ask.csv
"$ttr" predict q.ttr ask.csv >p.csv 2>a.err
check "predict: rows without values" sh -c '[ '$?' -eq 0 ] && [ "$(cut -d, -f2 p.csv | tail -2 | tr "\n" " ")" = "18 20 " ] && [ ! -s a.err ]'
"$ttr" predict q.ttr questions.csv --json >p.json 2>a.err
check "predict: rows with values are scored" sh -c 'grep -q "\"scored\": 5" p.json && cmp -s q.ttr before.ttr'
"$ttr" regress data.csv --save d.ttr >a.txt 2>a.err
"$ttr" predict d.ttr data.csv --out p.csv >a.txt 2>a.err
check "predict: it learns nothing, the second row is asked like the first" sh -c '[ "$(wc -l <p.csv)" = 301 ] && { head -2 data.csv; sed -n 2p data.csv; } >twice.csv && "$0" predict d.ttr twice.csv 2>/dev/null | tail -2 | cut -d, -f2- | uniq | wc -l | grep -qx 1' "$ttr"
head -c 300 d.ttr >cut.ttr
refused "a model that is cut off" "is cut off" "$ttr" predict cut.ttr data.csv
sed 's/rls/rlx/' d.ttr >bad.ttr
refused "a model that is damaged" "checksum" "$ttr" predict bad.ttr data.csv
refused "a model that is none" "is not a model" "$ttr" predict data.csv data.csv
refused "options against the model's" "has columns, layers and settings of its own" "$ttr" regress data.csv --load d.ttr --layer rls
refused "rows without the model's keys" "no column 'a'" "$ttr" predict d.ttr ask.csv

echo
if [ $failures -gt 0 ]; then echo "$failures checks failed"; exit 1; fi
echo "all checks passed"
