#!/usr/bin/env bash
# Black-box test of `ttr regress` in production: groups, weights, late values, NDJSON, anomalies, drifts, coefficients over
# time, windows, the terminal, the manual:   bash streams_production_cli_test.sh path/to/ttr
# shellcheck disable=SC2016  # what stands between single quotes is for sh -c, awk or grep
set -u
ttr=$(realpath "$1")
data=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../examples/data")
saved=$(realpath "$(dirname "${BASH_SOURCE[0]}")/saved_states")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

run() { "$ttr" regress "$@" --json >a.json 2>a.err; }
mse() { number_of mse "${1:-a.json}" | head -1; }
near() { awk -v a="$1" -v b="$2" -v e="${3:-1e-9}" 'BEGIN { d = a - b; s = b < 0 ? -b : b; exit !(a ~ /[0-9]/ && b ~ /[0-9]/ && d <= e * s && -d <= e * s) }'; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a ~ /[0-9]/ && b ~ /[0-9]/ && a + 0 < b + 0) }'; }
normal='function normal() { return sqrt(-2 * log(1 - rand())) * cos(6.283185307 * rand()) }'

# --- blocks: the same bits as row by row ---
awk "$normal"' BEGIN { srand(4); print "a,b,y"; for (t = 0; t < 700; t++) { a = normal(); b = normal(); printf "%.6f,%.6f,%.6f\n", a, b, 2 * a - b + 0.3 * normal() } }' >rows.csv
head -201 rows.csv >some.csv
for layer in nlms rls rls:decay=0.98,ridge=1 kalman 'equal / linear / sgd(beta=0.1)' gated-deltaproduct mamba-2; do
  "$ttr" regress some.csv --layer "$layer" --out blocks.csv >a.txt 2>a.err
  "$ttr" regress some.csv --layer "$layer" --save m.ttr --checkpoint-every 1 --out one.csv >a.txt 2>a.err
  check "blocks of rows are as row by row: $layer" sh -c '[ '$?' -eq 0 ] && [ "$(wc -l <blocks.csv)" = 201 ] && cmp -s blocks.csv one.csv'
done

# --- a ridge beside a decay: the rule depends on the number of keys, is said, and goes with a model ---
awk 'BEGIN { for (k = 1; k <= 17; k++) printf "x%d,", k; print "y"; for (t = 1; t <= 120; t++) { y = 0; for (k = 1; k <= 17; k++) { x = sin(t * (k + 0.3)); y += x * cos(k + t / 60); printf "%.9f,", x } printf "%.9f\n", y } }' >wide.csv
head -81 wide.csv >first.csv
{ head -1 wide.csv; tail -n +82 wide.csv; } >second.csv
# A column of keys less has one key below the bound, and the bits of the recipe, which is what it says.
for keys in 2-17 1-17; do
  "$ttr" regress wide.csv --raw --keys $keys --layer rls:decay=0.98,ridge=1 --out a.csv >a.txt 2>a.err
  "$ttr" regress wide.csv --raw --keys $keys --layer 'decay(0.98) / linear / exact(ridge=1)' --out b.csv >b.txt 2>a.err
  cut -d, -f2 a.csv | tail -n +2 >x.txt
  cut -d, -f2 b.csv | tail -n +2 >y.txt
  case $keys in
    2-17) check "a ridge: 16 keys, as the recipe, to the bit" sh -c 'cmp -s x.txt y.txt && ! grep -q renewed a.txt' ;;
    *) check "a ridge: 17 keys, it is renewed in turn, and the table says so" sh -c '! cmp -s x.txt y.txt && grep -q "^rls:decay=0.98,ridge=1 ran decay(0.98) / linear / exact(ridge=1) (the ridge .* is renewed key by key, in turn, because with 17 keys" a.txt && ! grep -q renewed b.txt' ;;
  esac
done
for options in "" "--interval 0.9" "--interval 0.9 --horizon 3"; do
  # shellcheck disable=SC2086
  "$ttr" regress wide.csv $options --layer rls:decay=0.98,ridge=1 --layer mix --out all.csv >a.txt 2>a.err
  # shellcheck disable=SC2086
  "$ttr" regress first.csv $options --layer rls:decay=0.98,ridge=1 --layer mix --save m.ttr >a.txt 2>a.err && "$ttr" regress second.csv --load m.ttr --out part.csv >a.txt 2>a.err
  check "a ridge that is renewed: saved and loaded, the same bits with ${options:-nothing else}" sh -c '[ '$?' -eq 0 ] && tail -n 40 all.csv | cut -d, -f2- >x.txt; tail -n 40 part.csv | cut -d, -f2- | cmp -s - x.txt'
done
# A model that was saved before there was such a rule goes on as a factorisation per row.
"$ttr" regress second.csv --load "$saved/regress-rls-2.ttr" --save m.ttr --out part.csv >a.txt 2>a.err
check "a ridge: a model of before has its rule" sh -c '[ '$?' -eq 0 ] && tail -n 40 part.csv | cut -d, -f2 >x.txt; tail -n 40 b.csv | cut -d, -f2 | paste - x.txt | awk "{ d = \$1 - \$2; if (d < -1e-9 || d > 1e-9) exit 1; n++ } END { exit n != 40 }" && ! grep -q renewed a.txt'
"$ttr" regress second.csv --load m.ttr --json >a.json 2>a.err
check "a ridge: and keeps it when it is saved again" sh -c 'grep -q "\"kernel\": \"least_squares" a.json'

# --- no row is answered with what comes after it: other later rows leave every earlier answer as it was, to the bit ---
awk -F, 'NR <= 302 { print; next } { printf "%g,%g,%g\n", 1e3 * $3, $1 * $1, NR - 77 * $2 }' rows.csv >changed.csv
answers_before_302() {  # sorted by row, without what follows the answers: the value, the anomaly
  awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "actual") last = i - 1; next } $1 < 302 { for (i = 1; i <= last; i++) printf "%s,", $i; print "" }' "$1" | sort -n
}
for options in "" "--tune --layer rls --layer nlms --layer kalman --layer mix" "--interval 0.9 --detect" "--tune --layer rls --interval 0.8" \
  "--lags 4 --season 12 --fourier 2 --layer rls --layer mix" "--lags 3 --horizon 5 --iterate --layer rls --layer mix" "--delay 7"; do
  case $options in *--lags*) columns="--keys y --values y" ;; *) columns="--values y" ;; esac
  # shellcheck disable=SC2086
  "$ttr" regress rows.csv $columns $options --out a.csv >a.txt 2>a.err && "$ttr" regress changed.csv $columns $options --out b.csv >a.txt 2>a.err
  code=$?
  answers_before_302 a.csv >x.txt
  answers_before_302 b.csv >y.txt
  check "no leak from later rows: ${options:-default}" sh -c '[ '$code' -eq 0 ] && [ "$(wc -l <x.txt)" -ge 280 ] && cmp -s x.txt y.txt && ! cmp -s a.csv b.csv'
done

# --- plain numbers are read as other numbers are ---
awk 'BEGIN { srand(8); print "x,y"; for (t = 0; t < 400; t++) { x = (rand() - 0.5) * 10 ^ int(40 * rand() - 20); printf "%.*g,%d\n", 1 + int(17 * rand()), x, t } }' >numbers.csv
sed 's/\([^,]*\),/" \1 ",/' numbers.csv >quoted.csv
"$ttr" regress numbers.csv --keys y --values x --layer rls --out a.csv >a.txt 2>a.err
"$ttr" regress quoted.csv --keys y --values 1 --header yes --layer rls --out b.csv >a.txt 2>a.err
check "numbers read in one pass are those read the long way" sh -c 'tail -n +2 a.csv >a.tail; tail -n +2 b.csv >b.tail; [ "$(wc -l <a.tail)" = 400 ] && cmp -s a.tail b.tail'
check "and they are the numbers of awk" sh -c 'paste -d, numbers.csv a.csv | awk -F, "NR > 1 { d = \$1 - \$NF; if (d < 0) d = -d; if (d > 1e-15 * (\$1 < 0 ? -\$1 : \$1)) bad = 1 } END { exit bad }"'
printf 'x;y\n1,25;2\n-0,5;4\n3;6\n' >comma.csv
"$ttr" regress comma.csv --keys y --values x --layer nlms --warmup 0 --out a.csv >a.txt 2>a.err
check "decimal commas" sh -c '[ "$(cut -d, -f3 a.csv | tr "\n" " ")" = "actual 1.25 -0.5 3 " ]'

# --- groups ---
awk "$normal"' BEGIN { srand(6); print "station,a,y"; for (t = 0; t < 900; t++) { g = int(3 * rand()); a = normal(); printf "%s,%.6f,%.6f\n", substr("eastnorthwest", 1 + 4 * g, 4), a, (g - 1) * 5 + (g + 1) * a + 0.1 * normal() } }' >stations.csv
"$ttr" regress stations.csv --group station --keys a --values y --layer rls --layer mix --interval 0.9 --out all.csv --json >a.json 2>a.err
check "groups: exit 0" test $? -eq 0
check "groups: three of them, in the JSON" sh -c 'grep -q "\"group_count\": 3" a.json && [ "$(grep -c "\"scored\"" a.json)" = 4 ]'
grouped=$(mse)
run stations.csv --keys a --values y --layer rls
check "groups: a memory of its own is better ($grouped, $(mse))" below "$grouped" "$(awk -v m="$(mse)" 'BEGIN { print 0.01 * m }')"
for name in $(cut -d, -f1 stations.csv | tail -n +2 | sort -u); do
  # A group alone, as a group of one: the same bits.
  awk -F, -v n="$name" 'NR == 1 || $1 == n' stations.csv >one.csv
  "$ttr" regress one.csv --group station --keys a --values y --layer rls --layer mix --interval 0.9 --out part.csv >a.txt 2>a.err
  check "groups: $name is as if it were alone" sh -c 'grep ",$0," all.csv | cut -d, -f2- >x.txt; tail -n +2 part.csv | cut -d, -f2- | cmp -s - x.txt && [ -s x.txt ]' "$name"
done
for options in "--lags 2 --keys y --values y" "--keys a --values y --delay 3" "--keys y --values y --lags 1 --horizon 2 --tune --layer rls --layer mix"; do
  head -401 stations.csv >first.csv
  { head -1 stations.csv; tail -n +402 stations.csv; } >second.csv
  # shellcheck disable=SC2086
  "$ttr" regress stations.csv --group station $options --out all.csv >a.txt 2>a.err &&
    "$ttr" regress first.csv --group station $options --save m.ttr >a.txt 2>a.err && "$ttr" regress second.csv --load m.ttr --out part.csv >a.txt 2>a.err
  check "groups: saved and loaded, the same bits with $options" sh -c '[ '$?' -eq 0 ] && tail -n 400 all.csv | cut -d, -f2- >x.txt; tail -n 400 part.csv | cut -d, -f2- | cmp -s - x.txt'
done
awk 'BEGIN { srand(3); print "id,x,y"; for (t = 0; t < 9000; t++) { g = int(1500 * rand()); x = rand(); printf "c%d,%.4f,%.4f\n", g, x, g + 3 * x } }' >many.csv
run many.csv --group id --layer rls
check "groups: thousands of them" sh -c '[ '$?' -eq 0 ] && grep -q "\"group_count\": 149" a.json && [ "$(grep -c "\"scored\"" a.json)" = 1001 ]'
refused "groups: a column that is not there" "no column 'town'" "$ttr" regress stations.csv --group town
refused "groups: no words in .npy" "cannot hold the names of groups" "$ttr" regress stations.csv --group station --out p.npy
refused "groups: a row without one" "not the name of a group" "$ttr" regress <(printf 'g,x,y\na,1,2\n,2,3\n') --group g

# --- weights ---
awk "$normal"' BEGIN { srand(9); print "a,y,w"; for (t = 0; t < 400; t++) { a = normal(); w = 1 + int(3 * rand()); printf "%.6f,%.6f,%d\n", a, 2 * a + 1 + normal() / sqrt(w), w } }' >weighted.csv
run weighted.csv --keys a --values y --weights w --layer rls:ridge=1e-9 --layer 'equal / linear / sgd(beta=0.05)' --layer nlms --coefficients
expected=$(awk -F, 'NR > 1 { a = $1; y = $2; w = $3; s += w; sa += w * a; sy += w * y; saa += w * a * a; say += w * a * y } END { printf "%.10g", (say - sa * sy / s) / (saa - sa * sa / s) }' weighted.csv)
check "weights: weighted least squares of all rows ($expected)" near "$(number_of coefficient a.json | head -1)" "$expected" 1e-7
check "weights: who cannot use them is named" sh -c '"$0" regress weighted.csv --keys a --values y --weights w --layer nlms --layer rls | grep -q "^nlms learns every row alike"' "$ttr"
awk -F, 'NR == 1 { print "a,y"; next } { for (i = 0; i < $3; i++) print $1 "," $2 }' weighted.csv >repeated.csv
run repeated.csv --raw --bias --layer 'rls:ridge=0.5' --coefficients
repeated=$(number_of coefficient a.json | head -1)
run weighted.csv --keys a --values y --raw --bias --weights w --layer 'rls:ridge=0.5' --coefficients
check "weights: a row of weight 3 is that row three times" near "$(number_of coefficient a.json | head -1)" "$repeated" 1e-9
awk -F, 'NR == 1 { print "a,y,w"; next } { print $0; print "1e3,-1e6,0" }' weighted.csv >zero.csv
run zero.csv --raw --bias --keys a --values y --weights w --layer 'rls:ridge=0.5' --coefficients
check "weights: a row of weight 0 teaches nothing" near "$(number_of coefficient a.json | head -1)" "$repeated" 1e-9
refused "weights: none is negative" "weight -1 of row 2 is negative" "$ttr" regress <(printf 'a,y,w\n1,2,1\n2,3,-1\n') --weights w

# --- values that come late ---
late=$(awk -F, 'NR > 1 { x[n + 0] = $1; y[n++] = $3 } END { for (t = 0; t < n; t++) { if (t >= 4) { k = x[t - 4]; e = y[t - 4] - w * k; if (k != 0) w += e / k } p = w * x[t]; d = y[t] - p; s += d * d } printf "%.12g", s / n }' rows.csv)
run rows.csv --keys a --values y --raw --warmup 0 --layer nlms:mu=1 --delay 3
check "--delay 3 agrees with a literal loop ($late)" near "$(mse)" "$late"
check "--delay: all rows are scored" sh -c 'grep -q "\"scored\": 700" a.json'
"$ttr" regress rows.csv --values y --delay 0 --layer rls --out a.csv >a.txt 2>a.err
"$ttr" regress rows.csv --values y --layer rls --out b.csv >a.txt 2>a.err
check "--delay 0 is no delay" cmp -s a.csv b.csv
"$ttr" regress rows.csv --values y --delay 40 --layer rls --out a.csv >a.txt 2>a.err
check "--delay: every row in its place" sh -c 'tail -n +2 a.csv | cut -d, -f1 | sort -n | cmp -s - x.txt && tail -n +2 rows.csv | cut -d, -f3 >y.txt; sort -n -t, a.csv | tail -n +2 | cut -d, -f3 | awk "{ print \$1 + 0 }" >z.txt; awk "{ print \$1 + 0 }" y.txt | cmp -s - z.txt' _ "$(seq 700 >x.txt)"
refused "--delay of what is a key" "comes late, but is a key" "$ttr" regress "$data/nile.csv" --keys nile --values nile --lags 3 --delay 2

# --- values by name ---
# Every row is asked first, and its value comes three rows later with an empty key: as --delay, to the bit.
awk -F, 'NR == 1 { print "id,a,y"; next } { n++; x[n] = $1; y[n] = $3; print "q" n "," $1 ","; if (n > 3) print "q" (n - 3) ",," y[n - 3] } END { for (i = n - 2; i <= n; i++) print "q" i ",," y[i] }' rows.csv >named.csv
run named.csv --id id --keys a --values y --raw --warmup 0 --layer nlms:mu=1 --out p.csv
named=$(mse)
check "--id: all values find their questions" sh -c 'grep -q "\"scored\": 700" a.json && grep -q "\"predictions\": 700" a.json && [ "$(grep -c ",$" p.csv)" = 0 ]'
expected=$(awk -F, 'NR > 1 { x[++n] = $1; y[n] = $3 } END { for (t = 1; t <= n; t++) { if (t > 4) { k = x[t - 4]; e = y[t - 4] - w * k; if (k != 0) w += e / k } d = y[t] - w * x[t]; s += d * d } printf "%.12g", s / n }' rows.csv)
check "--id agrees with a literal loop ($expected)" near "$named" "$expected"
"$ttr" regress named.csv --id id --keys a --values y --layer rls --layer mix --out all.csv >a.txt 2>a.err
head -601 named.csv >first.csv
{ head -1 named.csv; tail -n +602 named.csv; } >second.csv
"$ttr" regress first.csv --id id --keys a --values y --layer rls --layer mix --save m.ttr >a.txt 2>a.err && "$ttr" regress second.csv --load m.ttr --out part.csv >a.txt 2>a.err
check "--id: saved and loaded, questions wait in the model" sh -c '[ '$?' -eq 0 ] && tail -n 300 all.csv | cut -d, -f2- >x.txt; tail -n 300 part.csv | cut -d, -f2- | cmp -s - x.txt'
refused "--id: a row without keys that nobody asked" "row 2 of .* lacks a key, and no question" "$ttr" regress <(printf 'id,a,y\nq1,1,2\nq2,,3\n') --id id --keys a --values y
refused "--id with --lags" "leave --lags" "$ttr" regress rows.csv --id a --values y --lags 2

# --- a horizon in steps ---
iterated=$(awk -F, 'NR > 1 { x[n++] = $2 } END { for (t = 1; t < n; t++) { k = x[t - 1] / 1000; e = x[t] / 1000 - w * k; w += e / k; if (t + 3 < n) { p = x[t] / 1000; for (i = 0; i < 3; i++) p *= w; d = x[t + 3] / 1000 - p; s += d * d; c++ } } printf "%.12g", s / c }' "$data/nile.csv")
awk -F, 'NR == 1 { print "nile"; next } { print $2 / 1000 }' "$data/nile.csv" >nile.csv
run nile.csv --lags 1 --horizon 3 --iterate --raw --warmup 1 --layer nlms:mu=1
check "--iterate agrees with a literal loop ($iterated)" near "$(mse)" "$iterated"
run "$data/co2.csv" --keys co2 --values co2 --lags 13 --horizon 6 --iterate --layer rls
check "--iterate beats the naive forecast six months ahead" below 0.5 "$(number_of skill a.json | head -1)"
refused "--iterate needs lags alone" "keys and values must be the same columns" "$ttr" regress "$data/seattle-weather.csv" --keys temp_max --values temp_max --lags 2 --with wind --horizon 3 --iterate

# --- NDJSON ---
awk -F, 'NR == 1 { next } NR % 2 == 0 { print "{\"a\": " $1 ", \"in\": {\"b\": " $2 "}, \"y\": " $3 "}"; next } { print "{\"a\": " $1 ", \"new\": [1, {\"a\": 2}], \"y\": " $3 ", \"in\": {\"c\": 1, \"b\": " $2 "}}" }' rows.csv >rows.ndjson
"$ttr" regress rows.ndjson --keys a,in.b --values y --layer rls --out a.csv >a.txt 2>a.err
"$ttr" regress rows.csv --layer rls --out b.csv >a.txt 2>a.err
check "NDJSON: the numbers of the CSV file" cmp -s a.csv b.csv
printf '{"x": 1, "y": 2, "day": "2024-02-28", "sort": "a"}\n{"x": 2, "y": null, "day": "2024-02-29", "sort": "b"}\n\n{"x": true, "day": "2024-03-01", "sort": "a"}\n{"x": 4, "y": 8, "day": "2024-03-02", "sort": "b"}\n' >typed.ndjson
run typed.ndjson --keys x --values y --dates day --categories sort --layer rls
check "NDJSON: null and absent values are questions; dates and words" sh -c '[ '$?' -eq 0 ] && grep -q "\"questions\": 2" a.json && grep -q "\"rows\": 4" a.json'
refused "NDJSON: not one object per line" "not a JSON object on a line of its own.*jq -c" "$ttr" regress <(printf '{\n "x": 1\n}\n')
refused "NDJSON: a list as a key" "is a list; a number belongs there" "$ttr" regress <(printf '{"x": 1, "y": 2}\n{"x": [1], "y": 2}\n')
refused "NDJSON: damaged" "line 2 of .* is not a JSON object: it is wrong at byte" "$ttr" regress <(printf '{"x": 1, "y": 2}\n{"x": 1, "y\n')
printf 'PAR1xxxxPAR1' >t.parquet
refused "Parquet" "a Parquet file; turn it into CSV first: duckdb" "$ttr" regress t.parquet
printf 'ARROW1\0\0xxxx' >t.arrow
refused "Arrow IPC" "Arrow IPC file .* turn it into CSV first" "$ttr" regress t.arrow
"$ttr" regress rows.csv --layer rls --out b.csv >a.txt 2>a.err
if command -v zstd >/dev/null; then
  zstd -q rows.csv -o rows.csv.zst
  "$ttr" regress rows.csv.zst --layer rls --out a.csv >a.txt 2>a.err
  check "a file packed by zstd" cmp -s a.csv b.csv
fi
mkdir nothing
refused "a file packed by zstd without that program" "the program 'zstd' that unpacks it cannot be run" sh -c 'printf "\050\265\057\375xxxxxxxx" >p.zst; PATH=$1 "$0" regress p.zst' "$ttr" "$PWD/nothing"

# --- anomalies and drifts ---
awk "$normal"' BEGIN { srand(12); print "x,y"; for (t = 1; t <= 2000; t++) { x = normal(); y = 2 * x + 0.1 * normal(); if (t == 777) y += 5; if (t > 1200) y += 0.8 * normal(); printf "%.6f,%.6f\n", x, y } }' >odd.csv
run odd.csv --layer rls --detect --out p.csv
check "--detect: the odd row is the first of the list" sh -c 'sed -n "/\"anomalies\"/,\$p" a.json | grep -m1 "\"row\"" | grep -q "777," && grep -q "\"judged\": \"rls\"" a.json'
check "--detect: a score for every row" sh -c 'head -1 p.csv | grep -qx "row,rls,actual,anomaly" && [ "$(awk -F, "NR > 1 && \$4 != \"\"" p.csv | wc -l)" = 1980 ] && awk -F, "\$1 == 777 { exit !(\$4 > 30) }" p.csv'
check "--detect: the drift is found soon, and no other" sh -c 'sed -n "/\"drifts\"/,/\]/p" a.json | grep "\"row\"" | tr -dc "0-9\n" | awk "{ n++; if (\$1 <= 1200 || \$1 > 1300) bad = 1 } END { exit !(n == 1 && !bad) }"'
"$ttr" regress odd.csv --layer rls --detect --report r.html >a.txt 2>a.err
check "--detect: said, and marked in the report" sh -c 'grep -q "^Drift at row 12" a.txt && grep -q "data-mark=\"0\">drift<" r.html && grep -q "^777 " a.txt'
run <(head -1201 odd.csv | grep -v '^777') --layer rls --detect
check "--detect: none where there is none" sh -c 'grep -q "\"drifts\": \[\]" a.json'

# --- coefficients over time ---
awk "$normal"' BEGIN { srand(13); print "a,b,y"; for (t = 0; t < 600; t++) { a = normal(); b = normal(); s = t < 300 ? 1 : -1; printf "%.6f,%.6f,%.6f\n", a, b, s * a + 3 * b + 7 } }' >turn.csv
run turn.csv --layer rls:decay=0.9 --coefficients-out c.csv --report r.html
check "coefficients over time: both signs of the one that turns" sh -c '[ '$?' -eq 0 ] && awk -F, "\$4 == \"a\" && \$1 > 100 && \$1 < 300 { if (\$5 < 0.99) bad = 1; n++ } \$4 == \"a\" && \$1 > 450 { if (\$5 > -0.99) bad = 1; n++ } \$4 == \"b\" && \$1 > 450 { if (\$5 < 2.999 || \$5 > 3.001) bad = 1 } END { exit bad || n < 5 }" c.csv'
check "coefficients over time: in the JSON and the report" sh -c 'grep -q "\"coefficients_over_time\"" a.json && grep -q "Coefficients over time" r.html'
run weighted.csv --keys a --values y --layer rls:ridge=1e-9 --coefficients
expected=$(awk -F, 'NR > 1 { a = $1; y = $2; s++; sa += a; sy += y; saa += a * a; say += a * y } END { printf "%.10g", (say - sa * sy / s) / (saa - sa * sa / s) }' weighted.csv)
check "coefficients after the last row are those of all rows ($expected)" near "$(number_of coefficient a.json | head -1)" "$expected" 1e-7
"$ttr" regress stations.csv --group station --keys a --values y --layer rls --coefficients-out g.csv >a.txt 2>a.err
check "coefficients of every group" sh -c '[ "$(awk -F, "NR > 1 && \$4 == \"a\"" g.csv | wc -l)" = 3 ] && awk -F, "\$4 == \"a\" { d = \$5 - int(\$5 + 0.5); if (d > 0.05 || d < -0.05) bad = 1 } END { exit bad }" g.csv'

# --- windows, the terminal, the report ---
run rows.csv --layer rls --window 100
check "windows: loss and skill of each" sh -c '[ "$(sed -n "/\"window_skills\"/,/\]/p" a.json | grep -c "^ *[-0-9.]*,*$")" -ge 14 ] && grep -q "\"window_rows\": 100" a.json'
check "windows: in the table" sh -c '"$0" regress rows.csv --layer rls --window 100 | grep -q "^101 to 200 "' "$ttr"
"$ttr" regress rows.csv --layer rls --watch >a.txt 2>watch.txt
check "--watch: without a terminal the last picture alone" sh -c 'grep -q "700 rows: o is y, the line its prediction by rls" watch.txt && [ "$(grep -c o watch.txt)" -gt 5 ] && ! grep -q "$(printf "\033")" watch.txt'
"$ttr" regress "$data/co2.csv" --values co2 --lags 13 --interval 0.9 --detect --coefficients --report r.html >a.txt 2>a.err
check "report: the script and the numbers are in the page" sh -c '[ "$(grep -c "<script type=\"application/json\">" r.html)" = 3 ] && grep -q "pointermove" r.html && ! grep -qE "(src|href)=|https?://[^w]" r.html'
if command -v node >/dev/null; then
  check "report: the script is one, the numbers are JSON" node -e 'const s = require("fs").readFileSync("r.html", "utf8"); for (const m of s.matchAll(/<script type="application\/json">(.*?)<\/script>/gs)) JSON.parse(m[1]); new Function(s.match(/<script>(.*?)<\/script>/s)[1]);'
fi

# --- the manual and the shells ---
"$ttr" --man >ttr.1 2>a.err
check "the manual has every verb and option" sh -c '[ '$?' -eq 0 ] && grep -q "^\.SS REGRESS" ttr.1 && grep -q "^\.B \\\\-\\\\-group " ttr.1 && grep -q "^\.SH EXAMPLES" ttr.1'
if command -v man >/dev/null && command -v groff >/dev/null; then
  check "and groff reads it without a word" sh -c '[ -z "$(groff -man -Tutf8 -ww ttr.1 2>&1 >/dev/null)" ]'
fi
"$ttr" regress --help | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort >help.txt
awk '/^\.SS REGRESS/ { on = 1; next } /^\.SS/ { on = 0 } on && /^\.B \\-\\-/ { gsub(/\\/, "", $2); print $2 }' ttr.1 | sort >man.txt
check "the options of the manual are those of --help" sh -c '[ "$(wc -l <help.txt)" -gt 30 ] && grep -vx -e --help man.txt >m.txt; grep -vx -e --help help.txt | cmp -s - m.txt'
"$ttr" completion bash >ttr.bash 2>a.err
check "bash reads its completion" bash -n ttr.bash
completed() { bash -c 'source ./ttr.bash; ttr() { "$0" "$@"; }; COMP_WORDS=("${@:1}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ttr; printf "%s\n" "${COMPREPLY[@]}"' "$ttr" "$@"; }
check "bash completes verbs" sh -c '[ "$0" = regress ]' "$(completed ttr reg)"
check "bash completes options" sh -c '[ "$0" = --horizon ]' "$(completed ttr regress x.csv --hor)"
check "bash completes choices" sh -c '[ "$0" = indicator ]' "$(completed ttr regress --missing ind)"
check "bash completes layers" sh -c '[ "$0" = gated-slot-attention ]' "$(completed ttr regress --layer gated-sl)"
"$ttr" completion zsh >_ttr 2>a.err
check "zsh has its completion" sh -c 'head -1 _ttr | grep -qx "#compdef ttr" && grep -q "_ttr_regress()" _ttr'
if command -v zsh >/dev/null; then check "and reads it" zsh -n _ttr; fi
refused "another shell" "fish" "$ttr" completion fish

echo
if [ $failures -gt 0 ]; then echo "$failures checks failed"; exit 1; fi
echo "all checks passed"
