"""A client of /v1/completions for tests/serve_text_cli_test.sh: one verb per question, exits with 1 and a sentence if the answer
is wrong.

usage: serve_text_client.py PORT VERB [ARGUMENT..]
"""
import http.client
import json
import socket
import sys
import threading

port = int(sys.argv[1])


def ask(body, path="/v1/completions", method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(method, path, body if isinstance(body, str) else json.dumps(body))
    response = connection.getresponse()
    return response.status, response.read().decode(), response.getheader("Content-Type")


def text_of(status, answer, _):
    assert status == 200, (status, answer)
    return json.loads(answer)["choices"][0]["text"]


def events(body):
    status, answer, kind = ask({**body, "stream": True})
    assert status == 200 and kind == "text/event-stream", (status, answer, kind)
    lines = answer.split("\n\n")
    assert lines[-1] == "" and lines[-2] == "data: [DONE]", lines[-2:]
    return [json.loads(line[len("data: "):]) for line in lines[:-2]]


def greedy(path):
    expected = json.load(open(path))
    answer = json.loads(ask({"prompt": [1, 2, 3], "max_tokens": 12, "temperature": 0})[1])
    assert answer["choices"][0]["text"] == expected["text"], (answer, expected)
    assert answer["choices"][0]["finish_reason"] == "length", answer
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}, answer
    assert answer["object"] == "text_completion" and answer["model"] == "rwkv-7", answer


def streamed():
    for body in ({"prompt": [1, 2, 3], "max_tokens": 30, "seed": 5}, {"prompt": [4], "max_tokens": 1, "echo": True, "seed": 1}):
        pieces = events(body)
        whole = "".join(piece["choices"][0]["text"] for piece in pieces)
        assert whole == text_of(*ask(body)), (whole, pieces)
        assert [piece["choices"][0]["finish_reason"] for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1]["choices"][0]["finish_reason"] == "length" and "usage" in pieces[-1]
    # The connection stays, for the next request.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for stream in (True, False, True):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 2, "stream": stream}))
        assert connection.getresponse().read()


def no_numbers():
    """The model says NaN after token 20: those who do not come there get their texts."""
    good = {"prompt": [1, 2, 3], "max_tokens": 3, "temperature": 0}
    expected, answers = text_of(*ask(good)), []
    bodies = [good, {**good, "prompt": [1, 20]}, good, {**good, "prompt": [20], "stream": True}, {**good, "prompt": [20], "temperature": 1}]
    threads = [threading.Thread(target=lambda b=b: answers.append((b, ask(b)))) for b in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(bodies), answers
    for body, (status, answer, kind) in answers:
        if body == good:
            assert text_of(status, answer, kind) == expected, answer
        else:
            # The beginning of a stream has gone out by then, or not.
            assert status == 500 or body.get("stream"), (status, answer)
            assert "are not numbers" in json.loads(answer.split("data: ")[-1])["error"]["message"], answer
    assert text_of(*ask(good)) == expected


def numbers_alone():
    status, answer, _ = ask({"prompt": "hello"})
    assert status == 400 and "'Unigram' is not supported" in json.loads(answer)["error"]["message"], answer
    assert len(text_of(*ask({"prompt": [1, 2], "max_tokens": 3, "temperature": 0})).split()) == 3


def crowd():
    """More than there are slots, with prompts of all lengths: the text of a seed does not depend on the company."""
    bodies = [{"prompt": [(7 * i + j) % 37 for j in range(1 + 9 * (i % 5))], "max_tokens": 10 + i, "seed": i, "temperature": 0.9,
               "top_k": 20} for i in range(20)]
    alone = [text_of(*ask(body)) for body in bodies]
    together = [None] * len(bodies)

    def one(i):
        body = bodies[i]
        if i % 2:
            together[i] = "".join(piece["choices"][0]["text"] for piece in events(body))
        else:
            together[i] = text_of(*ask(body))
    team = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert together == alone, [i for i in range(20) if together[i] != alone[i]]


def stops():
    whole = text_of(*ask({"prompt": [1, 2, 3], "max_tokens": 20, "seed": 3}))
    words = whole.split()
    stop = words[6] + " " + words[7]
    body = {"prompt": [1, 2, 3], "max_tokens": 20, "seed": 3, "stop": ["nothing", stop]}
    answer = json.loads(ask(body)[1])["choices"][0]
    expected = whole[:whole.index(stop)]
    assert answer["text"] == expected and answer["finish_reason"] == "stop", (answer, whole)
    pieces = events(body)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == expected
    assert pieces[-1]["choices"][0]["finish_reason"] == "stop"
    # One that never comes keeps nothing back in the end.
    assert text_of(*ask({"prompt": [1, 2, 3], "max_tokens": 20, "seed": 3, "stop": "x" * 50})) == whole


def bad_requests():
    good = {"prompt": [1], "max_tokens": 1}
    for change, status, word in (
            ("{", 400, ""), ("[]", 400, "no object"), ({"max_tokens": 1}, 400, "prompt"), ({"prompt": "text"}, 400, "tokenizer"),
            ({"prompt": []}, 400, "empty"), ({"prompt": [99]}, 400, "0 to 36"), ({"prompt": ["a", "b"]}, 400, "several"),
            ({"prompt": [1] * 200}, 400, "--context"), ({**good, "max_tokens": 0}, 400, "max_tokens"),
            ({**good, "max_tokens": 1.5}, 400, "whole"), ({**good, "max_tokens": "9"}, 400, "max_tokens"),
            ({**good, "temperature": -1}, 400, "temperature"), ({**good, "top_p": 0}, 400, "top_p"),
            ({**good, "stop": 5}, 400, "stop"), ({**good, "stop": [""]}, 400, "stop"), ({**good, "stop": ["a"] * 17}, 400, "16"),
            ({**good, "stream": 1}, 400, "stream"), ({**good, "n": 2}, 400, "n is not supported"),
            ({**good, "logprobs": 3}, 400, "logprobs"), ({**good, "presence_penalty": 1}, 400, "presence_penalty"),
            ({**good, "wrong": 1}, 400, "'wrong'"), ({**good, "seed": -1}, 400, "seed")):
        got, answer, kind = ask(change)
        message = json.loads(answer)["error"]["message"]
        assert got == status and word in message and kind == "application/json", (change, got, message)
    assert ask("", method="GET")[0] == 405
    assert ask({}, "/v1/other")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(good), {"Origin": "http://evil.example"})
    assert connection.getresponse().status == 403
    assert text_of(*ask(good))


def leaves():
    """Six clients who leave in the middle of long texts: three slots are soon free again."""
    request = json.dumps({"prompt": [1], "max_tokens": 190, "stream": True}).encode()
    for _ in range(6):
        with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(request), request))
            assert s.recv(100)
    assert text_of(*ask({"prompt": [1], "max_tokens": 3}))


def about():
    status, answer, _ = ask("", "/v1/models", "GET")
    assert status == 200 and json.loads(answer)["data"][0]["id"] == "rwkv-7", answer
    text = ask("", "/metrics", "GET")[1]
    numbers = dict(line.split() for line in text.splitlines() if line.startswith("ttr_completion"))
    assert int(numbers["ttr_completions_total"]) > 40 and int(numbers["ttr_completion_tokens_total"]) > 500, numbers


def too_many():
    """One slot and one place to wait: of five requests at least three are refused while the first goes on."""
    first = socket.create_connection(("127.0.0.1", port), timeout=600)
    request = json.dumps({"prompt": [1], "max_tokens": 100000, "stream": True}).encode()
    first.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(request), request))
    assert first.recv(100)
    waits = threading.Thread(target=lambda: ask({"prompt": [1], "max_tokens": 1}))
    waits.start()
    while "ttr_completions_waiting 1" not in ask("", "/metrics", "GET")[1]:
        pass
    status, answer, _ = ask({"prompt": [1], "max_tokens": 1})
    assert status == 503 and "--queue" in answer, (status, answer)
    first.close()  # and the one who waits has its turn
    waits.join()


def long():
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 100000, "stream": True}))
    response = connection.getresponse()
    begun = response.read(500)
    open("long.txt", "w").write("begun")
    rest = (begun + response.read()).decode()
    assert rest.endswith("data: [DONE]\n\n"), rest[-200:]


def none():
    status, answer, _ = ask({"prompt": [1]})
    assert status == 404 and "--model" in answer, (status, answer)


verb = globals()[sys.argv[2]]
try:
    verb(*sys.argv[3:])
except AssertionError as error:
    sys.exit(f"{sys.argv[2]}: {error}")
