"""The same tokens whatever else goes on: alone, together, from the cache, in small chunks, after
preemption; and the tokens of the reference."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import sse
from daemon import ROOT, SANITIZED

# The reference's greedy tokens; tests/data/exec/README.md says where they are from.
GREEDY = ROOT / "tests" / "data" / "exec" / "smollm2" / "greedy.jsonl"
TOKENS = 8 if SANITIZED else 40
STREAMS = 8 if SANITIZED else 32


def prompts(count):
    """Prompts of very different lengths, some with a common beginning."""
    story = "Once upon a time there was a small village by the sea where everybody knew everybody. "
    return [
        (
            story * (1 + index % 5) + f"In house number {index} lived"
            if index % 2
            else f"{index} facts about the number {index}:"
        )
        for index in range(count)
    ]


def body(prompt):
    return {
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def alone(daemon, prompt):
    return daemon.ok("/v1/completions", body(prompt))["choices"][0]["token_ids"]


def streamed(daemon, prompt):
    connection, response = daemon.open_stream("/v1/completions", body(prompt))
    try:
        return sse.read(response).choices[0].token_ids
    finally:
        connection.close()


@pytest.mark.sanitized
def test_many_streams_at_once_equal_each_alone(start):
    daemon = start("--set", "kv.prefix_cache=false")
    asked = prompts(STREAMS)
    expected = [alone(daemon, prompt) for prompt in asked]
    assert all(len(ids) == TOKENS for ids in expected)
    with ThreadPoolExecutor(STREAMS) as pool:
        together = list(pool.map(lambda prompt: streamed(daemon, prompt), asked))
    assert together == expected
    assert daemon.metric("polysil_prefix_cache_hit_tokens_total") == 0


@pytest.mark.parametrize("host_blocks", [0, 200])
def test_cache_chunks_preemption_and_swap_change_nothing(start, daemon, host_blocks):
    asked = prompts(STREAMS)
    expected = [alone(daemon, prompt) for prompt in asked]
    # Steps of 40 tokens, and a pool for a small part of what is asked for at once.
    small = start(
        "--set",
        "scheduler.step_tokens_max=40",
        "--set",
        "kv.blocks=40",
        "--set",
        f"kv.host_blocks={host_blocks}",
        "--set",
        "model.context_tokens=512",
        "--set",
        "scheduler.sequences_max=32",
    )
    with ThreadPoolExecutor(STREAMS) as pool:
        for _ in range(2):  # the second time from the cache, as far as that lasted
            assert list(pool.map(lambda prompt: streamed(small, prompt), asked)) == expected
    small.wait_idle()
    metrics = small.metrics()
    assert metrics["polysil_preemptions_total"] > 0
    assert metrics["polysil_prefix_cache_hit_tokens_total"] > 0
    assert (metrics["polysil_kv_blocks_copied_in_total"] > 0) == (host_blocks > 0)


def sampled(daemon, prompt):
    answer = daemon.ok("/v1/completions", {**body(prompt), "temperature": 1.0, "seed": 11, "n": 2})
    return [choice["token_ids"] for choice in answer["choices"]]


def test_sampled_tokens_do_not_depend_on_company(daemon):
    asked = prompts(8)
    expected = [sampled(daemon, prompt) for prompt in asked]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda prompt: sampled(daemon, prompt), asked)) == expected


def read_golden(lines):
    with open(GREEDY, encoding="ascii") as file:
        return [json.loads(line) for _, line in zip(range(lines), file)]


def compare(daemon, case, margin):
    """Asks for the reference's tokens. Up to the first that differs, which must be a near tie: how
    many they are, and both lists of log-probabilities."""
    expected = case["output_ids"]
    answer = daemon.ok(
        "/v1/completions",
        {
            "prompt": case["prompt_ids"],
            "temperature": 0,
            "max_tokens": len(expected),
            "return_token_ids": True,
            "logprobs": 1,
        },
    )
    choice = answer["choices"][0]
    ids = choice["token_ids"]
    end = case["endoftext_index"]
    if end is not None:  # this token is an end here; the reference went on
        expected = expected[: end + 1]
    same = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), len(expected))
    if same < len(expected):
        assert case["margins"][same] < margin, (case["id"], same)
    return same, choice["logprobs"]["token_logprobs"][:same], case["logprobs"][:same]


def test_the_reference_s_greedy_tokens(daemon):
    """With 8-bit activations: what differs is a near tie, and log-probabilities are close."""
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda case: compare(daemon, case, 0.5), read_golden(54)))
    assert sum(same for same, _, _ in results) > 1500
    differences = [abs(a - b) for _, mine, theirs in results for a, b in zip(mine, theirs)]
    assert sum(differences) / len(differences) < 0.03


def test_the_reference_s_tokens_to_the_last_on_the_exact_path(start):
    daemon = start("--set", "cpu.activations=f32", "--set", "kv.dtype=f32")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda case: compare(daemon, case, 1e-3), read_golden(8)))
    assert sum(same for same, _, _ in results) > 400
    for _, mine, theirs in results:
        assert mine == pytest.approx(theirs, abs=1e-3)
