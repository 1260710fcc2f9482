#!/usr/bin/env bash
# Real series: the mix and tuned layers beside the best layer in hindsight and other programs. Writes table.md beside this
# file (two minutes), where R (Debian: r-base-core) and python3-sklearn and python3-statsmodels are installed.
# --quick: the series of examples/data with ttr alone, on standard output.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ttr=${TTR:-$here/../../build/ttr}
quick=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/../../examples/data/*.csv "$work"

sets="co2:13 electrical:13 elnino:13 nile:3 sunspots:12 temp_max:7"
cp "$work/seattle-weather.csv" "$work/temp_max.csv"
if [ "$quick" != --quick ]; then
  Rscript "$here/series.R" "$work"
  sets="$sets airpassengers:13 ukgas:5 lynx:4 nottem:13 lakehuron:3 treering:5 wwwusage:4 bjsales:3 dax:5 beaver:4 sunspots_month:24"
fi

for set in $sets; do
  name=${set%:*} lags=${set#*:}
  series=(regress "$work/$name.csv" --keys "$name" --values "$name" --lags "$lags" --json)
  "$ttr" "${series[@]}" >"$work/default.json"
  "$ttr" "${series[@]}" --tune --layer rls --layer nlms --layer kalman --layer mix >"$work/tuned.json"
  peers='{}'
  [ "$quick" = --quick ] || peers=$(/usr/bin/python3 -W ignore "$here/peers.py" "$work/$name.csv" "$name" "$lags")
  printf '%s\t%s\t%s\t' "$name" "$lags" "$peers"
  tr -d '\n' <"$work/default.json"
  printf '\t'
  tr -d '\n' <"$work/tuned.json"
  printf '\n'
done >"$work/results.tsv"

table() {
  /usr/bin/python3 - "$work/results.tsv" <<'P'
import json
import sys

rows = []
for line in open(sys.argv[1]):
    name, lags, peers, default, tuned = line.rstrip("\n").split("\t")
    peers, default, tuned = json.loads(peers), json.loads(default), json.loads(tuned)
    layers = {layer["name"]: layer["mse"] for layer in default["layers"]}
    mix = layers.pop("mix")
    tuned_mix = {layer["name"]: layer["mse"] for layer in tuned["layers"]}["mix"]
    rows.append((name, int(lags), default["scored"], layers, mix, tuned_mix, default["baseline"]["mse"], peers))

peer_names = list(rows[0][-1])
print("| series | lags | rows scored | best layer | its MSE | mix | mix, tuned | naive |" + "".join(f" {n} |" for n in peer_names))
print("|---|---|---|---|---|---|---|---|" + "---|" * len(peer_names))
for name, lags, scored, layers, mix, tuned, naive, peers in rows:
    best = min(layers, key=layers.get)
    ratio = lambda mse: f" {mse / layers[best]:.3f} |"
    print(f"| {name} | {lags} | {scored} | `{best}` | {layers[best]:.4g} |" + ratio(mix) + ratio(tuned) + ratio(naive)
          + "".join(ratio(peers[n]) for n in peer_names))
within = sum(mix <= 1.05 * min(layers.values()) for _, _, _, layers, mix, _, _, _ in rows)
print(f"\nThe mix is within 5 % of the best of its layers on {within} of {len(rows)} series.", end="")
if peer_names:
    ahead = sum(mix < min(peers.values()) for _, _, _, _, mix, _, _, peers in rows)
    tuned_ahead = sum(tuned < min(peers.values()) for _, _, _, _, _, tuned, _, peers in rows)
    print(f" It is ahead of every peer on {ahead}, tuned on {tuned_ahead}.", end="")
print()
P
}
if [ "$quick" = --quick ]; then
  table
else
  { printf '# Real series, one step ahead\n\n    experiments/streams/run.sh\n\nMSE relative to the best single layer in hindsight, except for its own column; below 1 is better than it.\n\n'; table; } >"$work/table.md"
  mv "$work/table.md" "$here/table.md"
  cat "$here/table.md"
fi
