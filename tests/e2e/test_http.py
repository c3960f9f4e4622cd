"""The HTTP face as bytes on a socket: routes, errors, framing, event streams."""

import json
import socket
import struct

import pytest
import sse

CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 8}
COMPLETION = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8}


def check_error(answer, status, param=None):
    """An OpenAI error object that names the field."""
    assert answer.status == status, answer
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert len(error["message"]) > 10
    if param:
        assert error["param"] == param, error
    return error


@pytest.mark.sanitized
def test_routes_that_say_how_it_is(daemon):
    assert daemon.get("/health").status == 200
    assert daemon.get("/ready").status == 200
    version = daemon.get("/version").json()
    assert version["version"].count(".") == 2
    models = daemon.get("/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == daemon.name


def test_tokenize_and_back(daemon):
    text = "Hello, wörld! 123 \N{GRINNING FACE} <|im_end|>"
    tokens = daemon.ok("/tokenize", {"prompt": text})
    assert tokens["count"] == len(tokens["tokens"]) > 10
    assert 2 not in tokens["tokens"], "text never becomes a control token"
    assert daemon.ok("/detokenize", {"tokens": tokens["tokens"]})["prompt"] == text
    assert daemon.ok("/tokenize", {"prompt": ""})["tokens"] == []
    chat = daemon.ok("/tokenize", {"messages": CHAT["messages"]})["tokens"]
    assert chat[0] == 1, "the template's own markup does"


@pytest.mark.sanitized
@pytest.mark.parametrize(
    "path, body", [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)]
)
def test_a_stream_keeps_the_rules_and_is_the_same(daemon, path, body):
    for more in [{}, {"n": 3, "temperature": 0.9, "seed": 5}, {"return_token_ids": True}]:
        body = {**body, **more}
        whole = daemon.ok(path, body)
        connection, response = daemon.open_stream(
            path, {**body, "stream_options": {"include_usage": True}}
        )
        result = sse.read(response, include_usage=True)
        connection.close()
        assert result.usage == {
            **whole["usage"],
            "prompt_tokens_details": result.usage["prompt_tokens_details"],
        }
        assert len(result.choices) == len(whole["choices"])
        for choice in whole["choices"]:
            streamed = result.choices[choice["index"]]
            text = choice["message"]["content"] if "message" in choice else choice["text"]
            assert streamed.text == text
            assert streamed.finish_reason == choice["finish_reason"]
            if "return_token_ids" in more:
                assert streamed.token_ids == choice["token_ids"]


def test_token_ids_in_and_out(daemon):
    ids = daemon.ok("/tokenize", {"prompt": COMPLETION["prompt"]})["tokens"]
    by_text = daemon.ok("/v1/completions", {**COMPLETION, "return_token_ids": True})
    by_ids = daemon.ok("/v1/completions", {**COMPLETION, "prompt": ids, "return_token_ids": True})
    assert by_ids["choices"][0]["token_ids"] == by_text["choices"][0]["token_ids"]
    assert by_ids["choices"][0]["prompt_token_ids"] == ids
    lists = daemon.ok("/v1/completions", {**COMPLETION, "prompt": [ids, ids[:2]]})
    assert lists["choices"][0]["text"] == by_text["choices"][0]["text"]
    assert lists["usage"]["prompt_tokens"] == len(ids) + 2


def test_echo_scores_a_prompt_without_a_new_token(daemon):
    answer = daemon.ok(
        "/v1/completions",
        {"prompt": "Your answer: Yes", "echo": True, "max_tokens": 0, "logprobs": 1},
    )
    choice = answer["choices"][0]
    assert choice["text"] == "Your answer: Yes" and choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    offsets = [0]
    for token in logprobs["tokens"][:-1]:
        offsets.append(offsets[-1] + len(token))
    assert logprobs["text_offset"] == offsets


def test_a_repeated_prompt_comes_from_the_cache(daemon):
    prompt = "A prompt of its own for the prefix cache: " + "one two three four five " * 20
    first = daemon.ok("/v1/completions", {**COMPLETION, "prompt": prompt})
    second = daemon.ok("/v1/completions", {**COMPLETION, "prompt": prompt})
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 64 < cached < second["usage"]["prompt_tokens"]
    assert second["choices"] == first["choices"]


def test_outputs_of_one_prompt_share_it_and_a_wish_is_taken(daemon):
    prompt = "A prompt of its own for several outputs: " + "six seven eight nine ten " * 20
    fields = {**COMPLETION, "prompt": prompt, "n": 3, "temperature": 1, "seed": 5}
    wish = {"cache_retention": [{"tokens": 64, "seconds": 60}, {"seconds": 0.5}]}
    before = daemon.metric("polysil_prompt_tokens_total")
    first = daemon.ok("/v1/completions", {**fields, **wish})
    tokens = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert daemon.metric("polysil_prompt_tokens_total") - before == tokens
    second = daemon.ok("/v1/completions", fields)
    assert 64 < second["usage"]["prompt_tokens_details"]["cached_tokens"] < tokens
    assert second["choices"] == first["choices"]


BAD_BODIES = [
    b"",
    b"{",
    b"{:",
    b"[]",
    b'"x"',
    b"1",
    b"null",
    b'{"messages":',
    b'{"prompt": "a",}',
    b'{"prompt": "\xc4\xe3\xba\xc3"}',
    b'{"prompt": "\xed\xa0\x80"}',
    b'{"prompt": "\xe6\x97',
    b'{"prompt": "\xc0\xaf"}',
    b"[" * 1100,
    b"[" * 100000,
    b'{"a":' * 50000,
    b'{"prompt": "a", "metadata": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b"\x00",
    b"\xff" * 100,
]


@pytest.mark.sanitized
@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"]
)
def test_bodies_that_are_no_json_object(daemon, path):
    for body in BAD_BODIES:
        check_error(daemon.post(path, body), 400)


BAD_COMPLETIONS = [
    ({}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": 1}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [[1, 2], "a"]}, None),
    ({"prompt": [-1]}, None),
    ({"prompt": [49152]}, None),
    ({"prompt": [5279552648203111001]}, None),
    ({"prompt": [1.5]}, None),
    ({"prompt": ""}, "prompt"),
    ({"prompt": ["hi", ""]}, None),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": [5]}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 1e400}, None),
    ({"top_p": 1.1}, "top_p"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"n": 0}, "n"),
    ({"n": 1000000}, "n"),
    ({"stop": 5}, "stop"),
    ({"stop": [""]}, None),
    ({"stop": ["a"] * 1000}, "stop"),
    ({"stop_token_ids": ["a"]}, None),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias"),
    ({"logprobs": 100}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"seed": "x"}, "seed"),
    ({"stream": "true"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"echo": 1}, "echo"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 5}, "presence_penalty"),
    ({"frequency_penalty": "a"}, "frequency_penalty"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"stream": True, "stream_options": "x"}, "stream_options"),
    ({"model": 5}, "model"),
]


@pytest.mark.sanitized
def test_fields_of_the_wrong_kind_are_named(daemon):
    for fields, param in BAD_COMPLETIONS:
        body = fields if "prompt" in fields or not fields else {**COMPLETION, **fields}
        for stream in ({}, {"stream": True}):
            check_error(daemon.post("/v1/completions", {**body, **stream, **fields}), 400, param)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        {},
        "x",
        [1],
        ["a"],
        [{}],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": 5, "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [None]}],
        [{"role": "user", "content": [{"type": "text"}]}],
    ],
)
def test_conversations_of_the_wrong_shape(daemon, messages):
    error = check_error(daemon.post("/v1/chat/completions", {"messages": messages}), 400)
    assert error["param"].startswith("messages")


def test_every_type_in_every_field_is_an_answer_of_its_own(daemon):
    """No value of a known field is a server error or ends the process."""
    values = ["x", -1, 1.5, True, None, [], {}, [[]], {"a": {"b": []}}, 2**63, -(2**63)]
    fields = [
        "model",
        "prompt",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "stop",
        "stop_token_ids",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "seed",
        "n",
        "stream",
        "stream_options",
        "echo",
        "tools",
        "tool_choice",
        "response_format",
        "user",
        "metadata",
        "ignore_eos",
        "min_tokens",
        "return_token_ids",
        "unknown_field",
    ]
    for path, base in [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]:
        for field in fields:
            for value in values:
                if field == "max_tokens" and value is None:
                    continue  # a chat would fill the context
                answer = daemon.post(path, {**base, "max_tokens": 1, field: value})
                assert answer.status in (200, 400, 404), (field, value, answer)
                if answer.status != 200:
                    check_error(answer, answer.status)


def test_a_model_of_another_name_is_404(daemon):
    assert (
        check_error(daemon.post("/v1/completions", {**COMPLETION, "model": "gpt-4"}), 404)["code"]
        == "model_not_found"
    )
    check_error(daemon.get("/v1/models/gpt-4"), 404)
    check_error(daemon.get("/v1/no-such-route"), 404)


def test_methods_types_and_sizes(daemon):
    allowed = daemon.get("/v1/completions")
    check_error(allowed, 405)
    assert "POST" in allowed.headers["Allow"]
    check_error(daemon.request("DELETE", "/v1/models"), 405)
    check_error(daemon.post("/v1/completions", b"<a/>", {"Content-Type": "text/xml"}), 400)
    check_error(daemon.post("/v1/completions", b" " * (17 << 20)), 413)
    big = daemon.post("/v1/completions", {**COMPLETION, "prompt": "word " * 20000})
    check_error(big, 400, "prompt")


@pytest.mark.parametrize(
    "head, statuses",
    [
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n", {400}),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", {400}),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n",
            {413, 400},
        ),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Length: 5\r\n\r\n0\r\n\r\n",
            {400},
        ),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"10000000000000000\r\n",
            {400, 413},
        ),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100000 + b"\r\n\r\n", {431, 400}),
        (b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", {414, 431, 400}),
        (b"nonsense\r\n\r\n", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n", {400}),
    ],
)
def test_framing_that_lies(daemon, head, statuses):
    with socket.create_connection((daemon.host, daemon.port), timeout=30) as connection:
        try:
            connection.sendall(head)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had seen enough
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
                if b"\r\n\r\n" in answer:
                    break
        except ConnectionResetError:
            pass
    if answer:
        assert int(answer.split()[1]) in statuses, answer[:200]
    assert daemon.get("/health").status == 200


def test_two_requests_in_one_packet(daemon):
    body = json.dumps(COMPLETION).encode()
    request = (
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    with socket.create_connection((daemon.host, daemon.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"text_completion" in answer


def test_one_connection_for_many_requests_and_an_error_between(daemon):
    connection = daemon.connect()
    for body, status in [(COMPLETION, 200), ({"prompt": 5}, 400), (COMPLETION, 200)]:
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


def test_a_reset_in_the_middle_of_a_body(daemon):
    for _ in range(20):
        with socket.create_connection((daemon.host, daemon.port)) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n{"
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert daemon.get("/health").status == 200


METRICS = {
    "polysil_requests_running",
    "polysil_requests_waiting",
    "polysil_kv_blocks_total",
    "polysil_kv_blocks_used",
    "polysil_kv_blocks_cached",
    "polysil_kv_host_blocks_total",
    "polysil_kv_host_blocks_used",
    "polysil_kv_blocks_copied_out_total",
    "polysil_kv_blocks_copied_in_total",
    "polysil_prompt_tokens_total",
    "polysil_generation_tokens_total",
    "polysil_prefix_cache_query_tokens_total",
    "polysil_prefix_cache_hit_tokens_total",
    "polysil_preemptions_total",
}
HISTOGRAMS = {
    "polysil_time_to_first_token_seconds",
    "polysil_inter_token_latency_seconds",
    "polysil_request_duration_seconds",
    "polysil_step_duration_seconds",
}


def test_the_metrics_are_there_and_move(daemon):
    before = daemon.metrics()
    assert METRICS <= set(before)
    assert {f"{name}_count" for name in HISTOGRAMS} <= set(before)
    daemon.ok("/v1/completions", {**COMPLETION, "ignore_eos": True})
    daemon.post("/v1/completions", {"prompt": 5})
    daemon.wait_idle()
    after = daemon.metrics()

    def moved(name):
        return after[name] - before.get(name, 0)

    assert moved("polysil_generation_tokens_total") == 8
    assert moved("polysil_prompt_tokens_total") == 4
    assert moved('polysil_requests_total{outcome="length"}') == 1
    assert sum(moved(n) for n in after if n.startswith("polysil_requests_total")) == 2
    assert moved("polysil_time_to_first_token_seconds_count") == 1
    assert moved("polysil_inter_token_latency_seconds_count") == 7
    assert moved("polysil_request_duration_seconds_count") == 1
    assert moved("polysil_step_duration_seconds_count") >= 8
    assert after["polysil_kv_blocks_total"] > 0
    counters = [n for n in after if "_total" in n or "_count" in n or "_bucket" in n]
    assert all(moved(name) >= 0 for name in counters), "counters never fall"


def test_unknown_fields_are_ignored_and_null_is_missing(daemon):
    plain = daemon.ok("/v1/completions", COMPLETION)
    odd = daemon.ok(
        "/v1/completions",
        {
            **COMPLETION,
            "foo": {"a": 1},
            "stop": None,
            "n": None,
            "logprobs": None,
            "seed": None,
            "stream": False,
        },
    )
    assert odd["choices"] == plain["choices"]
