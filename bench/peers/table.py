#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from files of bench/peers/compare.py.

  bench/peers/table.py build/bench/peers-*.json

Replaces what stands between the two marks in the document; nothing there is written by hand.
"""

import json
import re
import sys
from pathlib import Path

import ratios
from cells import CELLS, FIGURES, NOTES

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs/performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
NAMES = {
    "tok_s": "tokens",
    "ttft_ms": "first token",
    "ttft_p50_ms": "first token, p50",
    "ttft_p99_ms": "first token, p99",
    "itl_p99_ms": "gap between tokens, p99",
    "gap_max_ms": "longest gap",
    "share_of_undisturbed": "output, share of undisturbed",
    "ttft_after_over_idle": "first token, over that of an idle server",
    "first_token_s": "start to first token",
    "rss_idle_mib": "resident, just started",
    "rss_peak_mib": "resident, most, 32 streams",
    "cached_tokens": "tokens from the cache, a request",
    "ttft_first_ms": "first token, quickest",
    "ttft_idle_ms": "first token, idle server",
}


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    return [row(head), row(["---"] * len(head)), *map(row, rows)]


def unit_of(figure):
    unit = FIGURES[figure][0] if figure in FIGURES else NOTES[figure]
    return f" ({unit})" if unit else ""


def ratio_table(comparisons):
    rows, last = [], None
    for each in comparisons:
        if ratios.US not in each.values:
            continue
        work = "" if each.cell is last else f"`{each.cell.name}`: {each.cell.says}"
        last = each.cell
        best, ratio, bound = "–", "–", ""
        if each.best:
            best = f"{each.best} {each.values[each.best].text()}"
            ratio = f"**{each.ratios[each.best].text(2)}**" if each.best in each.ratios else "–"
        if each.bound:
            bound = f"{ratios.short(each.bound.median)}: {each.fraction.median:.0f} %"
        rows.append(
            [
                work,
                NAMES[each.figure] + unit_of(each.figure),
                each.values[ratios.US].text(),
                best,
                ratio,
                str(each.rounds),
                bound,
            ]
        )
    head = ["work", "figure", "Polysil", "best peer", "ratio", "rounds", "bound: reached"]
    return table(head, rows)


def engine_table(results, comparisons):
    engines = sorted(
        {name for each in comparisons for name in each.values}, key=lambda name: name != ratios.US
    )
    rows = [
        [f"`{each.cell.name}`", NAMES[each.figure] + unit_of(each.figure)]
        + [ratios.short(each.values[e].median) if e in each.values else "–" for e in engines]
        for each in comparisons
    ]
    for cell in CELLS:
        for figure in NOTES:
            series = ratios.figures_of(results["cells"].get(cell.name, {}), figure)
            if series:
                medians = {e: ratios.Spread(list(s.values())).median for e, s in series.items()}
                shown = [ratios.short(medians[e]) if e in medians else "–" for e in engines]
                rows.append([f"`{cell.name}`", NAMES[figure] + unit_of(figure), *shown])
    return table(["work", "figure", *engines], rows)


def plain(command):
    """A command without the paths and ports of one machine."""
    words = [word.rsplit("/", 1)[-1] if word.startswith("/") else word for word in command]
    return re.sub(r"(127\.0\.0\.1:|--port )\d+", r"\1PORT", " ".join(words))


def command_list(results):
    """The command of each engine for each cell; those that serve many cells once."""
    found = {}
    for cell in CELLS:
        for runs in results["cells"].get(cell.name, {}).values():
            for engine, run in runs.items():
                if "command" in run:
                    names = found.setdefault((engine, plain(run["command"])), [])
                    names.append(cell.name) if cell.name not in names else None
    rows = [
        [engine, " ".join(f"`{n}`" for n in names), f"`{c}`"]
        for (engine, c), names in found.items()
    ]
    return table(["engine", "cells", "command"], rows)


def bounds_line(results):
    found = [
        run["figures"]["bounds"]
        for rounds in results["cells"].values()
        for runs in rounds.values()
        for run in runs.values()
        if "bounds" in run.get("figures", {})
    ]
    names = {
        "read_all_gb_s": "memory read {} GB/s",
        "read_one_gb_s": "one thread {} GB/s",
        "int8_gop_s": "int8 {} GOP/s",
        "float_gflop_s": "fp32 {} GFLOP/s",
    }
    parts = []
    for key, text in names.items():
        values = [bounds[key]["best"] for bounds in found if bounds.get(key)]
        if values:
            parts.append(text.format(ratios.Spread(values).text()))
    return (
        "Bounds of the machine, measured beside each row: " + ", ".join(parts) + "."
        if parts
        else ""
    )


def section(results):
    about = results["about"]
    comparisons = ratios.compare(results)
    bad, runs = ratios.disturbed(results)
    lines = [
        f"### {about['model']}",
        "",
        f"{about['machine']}; {about['threads']} threads; prompts of {about['prompts']}."
        f" {bad} of {runs} runs stayed disturbed by more than the limit after all repetitions.",
        bounds_line(results),
        "",
        *ratio_table(comparisons),
        "",
        "Medians of all engines:",
        "",
        *engine_table(results, comparisons),
        "",
    ]
    failed = ratios.failures(results)
    if failed:
        lines += ["Not measured:", ""]
        for name, engine, said in failed:
            last = said.strip().splitlines()[-1] if said.strip() else "no message"
            lines.append(f"- `{name}` on {engine}: {re.sub(r'/[^ ]*/', '', last)[:200]}")
        lines.append("")
    return lines + [
        "<details><summary>Commands</summary>",
        "",
        *command_list(results),
        "",
        "</details>",
    ]


def main():
    lines = []
    for path in sys.argv[1:]:
        lines += [*section(json.loads(Path(path).read_text())), ""]
    if not lines:
        raise SystemExit(__doc__)
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest:
        raise SystemExit(f"{DOCUMENT} has no line {BEGIN}")
    tables = "\n".join(line.rstrip() for line in lines)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}")


if __name__ == "__main__":
    main()
