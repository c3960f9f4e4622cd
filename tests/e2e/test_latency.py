"""Where the time of a call went, held against the client's clock."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sse
from daemon import SANITIZED, wait_for
from test_grpc import INFERENCE, Client, as_dict

ASK = {"prompt": "Tell me a very long story.", "temperature": 0, "ignore_eos": True}
TOKENS = 8 if SANITIZED else 48
ENGINE = ["queue", "prefill", "decode", "wait", "preempted"]
SEGMENTS = ["receive", "tokenize", *ENGINE, "detokenize", "flush"]
LINE = re.compile(r" request (id=.*)$", re.M)

# The client's clock shows what the server's account does, within a hundredth; and loopback, and the
# time that either takes to wake up on a machine that has others to serve: mostly little.
SLACK_S = 0.01
SLACK_WORST_S = 0.2


def hold(pairs):
    """pairs: (the client's seconds, the server's)."""
    beyond = [(client, server) for client, server in pairs if not near(client, server, SLACK_S)]
    assert len(beyond) <= len(pairs) // 4, beyond
    assert all(near(client, server, SLACK_WORST_S) for client, server in pairs), pairs


def near(client, server, slack):
    return abs(client - server) < 0.01 * client + slack


def checked(segments):
    """The sum in seconds of an account that adds up."""
    assert set(segments) == {*SEGMENTS, "sum"}
    assert all(value >= 0 for value in segments.values()), segments
    assert sum(segments[name] for name in SEGMENTS) == segments["sum"]
    return segments["sum"] * 1e-9


def logged(daemon, request_id):
    """The log's line of a call, as a dict; its numbers add up."""

    def find():
        for line in LINE.findall(daemon.log()):
            fields = dict(field.split("=", 1) for field in line.split())
            if fields["id"] == request_id:
                return fields
        return None

    fields = wait_for(find, message=f"a line for {request_id}")
    segments = {name: int(fields[f"{name}_us"]) for name in SEGMENTS}
    assert abs(sum(segments.values()) - int(fields["total_us"])) <= len(SEGMENTS), fields
    return fields


def timed_stream(daemon, fields):
    """(seconds to the first event, seconds to the end, latency) of a stream."""
    connection = daemon.connect()
    connection.connect()
    body = {**ASK, **fields, "stream": True, "return_latency": True}
    body["stream_options"] = {"include_usage": True}
    began = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body))
    response = connection.getresponse()
    first = None
    for chunk in sse.Stream(response):
        first = first or time.monotonic() - began
        if chunk["usage"]:
            latency = chunk["usage"]["latency_ns"]
            whole = time.monotonic() - began
    connection.close()
    return first, whole, latency


@pytest.mark.sanitized
def test_streams_take_the_time_they_say(daemon):
    first, whole = [], []
    for index in range(8):
        prompt = f"{index} " * (1 + 60 * (index % 3))
        fields = {"prompt": prompt, "max_tokens": TOKENS, "n": 1 + index % 2}
        to_first, to_end, latency = timed_stream(daemon, fields)
        first.append((to_first, checked(latency["first_token"])))
        whole.append((to_end, checked(latency["total"])))
        assert latency["prefill_steps"] >= 1
        assert latency["decode_steps"] == TOKENS - 1
        assert latency["total"]["decode"] > 0
        if fields["n"] == 1:
            pairs = [(latency["first_token"][name], latency["total"][name]) for name in ENGINE]
            assert all(until_first <= until_end for until_first, until_end in pairs), latency
    hold(first)
    hold(whole)


def test_many_at_once_take_the_time_they_say(start):
    """In a pool that holds two of six, so that they wait and are preempted."""
    daemon = start("--set", "kv.blocks=24", "--set", "model.context_tokens=384")

    def ask(index):
        body = {**ASK, "prompt": [200 + index] * 60, "max_tokens": 180, "return_latency": True}
        began = time.monotonic()
        answer = daemon.post("/v1/completions", body, {"X-Request-Id": f"many-{index}"})
        whole = time.monotonic() - began
        return whole, answer.json()["usage"]["latency_ns"]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert daemon.metric("polysil_preemptions_total") > 0
    hold([(whole, checked(latency["total"])) for whole, latency in answers])
    assert sum(latency["total"]["queue"] for _, latency in answers) > 0
    assert sum(latency["total"]["preempted"] for _, latency in answers) > 0
    assert sum(latency["preemptions"] for _, latency in answers) > 0
    for index, (_, latency) in enumerate(answers):
        line = logged(daemon, f"many-{index}")
        assert line["outcome"] == "finished" and line["output_tokens"] == "180"
        assert int(line["preempted_us"]) == latency["total"]["preempted"] // 1000


@pytest.mark.sanitized
def test_calls_that_are_cancelled_or_refused_have_their_line(daemon):
    whole = []
    for index in range(4):
        name = f"leaves-{index}"
        connection = daemon.connect()
        connection.connect()
        body = {**ASK, "max_tokens": 2000, "stream": True}
        began = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"X-Request-Id": name})
        response = connection.getresponse()
        events = iter(sse.Stream(response))
        for _ in range(5):
            next(events)
        response.close()
        connection.close()
        left = time.monotonic() - began
        line = logged(daemon, name)
        assert line["outcome"] == "cancelled"
        assert int(line["decode_us"]) > 0
        whole.append((left, int(line["total_us"]) * 1e-6))
    assert all(near(client, server, SLACK_WORST_S) for client, server in whole), whole
    for body in ({**ASK, "temperature": 77}, {**ASK, "prompt": [100] * 100_000}):
        assert daemon.post("/v1/completions", body, {"X-Request-Id": "refused"}).status == 400
    line = logged(daemon, "refused")
    assert line["outcome"] == "refused"
    assert all(line[f"{name}_us"] == "0" for name in ENGINE)


def test_every_call_is_in_the_metrics(start):
    """OPS-02: those of each segment are as many as there were calls."""
    daemon = start()
    daemon.ok("/v1/completions", {**ASK, "max_tokens": 2})
    assert daemon.post("/v1/completions", {**ASK, "top_p": -1}).status == 400
    for segment in SEGMENTS:
        name = f'polysil_request_segment_seconds_count{{segment="{segment}"}}'
        wait_for(lambda name=name: daemon.metric(name) == 2)
    sums = [
        daemon.metric(f'polysil_request_segment_seconds_sum{{segment="{name}"}}')
        for name in SEGMENTS
    ]
    assert 0 < sum(sums) < 60


@pytest.mark.sanitized
def test_grpc_says_it_too(daemon):
    client = Client(daemon.grpc)
    call = {"prompt": {"text": ASK["prompt"]}, "max_tokens": TOKENS, "ignore_eos": True, "n": 2}
    client.generate({**call, "max_tokens": 1})  # opens the channel, learns the schema
    first, whole = [], []
    for _ in range(4):
        began = time.monotonic()
        seen = None
        for part in client.call(INFERENCE, "Generate", call):
            seen = seen or time.monotonic() - began
            news = as_dict(part)
        whole_s = time.monotonic() - began
        latency = news["usage"]["latency"]
        sums = {
            key: sum(int(value) for value in latency[key].values()) * 1e-9
            for key in ("first_token", "total")
        }
        assert set(latency["total"]) <= set(SEGMENTS)
        first.append((seen, sums["first_token"]))
        whole.append((whole_s, sums["total"]))
    hold(first)
    hold(whole)
