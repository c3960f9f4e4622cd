"""Who is served first, and who can wait no longer."""

import json
import queue
import threading

import grpc
import pytest
from daemon import PATIENCE_S, SANITIZED, wait_for
from test_grpc import INFERENCE, Client

ASK = {"prompt": "Tell me a very long story.", "temperature": 0, "ignore_eos": True}
LONG = {**ASK, "max_tokens": 4000}


@pytest.fixture
def one_at_a_time(start):
    """A daemon that runs one sequence, a client of its gRPC face, and a stream that holds it up."""
    daemon = start("--set", "scheduler.sequences_max=1", "--set", "server.priority_max=5")
    client = Client(daemon.grpc)
    connection, response = daemon.open_stream("/v1/completions", LONG)
    wait_for(lambda: daemon.metric("polysil_requests_running") == 1)

    def make_room():
        response.close()
        connection.close()

    yield daemon, client, make_room
    client.channel.close()


def test_a_lower_priority_is_served_later(one_at_a_time):
    """Over both faces, though it came first."""
    daemon, client, make_room = one_at_a_time
    begun = queue.Queue()  # (priority, how to end it), once its first token is there

    def over_http(priority):
        connection, response = daemon.open_stream("/v1/completions", {**LONG, "priority": priority})
        begun.put((priority, lambda: (response.close(), connection.close())))

    def over_grpc(priority):
        fields = {"prompt": {"text": "Hi"}, "ignore_eos": True, "max_tokens": 4000}
        call = client.call(INFERENCE, "Generate", {**fields, "priority": priority})
        next(call)
        begun.put((priority, call.cancel))

    waiting = 0
    for face, priority in [(over_http, -3), (over_grpc, -2), (over_http, 0), (over_grpc, 5)]:
        threading.Thread(target=face, args=(priority,), daemon=True).start()
        waiting += 1
        wait_for(lambda: daemon.metric("polysil_requests_waiting") == waiting)
    make_room()
    for expected in (5, 0, -2, -3):  # each runs until it is ended
        priority, end = begun.get(timeout=PATIENCE_S)
        assert priority == expected and begun.empty()
        end()
    daemon.wait_idle()


def test_a_priority_above_the_servers_is_refused(daemon):
    refused = daemon.post("/v1/completions", {**ASK, "priority": 1})
    assert refused.status == 400 and refused.json()["error"]["param"] == "priority"
    client = Client(daemon.grpc)
    with pytest.raises(grpc.RpcError) as error:
        client.generate({"prompt": {"text": "Hi"}, "priority": 1})
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "priority is 1; it must be between -100 and 0" in error.value.details()
    client.channel.close()


def test_a_timeout_over_http_frees_everything(daemon):
    seconds = 3 if SANITIZED else 0.5
    late = daemon.post("/v1/completions", {**LONG, "timeout_seconds": seconds})
    assert late.status == 504, late
    assert late.json()["error"]["type"] == "timeout_error"
    connection, response = daemon.open_stream(
        "/v1/completions", {**LONG, "timeout_seconds": 6 * seconds}
    )
    assert response.status == 200
    events = response.read().decode().split("\n\n")
    assert events.pop() == "" and "[DONE]" not in events[-1]
    assert "deadline" in json.loads(events[-1].removeprefix("data: "))["error"]["message"]
    connection.close()
    daemon.wait_idle()
    assert daemon.ok("/v1/completions", {**ASK, "max_tokens": 1, "timeout_seconds": 60})
