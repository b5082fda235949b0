"""The lab's statistics compared with SciPy.

`packages/lab/test/fixtures/statistics.json` has inputs and SciPy's results for them; the lab's own
tests compare the lab with that file. Here SciPy computes the results again, so that the file stays
true. `UPDATE_DOCS=1` rewrites it.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

FIXTURE = Path(__file__).parents[2] / "packages" / "lab" / "test" / "fixtures" / "statistics.json"
# The time of a load that did not complete: in ranks, any number larger than all others works.
NEVER = 1e6
# Enough resamples to fix the ends of an interval to about a hundredth of its width.
RESAMPLES = 9_999
# Ties that only binary fractions hide count as ties.
DECIMALS = 9


def times(values: list[float | None]) -> np.ndarray:
    return np.array([math.inf if value is None else value for value in values])


def differences(base: np.ndarray, arm: np.ndarray) -> np.ndarray:
    """Arm minus base: infinite if one did not complete, 0 if neither did."""
    with np.errstate(invalid="ignore"):
        return np.where(base == arm, 0.0, arm - base)


def expectation(case: dict[str, Any]) -> dict[str, Any]:
    base, arm = times(case["base"]), times(case["arm"])
    diffs = differences(base, arm)
    ranked = np.clip(np.round(diffs, DECIMALS), -NEVER, NEVER)
    known = {
        "wilcoxon": wilcoxon(ranked[ranked != 0]),
        "mannWhitney": mann_whitney(np.minimum(arm, NEVER), np.minimum(base, NEVER)),
        "shift": hodges_lehmann(diffs),
    }
    if np.isfinite(base).all() and np.isfinite(arm).all():
        known["medianRatio"] = float(np.median(arm) / np.median(base))
        known["intervals"] = intervals(base, arm)
    return known


def wilcoxon(diffs: np.ndarray) -> float:
    """Exact for up to 50 differences, with ties by permutation over 2^n resamples; above that, the
    normal approximation.
    """
    ties = len(set(np.abs(diffs))) < len(diffs)
    if len(diffs) > 50:
        result = stats.wilcoxon(diffs, correction=True, method="asymptotic")
    elif ties:
        result = stats.wilcoxon(diffs, method=stats.PermutationMethod(n_resamples=2 ** len(diffs)))
    else:
        result = stats.wilcoxon(diffs, method="exact")
    return float(result.pvalue)


def mann_whitney(arm: np.ndarray, base: np.ndarray) -> float:
    ties = len(set([*arm, *base])) < len(arm) + len(base)
    if len(arm) > 20:
        result = stats.mannwhitneyu(arm, base, method="asymptotic")
    elif ties:
        ways = math.comb(2 * len(arm), len(arm))
        result = stats.mannwhitneyu(arm, base, method=stats.PermutationMethod(n_resamples=ways))
    else:
        result = stats.mannwhitneyu(arm, base, method="exact")
    return float(result.pvalue)


def hodges_lehmann(diffs: np.ndarray, axis: int = -1) -> Any:
    """Median of the Walsh averages, by listing them. Infinities of opposite signs cancel."""
    first, second = np.triu_indices(diffs.shape[axis])
    with np.errstate(invalid="ignore"):
        averages = (diffs[..., first] + diffs[..., second]) / 2
    found = np.median(np.where(np.isnan(averages), 0.0, averages), axis=axis)
    return float(found) if np.ndim(found) == 0 else found


def intervals(base: np.ndarray, arm: np.ndarray) -> dict[str, list[float]]:
    def median_ratio(arm: np.ndarray, base: np.ndarray, axis: int = -1) -> Any:
        return np.median(arm, axis=axis) / np.median(base, axis=axis)

    def shift(arm: np.ndarray, base: np.ndarray, axis: int = -1) -> Any:
        return hodges_lehmann(arm - base, axis)

    def mean_ratio(arm: np.ndarray, base: np.ndarray, axis: int = -1) -> Any:
        return np.mean(arm, axis=axis) / np.mean(base, axis=axis)

    found = {}
    for name, statistic in {
        "medianRatio": median_ratio,
        "shift": shift,
        "meanRatio": mean_ratio,
    }.items():
        interval = stats.bootstrap(
            (arm, base),
            statistic,
            n_resamples=RESAMPLES,
            batch=500,
            paired=True,
            vectorized=True,
            method="BCa",
            rng=np.random.default_rng(1),
        ).confidence_interval
        found[name] = [float(interval.low), float(interval.high)]
    return found


def binomials() -> list[dict[str, float]]:
    """Ranks that enclose quantiles, by SciPy's binomial distribution, with at most 2.5 % outside on
    either side.
    """
    found = []
    for n in [5, 6, 10, 50, 100, 367, 368, 400, 1200]:
        for percent in [50, 90, 99]:
            below = stats.binom(n, percent / 100)
            low = sum(1 for rank in range(n) if below.cdf(rank) <= 0.025)
            high = n + 1 - sum(1 for rank in range(n) if below.sf(rank) <= 0.025)
            row = {"n": n, "percent": percent}
            row |= {"low": low} if low > 0 else {}
            row |= {"high": high} if high <= n else {}
            found.append(row)
    return found


def shares() -> list[dict[str, float]]:
    found = []
    for hits, n in [(0, 50), (1, 50), (37, 50), (50, 50), (997, 1000)]:
        exact = stats.binomtest(hits, n).proportion_ci(method="exact")
        found.append({"hits": hits, "n": n, "low": exact.low, "high": exact.high})
    return found


def controls() -> list[dict[str, int]]:
    return [
        {"intervals": n, "allowed": int(stats.binom.ppf(0.975, n, 0.05))}
        for n in [1, 3, 12, 20, 60, 400]
    ]


def holm() -> dict[str, list[float]]:
    """Holm's adjustment is not in SciPy; by definition it is the running maximum of the steps."""
    ps = [0.01, 0.04, 0.03, 0.005, 0.9, 0.03]
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(1, np.array(ps)[order] * np.arange(len(ps), 0, -1))
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(steps)
    return {"ps": ps, "adjusted": [float(p) for p in adjusted]}


def expected(fixture: dict[str, Any]) -> dict[str, Any]:
    return {
        "cases": [
            {
                "name": case["name"],
                "base": case["base"],
                "arm": case["arm"],
                "expected": expectation(case),
            }
            for case in fixture["cases"]
        ],
        "quantileRanks": binomials(),
        "shares": shares(),
        "controls": controls(),
        "holm": holm(),
    }


def test_fixture_matches_scipy() -> None:
    fixture = json.loads(FIXTURE.read_text())
    now = expected(fixture)
    if os.environ.get("UPDATE_DOCS"):
        FIXTURE.write_text(in_lines(now))
        return
    assert flat(fixture) == pytest.approx(flat(now), rel=1e-9, abs=1e-12)


def flat(value: Any, path: str = "") -> dict[str, float]:
    """Lists each number by its path, so that all are compared at once."""
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flat(part, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {
            k: v for at, part in enumerate(value) for k, v in flat(part, f"{path}[{at}]").items()
        }
    return {path: value} if isinstance(value, int | float) else {}


def in_lines(fixture: dict[str, Any]) -> str:
    """Writes JSON with one line per list element."""
    parts = []
    for name, value in fixture.items():
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(each) for each in value)
            parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
