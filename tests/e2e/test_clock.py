"""The time of day jumps while the daemon serves."""

import os
import struct
import subprocess
import time
from pathlib import Path

import sse
from daemon import wait_for
from test_grpc import Client, text_of

HOUR_S = 3600
SHIM = Path(__file__).with_name("time_of_day.c")
ASK = {"prompt": "Tell me a very long story.", "temperature": 0, "ignore_eos": True}


def test_the_time_of_day_may_jump(start, tmp_path):
    """OPS-07: an hour forward, two back: no timeouts, no negative latency, streams go on."""
    library = tmp_path / "time_of_day.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SHIM], check=True)
    offset = tmp_path / "offset"

    def set_offset(seconds):
        with open(offset, "r+b" if offset.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    set_offset(0)
    daemon = start(
        env={**os.environ, "LD_PRELOAD": str(library), "TIME_OF_DAY_OFFSET": str(offset)}
    )

    def created_after_now():
        return daemon.ok("/v1/completions", {**ASK, "max_tokens": 1})["created"] - time.time()

    assert abs(created_after_now()) < 60
    client = Client(daemon.grpc)
    client.generate({"prompt": {"text": ASK["prompt"]}, "max_tokens": 1})
    body = {**ASK, "max_tokens": 400, "return_token_ids": True}
    opened = [daemon.open_stream("/v1/completions", body) for _ in range(3)]
    wait_for(lambda: daemon.metric("polysil_requests_running") == 3)
    for jump in (HOUR_S, -HOUR_S):
        set_offset(jump)
        assert abs(created_after_now() - jump) < 60, "the time of day has jumped for the daemon"
        assert daemon.get("/ready").status == 200
        # A deadline begun after the jump is as long as it says.
        call = {"prompt": {"text": ASK["prompt"]}, "max_tokens": 4, "ignore_eos": True}
        deltas, usage = client.generate(call, timeout=120)
        assert text_of(deltas) and int(usage["completion_tokens"]) == 4
        total = usage["latency"]["total"]
        assert all(0 <= int(ns) < 120e9 for ns in total.values()), total
    for connection, response in opened:
        choice = sse.read(response).choices[0]
        assert len(choice.token_ids) == 400 and choice.finish_reason == "length"
        connection.close()
    metrics = daemon.metrics()
    assert metrics['polysil_requests_total{outcome="deadline"}'] == 0
    assert metrics['polysil_requests_total{outcome="cancelled"}'] == 0
    for name in ("time_to_first_token", "inter_token_latency", "request_duration"):
        assert 0 <= metrics[f"polysil_{name}_seconds_sum"] < HOUR_S / 2
