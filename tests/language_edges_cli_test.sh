#!/usr/bin/env bash
# Black-box test of what is around a published model: logits that are no numbers, states that go on, turns of a chat, tokens that
# end a text, tokenizers that are not supported, settings, copies in another type, Ctrl-C.
set -u
ttr=$(realpath "${1:?usage: language_edges_cli_test.sh TTR}")
root=$(realpath "$(dirname "$0")/..")
python=/usr/bin/python3
. "$root/tests/black_box.sh"
in_empty_folder || exit 1
mkdir e
"$python" "$root/scripts/checkpoints/edges.py" e || exit 1
"$python" "$root/scripts/checkpoints/check.py" --write models > /dev/null 2>&1
model=models/rwkv-7
text_of() { number_of text "$1"; }
tokens_of() { "$ttr" logits "$1" --text "$2" --json | "$python" -c 'import json, sys; print(len(json.load(sys.stdin)["tokens"]))'; }
says() {  # says NAME CODE PATTERN WORDS...: the exit code, and a sentence on standard error
  local name=$1 code=$2 pattern=$3; shift 3
  timeout "$patience" "$ttr" "$@" > out.txt 2> err.txt < /dev/null
  local got=$?
  if [ $got -eq "$code" ] && grep -qE -- "$pattern" err.txt; then ok "$name"
  else bad "$name" "exit $got: $(head -c 200 err.txt) $(head -c 100 out.txt)"; fi
}

# ---- logits that are no numbers
echo "some text" > text.txt
for kind in nan inf least-all; do
  for more in "--temperature 0.8" "--temperature 0" "--draft e/says-p --draft-tokens 2"; do
    [ "$more" = "--draft e/says-p --draft-tokens 2" ] && more="--draft e/says-$kind"
    says "generate $more with $kind" 2 "are not numbers" generate e/says-$kind "ab" --tokens 3 $more
    check "after a line end" test "$(tail -c 1 out.txt | od -An -c | tr -d ' ')" = '\n'
  done
  refused "logits of $kind" "are not numbers" "$ttr" logits e/says-$kind --tokens 1,2
  refused "logits of $kind as JSON" "are not numbers" sh -c "'$ttr' logits e/says-$kind --tokens 1,2 --json > /dev/null"
  refused "all logits of $kind" "after token 0 are not numbers" sh -c "'$ttr' logits e/says-$kind --tokens 1,2 --all --json > /dev/null"
  refused "perplexity with $kind" "are not numbers" "$ttr" perplexity e/says-$kind text.txt
done
"$ttr" generate e/says-least "ab" --tokens 2000 --temperature 5 --top-p 1 --json > some.json && ok "tokens that cannot come" || bad "tokens that cannot come"
check "do not come" sh -c "! grep -q '\\\\u0007' some.json && grep -q '\\\\u0006' some.json"

# ---- states
"$ttr" generate $model "1 2 3 " --tokens 12 --temperature 0 --fixed > whole.txt
"$ttr" generate $model "1 2 3 " --tokens 5 --temperature 0 --fixed --state-out s.safetensors > first.txt
"$ttr" generate $model --tokens 7 --temperature 0 --fixed --state-in s.safetensors > rest.txt
check "a state goes on without a prompt" test "$(tr -d '\n' < first.txt)$(cat rest.txt)" = "$(cat whole.txt)"
check "a state has prompt and answer" sh -c "'$ttr' inspect s.safetensors --json | grep -q '\"tokens\": \"8\"'"
"$ttr" generate $model "$(tr -d '\n' < first.txt)4 5 " --tokens 4 --temperature 0 --fixed --json > whole.json
"$ttr" generate $model "4 5 " --state-in s.safetensors --tokens 4 --temperature 0 --fixed --json > rest.json
check "a state goes on after a prompt" test "$(text_of whole.json)" = "$(text_of rest.json)"
"$ttr" generate $model "1 2 3 " --tokens 12 --temperature 0 --fixed --repeat-penalty 3 > whole.txt
"$ttr" generate $model "1 2 3 " --tokens 5 --temperature 0 --fixed --repeat-penalty 3 --state-out s.safetensors > first.txt
"$ttr" generate $model --tokens 7 --temperature 0 --fixed --repeat-penalty 3 --state-in s.safetensors > rest.txt
check "and knows what came for the penalty" test "$(tr -d '\n' < first.txt)$(cat rest.txt)" = "$(cat whole.txt)"
refused "a place that cannot be written, before a token" "folder .*nowhere.* does not exist" "$ttr" generate $model "1" --state-out nowhere/s
refused "a folder as a place" "it is a folder" "$ttr" generate $model "1" --state-out models

# ---- chats: the template is a list, the answer ends at once
"$ttr" generate e/chat "hi" --chat --temperature 0 --state-out turn --json > one.json
turn=$'<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
check "a turn of a chat" test "$(number_of prompt_tokens one.json) $(number_of tokens one.json)" = "$(tokens_of e/chat "$turn") 1"
check "ends where the model ends it" grep -qE '"ended": "(stop|end of text)"' one.json
begin=$(("$(tokens_of e/chat a)" - 1))
check "a text begins with a token of its own" test $begin = 1
"$ttr" generate e/chat "hi" --chat --temperature 0 --state-in turn --json > two.json
check "the next turn names its tokens, and does not begin anew" \
  test "$(number_of prompt_tokens two.json)" = $(($(tokens_of e/chat $'\n'"$turn") - begin))
"$ttr" generate e/chat-goes-on "hi" --chat --temperature 0 --tokens 2 --state-out turn > /dev/null
"$ttr" generate e/chat-goes-on "hi" --chat --temperature 0 --tokens 2 --state-in turn --json > two.json
check "a turn after an answer that was cut ends it" \
  test "$(number_of prompt_tokens two.json)" = $(($(tokens_of e/chat $'<|im_end|>\n'"$turn") - begin))

# ---- tokens that end a text
for one in config list generation name object gguf; do
  path=e/ends-$one; [ -e $path/model.gguf ] && path=$path/model.gguf
  "$ttr" generate $path "hi" --tokens 3 --temperature 0 --json > end.json
  check "a text ends by $one" grep -q '"ended": "end of text"' end.json
done
"$ttr" generate e/ends-not "hi" --tokens 3 --temperature 0 --json > end.json
check "and by no other token" grep -q '"ended": "length"' end.json
"$ttr" quantize e/ends-generation ends.gguf --type f32 > /dev/null && "$ttr" generate ends.gguf "hi" --temperature 0 --json > end.json
check "a copy keeps what ends a text" grep -q '"ended": "end of text"' end.json
"$ttr" quantize e/chat chat.gguf --type f32 > /dev/null && "$ttr" generate chat.gguf "hi" --chat --temperature 0 --json > end.json
check "and the template of a chat" test "$(number_of prompt_tokens end.json)" = "$(number_of prompt_tokens one.json)"

# ---- tokenizers that are not supported
check "numbers do without a tokenizer" sh -c "'$ttr' logits e/unknown-tokenizer --tokens 1,2 --json | grep -q logits"
says "and so does generate" 0 "'Unigram' is not supported; BPE is; prompt and answer are numbers" generate e/unknown-tokenizer "1 2 " --tokens 3
refused "a text does not" "'Unigram' is not supported" "$ttr" logits e/unknown-tokenizer --text hello
refused "nor does perplexity" "'Unigram' is not supported" "$ttr" perplexity e/unknown-tokenizer text.txt
refused "nor --tokenizer" "'Unigram' is not supported" "$ttr" logits $model --tokens 1 --tokenizer e/unknown-tokenizer/tokenizer.json

# ---- options
refused "an unknown setting" "'group_norm_epsilon' is none that rwkv-7 reads; it reads .*group_norm_eps" "$ttr" logits $model --tokens 1 --set group_norm_epsilon=1
check "a known one" "$ttr" logits $model --tokens 1 --set group_norm_eps=1e-5 --json > /dev/null
refused "a seed below zero" "-1 is no whole number" "$ttr" generate $model "1" --seed -1
refused "a temperature without end" "--temperature is inf" "$ttr" generate $model "1" --temperature inf
refused "an empty stop text" "--stop is empty" "$ttr" generate $model "1" --stop ""
refused "fewer than one line" "--top is -5" "$ttr" logits $model --tokens 1 --top -5
for i in $(seq 40); do echo "the cat sat on the mat, and the cat number $i was fat."; done > cat.txt
"$ttr" train cat.txt --steps 2 --width 16 --heads 1 --time 16 --batch 2 --layer deltanet --out run --quiet > train.txt 2>&1 || bad "train" "$(head -c 300 train.txt)"
for more in "--stop a" "--state-out s" "--draft x" --chat "--set a=1" "--top-k 3" --fixed "--min-p 0.1" "--context 9"; do
  refused "generate ${more%% *} of a run of ttr train" "${more%% *} is for published models" "$ttr" generate run "the" $more
done
check "a run goes on with its own options" sh -c "'$ttr' generate run 'the' --tokens 3 --temperature 0.5 > /dev/null"

# ---- copies in another type
refused "a copy of a run" "is a model of .ttr train." "$ttr" quantize run run.gguf
check "is not written" test ! -e run.gguf
cp $model/model.safetensors m.safetensors && ln -s m.safetensors soft.safetensors && ln m.safetensors hard.safetensors
before=$(cksum < m.safetensors)
for to in m soft hard; do refused "a model onto itself: $to" "is the model itself" "$ttr" quantize m.safetensors $to.safetensors --type bf16; done
refused "a folder onto its own file" "is the model itself" "$ttr" quantize $model $model/model.safetensors --type bf16
check "it is as it was" test "$before" = "$(cksum < m.safetensors)"
"$ttr" quantize models/mamba-1 q8.gguf --type q8_0 > out.txt
check "what kept its type, and why" grep -q "^0 tensors are q8_0; 20 stay f32, being vectors or small; 2 stay f32, since their rows are no multiple of 32" out.txt
check "a copy knows what it is" sh -c "'$ttr' inspect q8.gguf | head -1 | grep -q ': GGUF,'"
mkdir full && "$ttr" quantize $model full/copy.gguf --type f32 > /dev/null && "$ttr" logits full/copy.gguf --tokens 1,2,3 --json > a.json
"$ttr" logits $model --tokens 1,2,3 --json > b.json
check "a copy in f32 has the same logits" cmp -s a.json b.json
check "nothing but the copy is left" test "$(ls -A full)" = copy.gguf
refused "a place that is not there" "cannot be written: No such file" "$ttr" quantize $model nowhere/x.gguf
( ulimit -f 10; trap '' XFSZ; "$ttr" quantize $model full/cut.gguf --type f32 > out.txt 2> err.txt ); code=$?
check "a disk that is full" test $code = 2
check "leaves nothing half behind" test "$(ls -A full)" = copy.gguf
# Tensors of 58 MB in 40 MB of memory; a sanitizer wants more for itself.
"$python" - "$root/scripts/checkpoints" << 'P'
import sys
sys.path.insert(0, sys.argv[1])
import edges
edges.write("large", edges.model(300000))
P
limited() { ( ulimit -d 40000; "$ttr" "$@" > out.txt 2> err.txt ); }
if limited quantize $model small.gguf --type f32; then
  for to in copy.safetensors copy.gguf; do check "a copy larger than memory: $to" limited quantize large large/$to --type bf16; done
else ok "copies in little memory are left out: this program needs more by itself"; fi
rm -r large
"$python" - << 'P'
import json, struct
head = json.dumps({"a.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("unknown.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(4))
P
refused "GGUF of what nothing runs" "of no architecture that is known" "$ttr" quantize unknown.safetensors unknown.gguf
"$ttr" inspect m.safetensors > out.txt
check "inspect of a single file says what it is" grep -q "^rwkv-7, 3 layers of width 24, 37 tokens" out.txt
check "and its tokenizer" grep -q "^tokenizer: none" out.txt
check "and in JSON whether it runs" sh -c "'$ttr' inspect m.safetensors --json | grep -q '\"runs\": true' && '$ttr' inspect unknown.safetensors --json | grep -q '\"runs\": false'"

# ---- Ctrl-C
interrupted() {  # interrupted NAME PROMPT TOKENS
  "$ttr" generate $model "$2" --tokens "$3" --temperature 0 --json --fixed --threads 1 > cut.json 2> err.txt & local pid=$!
  catches_interrupts $pid; kill -INT $pid; wait $pid; local code=$?
  if [ $code -eq 130 ] && grep -q '"ended": "interrupted"' cut.json; then ok "$1"; else bad "$1" "exit $code $(head -c 200 err.txt)"; fi
}
interrupted "Ctrl-C is told in JSON" "1 2 " 100000000
interrupted "Ctrl-C while a prompt is read" "$(yes 1 2 3 4 | head -15000 | tr '\n' ' ')" 1

# ---- a draft changes no distribution
"$ttr" generate e/says-p "0 " --draft e/says-q --tokens 6000 --temperature 1 --top-p 1 --seed 4 --json > drafted.json
"$python" - << 'P' && ok "a draft at temperature 1 keeps the shares" || bad "a draft at temperature 1 keeps the shares"
import json, math, sys
shares = [.3, .25, .2, .1, .06, .05, .03, .01]
run = json.load(open("drafted.json"))
drawn = [int(t) for t in run["text"].split()]
n, wrong = len(drawn), []
for token, p in enumerate(shares):  # five deviations: one in a million
    if abs(drawn.count(token) - n * p) > 5 * math.sqrt(n * p * (1 - p)):
        wrong.append((token, drawn.count(token) / n, p))
# Draws do not depend on the one before.
for a in range(3):
    after = [y for x, y in zip(drawn, drawn[1:]) if x == a]
    if abs(after.count(2) - len(after) * .2) > 5 * math.sqrt(len(after) * .2 * .8):
        wrong.append((a, "then 2"))
if wrong or n != 6000 or not 0 < run["accepted"] < run["proposed"]:
    sys.exit(f"{wrong} {n} {run['accepted']} {run['proposed']}")
P

[ $failures -eq 0 ] && echo "around published models: all passed"
exit $((failures > 0))
