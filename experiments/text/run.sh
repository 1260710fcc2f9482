#!/usr/bin/env bash
# Layers as byte-level language models beside counting and compressors: results/, with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
if [ -n "$quick" ]; then
  own_text "$out/text.txt"
  sweep layers "task=text(file=$out/text.txt, time=64)"
  exit
fi
sotu_text
cd "$here"
# Three parts: what is trained on, what choices are made by (1987-2004), and the test (2005-2021), which no choice sees.
test=611890 judge=605875
head -c -$test sotu.txt >before-2005.txt
sweep layers
sweep choice
# What counting and compressors reach on the same bytes; the order is chosen like the layer.
"$ttr" ngram before-2005.txt --held-bytes $judge --json >"$out/counting-choice.json"
"$ttr" ngram sotu.txt --held-bytes $test --compressors --json >"$out/counting.json"
# The best layer of choice.txt for longer, 10 million bytes up to 2004; it goes on where it was stopped. The share held is that
# of the test.
best=results/runs/best
"$ttr" train 'text(file=sotu.txt, held=0.0568596, time=512)' --layer 'mamba-2*3' --width 128 --heads 2 --optimiser muon \
  --rate 1e-2 --steps 2500 --batch 8 --every 125 --test 128 --out "$best" --resume --json | sed "s#$here/##g" >"$out/best.json"
"$ttr" eval "$best" --time 512,2048,8192 --json | sed "s#$here/##g" >"$out/lengths.json"
"$ttr" generate "$best" --prompt 'My fellow citizens, ' --tokens 600 --temperature 0.7 --seed 1 >"$out/sample.txt"
