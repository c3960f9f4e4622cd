"""From runs to ratios. A ratio is of two runs of one round; above 1 Polysil is better."""

import statistics
from dataclasses import dataclass

from cells import CELLS, FIGURES

US = "Polysil"


@dataclass
class Spread:
    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self, digits=None):
        def number(value):
            return f"{value:.{digits}f}" if digits is not None else short(value)

        few = len(self.values) == 1
        range_ = "" if few else f" ({number(min(self.values))}–{number(max(self.values))})"
        return number(self.median) + range_


def short(value):
    """Three digits that matter, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass
class Comparison:
    """One figure of one cell."""

    cell: object
    figure: str
    values: dict  # engine -> Spread
    ratios: dict  # peer -> Spread of the rounds that both have
    best: str | None  # the peer with the best median
    bound: Spread | None = None
    fraction: Spread | None = None

    @property
    def rounds(self):
        return len(self.values[US].values) if US in self.values else 0


def compare(results):
    """Comparisons of what a file of compare.py holds, in the order of the cells."""
    found = []
    for cell in CELLS:
        rounds = results["cells"].get(cell.name, {})
        for figure, (_, more_is_better) in FIGURES.items():
            series = figures_of(rounds, figure)
            if series:
                found.append(_compare_one(cell, figure, series, more_is_better, results))
    return found


def figures_of(rounds, figure):
    """{engine: {round: value}} of the runs that have the figure."""
    series = {}
    for number, runs in rounds.items():
        for engine, run in runs.items():
            if (value := run.get("figures", {}).get(figure)) is not None:
                series.setdefault(engine, {})[number] = value
    return series


def _compare_one(cell, figure, series, more_is_better, results):
    values = {engine: Spread(list(each.values())) for engine, each in series.items()}
    ours, ratios = series.get(US, {}), {}
    for engine, theirs in series.items():
        both = [number for number in ours if number in theirs and theirs[number] and ours[number]]
        if engine != US and both:
            pairs = [(ours[number], theirs[number]) for number in both]
            ratios[engine] = Spread([a / b if more_is_better else b / a for a, b in pairs])
    peers = [engine for engine in values if engine != US]
    pick = max if more_is_better else min
    best = pick(peers, key=lambda engine: values[engine].median) if peers else None
    comparison = Comparison(cell, figure, values, ratios, best)
    if figure == "tok_s" and ours and (cell.row or cell.bound_of):
        _add_bound(comparison, ours, results["cells"].get(cell.bound_of or cell.name, {}))
    return comparison


def _add_bound(comparison, ours, rounds):
    """The bound as it was measured in the same round."""
    bounds = figures_of(rounds, "bound_tok_s").get(US, {})
    both = [number for number in ours if number in bounds]
    if both:
        comparison.bound = Spread([bounds[number] for number in both])
        comparison.fraction = Spread([100 * ours[number] / bounds[number] for number in both])


def failures(results):
    """(cell, engine, what was said) of runs that failed, each once."""
    seen = {}
    for name, rounds in results["cells"].items():
        for runs in rounds.values():
            for engine, run in runs.items():
                if "error" in run:
                    seen[name, engine] = run["error"]
    return [(name, engine, said) for (name, engine), said in seen.items()]


def disturbed(results):
    """(runs that were kept though others took more than the limit, runs in all)."""
    runs = [
        run
        for rounds in results["cells"].values()
        for each in rounds.values()
        for run in each.values()
    ]
    return sum(run.get("disturbed", False) for run in runs), len(runs)
