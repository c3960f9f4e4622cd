"""Before the model is loaded: OPS-05, signals, and addresses that cannot be had."""

import os
import signal
import subprocess
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from test_grpc import INFERENCE, Client

SHIM = Path(__file__).with_name("slow_load.c")
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture
def gate(tmp_path):
    """(environment of a daemon that does not get beyond opening the model, how to let it)."""
    library = tmp_path / "slow_load.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SHIM], check=True)
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)

    def release():
        with open(pipe, "wb"):
            pass  # opened as soon as the other end is

    return {**os.environ, "LD_PRELOAD": str(library), "LOAD_GATE": str(pipe)}, release


def test_while_the_model_loads(start, gate):
    environment, release = gate
    daemon = start(env=environment, ready=False)
    daemon.wait_listening()
    assert daemon.get("/health").status == 200
    for answer in [
        daemon.get("/ready"),
        daemon.get("/v1/models"),
        daemon.post("/v1/chat/completions", CHAT),
        daemon.post("/v1/completions", {"prompt": "Hi", "stream": True}),
        daemon.post("/tokenize", {"prompt": "Hi"}),
    ]:
        assert answer.status == 503, answer
        assert "the model is being loaded" in answer.json()["error"]["message"]
        assert int(answer.headers["Retry-After"]) >= 1
    client = Client(daemon.grpc)
    health = health_pb2_grpc.HealthStub(client.channel)
    asked = health_pb2.HealthCheckRequest(service=INFERENCE)
    assert health.Check(asked, timeout=30).status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError) as error:
        client.generate({"prompt": {"text": "Hi"}, "max_tokens": 1})
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "the model is being loaded" in error.value.details()
    assert int(dict(error.value.trailing_metadata())["retry-after"]) >= 1

    release()
    daemon.wait_ready()
    assert health.Check(asked, timeout=30).status == health_pb2.HealthCheckResponse.SERVING
    assert client.generate({"prompt": {"text": "Hi"}, "max_tokens": 1})[1]
    client.channel.close()
    assert daemon.get("/v1/models").json()["data"][0]["id"] == daemon.name
    assert daemon.ok("/v1/chat/completions", CHAT)["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_ends_it_now(start, gate, number):
    daemon = start(env=gate[0], ready=False)
    daemon.wait_listening()
    began = time.monotonic()
    daemon.signal(number)
    assert daemon.wait_exit() == 0, daemon.log()
    assert time.monotonic() - began < 5
    assert "polysil is ready" not in daemon.log()


def test_addresses_come_before_the_model(start, gate, daemon):
    for face in ("http", "grpc"):
        for address, why in [
            (daemon.address(face), "Address already in use"),
            ("192.0.2.1:0", "Cannot assign requested address"),  # no machine has it
            ("nonsense", "is not HOST:PORT"),
        ]:
            other = start(env=gate[0], ready=False, **{face: address})
            assert other.wait_exit() == 1, other.log()
            said = [line for line in other.log().splitlines() if line.startswith("polysil: ")]
            assert len(said) == 1 and address in said[0] and why in said[0], other.log()
