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


@pytest.mark.sanitized
def test_offline_measures_each_row_against_a_bound(tmp_path):
    result = bench(
        *["offline", MODEL, "--prompt", "24", "--generate", "4", "--depth", "0,40"],
        *["--streams", "2", "--stream-prompt", "8", "--repetitions", "2", "--threads", "2"],
        *["--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg"],
    )
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    names = ["pp24", "pp24 @ 40", "tg4", "tg4 @ 40", "tg4 x 2 @ 8"]
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
