#!/usr/bin/env bash
# Softmax attention with and without QKNorm at growing learning rates: results/, with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
if [ -n "$quick" ]; then
  own_text "$out/text.txt"
  sweep logits "task=text(file=$out/text.txt, time=64)"
  sweep loss "task=text(file=$out/text.txt, time=64)"
else
  sotu_text
  sweep logits
  sweep loss
fi
