"""Medians, spreads, ratios and verdicts: pure functions of the figures of single runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from .tables import Bound

Cell = tuple[str, str, str]
"""Workload, generator and contestant."""


@dataclass(frozen=True)
class Spread:
    """Figures of one measure over the rounds."""

    by_round: Mapping[int, float]

    @property
    def median(self) -> float:
        return median(self.by_round.values())

    @property
    def low(self) -> float:
        return min(self.by_round.values())

    @property
    def high(self) -> float:
        return max(self.by_round.values())


@dataclass(frozen=True)
class Ratio:
    """One cell's figures divided by another's: the ratio of the medians, and the smallest and
    largest within one round.
    """

    of_medians: float
    low: float
    high: float


def spreads(runs: Iterable[dict]) -> dict[Cell, dict[str, Spread]]:
    """Collects the figures of all successful runs by cell and measure."""
    figures: dict[Cell, dict[str, dict[int, float]]] = {}
    for run in runs:
        if run["error"] is not None:
            continue
        cell = figures.setdefault((run["workload"], run["generator"], run["contestant"]), {})
        for measure, value in run["figures"].items():
            if value is not None:
                cell.setdefault(measure, {})[run["round"]] = value
    return {
        cell: {measure: Spread(by_round) for measure, by_round in measures.items()}
        for cell, measures in figures.items()
    }


def ratio(ours: Spread, theirs: Spread) -> Ratio | None:
    """Returns None without a common round, or if the divisor is zero."""
    common = [turn for turn in ours.by_round if theirs.by_round.get(turn)]
    if not common or not theirs.median:
        return None
    within = [ours.by_round[turn] / theirs.by_round[turn] for turn in common]
    return Ratio(ours.median / theirs.median, min(within), max(within))


@dataclass(frozen=True)
class Verdict:
    """Result of one bound."""

    workload: str
    generator: str
    bound: Bound
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        if self.bound.at_most is None and self.bound.at_least is None:
            return ""
        always = self.bound.allows(self.low) and self.bound.allows(self.high)
        if self.bound.allows(self.value):
            return "met" if always else "met, not in every round"
        return (
            "missed, within the spread"
            if self.bound.allows(self.low) or self.bound.allows(self.high)
            else "missed"
        )

    @property
    def holds(self) -> bool:
        return self.value is not None and self.bound.allows(self.value)


def verdict(
    workload: str, generator: str, bound: Bound, table: Mapping[Cell, Mapping[str, Spread]]
) -> Verdict:
    ours = table.get((workload, generator, bound.of), {}).get(bound.measure)
    if ours is None:
        return Verdict(workload, generator, bound, None)
    if bound.peer is None and bound.workload is None:
        return Verdict(workload, generator, bound, ours.median, ours.low, ours.high)
    other = (bound.workload or workload, generator, bound.peer or bound.of)
    theirs = table.get(other, {}).get(bound.measure)
    between = ratio(ours, theirs) if theirs is not None else None
    if between is None:
        return Verdict(workload, generator, bound, None)
    return Verdict(workload, generator, bound, between.of_medians, between.low, between.high)


def overlap(one: Spread, other: Spread) -> bool:
    return one.low <= other.high and other.low <= one.high


def si(value: float) -> str:
    """Formats a number with three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"
