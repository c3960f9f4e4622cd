"""polysil bench: the real program against the real model and the real daemon."""

import json
import subprocess
from xml.etree import ElementTree

import pytest
from daemon import MODEL, POLYSIL


def bench(*arguments, timeout=600):
    return subprocess.run(
        [str(POLYSIL), "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_offline_measures_each_row_against_a_bound(tmp_path):
    result = bench(
        *["offline", MODEL, "--prompt", "24", "--generate", "48", "--depth", "0,40"],
        *["--streams", "2", "--stream-prompt", "8", "--repetitions", "2", "--threads", "2"],
        *["--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg"],
    )
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    names = ["pp24", "pp24 @ 40", "tg48", "tg48 @ 40", "tg48 x 2 @ 8"]
    assert [row["name"] for row in report["rows"]] == names
    assert report["threads"] == 2
    # 96.4 MB of Q4_1 and Q8_0, and 30 layers of 2 x 3 heads of 64 halves.
    assert 96.3e6 < report["step_weight_bytes"] < 96.6e6
    assert report["kv_token_bytes"] == 30 * 2 * 3 * 64 * 2
    for name in ("read_one_gb_s", "read_all_gb_s"):
        rate = report["bounds"][name]
        assert rate["best"] >= rate["median"] >= rate["worst"] > 0
    for row in report["rows"]:
        speed = row["tok_s"]
        assert len(speed["samples"]) == 2
        assert speed["max"] >= speed["median"] >= speed["min"] > 0
        assert row["fraction"] == pytest.approx(speed["median"] / row["bound_tok_s"])
        assert row["name"] in result.stdout
    picture = ElementTree.parse(tmp_path / "out.svg").getroot()
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert set(names) <= set(texts)


def test_offline_says_what_does_not_fit():
    result = bench("offline", MODEL, "--prompt", "9000", "--depth", "0")
    assert result.returncode == 1
    assert result.stderr == (
        "polysil: pp9000 needs 9001 tokens of context, the model has 8192\n"
    )


def serve(daemon, tmp_path, *arguments):
    """(report, one record for each request) of a load that must end well."""
    result = bench(
        *["serve", "--url", daemon.url, *arguments],
        *["--json", tmp_path / "out.json", "--requests-jsonl", tmp_path / "out.jsonl"],
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    return json.loads((tmp_path / "out.json").read_text()), [json.loads(line) for line in lines]


@pytest.mark.sanitized
def test_an_open_loop_against_the_daemon(daemon, tmp_path):
    before = daemon.metrics()
    report, calls = serve(
        *[daemon, tmp_path, "--rate", "20", "--requests", "12", "--seed", "3"],
        *["--input-tokens", "40", "--output-tokens", "6", "--ttft-limit-ms", "1e6"],
    )
    assert report["model_id"] == daemon.name
    assert (report["num_prompts"], report["completed"], report["failed"]) == (12, 12, 0)
    assert report["total_output_tokens"] == 12 * 6 and report["tokens_counted_by_server"]
    # Words are one token each, more or less.
    assert 12 * 30 < report["total_input_tokens"] < 12 * 55
    assert report["request_goodput"] == report["request_throughput"] > 0
    assert report["output_throughput"] == pytest.approx(12 * 6 / report["duration"])
    for metric in ("ttft", "tpot", "itl", "e2el", "lag"):
        values = [report[f"p{p}_{metric}_ms"] for p in ("50", "90", "95", "99", "99.9")]
        assert values == sorted(values) and values[0] == report[f"median_{metric}_ms"]
        assert {f"mean_{metric}_ms", f"std_{metric}_ms"} <= set(report)
    assert report["mean_e2el_ms"] > report["mean_ttft_ms"] > 0
    # The schedule is the seed's, whatever the server does, and nothing is sent before its time.
    due = sorted(call["due_s"] for call in calls)
    assert len(calls) == 12 and due[0] == 0 and 0.05 < due[-1] < 3
    assert all(call["sent_s"] >= call["due_s"] and call["lag_ms"] >= 0 for call in calls)
    assert max(call["lag_ms"] for call in calls) == pytest.approx(report["max_lag_ms"], rel=1e-3)
    _, again = serve(
        *[daemon, tmp_path, "--rate", "20", "--requests", "12", "--seed", "3"],
        *["--input-tokens", "8", "--output-tokens", "1"],
    )
    assert sorted(call["due_s"] for call in again) == due
    # What the server saw: the two loads and two small requests before each.
    counted = daemon.metrics()["polysil_generation_tokens_total"]
    assert counted - before["polysil_generation_tokens_total"] == 12 * 6 + 12 + 4


@pytest.mark.sanitized
def test_clients_that_leave(daemon, tmp_path):
    report, calls = serve(
        *[daemon, tmp_path, "--concurrency", "4", "--requests", "8", "--chat"],
        *["--input-tokens", "10", "--output-tokens", "2000", "--cancel-after-tokens", "3"],
    )
    assert (report["cancelled"], report["completed"], report["failed"]) == (8, 0, 0)
    assert [call["status"] for call in calls] == ["cancelled"] * 8
    assert all(call["output_tokens"] == 3 for call in calls)
    assert report["max_concurrent_requests"] <= 4
    daemon.wait_idle()


def test_sessions_find_their_conversation_in_the_cache(daemon, tmp_path):
    report, calls = serve(
        *[daemon, tmp_path, "--concurrency", "2", "--requests", "2", "--turns", "3", "--chat"],
        *["--input-tokens", "60", "--shared-prefix-tokens", "50", "--output-tokens", "20"],
    )
    assert report["completed"] == 6
    for session in range(2):
        turns = sorted(
            (call for call in calls if call["session"] == session), key=lambda call: call["turn"]
        )
        assert [call["turn"] for call in turns] == [0, 1, 2]
        assert all(
            later["input_tokens"] > earlier["input_tokens"] + 60 and later["cached_tokens"] >= 96
            for earlier, later in zip(turns, turns[1:])
        )


def test_a_trace_keeps_its_prefixes_and_its_times(daemon, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            json.dumps(
                {"timestamp": at, "input_length": 700, "output_length": 4, "hash_ids": [1, last]}
            )
            + "\n"
            for at, last in [(1000, 2), (1600, 3), (2400, 2)]
        )
    )
    report, calls = serve(daemon, tmp_path, "--trace", trace, "--speed", "2")
    assert report["completed"] == 3 and report["total_output_tokens"] == 12
    calls.sort(key=lambda call: call["session"])
    assert [call["due_s"] for call in calls] == [0, 0.3, 0.7]
    first, second, third = (call["cached_tokens"] for call in calls)
    assert first < 64 and 400 < second < 600 and third > second


def test_serve_says_what_is_wrong(daemon, tmp_path):
    def refused(*arguments):
        result = bench("serve", *arguments)
        assert result.returncode == 1 and result.stdout == ""
        assert result.stderr.startswith("polysil: ") and result.stderr.count("\n") == 1
        return result.stderr

    url = ["--url", daemon.url]
    assert "is the server running?" in refused("--url", "http://127.0.0.1:1", "--rate", "1")
    assert "model 'other'" in refused(*url, "--concurrency", "1", "--model", "other")
    assert "--rate, --concurrency and --trace" in refused(*url)
    assert "line 1: it is no JSON" in refused(*url, "--trace", __file__)
    assert "cannot be opened" in refused(*url, "--rate", "1", "--prompts", tmp_path / "none")
