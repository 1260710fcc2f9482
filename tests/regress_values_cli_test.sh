#!/usr/bin/env bash
# Black-box test that no option of `ttr regress` hands a value to its own prediction:   bash regress_values_cli_test.sh path/to/ttr
# Every option of the program stands in one of the lists below; each that takes a column is given the column of the value.
# Then the run is refused, or what is predicted for a row does not depend on the value of that row, or on a later one.
# shellcheck disable=SC2016,SC2086  # what stands between single quotes is for awk; lists are words
set -u
ttr=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR source=black_box.sh
source "$(dirname "${BASH_SOURCE[0]}")/black_box.sh"
in_empty_folder || exit 1

columns="--keys --values --group --weights --with --dates --categories --id"
others="--help --layer --tune --classify --classes --coefficients --coefficients-out --detect --watch --raw --bias
  --standardize --category-slots --missing --lags --diff --horizon --iterate --delay --interval --warmup --season
  --fourier --window --out --report --svg --on-bad --header --save --load --checkpoint-every --resume --json --seeds
  --time --seed --covariance --order --threads"
listed=$(printf '%s\n' $columns $others | sort)
there=$("$ttr" regress --help | grep -oE '^  (-h,)?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort)
check "every option is listed here, as one that takes a column or one that does not" test "$listed" = "$there"

# Two files that differ in the values from row 300 on, and in nothing else. Their values are whole and positive, so that they
# can be names, classes, weights and dates.
rows() { awk -v other="$1" 'BEGIN { srand(7); print "a,b,y,z"; for (t = 1; t <= 400; t++) { a = rand(); b = rand()
  y = 1 + int(6 * rand()); z = 1 + int(6 * rand()); if (t >= 300 && other) { y = 7 - y; z = 7 - z }
  printf "%.6f,%.6f,%d,%d\n", a, b, y, z } }'; }
rows 0 >one.csv
rows 1 >other.csv
# predicted FILE ARGUMENT...: the predictions for rows up to $upto, one line each.
predicted() {
  local file=$1; shift
  "$ttr" regress "$file" "$@" --layer rls --layer mix --out p.csv >a.txt 2>a.err || return
  awk -F, -v upto="$upto" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /^actual/) value[i] = 1; next }
    $1 <= upto { line = $1; for (i = 2; i <= NF; i++) if (!(i in value)) line = line "," $i; print line }' p.csv | sort -t, -k1,1n
}
# honest NAME UPTO ARGUMENT...: refused with exit code 2 and a sentence about the column, or predicted without it.
honest() {
  local name=$1 upto=$2; shift 2
  predicted one.csv "$@" >one.txt
  if grep -qE "column '[yz3]'|value '[yz]'|--id brings values" a.err && [ ! -s one.txt ]; then ok "$name: refused"; return; fi
  predicted other.csv "$@" >other.txt
  if [ -s one.txt ] && [ "$(wc -l <one.txt)" -ge 250 ] && cmp -s one.txt other.txt; then ok "$name"
  else bad "$name: an answer depends on its value, or there is none" "$(head -c 300 a.err)"; fi
}
for option in $columns; do
  [ "$option" != --values ] || continue
  keys="--keys a,b"
  [ "$option" != --keys ] || keys=
  for column in y 3; do
    honest "$option $column" 300 $keys --values y "$option" $column
    honest "$option $column, one of two values" 300 $keys --values z,y "$option" $column
    honest "$option $column --classify" 300 $keys --values y --classify "$option" $column
    honest "$option $column --horizon 2" 301 $keys --values y --horizon 2 "$option" $column
    honest "$option $column --lags 2" 300 $keys --values y --lags 2 "$option" $column
    honest "$option $column --delay 5" 304 $keys --values y --delay 5 "$option" $column
    honest "$option $column --horizon 2 --delay 5" 305 $keys --values y --horizon 2 --delay 5 "$option" $column
    honest "$option $column --missing mean --season 3" 300 $keys --values y --missing mean --season 3 "$option" $column
  done
done
honest "the last column, where no value is named" 300 --keys a,b
honest "a list with the value in it" 300 --values y --keys 1,2-3
honest "a range with the value in it" 300 --values y --keys a --with 2-3

# What is refused, and that a later value may still be predicted from one that is known.
for option in --with --dates --categories; do
  refused "$option: the value of the same row" "column 'y' is both a key \($option\) and a value and would predict itself; take it out of $option" \
    "$ttr" regress one.csv --keys a,b --values y $option y
  refused "$option: a value that comes late" "the value 'y' comes late, but is a key .* take it out of $option" \
    "$ttr" regress one.csv --keys a,b --values y $option y --horizon 1 --delay 3
  "$ttr" regress one.csv --keys a,b --values y $option y --horizon 1 --layer rls >a.txt 2>a.err
  check "$option: the value before" test $? -eq 0
done
refused "--group of the value" "column 'y' is both the group of a row and a value" "$ttr" regress one.csv --keys a,b --values y --group y
refused "--group of a later value" "both the group of a row and a value" "$ttr" regress one.csv --keys a,b --values y --group 3 --horizon 1
refused "--id of the value" "column 'y' is both the name of a question and a value" "$ttr" regress one.csv --keys a,b --values y --id y
for option in --group --weights --id; do
  refused "$option of several columns" "$option '1-2' names 2 columns; it takes one" "$ttr" regress one.csv --values y $option 1-2
done
# Without --values the class is the last column that nobody has named.
for option in --group --weights --id; do
  "$ttr" regress one.csv --keys a,b --classify $option z --layer rls --json >a.json 2>a.err
  check "$option is not the class" sh -c '[ '$?' -eq 0 ] && grep -q "\"classes\"" a.json'
done
"$ttr" regress one.csv --keys a,b --values y --group z --save m.ttr --layer rls >a.txt 2>a.err
check "a group that is no value is taken, and saved" test $? -eq 0 -a -s m.ttr

echo
if [ $failures -gt 0 ]; then echo "$failures checks failed"; exit 1; fi
echo "all checks passed"
