"""The gRPC face, by a client that knows no schema: it learns all of them by reflection."""

import contextlib

import grpc
import pytest
from daemon import SANITIZED, wait_for
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

INFERENCE = "polysil.v1.Inference"
PROMPT = {"text": "The capital of France is"}


class Client:
    """Calls methods by name; requests and answers are dicts."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.database)

    def _method(self, service, method):
        found = self.pool.FindServiceByName(service).FindMethodByName(method)
        request = message_factory.GetMessageClass(found.input_type)
        answer = message_factory.GetMessageClass(found.output_type)
        kind = self.channel.unary_stream if found.server_streaming else self.channel.unary_unary
        call = kind(
            f"/{service}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return request, call

    def call(self, service, method, fields, timeout=240):
        request, call = self._method(service, method)
        return call(json_format.ParseDict(fields, request()), timeout=timeout)

    def ask(self, service, method, fields):
        return as_dict(self.call(service, method, fields))

    def generate(self, fields, timeout=240):
        """(deltas, usage) of a whole stream."""
        news = [as_dict(part) for part in self.call(INFERENCE, "Generate", fields, timeout)]
        assert [list(part) for part in news[:-1]] == [["delta"]] * (len(news) - 1)
        return [part["delta"] for part in news[:-1]], news[-1]["usage"]


def as_dict(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def text_of(deltas, index=0):
    return "".join(d.get("text", "") for d in deltas if d.get("index", 0) == index)


def ids_of(deltas, index=0):
    return [
        token["id"]
        for delta in deltas
        if delta.get("index", 0) == index
        for token in delta.get("tokens", [])
    ]


@pytest.fixture
def rpc(daemon):
    client = Client(daemon.grpc)
    yield client
    client.channel.close()


@contextlib.contextmanager
def refused(code, *words):
    with pytest.raises(grpc.RpcError) as error:
        yield
    assert error.value.code() == code, error.value
    for word in words:
        assert word in error.value.details()


def test_reflection_lists_the_services(rpc):
    assert set(rpc.database.get_services()) >= {
        INFERENCE,
        "polysil.v1.Admin",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_health(rpc):
    # Reflection knows no schema of this service: the library has it built in.
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    for service in ("", INFERENCE):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with refused(grpc.StatusCode.NOT_FOUND):
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=30)
    assert rpc.ask("polysil.v1.Admin", "GetReadiness", {})["ready"] is True


def test_what_the_prefix_cache_stores_is_told(rpc):
    watch = rpc.call("polysil.v1.Admin", "WatchKvEvents", {"from": 0})
    ids = [1000 + 7 * i for i in range(40)]
    rpc.generate({"prompt": {"token_ids": {"ids": ids}}, "max_tokens": 1})
    stored = []
    parents = {}
    for batch in watch:
        for event in as_dict(batch).get("events", []):
            if event.get("kind") == "STORED":
                parents[event["hash"]] = event["parent_hash"]
                stored.append((event["hash"], event["token_ids"]))
        mine = [name for name, tokens in stored if tokens in (ids[:16], ids[16:32])]
        if len(mine) == 2:
            break
    assert parents[mine[1]] == mine[0]
    watch.cancel()


def test_the_model(rpc, daemon):
    model = rpc.ask(INFERENCE, "GetModel", {})
    assert model["name"] == daemon.name
    assert model["vocab_size"] == 49152 and model["chat"] is True
    with refused(grpc.StatusCode.NOT_FOUND, "SmolLM2"):
        rpc.ask(INFERENCE, "GetModel", {"model": "another"})


@pytest.mark.sanitized
def test_generate_says_what_http_says(rpc, daemon):
    deltas, usage = rpc.generate({"prompt": PROMPT, "temperature": 0, "max_tokens": 12})
    http = daemon.ok(
        "/v1/completions",
        {"prompt": PROMPT["text"], "temperature": 0, "max_tokens": 12, "return_token_ids": True},
    )
    assert text_of(deltas) == http["choices"][0]["text"]
    assert ids_of(deltas) == http["choices"][0]["token_ids"]
    assert [d["finish_reason"] for d in deltas if "finish_reason" in d] == [
        "FINISH_REASON_" + http["choices"][0]["finish_reason"].upper()
    ]
    assert int(usage["prompt_tokens"]) == http["usage"]["prompt_tokens"]
    assert int(usage["completion_tokens"]) == http["usage"]["completion_tokens"]


def test_chat_says_what_http_says(rpc, daemon):
    messages = [{"role": "user", "content": "Name three colours."}]
    deltas, _ = rpc.generate(
        {"prompt": {"chat": {"messages": messages}}, "temperature": 0, "max_tokens": 16}
    )
    http = daemon.ok(
        "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 16}
    )
    assert text_of(deltas) == http["choices"][0]["message"]["content"]


def test_samples_stops_and_logprobs(rpc):
    fields = {"prompt": PROMPT, "seed": 7, "n": 3, "max_tokens": 10, "logprobs": 2}
    deltas, usage = rpc.generate(fields)
    assert sum("finish_reason" in delta for delta in deltas) == 3
    assert int(usage["completion_tokens"]) == sum(len(ids_of(deltas, i)) for i in range(3))
    again, _ = rpc.generate(fields)
    for index in range(3):
        assert ids_of(again, index) == ids_of(deltas, index)
    for delta in deltas:
        for token in delta.get("tokens", []):
            assert token["logprob"] <= 0 and len(token["top"]) == 2
    greedy = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24}
    free = text_of(rpc.generate(greedy)[0])
    stop = free[8:12]
    stopped, _ = rpc.generate({**greedy, "stop": [stop]})
    assert text_of(stopped) == free[: free.index(stop)]
    assert stopped[-1]["finish_reason"] == "FINISH_REASON_STOP"
    assert stopped[-1]["stop_string"] == stop


def test_tokenize_and_back(rpc):
    text = "Grüße <|im_end|> \N{GRINNING FACE}"
    tokens = rpc.ask(INFERENCE, "Tokenize", {"prompt": {"text": text}})
    assert 2 not in tokens["ids"] and len(tokens["ids"]) == len(tokens["tokens"])
    assert rpc.ask(INFERENCE, "Detokenize", {"ids": tokens["ids"]})["text"] == text
    parsed = rpc.ask(INFERENCE, "Tokenize", {"prompt": {"text": text, "parse_special": True}})
    assert 2 in parsed["ids"]


@pytest.mark.sanitized
def test_mistakes_are_named_before_the_first_message(rpc):
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for fields, word in [
        ({}, "prompt"),
        ({"prompt": {"text": ""}}, "prompt"),
        ({"prompt": PROMPT, "temperature": -1}, "temperature"),
        ({"prompt": PROMPT, "max_tokens": -1}, "max_tokens"),
        ({"prompt": PROMPT, "n": 0}, "n"),
        ({"prompt": PROMPT, "top_p": 2}, "top_p"),
        ({"prompt": {"token_ids": {"ids": [49152]}}}, "49152"),
        ({"prompt": {"token_ids": {"ids": [-1]}}}, "-1"),
        ({"prompt": {"chat": {"messages": []}}}, "messages"),
        ({"prompt": {"text": "a", "add_special_tokens": True}, "stop": [""]}, "stop"),
        ({"prompt": {"token_ids": {"ids": [100] * 9000}}}, "9000"),
    ]:
        with refused(invalid, word):
            rpc.generate(fields)
    with refused(grpc.StatusCode.NOT_FOUND, "SmolLM2"):
        rpc.generate({"model": "another", "prompt": PROMPT})
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        rpc.generate({"prompt": {"text": "a" * (17 << 20)}})
    assert rpc.generate({"prompt": PROMPT, "max_tokens": 1})[1]


def test_bytes_that_are_no_message_and_methods_that_are_not_there(rpc):
    raw = rpc.channel.unary_unary(f"/{INFERENCE}/Tokenize")
    with pytest.raises(grpc.RpcError):
        raw(b"\xff\xff\xff\xff", timeout=30)
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        rpc.channel.unary_unary(f"/{INFERENCE}/Fly")(b"", timeout=30)
    assert rpc.ask(INFERENCE, "GetModel", {})


def test_a_deadline_and_a_cancelled_call_free_everything(rpc, daemon):
    endless = {"prompt": PROMPT, "ignore_eos": True, "max_tokens": 4000, "n": 2}
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
        rpc.generate(endless, timeout=3 if SANITIZED else 0.5)
    daemon.wait_idle()
    for _ in range(8):
        call = rpc.call(INFERENCE, "Generate", endless)
        next(call)
        call.cancel()
    daemon.wait_idle()


@pytest.mark.sanitized
def test_a_drain_over_grpc(start):
    """OPS-06: all of four streams, to their usage; new ones are refused; exit code 0."""
    daemon = start("--set", "server.drain_seconds=200")
    client = Client(daemon.grpc)
    tokens = 40 if SANITIZED else 300
    fields = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True}
    calls = [client.call(INFERENCE, "Generate", {**fields, "max_tokens": tokens}) for _ in range(4)]
    firsts = [as_dict(next(call)) for call in calls]
    daemon.signal()

    def is_refused():
        try:
            client.generate({**fields, "max_tokens": 1})
            return False
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNAVAILABLE

    wait_for(is_refused, message="new calls are refused")
    for first, call in zip(firsts, calls, strict=True):
        news = [first, *map(as_dict, call)]
        assert len(ids_of([part["delta"] for part in news if "delta" in part])) == tokens
        assert "usage" in news[-1]
    client.channel.close()
    assert daemon.wait_exit() == 0, daemon.log()
