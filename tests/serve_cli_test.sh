#!/usr/bin/env bash
# `ttr serve` over sockets: the numbers of `ttr regress`, kill -9, bad and slow clients, a graceful end.
set -uo pipefail
ttr=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/black_box.sh
. "$here/black_box.sh"
in_empty_folder || exit 1

server=0
start() {  # start FOLDER OPTION..: sets server and port
  : > address.json
  "$ttr" serve "$1" --port 0 --json "${@:2}" > address.json 2> errors.txt &
  server=$!
  until [ -s address.json ] || is_gone "$server"; do sleep 0.02; done
  port=$(sed 's/.*:\([0-9]*\)".*/\1/' address.json)
}
stop() { kill -TERM "$server"; wait "$server"; }
client() { timeout "$patience" python3 "$here/serve_client.py" "$port" "$@"; }
trap 'kill -9 $server 2> /dev/null; rm -rf "$work"' EXIT

awk 'BEGIN { srand(7); print "x,z,y"; for (i = 0; i < 1500; ++i) { x = rand() - 0.5; z = 100 + 10 * rand(); print x "," z "," 3 * x + z / 7 + 0.1 * rand() } }' > data.csv
model='{"keys": ["x", "z"], "values": ["y"], "layers": ["nlms", "rls", "kalman", "mix"]}'

start models
client request PUT /models/a "$model" 201 > /dev/null && ok "a model is made" || bad "PUT"
"$ttr" regress data.csv --layer nlms --layer rls --layer kalman --layer mix --out expected.csv > /dev/null || bad "ttr regress"
check "the numbers of ttr regress, to the last bit" client same_numbers data.csv expected.csv a
check "pipelining and 100 Continue" client pipelined
client request PUT /models/live "$model" 201 > /dev/null
check "a stream of lines is answered as it comes" client live_lines live
client request PUT /models/team "$model" 201 > /dev/null
check "eight clients at once" client threads team
check "bad requests" client bad_requests 8388608
client request GET /metrics > metrics.txt && grep -q '^ttr_rows_learned_total 1905$' metrics.txt && ok "metrics" || bad "metrics: $(grep rows metrics.txt)"
refused "a folder that is in use" 'another .ttr serve. uses the folder' "$ttr" serve models --port 0
stop && ok "SIGTERM ends with 0" || bad "SIGTERM: exit $?"
[ -e models/a.ttr ] && [ -z "$(ls models/*.log 2> /dev/null)" ] && ok "all models are saved, the log is gone" || bad "after the end: $(ls models)"

# A model of the server is one of `ttr regress`, and the other way round.
tail -n 3 data.csv | sed '1i x,z,y' > few.csv
"$ttr" regress data.csv --layer nlms --layer rls --layer kalman --layer mix --save models/b.ttr > /dev/null
"$ttr" predict models/a.ttr few.csv > a.csv 2> /dev/null
"$ttr" predict models/b.ttr few.csv > b.csv 2> /dev/null
cmp -s a.csv b.csv && [ "$(wc -l < a.csv)" -eq 4 ] && ok "ttr predict reads a served model" || bad "ttr predict of a served model"

# Killed in the middle: what was acknowledged is there, and the model is the one that learned as many rows.
for signal in 9 9 TERM INT; do
  rm -rf killed; : > acknowledged.txt
  start killed --max-log 20000
  client request PUT /models/a "$model" 201 > /dev/null
  client kill_test data.csv a acknowledged.txt & reader=$!
  until [ -s acknowledged.txt ]; do sleep 0.02; done
  kill -"$signal" "$server"; wait "$server" 2> /dev/null; code=$?
  wait "$reader" || bad "kill -$signal: the client had a wrong answer"
  acknowledged=$(cat acknowledged.txt)
  start killed
  rows=$(client request GET /models/a | sed -n 's/^  "rows": \([0-9]*\),/\1/p')
  if [ "$rows" -ge "$acknowledged" ] && [ "$rows" -le $((acknowledged + 1)) ]; then
    ok "kill -$signal after $acknowledged rows loses none"
  else
    bad "kill -$signal: $acknowledged rows were acknowledged, $rows are there"
  fi
  [ "$signal" = 9 ] || [ $code -eq 0 ] || bad "kill -$signal: exit $code"
  client request POST /models/a/predict '{"x": 0.1, "z": 104}' > after.txt
  client request PUT /models/again "$model" 201 > /dev/null
  { awk -F, 'NR > 1 { printf "{\"x\": %s, \"z\": %s, \"y\": %s}\n", $1, $2, $3 }' data.csv; } > rows.ndjson
  for _ in $(seq $((rows / 1500 + 1))); do cat rows.ndjson; done | head -"$rows" > same.ndjson
  python3 - "$port" same.ndjson <<'END'
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
c.request("POST", "/models/again/learn", open(sys.argv[2]).read(), {"Content-Type": "application/x-ndjson"})
c.getresponse().read()
END
  client request POST /models/again/predict '{"x": 0.1, "z": 104}' > again.txt
  cmp -s after.txt again.txt && ok "and the model has the same bits" || bad "after kill -$signal: $(cat after.txt again.txt)"
  kill -9 "$server"; wait "$server" 2> /dev/null
done

# Slow clients and too many of them.
start crowded --max-connections 20 --max-body 4096
check "too many connections" client many 25 20
stop || bad "the end after many connections"
start slow --timeout 2
python3 - "$port" <<'END' && ok "a slow client does not hold the others up, and is sent away" || bad "slow clients"
import http.client, socket, sys
port = int(sys.argv[1])
slow = [socket.create_connection(("127.0.0.1", port), timeout=600) for _ in range(10)]
for s in slow:
    s.sendall(b"POST /models/a/learn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n{\"x\"")
while True:  # a machine that stands still for two seconds makes this client a slow one, too
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        c.request("GET", "/health")
        if c.getresponse().status == 200:
            break
    except (OSError, http.client.HTTPException):
        pass
for s in slow:
    assert s.recv(100) == b""  # closed by the server's deadline; the test waits for that, however long it takes
END
stop || bad "the end after slow clients"

refused "another host without a token" 'token' "$ttr" serve other --host 0.0.0.0 --port 0
echo short > token
refused "a short token" 'at least 16' "$ttr" serve other --token-file token --port 0
refused "a host that is none" 'not an address' "$ttr" serve other --host nowhere --port 0
refused "a port out of range" '--port' "$ttr" serve other --port 70000
mkdir damaged && echo 'no model' > damaged/a.ttr
refused "a model that is none" 'is not a model' "$ttr" serve damaged --port 0

"$ttr" bench serve --quick --json > load.json && grep -q '"errors": 0' load.json && ok "the load test, quickly" || bad "ttr bench serve --quick: $(head -c 300 load.json)"

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
