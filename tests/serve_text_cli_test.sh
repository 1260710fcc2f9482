#!/usr/bin/env bash
# /v1/completions of `ttr serve`: answers and streams, many at once, stop texts, what is refused, clients that leave, the end.
set -uo pipefail
ttr=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
root=$(dirname "$here")
# shellcheck source=tests/black_box.sh
. "$here/black_box.sh"
in_empty_folder || exit 1
/usr/bin/python3 "$root/scripts/checkpoints/check.py" --write models > /dev/null 2>&1
mkdir edges && /usr/bin/python3 "$root/scripts/checkpoints/edges.py" edges

server=0
start() {  # start OPTION..: sets server and port
  : > address.json
  "$ttr" serve served --port 0 --json "$@" > address.json 2> errors.txt &
  server=$!
  until [ -s address.json ] || is_gone "$server"; do sleep 0.02; done
  port=$(sed 's/.*:\([0-9]*\)".*/\1/' address.json)
}
client() { timeout "$patience" /usr/bin/python3 "$here/serve_text_client.py" "$port" "$@"; }
trap 'kill -9 $server 2> /dev/null; rm -rf "$work"' EXIT

start --model models/rwkv-7 --slots 3 --context 200
"$ttr" generate models/rwkv-7 "1 2 3 " --tokens 12 --temperature 0 --json > greedy.json
check "the text of ttr generate" client greedy greedy.json
check "a stream of events has the same text" client streamed
check "twenty at once get what each gets alone" client crowd
check "stop texts, and half of one" client stops
check "what is refused is a sentence" client bad_requests
check "a client that leaves frees its slot" client leaves
check "the models, the metrics" client about
kill -TERM "$server"; wait "$server" && ok "SIGTERM ends with 0" || bad "SIGTERM: exit $?"

# A client on a busy machine may read slowly: the server keeps what it has not read, and waits for it.
start --model models/rwkv-7 --slots 1 --queue 1 --max-tokens 100000 --context 1000000 --max-body 1000000000 --timeout 3600
check "too many are refused with 503" client too_many
client long & reader=$!
until grep -q . long.txt 2> /dev/null; do sleep 0.02; done
kill -TERM "$server"; wait "$server" && ok "the end cuts a text off" || bad "SIGTERM during a text: exit $?"
wait "$reader" && ok "and its client has what there was" || bad "the client of a text that was cut off"

start --model edges/nan-after-20 --slots 3
check "logits that are no numbers fail one request" client no_numbers
kill -TERM "$server"; wait "$server" && ok "and the server goes on" || bad "the server after logits that are no numbers: exit $?"
start --model edges/unknown-tokenizer
check "a tokenizer that is not supported takes numbers" client numbers_alone
kill -TERM "$server"; wait "$server"

start
check "a server without a language model" client none
kill -TERM "$server"; wait "$server"
refused "no such model" 'there is no file or folder' "$ttr" serve served --port 0 --model nothing
refused "slots out of range" '--slots' "$ttr" serve served --port 0 --model models/rwkv-7 --slots 0

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
