"""Rounds, what is kept of them, and ratios, with engines that only print a number."""

import json
import sys
import types
from pathlib import Path

import cells
import compare
import engines
import pytest
import ratios
import table

CELL = cells.Cell("pp512", "prompt", 1, engines.Row(512))
LIMITS = {"rounds": 2, "retries": 0, "foreign_limit": 9.0, "retry_failed": False}


def engine(name, log, fails=False):
    """Writes its name into a log, and is as fast as the number of lines there."""

    def command(setup, row, out):
        code = "import sys; f = open(sys.argv[1], 'a'); f.write(sys.argv[2] + '\\n'); "
        return [sys.executable, "-c", code + f"sys.exit({int(fails)})", str(log), name]

    def read(row, stdout, stderr, out):
        return {"tok_s": float(len(log.read_text().splitlines()))}

    return engines.Engine(name, None, command, read)


@pytest.fixture
def files(tmp_path):
    return types.SimpleNamespace(log=tmp_path / "log", json=tmp_path / "out.json")


def measure(files, used, **changes):
    options = types.SimpleNamespace(json=files.json, **{**LIMITS, **changes})
    results = compare.Results(files.json, {"model": "m"})
    runner = compare.Runner(engines.Setup(Path("m"), 1), results, options)
    for cell, number in compare.left_to_do([CELL], used, results, options):
        runner.run_round(cell, number, used)
    return results


def test_the_order_turns_and_a_measured_round_is_not_repeated(files):
    used = [engine("Polysil", files.log), engine("peer", files.log)]
    measure(files, used)
    assert files.log.read_text().split() == ["Polysil", "peer", "peer", "Polysil"]
    results = measure(files, used)
    assert len(files.log.read_text().split()) == 4
    measure(files, used, rounds=3)
    assert files.log.read_text().split()[4:] == ["Polysil", "peer"]
    found = ratios.compare(results.all)[0]
    # 1 against 2 in the first round, 4 against 3 in the second.
    assert found.ratios["peer"].values == [pytest.approx(1 / 2), pytest.approx(4 / 3)]


def test_a_round_of_fewer_engines_is_measured_anew_with_all(files):
    used = [engine("Polysil", files.log), engine("peer", files.log)]
    measure(files, used[:1], rounds=1)
    measure(files, used, rounds=1)
    assert files.log.read_text().split() == ["Polysil", "Polysil", "peer"]


def test_a_failed_run_is_kept_as_such(files):
    used = [engine("Polysil", files.log), engine("peer", files.log, fails=True)]
    results = measure(files, used, rounds=1)
    assert [each[:2] for each in ratios.failures(results.all)] == [("pp512", "peer")]
    found = ratios.compare(results.all)[0]
    assert (found.best, found.ratios) == (None, {})
    measure(files, used, rounds=1)
    assert len(files.log.read_text().split()) == 2
    measure(files, used, rounds=1, retry_failed=True)
    assert len(files.log.read_text().split()) == 4


def test_a_disturbed_run_is_repeated_and_marked(files):
    used = [engine("Polysil", files.log)]
    results = measure(files, used, rounds=1, retries=2, foreign_limit=-1.0)
    assert len(files.log.read_text().split()) == 3
    run = results.runs(CELL, 0)["Polysil"]
    assert (run["attempts"], run["disturbed"]) == (3, True)
    assert ratios.disturbed(results.all) == (1, 1)


def test_results_of_another_model_are_not_mixed(files):
    measure(files, [engine("Polysil", files.log)], rounds=1)
    with pytest.raises(SystemExit, match="another model"):
        compare.Results(files.json, {"model": "other"})


def results_of(figure, ours, theirs):
    rounds = {
        str(number): {
            "Polysil": {"figures": {figure: a, "bound_tok_s": 200.0}},
            "slow": {"figures": {figure: b * (0.5 if figure == "tok_s" else 2)}},
            "fast": {"figures": {figure: b}, "command": ["/far/away/tool", "--port", "4711"]},
        }
        for number, (a, b) in enumerate(zip(ours, theirs))
    }
    about = {"model": "m.gguf", "machine": "one", "threads": 2, "prompts": "p"}
    return {"about": about, "cells": {"tg128": rounds}, "seconds": {}}


def test_ratios_are_above_one_where_polysil_is_better():
    more = ratios.compare(results_of("tok_s", [100, 120, 90], [50, 40, 60]))[0]
    assert (more.best, more.ratios["fast"].median) == ("fast", 2.0)
    assert more.fraction.median == pytest.approx(50)
    less = ratios.compare(results_of("ttft_ms", [10, 20, 30], [20, 20, 30]))[0]
    assert (less.best, less.ratios["fast"].values) == ("fast", [2.0, 1.0, 1.0])


def test_the_document_is_made_from_the_file(files, monkeypatch, tmp_path):
    document = tmp_path / "performance.md"
    document.write_text(f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n")
    files.json.write_text(json.dumps(results_of("tok_s", [100, 120, 90], [50, 40, 60])))
    monkeypatch.setattr(table, "DOCUMENT", document)
    monkeypatch.setattr(sys, "argv", ["table.py", str(files.json)])
    table.main()
    text = document.read_text()
    assert "old" not in text
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
    assert "**2.00 (1.50–3.00)**" in text
    assert "200: 50 %" in text
    assert "`tool --port PORT`" in text and "far" not in text
    table.main()
    assert document.read_text() == text


def test_what_the_programs_print_is_read(tmp_path):
    mainline = engines.llama("llama.cpp", "bin", forked=False)
    fork = engines.llama("ik_llama.cpp", "bin", forked=True)
    eight = engines.Row(128, 128, 8)
    printed = 'noise\n{"pp": 128, "speed_pp": 300.5, "speed_tg": 175.25}\n'
    assert mainline.read_offline(eight, printed, "", None) == {"tok_s": 175.25}
    table_ = (
        "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n"
        "|-------|--------|------|--------|----------|----------|----------|----------|\n"
        "|    16 |      8 |    2 |     48 |    0.060 |   536.44 |    0.089 |   180.43 |\n"
    )
    assert fork.read_offline(eight, "", table_, None) == {"tok_s": 180.43}
    bench = 'warning\n[{"n_gen": 128, "avg_ts": 99.5}]\n'
    assert fork.read_offline(engines.Row(512), bench, "", None) == {"tok_s": 99.5}
    with pytest.raises(IndexError):
        mainline.read_offline(eight, "nothing", "", None)
    report = tmp_path / "row.json"
    row = {"tokens": 512, "depth": 0, "streams": 0, "tok_s": {"median": 7.0}}
    row |= {"bound_tok_s": 9.0, "bound_by": "arithmetic", "fraction": 0.7}
    report.write_text(json.dumps({"rows": [row], "bounds": {}}))
    figures = engines.polysil("polysil").read_offline(engines.Row(512), "", "", report)
    assert (figures["tok_s"], figures["bound_tok_s"]) == (7.0, 9.0)
