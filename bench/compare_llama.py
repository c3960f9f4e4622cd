#!/usr/bin/env python3
"""Polysil against llama-server: decode and prefill of one stream, over HTTP, in interleaved rounds.

Both serve the same file with the same number of threads; the one that is not measured is stopped. A
ratio is taken between runs of one round, one right after the other, in turns of order; above 1 is
better. Absolute numbers of a shared machine mean little.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

DECODE = {"prompt_words": 24, "tokens": 128}
PREFILL = {"prompt_words": 500, "tokens": 1}
WORDS = "the old house by the river had a green door and two small windows that looked east".split()


class Server:
    def __init__(self, name, command):
        self.name = name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [word.replace("PORT", str(self.port)) for word in command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start: {' '.join(command)}")
            time.sleep(0.05)

    def _ready(self):
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/health", timeout=5
            ) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def pause(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def end(self):
        self.go_on()
        self.process.kill()
        self.process.wait()

    def run(self, prompt, tokens):
        """(seconds to the first token, seconds from it to the last, tokens) of one stream."""
        body = {
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        began = time.perf_counter()
        first = last = None
        usage = {}
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                now = time.perf_counter()
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                if chunk.get("choices"):
                    first, last = first or now, now
        return first - began, last - first, usage["completion_tokens"], usage["prompt_tokens"]


def prompt_of(words, nonce):
    """A prompt that no cache knows: it differs from the first word on."""
    return f"{nonce} " + " ".join(WORDS[(nonce + i * i) % len(WORDS)] for i in range(words))


def measure(server, scenario, nonce):
    prompt = prompt_of(scenario["prompt_words"], nonce)
    to_first, decoding, tokens, prompt_tokens = server.run(prompt, scenario["tokens"])
    return (tokens - 1) / decoding if tokens > 1 else prompt_tokens / to_first


def report(name, figures):
    ratios = [mine / theirs for mine, theirs in zip(figures["polysil"], figures["llama.cpp"])]
    for server, values in figures.items():
        print(
            f"{name:8} {server:10} {statistics.median(values):8.1f} tokens/s "
            f"({min(values):.1f} to {max(values):.1f})"
        )
    print(
        f"{name:8} ratio      {statistics.median(ratios):8.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) over {len(ratios)} rounds",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--polysil", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    # So that the servers are ended however this program is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    threads = str(options.threads)
    servers = [
        Server(
            "polysil",
            [
                options.polysil,
                "serve",
                options.model,
                "--http",
                "127.0.0.1:PORT",
                "--grpc",
                "off",
                "--set",
                f"cpu.threads={threads}",
            ],
        ),
        Server(
            "llama.cpp",
            [
                options.llama,
                "-m",
                options.model,
                "--host",
                "127.0.0.1",
                "--port",
                "PORT",
                "-t",
                threads,
                "-np",
                "1",
                "-c",
                "4096",
                "-fa",
                "on",
            ],
        ),
    ]
    try:
        for name, scenario in [("decode", DECODE), ("prefill", PREFILL)]:
            figures = {server.name: [] for server in servers}
            for round_ in range(-1, options.rounds):  # the first warms up
                for server in servers if round_ % 2 else reversed(servers):
                    for other in servers:
                        if other is not server:
                            other.pause()
                    figure = measure(server, scenario, 1000 * (round_ + 2) + len(name))
                    if round_ >= 0:
                        figures[server.name].append(figure)
                    for other in servers:
                        other.go_on()
            report(name, figures)
    finally:
        for server in servers:
            server.end()


if __name__ == "__main__":
    main()
