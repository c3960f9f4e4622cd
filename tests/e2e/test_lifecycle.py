"""Clients that leave, queues that fill, daemons that are told to stop."""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import grpc
import pytest
import sse
from daemon import MODEL, PATIENCE_S, SANITIZED, wait_for
from test_grpc import INFERENCE, Client

LONG = {"prompt": "Tell me a very long story.", "temperature": 0, "ignore_eos": True}
SLOW_TEXT = Path(__file__).with_name("slow_text.c")
DISCONNECTS = 24 if SANITIZED else 200


def leave(daemon, index):
    """A client that goes away: after some events or none, whole answer or stream, by FIN or RST."""
    body = {**LONG, "prompt": f"Story number {index}.", "max_tokens": 2000, "n": 1 + index % 2}
    if index % 4 == 3:
        connection = daemon.connect()
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
    else:
        connection, response = daemon.open_stream("/v1/completions", body)
        events = iter(sse.Stream(response))
        for _ in range(index % 4):
            next(events)
    if index % 2:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        connection.sock.shutdown(socket.SHUT_RDWR)
    connection.sock.close()
    connection.close()


@pytest.mark.sanitized
def test_clients_that_leave_leave_nothing(start):
    # A small pool, whose pages have all been written before memory is compared.
    daemon = start("--set", "kv.blocks=128", "--set", "model.context_tokens=2048")
    if not SANITIZED:
        for first in (100, 200):
            whole = {"prompt": [first] * 2047, "max_tokens": 1, "ignore_eos": True}
            assert daemon.ok("/v1/completions", whole)["usage"]["prompt_tokens"] == 2047
    before = daemon.metrics()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: leave(daemon, index), range(DISCONNECTS // 2)))
    daemon.wait_idle()
    half_way = daemon.rss_kib()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: leave(daemon, index), range(DISCONNECTS // 2)))
    daemon.wait_idle()
    after = daemon.metrics()
    cancelled = 'polysil_requests_total{outcome="cancelled"}'
    assert after[cancelled] - before.get(cancelled, 0) == DISCONNECTS
    if not SANITIZED:  # whose freed memory stays in quarantine
        assert daemon.rss_kib() < half_way * 1.05 + 8192
    began = time.monotonic()
    daemon.ok("/v1/completions", {**LONG, "max_tokens": 4})
    assert time.monotonic() - began < 10


# The weights as the device keeps them, without the file that they came from.
def test_an_idle_server_is_not_much_larger_than_its_weights(start):
    daemon = start("--set", "kv.blocks=128")
    assert daemon.ok("/v1/completions", {"prompt": "Hello", "max_tokens": 4})
    kv_bytes = 128 * 16 * 23040
    largest_kib = (MODEL.stat().st_size * 1.3 + kv_bytes) / 1024 + 60 * 1024
    assert daemon.rss_kib() < largest_kib


# The weights are the server's own once it is ready.
def test_the_model_file_may_change_under_a_server(start, tmp_path):
    file = tmp_path / "model.gguf"
    shutil.copy(MODEL, file)
    daemon = start(model=file)
    ask = {"prompt": "The sea is", "max_tokens": 16, "temperature": 0}
    before = daemon.ok("/v1/completions", ask)["choices"][0]["text"]
    os.truncate(file, 1000)
    assert daemon.ok("/v1/completions", ask)["choices"][0]["text"] == before
    other = {**ask, "prompt": "Quartz jumps over seven vexed wizards; 1,234 foxes"}
    assert daemon.ok("/v1/completions", other)["choices"][0]["text"]
    file.unlink()
    assert daemon.ok("/v1/completions", ask)["choices"][0]["text"] == before


def test_large_bodies_leave_no_memory_behind(start):
    daemon = start()
    before = daemon.rss_kib()
    body = {"prompt": "Nobody can hold so long a text. " * (15 * 2**20 // 32), "max_tokens": 1}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: daemon.post("/v1/completions", body), range(8)))
    assert {answer.status for answer in answers} == {400}
    assert daemon.rss_kib() < before + 32 * 1024


@pytest.mark.sanitized
def test_a_full_queue_says_when_to_come_back(start):
    daemon = start("--set", "scheduler.queue_max=2", "--set", "scheduler.sequences_max=1")
    streams = [daemon.open_stream("/v1/completions", {**LONG, "max_tokens": 1500})]
    wait_for(lambda: daemon.metric("polysil_requests_running") == 1)
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(daemon.post, "/v1/completions", {**LONG, "max_tokens": 2}) for _ in range(2)
        ]
        wait_for(lambda: daemon.metric("polysil_requests_waiting") == 2)
        for stream in (False, True):
            refused = daemon.post("/v1/completions", {**LONG, "max_tokens": 2, "stream": stream})
            assert refused.status == 429, refused
            assert int(refused.headers["Retry-After"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
        assert daemon.get("/health").status == 200
        for connection, response in streams:  # makes room
            response.close()
            connection.close()
        assert [answer.result().status for answer in waiting] == [200, 200]
    daemon.wait_idle()


def test_a_daemon_that_is_busy_lives(start):
    """OPS-04: all places taken, the queue full, and liveness does not wait behind any of it."""
    daemon = start("--set", "scheduler.queue_max=4", "--set", "scheduler.sequences_max=4")
    streams = [
        daemon.open_stream("/v1/completions", {**LONG, "max_tokens": 4000}) for _ in range(4)
    ]
    wait_for(lambda: daemon.metric("polysil_requests_running") == 4)
    with ThreadPoolExecutor(6) as pool:
        short = {**LONG, "max_tokens": 1}
        waiting = [pool.submit(daemon.post, "/v1/completions", short) for _ in range(4)]
        wait_for(lambda: daemon.metric("polysil_requests_waiting") == 4)
        refused = [pool.submit(daemon.post, "/v1/completions", short) for _ in range(100)]
        seen = 0
        while seen < 20 or not all(answer.done() for answer in refused):
            assert daemon.get("/health").status == 200
            assert daemon.get("/ready").status in (200, 503)
            seen += 1
        assert {answer.result().status for answer in refused} == {429}
        assert daemon.metric("polysil_requests_waiting") == 4
        for connection, response in streams:  # makes room
            response.close()
            connection.close()
        assert [answer.result().status for answer in waiting] == [200] * 4
    daemon.wait_idle()


def test_a_prompt_that_never_fits_does_not_wait(start):
    daemon = start("--set", "kv.blocks=20", "--set", "model.context_tokens=320")
    with ThreadPoolExecutor(6) as pool:
        small = [
            pool.submit(daemon.ok, "/v1/completions", {**LONG, "max_tokens": 8}) for _ in range(5)
        ]
        for length in (320, 321, 2000):
            refused = daemon.post("/v1/completions", {"prompt": [100] * length, "max_tokens": 8})
            assert refused.status == 400, refused
            assert str(length) in refused.json()["error"]["message"]
        edge = daemon.ok(
            "/v1/completions", {"prompt": [100] * 319, "max_tokens": 8, "ignore_eos": True}
        )
        assert edge["usage"]["completion_tokens"] == 1
        assert edge["choices"][0]["finish_reason"] == "length"
        for answer in small:
            assert answer.result()["usage"]["completion_tokens"] == 8
    unbounded = daemon.ok(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Count."}], "temperature": 0, "ignore_eos": True},
    )
    assert unbounded["usage"]["total_tokens"] == 320
    assert unbounded["choices"][0]["finish_reason"] == "length"
    daemon.wait_idle()


def refused_or_gone(daemon):
    try:
        return daemon.post("/v1/completions", {**LONG, "max_tokens": 2}).status == 503
    except OSError:
        return True


@pytest.mark.sanitized
def test_a_drain_lets_running_streams_finish(start):
    """OPS-06: all of four streams, to [DONE]; new ones are refused; exit code 0."""
    daemon = start("--set", "server.drain_seconds=200")
    tokens = 40 if SANITIZED else 300
    opened = [
        daemon.open_stream(
            "/v1/completions", {**LONG, "max_tokens": tokens, "return_token_ids": True}
        )
        for _ in range(4)
    ]
    wait_for(lambda: daemon.metric("polysil_requests_running") == 4)
    daemon.signal(signal.SIGTERM)
    wait_for(lambda: refused_or_gone(daemon), message="new requests are refused")
    try:
        assert daemon.get("/ready").status == 503
        assert daemon.post("/tokenize", {"prompt": "later"}).status == 503
        assert daemon.get("/health").status == 200
    except OSError:
        pass  # it had finished by then
    for connection, response in opened:
        choice = sse.read(response).choices[0]
        assert len(choice.token_ids) == tokens and choice.finish_reason == "length"
        connection.close()
    assert daemon.wait_exit() == 0, daemon.log()


def test_the_drain_has_a_deadline(start):
    daemon = start("--set", "server.drain_seconds=1")
    connection, response = daemon.open_stream("/v1/completions", {**LONG, "max_tokens": 8000})
    wait_for(lambda: daemon.metric("polysil_requests_running") == 1)
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    tail = response.read()  # the stream ends, and not as if all were well
    assert b'"finish_reason":"stop"' not in tail.replace(b" ", b"")
    assert b"error" in tail
    assert daemon.wait_exit() == 0, daemon.log()
    assert time.monotonic() - began < 10
    connection.close()


@pytest.fixture
def held_texts(start, tmp_path):
    """(daemon, what its two text threads wait for: its ends, once they do)."""
    library = tmp_path / "slow_text.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SLOW_TEXT], check=True)
    pipes = [tmp_path / f"gate-text-{index}" for index in range(2)]
    for pipe in pipes:
        os.mkfifo(pipe)
    gate = {"LD_PRELOAD": str(library), "TEXT_GATE": str(tmp_path / "gate")}
    ends = []

    def open_next():
        try:
            ends.append(os.open(pipes[len(ends)], os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody waits at the other end yet
            return False
        return len(ends) == len(pipes)

    yield (
        start("--set", "server.drain_seconds=200", env={**os.environ, **gate}),
        lambda: wait_for(open_next, message="both texts are being worked on") and ends,
    )
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


# Long enough for a thread of its own, short enough for the context.
LONG_TEXT = "sea and " * 4100


def test_a_drain_answers_calls_whose_text_is_worked_on(held_texts):
    daemon, wait_held = held_texts
    client = Client(daemon.grpc)
    fields = {"prompt": {"text": LONG_TEXT}, "max_tokens": 1}
    with ThreadPoolExecutor(2) as pool:
        body = {"prompt": LONG_TEXT, "max_tokens": 1}
        http = pool.submit(daemon.post, "/v1/completions", body)
        rpc = pool.submit(client.generate, fields, timeout=PATIENCE_S)
        ends = wait_held()
        daemon.signal(signal.SIGTERM)
        wait_for(lambda: "draining" in daemon.log(), message="the log says that it drains")
        for _ in range(100):  # nothing runs, but the faces stay open for the answers
            assert daemon.get("/ready").status == 503
            assert not client.ask("polysil.v1.Admin", "GetReadiness", {}).get("ready")
        for end in ends:
            os.close(end)
        answer = http.result()
        assert answer.status == 503, answer
        assert "shutting down" in answer.json()["error"]["message"]
        assert int(answer.headers["Retry-After"]) >= 1
        error = rpc.exception()
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        assert "shutting down" in error.details(), error
        assert int(dict(error.trailing_metadata())["retry-after"]) >= 1
    assert daemon.wait_exit() == 0, daemon.log()
    client.channel.close()


def test_a_second_signal_does_not_wait_for_a_text(held_texts):
    daemon, wait_held = held_texts
    with ThreadPoolExecutor(2) as pool:
        body = {"prompt": LONG_TEXT, "max_tokens": 1}
        calls = [pool.submit(daemon.post, "/v1/completions", body) for _ in range(2)]
        wait_held()
        daemon.signal(signal.SIGTERM)
        wait_for(lambda: "draining" in daemon.log(), message="the log says that it drains")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait_exit() == 0, daemon.log()
        assert all(isinstance(call.exception(), OSError | HTTPException) for call in calls)


@pytest.mark.sanitized
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_now(start, first):
    """OPS-06: and says so to the streams of both faces."""
    daemon = start("--set", "server.drain_seconds=600")
    connection, response = daemon.open_stream("/v1/completions", {**LONG, "max_tokens": 8000})
    client = Client(daemon.grpc)
    fields = {"prompt": {"text": "Hi"}, "ignore_eos": True, "max_tokens": 8000}
    call = client.call(INFERENCE, "Generate", fields, timeout=PATIENCE_S)
    next(call)
    wait_for(lambda: daemon.metric("polysil_requests_running") == 2)
    daemon.signal(first)
    wait_for(lambda: "draining" in daemon.log(), message="the log says that it drains")
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait_exit() == 0, daemon.log()
    assert time.monotonic() - began < (30 if SANITIZED else 5)
    assert b"shutting down" in response.read()
    connection.close()
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    client.channel.close()


def test_threads_have_names(daemon):
    names = daemon.thread_names()
    for name in ("engine", "worker-0", "http-0"):
        assert name in names, names


def test_the_log_tells_of_requests_on_one_line_each(daemon):
    """Nothing that a client sends starts a line of the log, nor does its prompt get there."""
    secret = "a prompt that nobody else needs to see"
    daemon.post(
        "/v1/completions",
        {"prompt": secret, "max_tokens": 1, "model": "x\n[error] forged"},
        {"X-Request-Id": "abc"},
    )
    daemon.ok("/v1/completions", {"prompt": secret, "max_tokens": 1, "user": "a\nb"})
    log = daemon.log()
    assert secret not in log
    assert not any(line.startswith("[error] forged") for line in log.splitlines())


def test_two_daemons_do_not_share_an_address(start):
    daemon = start()
    second = start(http=f"127.0.0.1:{daemon.port}", ready=False)
    assert second.wait_exit() == 1
    said = [line for line in second.log().splitlines() if line.startswith("polysil: ")]
    assert len(said) == 1 and str(daemon.port) in said[0]
