#!/usr/bin/env bash
# Figure 3 of the test-time regression paper, trained; without the activation of its convolution, without the convolution, and
# what the activation does to the keys: results/, with --quick into build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../common/sweep.sh.inc
source "$here/../common/sweep.sh.inc"
sweep capacity-520
[ -n "$quick" ] || sweep capacity
[ -n "$quick" ] || sweep random
[ -n "$quick" ] || sweep random-8192
sweep ablation
sweep convolution
[ -n "$quick" ] || sweep longer

# The lengths of keys after the training of capacity-520.txt at P = 128, with and without the activation.
size=('mqar(vocabulary=520, time=512, pairs=128)' --width 64 --steps 600)
[ -z "$quick" ] || size=('mqar(vocabulary=132, time=128, pairs=32)' --width 16 --steps 200)
folders=()
for layer in linear-attention rls; do
  for activation in silu none; do
    folder=$out/runs/keys-$layer-$activation
    settings="start=shift, residual=no, conv=2, conv_on=k, conv_act=$activation, out_norm=none"
    [ $layer != rls ] || settings="ridge=1, $settings"
    (cd "$here" && "$ttr" train "${size[@]}" --layer "$layer($settings)" --heads 1 --mlp none --tied --embedding-scale 1 \
      --rate 1e-2 --decay 0 --clip 0 --warmup 20 --batch 8 --test 64 --threads 1 --out "$folder" --resume >&2)
    folders+=("$layer, $activation=$folder")
  done
done
(cd "$here" && /usr/bin/python3 keys.py "${folders[@]}" >"$out/keys.md")
cat "$out/keys.md"
