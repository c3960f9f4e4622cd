#!/usr/bin/env python3
"""Polysil against other engines on the same weights, in interleaved rounds, as ratios.

  bench/peers/compare.py                                      all cells, 5 rounds: hours
  bench/peers/compare.py --cells tg128,decode_8 --minutes 5   a piece; the next call goes on
  bench/peers/compare.py --list                               what there is and what is left

In each round every cell runs on one engine right after the other, in odd rounds in reversed order;
a ratio is of two runs of one round. Absolute numbers of a shared machine mean little. A run beside
which others took more than --foreign-limit of the machine is repeated, --retries times at most;
then the least disturbed is kept, and marked. A server is started for each run, since some grow
slower with use; one whose start takes minutes is kept, and stopped (SIGSTOP) while others run.

Every round that is complete is written to --json at once and never measured again.
bench/peers/table.py makes the tables of docs/performance.md from such files.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

import engines as engines_module
import load
import ratios
from cells import CELLS, FIGURES
from process import EngineError, MachineTime, Server, own_seconds, run_command

ROOT = engines_module.ROOT
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ROOT.parent / "shared/prompts/mt_bench.jsonl"
OWN_PROMPTS = engines_module.HERE / "prompts.jsonl"


def say(text):
    print(text, file=sys.stderr, flush=True)


def read_prompts():
    path = PROMPTS if PROMPTS.exists() else OWN_PROMPTS
    items = [json.loads(line) for line in path.read_text().splitlines()]
    return path.name, [item["turns"][0] if "turns" in item else item["prompt"] for item in items]


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def machine():
    """ "AMD EPYC, 2 CPUs, AVX2"."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    known = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_vnni": "VNNI", "avx512_bf16": "BF16"}
    sets = [says for flag, says in known.items() if flags and flag in flags[1].split()]
    return ", ".join([name[1] if name else "unknown CPU", f"{os.cpu_count()} CPUs", *sets])


class Results:
    """The file of all rounds. What it says of the machine, model and program must not change."""

    def __init__(self, path, about):
        self.path = path
        self.all = {"about": about, "cells": {}, "seconds": {}}
        if path.exists():
            self.all = json.loads(path.read_text())
            for key, value in about.items():
                if self.all["about"].get(key) != value:
                    raise SystemExit(
                        f"{path} was measured with another {key}; move it away or give --json"
                    )

    def runs(self, cell, number):
        return self.all["cells"].get(cell.name, {}).get(str(number), {})

    def add(self, cell, number, runs):
        self.all["cells"].setdefault(cell.name, {})[str(number)] = runs
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.all, indent=1))
        part.replace(self.path)

    def note_seconds(self, cell, engine, seconds):
        """The least seen is what a run takes without a start of minutes or a repetition."""
        known = self.all["seconds"].setdefault(cell.name, {})
        known[engine] = min(seconds, known.get(engine, seconds))

    def expected_seconds(self, cell, engine):
        known = self.all["seconds"].get(cell.name, {}).get(engine.name)
        return known or cell.seconds + (120 if cell.fresh and engine.stays else 0)


class Runner:
    def __init__(self, setup, results, options):
        self.setup, self.results, self.options = setup, results, options
        self.kept = {}  # engine name -> Server that is stopped
        self.logs = options.json.parent / "peers-logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        _, self.prompts = read_prompts()

    def run_round(self, cell, number, engines):
        runs = {}
        for engine in engines if number % 2 == 0 else reversed(engines):
            begin = time.monotonic()
            runs[engine.name] = run = self._run_quietly(cell, number, engine)
            self.results.note_seconds(cell, engine.name, time.monotonic() - begin)
            say(f"round {number}  {cell.name:13} {engine.name:13} {line_of(run)}")
        self.results.add(cell, number, runs)

    def _run_quietly(self, cell, number, engine):
        best = None
        for attempt in range(1 + self.options.retries):
            if attempt:
                say(f"  {cell.name} {engine.name}: {line_of(best)}; again")
            try:
                run = self._run(cell, f"{number}/{attempt}", engine)
            except (EngineError, load.LoadError, OSError) as error:
                return {"error": str(error)}
            if best is None or run["foreign_share"] < best["foreign_share"]:
                best = run
            if best["foreign_share"] <= self.options.foreign_limit:
                return {**best, "attempts": attempt + 1}
        return {**best, "attempts": attempt + 1, "disturbed": True}

    def _run(self, cell, seed, engine):
        log = self.logs / f"{engine.name.replace(' ', '-')}.log"
        if cell.row:
            return self._run_offline(cell, engine, log)
        return self._run_served(cell, seed, engine, log)

    def _run_offline(self, cell, engine, log):
        out = self.logs / "row.json"
        out.unlink(missing_ok=True)
        command = engine.offline(self.setup, cell.row, out)
        machine, own = MachineTime.now(), own_seconds()
        stdout, stderr, cpu = run_command(command, log)
        share = MachineTime.now().foreign_share_since(machine, cpu + own_seconds() - own)
        try:
            figures = engine.read_offline(cell.row, stdout, stderr, out)
        except (IndexError, KeyError, ValueError) as error:
            raise EngineError(f"what it printed cannot be read: {error!r}") from error
        return {"figures": figures, "foreign_share": share, "command": command}

    def _run_served(self, cell, seed, engine, log):
        server = None if cell.fresh else self.kept.pop(engine.name, None)
        if server:
            server.go_on()
        machine, own = MachineTime.now(), own_seconds()
        server = server or Server(engine, self.setup, cell.shape, log)
        try:
            client = load.Client(server.base_url, self._model_name(server), engine.fields, seed)
            figures = {}
            if cell.fresh:
                client.run([load.Request("Once upon a time", 1)])
                figures["first_token_s"] = time.perf_counter() - server.began
                figures["rss_idle_mib"] = server.usage()[0]
            cpu = 0.0 if cell.fresh else server.usage()[2]
            if not cell.fresh:
                client.warm_up()
                machine, own, cpu = MachineTime.now(), own_seconds(), server.usage()[2]
            figures |= cell.load(client, self.prompts)
            _, peak, cpu_after = server.usage()
            share = MachineTime.now().foreign_share_since(
                machine, cpu_after - cpu + own_seconds() - own
            )
            if cell.fresh:
                figures["rss_peak_mib"] = peak
        except BaseException:
            server.stop()
            raise
        if engine.stays and not cell.fresh:
            server.pause()
            self.kept[engine.name] = server
        else:
            server.stop()
        return {"figures": figures, "foreign_share": share, "command": server.command}

    def _model_name(self, server):
        with urllib.request.urlopen(f"{server.base_url}/v1/models", timeout=60) as answer:
            return json.load(answer)["data"][0]["id"]

    def end(self):
        while self.kept:
            self.kept.popitem()[1].stop()


def line_of(run):
    if "error" in run:
        return f"failed: {run['error'].strip().splitlines()[-1:]}"
    shown = [f"{key} {value:.3g}" for key, value in run["figures"].items() if key in FIGURES]
    mark = " DISTURBED" if run.get("disturbed") else ""
    return f"{'  '.join(shown)}  (others {100 * run['foreign_share']:.0f} %{mark})"


def able(cell, engines):
    return [engine for engine in engines if (engine.offline if cell.row else engine.serve)]


def left_to_do(cells, engines, results, options):
    """(cell, round) in the order in which they run: all cells of a round, then the next round."""

    def is_done(cell, number, engine):
        run = results.runs(cell, number).get(engine.name)
        return run and not (options.retry_failed and "error" in run)

    return [
        (cell, number)
        for number in range(options.rounds)
        for cell in cells
        if not all(is_done(cell, number, engine) for engine in able(cell, engines))
    ]


def seconds_of(todo, engines, results):
    return sum(
        results.expected_seconds(cell, engine)
        for cell, _ in todo
        for engine in able(cell, engines)
    )


def print_table(results):
    head = f"{'cell':13} {'figure':21} {'Polysil':>22}  {'best peer':14} {'':>22}"
    print(f"{head}  {'ratio':>16}  bound")
    for each in ratios.compare(results.all):
        ours = each.values[ratios.US].text() if ratios.US in each.values else "-"
        theirs = each.values[each.best].text() if each.best else "-"
        ratio = each.ratios[each.best].text(2) if each.best in each.ratios else "-"
        bound = f"{each.bound.median:.0f}, {each.fraction.median:.0f} %" if each.bound else ""
        print(
            f"{each.cell.name:13} {each.figure:21} {ours:>22}  {each.best or '-':14} {theirs:>22}  "
            f"{ratio:>16}  {bound}"
        )
    for name, engine, said in ratios.failures(results.all):
        print(f"failed: {name} on {engine}: {said.splitlines()[-1] if said else ''}")
    bad, runs = ratios.disturbed(results.all)
    print(f"{bad} of {runs} runs are disturbed by others beyond the limit")


def print_list(cells, engines, results, options):
    for cell in cells:
        left = len(left_to_do([cell], engines, results, options))
        seconds = seconds_of([(cell, 0)], engines, results)
        names = ", ".join(engine.name for engine in able(cell, engines))
        print(f"{cell.name:13} {left} rounds left, {seconds:4.0f} s each  {cell.says}: {names}")


def chosen(items, names, what):
    if not names:
        return items
    by_name = {item.name: item for item in items}
    for name in names.split(","):
        if name not in by_name:
            raise SystemExit(f"no {what} {name}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names.split(",")]


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", default="", metavar="A,B", help="these cells; else all")
    parser.add_argument(
        "--peers", default="", metavar="A,B", help="these engines; else all that are there"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=0, help="begin nothing that ends later")
    parser.add_argument("--model", type=Path, default=MODEL, help="the GGUF file")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="else build/bench/peers-<model>.json")
    parser.add_argument("--foreign-limit", type=float, default=0.03)
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--retry-failed", action="store_true", help="measure failed rounds anew")
    parser.add_argument("--list", action="store_true", help="say what there is and what is left")
    options = parser.parse_args()
    options.json = options.json or ROOT / f"build/bench/peers-{options.model.stem}.json"
    options.json = options.json.absolute()
    return options


def main():
    options = parse_options()
    cells = chosen(CELLS, options.cells, "cell")
    engines = chosen(engines_module.found(), options.peers, "engine")
    if not engines or (len(engines) == 1 and not options.peers):
        say("no peer is there to compare with; bench/peers/install.sh installs some")
        return
    program = engines_module.found()[0].serve(
        engines_module.Setup(options.model, 1), engines_module.Shape(), 0
    )[0]
    about = {
        "machine": machine(),
        "model": options.model.name,
        "model sha256": digest_of(options.model),
        "program": digest_of(program),
        "threads": options.threads,
        "prompts": read_prompts()[0],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    results = Results(options.json, about)
    if options.list:
        print_list(cells, engines, results, options)
        return
    todo = left_to_do(cells, engines, results, options)
    say(f"engines: {', '.join(engine.name for engine in engines)}")
    minutes = seconds_of(todo, engines, results) / 60
    say(f"{len(todo)} rounds of cells to do, about {minutes:.0f} min")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that servers are ended, too
    ends = time.monotonic() + 60 * options.minutes
    setup = engines_module.Setup(options.model.resolve(), options.threads)
    runner = Runner(setup, results, options)
    try:
        for cell, number in todo:
            needs = seconds_of([(cell, number)], engines, results)
            if options.minutes and time.monotonic() + needs > ends:
                say(f"{cell.name} takes about {needs:.0f} s: for another time")
                break
            runner.run_round(cell, number, able(cell, engines))
    except KeyboardInterrupt:
        say("ended; what was complete is kept")
    finally:
        runner.end()
    print_table(results)


if __name__ == "__main__":
    main()
