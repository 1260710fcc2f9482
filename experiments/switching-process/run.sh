#!/usr/bin/env bash
# The layers of the test-time regression paper's Figure 2 (arXiv 2501.12352, Eq. 55) on its switching process, for four
# covariances of the noise, and which orderings of the paper they show. Needs nothing but the program, bash and awk.
#
#   experiments/switching-process/run.sh            writes table.md and losses.svg beside this script, about a minute
#   experiments/switching-process/run.sh --quick    a small run in a temporary folder, checked and removed
#
# TTR is the program (build/ttr), SEEDS and SEED the number of runs and the first of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ttr=${TTR:-$here/../../build/ttr}
seeds=${SEEDS:-24} first=${SEED:-2025} time=256 out=$here
covariances="equicorrelation toeplitz wishart identity"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "${1:-}" in
  --quick) seeds=2 time=32 out=$work ;;
  "") ;;
  *) echo "run.sh: '$1' is unknown; the only option is --quick" >&2; exit 2 ;;
esac
[ -x "$ttr" ] || { echo "run.sh: there is no program $ttr; run make, or set TTR" >&2; exit 2; }

# Choices that the figure leaves open, beside those of the built-in run.
variants=(
  'near(exp) / constant / exact | keys(unit)'             # softmax on keys of length 1, as its equation is written
  'equal / linear / exact(ridge=0.1) | keys(unit)'        # RLS that does not see the changing length of the keys
  'near(exp) / local(1) / exact(ridge=1, relative) | keys(rms)'
  'equal / linear / sgd(beta=0.1)'                        # DeltaNet on raw keys
)

# The JSON of a run as lines of: name, three means, three standard errors, between tabs.
losses() {
  awk '/^      "name":/ { sub(/^ *"name": "/, ""); sub(/",$/, ""); name = $0 }
    /"windows": \[/ { list = "mean"; n = 0; next }
    /"windows_standard_error": \[/ { list = "error"; n = 0; next }
    /\]/ { if (list == "error") { printf "%s", name; for (i = 1; i <= 3; i++) printf "\t%s", mean[i]
                                  for (i = 1; i <= 3; i++) printf "\t%s", error[i]; print "" } list = "" }
    list != "" { gsub(/[ ,]/, ""); if (list == "mean") mean[++n] = $0; else error[++n] = $0 }' "$1"
}
run() {  # covariance, name of the result, further arguments
  local covariance=$1 name=$2; shift 2
  "$ttr" regress --covariance "$covariance" --seeds "$seeds" --time "$time" --seed "$first" --json \
    --report "$work/report.html" "$@" >"$work/$name.json"
  losses "$work/$name.json" >"$work/$name.tsv"
}

# The authors' slides have 0.999 first and then 0.9.
run equicorrelation slides --order slides --svg "$work/slides.svg"
arguments=()
for recipe in "${variants[@]}"; do arguments+=(--layer "$recipe"); done
for covariance in $covariances; do
  if [ "$covariance" = equicorrelation ]; then run "$covariance" "$covariance" --svg "$out/losses.svg"
  else run "$covariance" "$covariance"; fi
  run "$covariance" "$covariance-variants" "${arguments[@]}"
done

number='function number(m, e) { if (m == "null") return "diverged"; return sprintf("%.3g", m) (e == "null" ? "" : sprintf(" \302\261 %.2g", e)) }'
{
  printf '# Results\n\nWritten by `experiments/switching-process/run.sh`. Squared 2-norm loss, mean \302\261 standard error over %s seeds (from %s), T = %s.\n' \
    "$seeds" "$first" "$time"
  printf '\n## Equicorrelated noise\n\n    ttr regress --covariance equicorrelation --seeds %s --time %s --seed %s\n\n' "$seeds" "$time" "$first"
  printf '| layer | [0, %d) | [%d, %d) | [%d, %d) |\n|---|---|---|---|\n' $((time / 4)) $((time / 4)) $((time / 2)) $((time / 2)) "$time"
  awk -F '\t' "$number"' { gsub(/\|/, "\\|", $1); printf "| %s | %s | %s | %s |\n", $1, number($2, $5), number($3, $6), number($4, $7) }' \
    "$work/equicorrelation.tsv"
  printf '\n## The other order: 0.999 first, then 0.9, as in the slides\n\n    ttr regress --order slides --seeds %s --time %s --seed %s\n\n' "$seeds" "$time" "$first"
  printf '| layer | [0, %d) | [%d, %d) | [%d, %d) |\n|---|---|---|---|\n' $((time / 4)) $((time / 4)) $((time / 2)) $((time / 2)) "$time"
  awk -F '\t' "$number"' { gsub(/\|/, "\\|", $1); printf "| %s | %s | %s | %s |\n", $1, number($2, $5), number($3, $6), number($4, $7) }' \
    "$work/slides.tsv"
  for part in "" -variants; do
    if [ -z "$part" ]; then printf '\n## The last window, [%d, %d), for four covariances\n\n' $((time / 2)) "$time"
    else
      printf '\n## Variants, in the same window\n\n    ttr regress --covariance ...'
      printf " --layer '%s'" "${variants[@]}"
      printf '\n\n'
    fi
    printf '| layer |'; printf ' %s |' $covariances; printf '\n|---|---|---|---|---|\n'
    awk -F '\t' "$number"' FNR == 1 { file++ } { if (file == 1) order[++n] = $1; cell[$1, file] = number($4, $7) }
      END { for (i = 1; i <= n; i++) { name = order[i]; gsub(/\|/, "\\|", name)
              if (recipes && name == "naive forecast") continue
              printf "| %s |", recipes ? "`" name "`" : name
              for (f = 1; f <= 4; f++) printf " %s |", cell[order[i], f]; print "" } }' \
      recipes="${#part}" $(for c in $covariances; do echo "$work/$c$part.tsv"; done)
  done
  printf '\n## Orderings\n\n'
  printf 'yes: the first loses more than the second, by over two standard errors of the difference (as if the runs were not paired); no: the\nother way round; tie: neither.\n\n'
  printf '| claim | window |'; printf ' %s |' $covariances; printf '\n|---|---|---|---|---|---|\n'
  for c in $covariances; do sed "s/^/$c\t/" "$work/$c.tsv" "$work/$c-variants.tsv"; done |
    awk -F '\t' -v covariances="$covariances" -v T="$time" '
      { for (w = 1; w <= 3; w++) { mean[$1, $2, w] = $(w + 2); error[$1, $2, w] = $(w + 5) } }
      function verdict(c, a, b, w,   d, e) {
        if (mean[c, a, w] == "" || mean[c, b, w] == "") return "missing"
        if (mean[c, a, w] == "null" || mean[c, b, w] == "null") return "diverged"
        d = mean[c, a, w] - mean[c, b, w]; e = sqrt(error[c, a, w]^2 + error[c, b, w]^2)
        return d > 2 * e ? "yes" : d < -2 * e ? "no" : "tie" }
      function claim(text, a, b,   w, i) {
        for (w = 2; w <= 3; w++) {
          printf "| %s | [%d, %d) |", text, w == 2 ? T / 4 : T / 2, w == 2 ? T / 2 : T
          for (i = 1; i <= n; i++) printf " %s |", verdict(list[i], a, b, w)
          print "" } }
      END {
        n = split(covariances, list, " ")
        claim("linear attention > RLS of minimum norm", "linear attention", "RLS, minimum norm")
        claim("RLS of minimum norm > softmax", "RLS, minimum norm", "softmax, QKNorm")
        claim("softmax > local linear", "softmax, QKNorm", "local linear, ridge 0.1")
        claim("RLS with ridge 1e-3 > softmax", "RLS, ridge 1e-3", "softmax, QKNorm")
        claim("RLS with ridge 1e-2 > softmax", "RLS, ridge 1e-2", "softmax, QKNorm")
        claim("weighted RLS > softmax", "weighted RLS 0.98, ridge 1e-2", "softmax, QKNorm")
        claim("RLS of minimum norm > softmax on unit keys", "RLS, minimum norm", "near(exp) / constant / exact | keys(unit)")
        claim("DeltaNet > local linear", "DeltaNet, unit keys", "local linear, ridge 0.1")
        claim("local linear > naive forecast", "local linear, ridge 0.1", "naive forecast") }'
} >"$work/table.md"

# Twelve layers and four variants for each covariance, with numbers, or the table is not to be believed.
for covariance in $covariances; do
  [ "$(grep -cE $'\t[0-9.e+-]+\t' "$work/$covariance.tsv")" -eq 12 ] || { echo "run.sh: $covariance has not twelve layers" >&2; exit 1; }
  [ "$(wc -l <"$work/$covariance-variants.tsv")" -eq $((${#variants[@]} + 1)) ] || { echo "run.sh: variants are missing for $covariance" >&2; exit 1; }
done
if grep -q missing "$work/table.md"; then echo "run.sh: a layer of the orderings is missing" >&2; exit 1; fi
grep -q '</svg>' "$out/losses.svg"
if [ "$out" != "$work" ]; then
  cp "$work/table.md" "$out/table.md"
  cat "$out/table.md"
  echo "Wrote $out/table.md and $out/losses.svg"
fi
