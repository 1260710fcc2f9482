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
sweep layers
# What counting and compressors reach on the same bytes.
"$ttr" ngram "$here/sotu.txt" --held-bytes 611890 --compressors --json >"$out/counting.json"
# The best layer for longer: three blocks of width 128, 10 million bytes. It goes on where it was stopped.
best=$out/runs/best
"$ttr" train "text(file=$here/sotu.txt, held_bytes=611890, time=512)" --layer 'mamba-2*3' --width 128 --heads 2 \
  --optimiser muon --rate 1e-2 --steps 2500 --batch 8 --every 125 --test 128 --out "$best" --resume
"$ttr" eval "$best" --json >"$out/best.json"
"$ttr" generate "$best" --prompt 'My fellow citizens, ' --tokens 600 --temperature 0.7 --seed 1 >"$out/sample.txt"
