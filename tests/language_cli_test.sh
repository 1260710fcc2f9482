#!/usr/bin/env bash
# Black-box test of published models: `ttr logits`, `perplexity`, `generate`, `quantize` and `inspect` on small checkpoints in
# the published formats, whose expected logits come from a plain evaluation in numpy.
set -u
ttr=$(realpath "${1:?usage: language_cli_test.sh TTR}")
root=$(realpath "$(dirname "$0")/..")
python=/usr/bin/python3
. "$root/tests/black_box.sh"
in_empty_folder || exit 1

logits=$("$python" "$root/scripts/checkpoints/check.py" "$ttr" 2>/dev/null)
if tail -1 <<< "$logits" | grep -q '^[1-9][0-9]* passed, 0 failed$'; then ok "logits of every architecture: $(tail -1 <<< "$logits")"
else bad "logits of every architecture" "$(grep -E 'FAILED|:|passed' <<< "$logits" | head -5)"; fi
tokens=$("$python" "$root/scripts/checkpoints/tokenize.py" "$ttr" 2>&1)
if tail -1 <<< "$tokens" | grep -q '^[1-9][0-9]* passed, 0 failed$'; then ok "tokens: $(tail -1 <<< "$tokens")"
else bad "tokens" "$(tail -4 <<< "$tokens")"; fi

"$python" "$root/scripts/checkpoints/check.py" --write models > /dev/null 2>&1
model=models/rwkv-7
expect() {  # expect NAME CODE PATTERN WORDS...
  local name=$1 code=$2 pattern=$3; shift 3
  timeout "$patience" "$ttr" "$@" > out.txt 2> err.txt < /dev/null
  local got=$?
  if [ $got -ne "$code" ]; then bad "$name: exit $got instead of $code: $(head -c 300 err.txt)"; return; fi
  if ! cat out.txt err.txt | grep -qE -- "$pattern"; then bad "$name: $(cat out.txt err.txt | head -c 300)"; return; fi
  ok "$name"
}

expect "logits as a table" 0 "what comes next" logits $model --tokens 1,2,3
expect "generate numbers" 0 "^1 2 3" generate $model --prompt "1 2 3 " --tokens 5
expect "generate JSON" 0 '"tokens": 5' generate $model "1 2 3 " --tokens 5 --json
"$ttr" generate $model "1 2 3 " --tokens 12 --temperature 0 --fixed > greedy.txt
"$ttr" generate $model "1 2 3 " --tokens 12 --temperature 0 --draft models/rwkv-4 2> err.txt > drafted.txt
check "what a poor draft proposes changes nothing" cmp -s greedy.txt drafted.txt
"$ttr" generate $model "1 2 3 " --tokens 15 --temperature 0 --draft $model --json > drafted.json
check "a perfect draft is always accepted" test "$(number_of proposed drafted.json)" = "$(number_of accepted drafted.json)"
"$ttr" generate $model "1 2 3 4 5 6 " --tokens 8 --seed 3 --json --fixed > whole.json
"$ttr" generate $model "1 2 3 " --tokens 1 --temperature 0 --state-out s.safetensors > /dev/null
check "a state is written" test -s s.safetensors
expect "a state goes on" 0 '"tokens": 3' generate $model "4 5 " --state-in s.safetensors --tokens 3 --json
refused "a state of another model" "saved with layer" "$ttr" generate models/rwkv-6 "4" --state-in s.safetensors
expect "inspect" 0 "emb.weight" inspect $model/model.safetensors
expect "inspect a folder" 0 "^rwkv-7, 3 layers of width 24, 37 tokens" inspect $model
expect "inspect GGUF" 0 '"architecture": "mamba-2"' inspect models/mamba-2-gguf/model.gguf --json

expect "bench language" 0 '"share_of_bandwidth": [0-9]' bench language rwkv-7 mamba-2 gated-deltanet --type f32,q8_0 --batch 1,3 --quick --json
check "a call of decode asks for no memory" sh -c "! grep '\"allocations\"' out.txt | grep -vE ': (0.0|0|null)'"
expect "bench language of a file" 0 "rwkv-6" bench language models/rwkv-6 --quick
refused "bench of what is no model" "is no file and none of" "$ttr" bench language gpt-9 --quick
refused "bench of no type" "f32, bf16, f16, q8_0 or q4_0" "$ttr" bench language rwkv-7 --type q9 --quick
expect "quantize" 0 "of tensors" quantize models/mamba-1 q8.gguf --type q8_0
expect "a quantized model runs" 0 '"logits"' logits q8.gguf --tokens 1,2 --json
"$python" "$root/bench/peers/language/write_mamba_2.py" rows_of_64.gguf F32 --small
for type in q8_0 q4_0 bf16; do
  "$ttr" quantize rows_of_64.gguf $type.gguf --type $type > /dev/null
  "$ttr" logits $type.gguf --tokens 1,2,3,4 --json > exact.json
  "$ttr" logits $type.gguf --tokens 1,2,3,4 --json --activations rounded > rounded.json
  "$ttr" logits $type.gguf --tokens 1,2,3,4 --json --activations rounded --fixed --threads 1 > one.json
  "$ttr" logits $type.gguf --tokens 1,2,3,4 --json --activations rounded --fixed --threads 2 > two.json
  check "rounded activations of $type are others" sh -c '! cmp -s exact.json rounded.json'
  check "rounded activations of $type on any number of threads" cmp -s one.json two.json
done
"$ttr" logits $model --tokens 1,2,3 --json > exact.json
"$ttr" logits $model --tokens 1,2,3 --json --activations rounded > rounded.json
check "weights of f32 round nothing" cmp -s exact.json rounded.json
expect "generate with rounded activations" 0 '"tokens": 3' generate q8_0.gguf "1 2 " --activations rounded --tokens 3 --json
expect "bench with rounded activations" 0 '"activations": "rounded"' bench language mamba-2 --type bf16,q8_0 --activations rounded --quick --json
refused "activations of another kind" "exact or rounded, not 'half'" "$ttr" logits $model --tokens 1 --activations half
refused "no such type" "it is q8_0, q4_0, bf16, f16 or f32" "$ttr" quantize models/mamba-1 x.gguf --type q3
refused "no such file" "there is no file or folder" "$ttr" logits nothing --tokens 1
printf 'x' > model.pth
refused "a pickle by its ending" "pth-to-safetensors.py" "$ttr" logits model.pth --tokens 1
refused "a token outside the vocabulary" "numbers from 0 to 36" "$ttr" logits $model --tokens 1,99
refused "no tokens" "give the tokens" "$ttr" logits $model
refused "a text without a tokenizer" "tokens of this model are numbers" "$ttr" logits $model --text hello
"$python" "$root/bench/peers/language/write_mamba_2.py" numbers.gguf F32 --small
expect "a GGUF that says that it has no vocabulary" 0 '"logits"' logits numbers.gguf --tokens 1,200,3 --json
refused "a text for a GGUF without vocabulary" "tokens of this model are numbers" "$ttr" logits numbers.gguf --text hello
refused "a setting without a value" "name=value" "$ttr" logits $model --tokens 1 --set eps
refused "a bad temperature" "--temperature is -1" "$ttr" generate $model "1" --temperature -1
refused "chat without a template" "without a chat template" "$ttr" generate $model "1" --chat
mkdir odd && cp $model/model.safetensors odd && echo '{"model_type": "gla"}' > odd/config.json
expect "the architecture by its tensors" 0 "rwkv-7" logits odd --tokens 1
echo '{"model_type": "llama"}' > models/fla-gla/config.json
expect "inspect what does not run" 0 "does not run: .*model_type is 'llama'" inspect models/fla-gla
refused "an unknown model_type" "model_type is 'llama'" "$ttr" logits models/fla-gla --tokens 1
head -c 5000 $model/model.safetensors > cut.safetensors
refused "a file that was cut off" "cut off" "$ttr" logits cut.safetensors --tokens 1

# A checkpoint of PyTorch without PyTorch: pickle finds its classes by their names.
"$python" - << 'P'
import collections, pickle, sys, types, zipfile
import numpy as np
torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
class FloatStorage: pass
FloatStorage.__module__, torch.FloatStorage, torch._utils = "torch", FloatStorage, utils
def _rebuild_tensor_v2(*_): pass
_rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2 = "torch._utils", _rebuild_tensor_v2
sys.modules.update({"torch": torch, "torch._utils": utils})
class Stored:
    def __init__(self, key, count): self.key, self.count = key, count
class Tensor:
    def __init__(self, *args): self.args = args
    def __reduce__(self): return _rebuild_tensor_v2, self.args
class Pickler(pickle.Pickler):
    def persistent_id(self, x):
        return ("storage", FloatStorage, x.key, "cpu", x.count) if isinstance(x, Stored) else None
numbers = np.arange(24, dtype=np.float32)
def write(name, tree):
    with zipfile.ZipFile(name, "w") as z:
        with z.open("archive/data.pkl", "w") as f: Pickler(f, 2).dump(tree)
        z.writestr("archive/data/0", numbers.tobytes())
turned = Tensor(Stored("0", 24), 2, (3, 4), (1, 5), False, collections.OrderedDict())
write("good.pth", collections.OrderedDict(a=turned, b=Tensor(Stored("0", 24), 0, (24,), (1,), False, {})))
class Evil:
    def __reduce__(self): return __import__("os").system, ("touch evil",)
write("evil.pth", {"a": Evil()})
write("repeated.pth", {"a": Tensor(Stored("0", 24), 0, (2 ** 42,), (0,), False, {})})
write("thrice.pth", {"a": Tensor(Stored("0", 24), 4, (3, 2), (0, 1), False, {})})
write("named.pth", {"__metadata__": Tensor(Stored("0", 24), 0, (5,), (1,), False, {})})
write("shapeless.pth", {"a": Tensor(Stored("0", 24), 0, ("x",), (1,), False, {})})
write("beyond.pth", {"a": Tensor(Stored("0", 24), 20, (5,), (1,), False, {})})
P
convert="$root/scripts/pth-to-safetensors.py"
"$python" "$convert" good.pth good.safetensors > out.txt 2>&1 || bad "a pickle is converted" "$(cat out.txt)"
"$python" - << 'P' && ok "a pickle is converted" || bad "a pickle is converted"
import json, struct, sys
import numpy as np
raw = open("good.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
h = json.loads(raw[8:8 + n])
at = lambda k: np.frombuffer(raw[8 + n + h[k]["data_offsets"][0]:8 + n + h[k]["data_offsets"][1]], np.float32)
want = np.array([[2 + i + 5 * j for j in range(4)] for i in range(3)], np.float32)
sys.exit(not (h["a"]["shape"] == [3, 4] and (at("a").reshape(3, 4) == want).all() and (at("b") == np.arange(24)).all()))
P
refused "a pickle that runs a program" "wants to call (os|posix).system" "$python" "$convert" evil.pth evil.safetensors
check "it has not run" test ! -e evil
refused "a tensor beyond its numbers" "goes beyond its storage" "$python" "$convert" beyond.pth x.safetensors
refused "a tensor that repeats its numbers without end" "4398046511104 numbers of a storage of 24" "$python" "$convert" repeated.pth x.safetensors
check "one that repeats some" "$python" "$convert" thrice.pth thrice.safetensors
check "has them" "$python" -c 'import numpy as np; assert np.fromfile("thrice.safetensors", np.float32)[-6:].tolist() == [4, 5] * 3'
refused "a tensor with the name of the metadata" "the name '__metadata__'" "$python" "$convert" named.pth x.safetensors
refused "a shape that is no number" "no whole numbers" "$python" "$convert" shapeless.pth x.safetensors
refused "no zip file" "pth-to-safetensors" "$python" "$convert" text.txt x.safetensors

for i in $(seq 40); do echo "the cat sat on the mat, and the cat number $i was fat."; done > text.txt
"$ttr" train text.txt --steps 2 --width 16 --heads 1 --time 16 --batch 2 --layer deltanet --out run --quiet > train.txt 2>&1 || bad "train" "$(head -c 300 train.txt)"
expect "perplexity of a trained model" 0 "bits per byte" perplexity run text.txt
expect "perplexity in windows" 0 '"bits_per_byte"' perplexity run text.txt --window 16 --stride 8 --json
expect "logits of a trained model" 0 '"logits"' logits run --text "the" --json
refused "stride without window" "--stride needs --window" "$ttr" perplexity run text.txt --stride 4

[ $failures -eq 0 ] && echo "published models: all passed"
exit $((failures > 0))
