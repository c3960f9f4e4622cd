"""Daemon: one `polysil serve` process, its two addresses and its metrics."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
POLYSIL = Path(os.environ.get("POLYSIL", ROOT / "build" / "release" / "bin" / "polysil")).resolve()
SANITIZED = any(part in ("asan", "tsan") for part in POLYSIL.parts)
# Waiting ends as soon as there is what is waited for; this is when it is given up.
PATIENCE_S = 600 if SANITIZED else 180

LISTENING = re.compile(r"listening at (http://(\S+):(\d+)|off) \(gRPC (\S+)\); loading ")
READY = re.compile(r"^polysil is ready: (\S+) at (http://(\S+):(\d+)|off) \(gRPC (\S+)\)", re.M)


def wait_for(what, seconds=PATIENCE_S, message=""):
    """Returns what() as soon as it is true."""
    deadline = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > deadline:
            described = message() if callable(message) else message
            raise AssertionError(f"after {seconds} s still not: {described or what}")
        time.sleep(0.01)


class Answer:
    """A whole HTTP response."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        assert self.headers["Content-Type"].startswith("application/json"), self.headers
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


class Daemon:
    def __init__(
        self,
        folder,
        *arguments,
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        ready=True,
        env=None,
        model=MODEL,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self._out = folder / "stdout"
        self._err = folder / "stderr"
        command = [POLYSIL, "serve", model, "--http", http, "--grpc", grpc]
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [str(word) for word in [*command, *arguments]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=env,
            )
        if ready:
            self.wait_ready()

    def wait_listening(self):
        """Until it has its addresses; the model is not loaded yet."""
        said = wait_for(
            lambda: LISTENING.search(self.log()),
            message=lambda: f"that it listens; the log:\n{self.log()}",
        )
        self.url, self.host, self.port, self.grpc = said[1], said[2], int(said[3]), said[4]

    def wait_ready(self):
        def said_ready():
            assert self.alive(), f"the daemon ended at start:\n{self.log()}"
            return READY.search(self._out.read_text())

        said = wait_for(said_ready, message=lambda: f"the ready line; the log:\n{self.log()}")
        self.name = said[1]
        self.host, self.port = said[3], int(said[4])
        self.url = said[2]
        self.grpc = said[5]
        wait_for(lambda: self.get("/ready").status == 200, message="/ready")

    def address(self, face):
        return {"http": f"{self.host}:{self.port}", "grpc": self.grpc}[face]

    def alive(self):
        return self.process.poll() is None

    def log(self):
        return self._out.read_text() + self._err.read_text(errors="replace")

    # HTTP

    def connect(self, timeout=PATIENCE_S):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """`body`: bytes as they are; anything else as JSON."""
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(method, path, body=body, headers=headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def ok(self, path, body):
        """The JSON of a request that must succeed."""
        answer = self.post(path, body)
        assert answer.status == 200, answer
        return answer.json()

    def open_stream(self, path, body, headers=None):
        """(connection, response) of a streamed request whose head has arrived."""
        connection = self.connect()
        connection.request(
            "POST",
            path,
            body=json.dumps(dict(body, stream=True)).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        return connection, connection.getresponse()

    # What is going on

    def metrics(self):
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        values = {}
        for line in answer.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name):
        return self.metrics()[name]

    def wait_idle(self, seconds=PATIENCE_S):
        """Until nothing runs, waits or holds a block."""
        names = ["polysil_requests_running", "polysil_requests_waiting", "polysil_kv_blocks_used"]

        def idle():
            metrics = self.metrics()
            return all(metrics[name] == 0 for name in names)

        wait_for(idle, seconds, lambda: f"idle: { {n: self.metric(n) for n in names} }")

    def rss_kib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1])

    def thread_names(self):
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sorted((task / "comm").read_text().strip() for task in tasks.iterdir())

    # The end

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_exit(self, seconds=PATIENCE_S):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {seconds} s:\n{self.log()}") from None

    def end(self):
        """Ends it the polite way, twice, and holds it to a clean exit."""
        if not self.alive():
            return
        self.signal()
        self.signal()
        try:
            code = self.wait_exit()
        finally:
            if self.alive():
                self.process.kill()
                self.process.wait()
        assert code == 0, self.log()
