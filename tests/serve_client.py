"""A client of `ttr serve` for tests/serve_cli_test.sh: one verb per question, exits with 1 and a sentence if the answer is wrong.

usage: serve_client.py PORT VERB [ARGUMENT..]
"""
import csv
import http.client
import json
import random
import socket
import sys
import threading

port = int(sys.argv[1])


def connect():
    return http.client.HTTPConnection("127.0.0.1", port, timeout=600)


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), headers or {})
    response = connection.getresponse()
    return response.status, response.read().decode()


def rows_of(path):
    for row in csv.DictReader(open(path)):
        yield {name: float(value) for name, value in row.items()}


def same_numbers(data, predictions, model):
    """Lines of a file, learned as one stream: the answers are the predictions that `ttr regress --out` wrote."""
    lines = "".join(json.dumps(row) + "\n" for row in rows_of(data))
    status, text = ask(connect(), "POST", f"/models/{model}/learn", lines, {"Content-Type": "application/x-ndjson"})
    answers = [json.loads(line) for line in text.splitlines()]
    expected = list(csv.DictReader(open(predictions)))
    assert status == 200 and len(answers) == len(expected), (status, len(answers), len(expected))
    for answer, row in zip(answers, expected):
        for name, number in answer["predictions"].items():
            assert number == float(row[name]), (answer, row)


def kill_test(data, model, acknowledged):
    """Learns row by row until the server is gone; writes how many rows were acknowledged."""
    connection, count = connect(), 0
    try:
        for row in list(rows_of(data)) * 1000:
            status, _ = ask(connection, "POST", f"/models/{model}/learn", row)
            assert status == 200
            count += 1
            if count % 50 == 0:
                open(acknowledged, "w").write(str(count))
    except (http.client.HTTPException, OSError):
        pass
    open(acknowledged, "w").write(str(count))


def raw(data, shut=False):
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        try:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        try:
            while block := s.recv(1 << 16):
                answer += block
        except OSError:
            pass
        return answer


def bad_requests(max_body):
    """Bytes that are no request, and requests that are too large: a status, a closed connection, never silence."""
    head = b"POST /models/a/learn HTTP/1.1\r\nHost: localhost\r\n"
    cases = [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x00\xff\xfe" * 100 + b"\r\n\r\n", b"400"),
        (head + b"Content-Length: 99999999999999999999999\r\n\r\n", b"400"),
        (head + b"Content-Length: -1\r\n\r\n", b"400"),
        (head + b"Content-Length: %d\r\n\r\n" % (int(max_body) + 1), b"413"),
        (head + b"X: " + b"a" * 40000 + b"\r\n\r\n", b"431"),
        (head + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n", b"400"),
        (head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b" " * 4096 + b"\r\n") * (int(max_body) // 4096 + 2), b"413"),
        (b"GET /models HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n", b"403"),
        (b"GET /models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n", b"403"),
    ]
    for data, status in cases:
        answer = raw(data)
        assert answer.startswith(b"HTTP/1.1 " + status), (data[:80], answer[:200])
    # Half a request and then nothing, from either side: the connection ends, here because the client's half does.
    for data in (b"", b"GET", head, head + b"Content-Length: 10\r\n\r\n{"):
        raw(data, shut=True)
    pieces = [b"GET ", b"POST ", b"/models/a/learn", b" HTTP/1.1\r\n", b"Host: localhost\r\n", b"Content-Length: ", b"5", b"\r\n", b"\r\n\r\n", b"{}",
              b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"\x80", b"Expect: 100-continue\r\n", b"Content-Type: application/x-ndjson\r\n"]
    chance = random.Random(1)
    for _ in range(300):
        raw(b"".join(chance.choice(pieces) for _ in range(chance.randrange(12))), shut=True)
    status, _ = ask(connect(), "GET", "/health")
    assert status == 200


def pipelined():
    """Several requests in one packet are answered in their order; a body that waits for 100 Continue gets it."""
    one = b"POST /models/a/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n%s\r\n{\"x\": 1, \"z\": 2}"
    answer = raw(one % b"" + one % b"" + one % b"Connection: close\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3, answer
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        s.sendall(b"POST /models/a/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 100 Continue"), "no 100"
        s.sendall(b'{"x": 1, "z": 2}')
        assert s.recv(1000).startswith(b"HTTP/1.1 200"), "no 200"


def live_lines(model):
    """A line is answered while the stream is still open."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        s.sendall(f"POST /models/{model}/learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n".encode())
        text = b""
        for i in range(5):
            line = json.dumps({"x": i, "z": 1, "y": 2 * i}).encode() + b"\n"
            for part in (line[:7], line[7:]):  # a line in two pieces is one line
                s.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            while text.count(b"predictions") < i + 1:
                block = s.recv(4096)
                assert block, text
                text += block
        s.sendall(b"0\r\n\r\n")
        while b"\r\n0\r\n\r\n" not in text:
            text += s.recv(4096)


def many(connections, limit):
    """More connections than allowed: the rest get 503, those that wait are served, and none of them is silent."""
    held = [socket.create_connection(("127.0.0.1", port), timeout=600) for _ in range(int(limit))]
    for s in held:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
    refused = sum(raw(b"").startswith(b"HTTP/1.1 503") for _ in range(int(connections) - int(limit)))
    assert refused == int(connections) - int(limit), refused
    for s in held:
        s.close()


def threads(model):
    """Eight clients at once on one model: every row is learned once."""
    def one(k):
        c = connect()
        for i in range(50):
            status, _ = ask(c, "POST", f"/models/{model}/learn", {"x": i, "z": k, "y": i + k})
            assert status == 200
    team = [threading.Thread(target=one, args=(k,)) for k in range(8)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    status, text = ask(connect(), "GET", f"/models/{model}")
    assert json.loads(text)["rows"] == 400, text


def request(method, path, body="", status="200"):
    got, text = ask(connect(), method, path, body or None)
    sys.stdout.write(text)
    assert got == int(status), (got, text)


verb = globals()[sys.argv[2]]
try:
    verb(*sys.argv[3:])
except AssertionError as error:
    sys.exit(f"{sys.argv[2]}: {error}")
