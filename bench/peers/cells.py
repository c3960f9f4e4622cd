"""What is compared: each cell with its figures, how it is measured and what it is held against."""

from dataclasses import dataclass

import load
from engines import Row, Shape
from load import Request

# Figure -> (unit, whether more is better).
FIGURES = {
    "tok_s": ("tok/s", True),
    "ttft_ms": ("ms", False),
    "ttft_p50_ms": ("ms", False),
    "ttft_p99_ms": ("ms", False),
    "itl_p99_ms": ("ms", False),
    "gap_max_ms": ("ms", False),
    "share_of_undisturbed": ("", True),
    "ttft_after_over_idle": ("", False),
    "first_token_s": ("s", False),
    "rss_idle_mib": ("MiB", False),
    "rss_peak_mib": ("MiB", False),
}
# Shown, without a ratio.
NOTES = {"cached_tokens": "tokens", "ttft_first_ms": "ms", "ttft_idle_ms": "ms"}


@dataclass(frozen=True)
class Cell:
    name: str
    says: str
    seconds: float  # of one run on two cores, roughly: for the estimate
    row: Row | None = None  # without network
    load: object = None  # (Client, prompts) -> figures, over HTTP
    shape: Shape = Shape()
    fresh: bool = False  # the start of the server is measured
    bound_of: str = ""  # the cell without network that does the same work


def decode(streams):
    def run(client, prompts):
        requests = [Request(client.words(128), 128) for _ in range(streams)]
        return {"tok_s": load.rate_all_active(client.run(requests))}

    return run


def context(tokens):
    def run(client, prompts):
        answer = client.run([Request(client.words(tokens), 128)])[0]
        return {"ttft_ms": answer.ttft_ms, "tok_s": answer.tok_s}

    return run


def served(clients, requests):
    def run(client, prompts):
        # A number before the text, so that no cache knows it.
        texts = [
            f"({client.random.randrange(10**6)}) {prompts[i % len(prompts)]}"
            for i in range(requests)
        ]
        answers = client.run([Request(text, 128) for text in texts], clients)
        return {"tok_s": load.output_rate(answers), **latencies(answers)}

    return run


def latencies(answers):
    ttfts = [answer.ttft_ms for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps_ms]
    return {
        "ttft_p50_ms": load.percentile(ttfts, 0.5),
        "ttft_p99_ms": load.percentile(ttfts, 0.99),
        "itl_p99_ms": load.percentile(gaps, 0.99),
    }


def intrusion(client, prompts):
    def streams():
        return [Request(client.words(64), 256) for _ in range(8)]

    alone = load.output_rate(client.run(streams()))
    answers = client.run(streams(), intrusion=(lambda: Request(client.words(1500), 4), 2.0))
    beside = load.output_rate(answers)
    return {
        "gap_max_ms": max(gap for answer in answers for gap in answer.gaps_ms),
        "tok_s": beside,
        "share_of_undisturbed": beside / alone,
    }


def shared_prefix(client, prompts):
    prefix = client.words(1200)
    requests = [Request(f"{prefix}\n\n{client.words(24)}", 32) for _ in range(32)]
    answers = client.run(requests)
    ttfts = [answer.ttft_ms for answer in answers]
    return {
        "ttft_p50_ms": load.percentile(ttfts, 0.5),
        "ttft_first_ms": min(ttfts),
        "cached_tokens": sum(answer.tokens_cached for answer in answers) / len(answers),
    }


def cancel(client, prompts):
    def next_one():
        return client.run([Request(client.words(128), 8)])[0].ttft_ms

    idle = load.percentile([next_one() for _ in range(3)], 0.5)
    client.run([Request(client.words(128), 1024, cancel_after=8) for _ in range(16)])
    after = next_one()
    return {"ttft_ms": after, "ttft_idle_ms": idle, "ttft_after_over_idle": after / idle}


def nothing(client, prompts):
    """What the start itself shows, and memory after 32 streams."""
    client.run([Request(client.words(128), 64) for _ in range(32)])
    return {}


CELLS = [
    Cell("pp512", "prompt of 512 tokens", 8, Row(512)),
    Cell("pp2048", "prompt of 2,048 tokens", 20, Row(2048)),
    Cell("tg128", "one stream, 128 tokens", 8, Row(128, streams=1)),
    Cell("tg128_1500", "one stream behind 1,500 tokens", 20, Row(128, 1500, 1)),
    Cell("tg128_6000", "one stream behind 6,000 tokens", 70, Row(128, 6000, 1)),
    Cell("tg128x8", "8 streams behind 128 tokens each", 20, Row(128, 128, 8)),
    Cell("tg128x32", "32 streams behind 128 tokens each", 60, Row(128, 128, 32)),
    Cell("decode_1", "one stream over HTTP", 8, load=decode(1), bound_of="tg128"),
    Cell("decode_8", "8 streams over HTTP", 20, load=decode(8), bound_of="tg128x8"),
    Cell("decode_32", "32 streams over HTTP", 50, load=decode(32), bound_of="tg128x32"),
    Cell("context_1500", "prompt of 1,500 tokens, then one stream", 15, load=context(1500)),
    Cell(
        "context_6000",
        "prompt of 6,000 tokens, then one stream",
        60,
        load=context(6000),
        shape=Shape(sequences=1, context=8192),
    ),
    Cell("served_4", "4 clients, 12 requests of 128 tokens", 25, load=served(4, 12)),
    Cell("served_16", "16 clients, 32 requests of 128 tokens", 45, load=served(16, 32)),
    Cell("served_32", "32 clients, 64 requests of 128 tokens", 75, load=served(32, 64)),
    Cell("intrusion", "8 streams, a 1,500-token prompt every 2 s", 60, load=intrusion),
    Cell("prefix_32", "32 requests with 1,200 tokens in common", 60, load=shared_prefix),
    Cell("cancel_16", "the next request after 16 clients left", 20, load=cancel),
    Cell("startup", "start to first token; memory", 45, load=nothing, fresh=True),
]
