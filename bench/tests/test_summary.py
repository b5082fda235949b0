"""Medians, ratios and verdicts from figures of single runs."""

from __future__ import annotations

import pytest

from bench.report import markdown
from bench.summary import Bound, ratio, si, spreads, verdict
from bench.tables import Workload


def run(
    contestant: str,
    turn: int,
    cpu: float,
    *,
    generator: str = "load",
    error: str | None = None,
    **more,
) -> dict:
    return {
        "workload": "small",
        "contestant": contestant,
        "generator": generator,
        "round": turn,
        "figures": {"cpu_us_per_request": cpu},
        "load": {"requests": 1000, "body_bytes": 13_000},
        "quiet": True,
        "foreign_cores": 0.0,
        "stolen_cores": 0.0,
        "error": error,
        **more,
    }


def small(*bounds: Bound) -> Workload:
    return Workload("small", "requests", "h3", "13.txt", 10, 100, 1000, bounds=bounds)


OURS = [run("pronghorn", turn, cpu) for turn, cpu in enumerate([1.0, 1.2, 1.1, 9.0, 0.9], 1)]
THEIRS = [run("nginx", turn, cpu) for turn, cpu in enumerate([2.0, 2.2, 2.4, 2.1, 2.3], 1)]


def test_spread_is_the_median_with_lowest_and_highest_round():
    spread = spreads(OURS)["small", "load", "pronghorn"]["cpu_us_per_request"]
    assert (spread.median, spread.low, spread.high) == (1.1, 0.9, 9.0)


def test_failed_runs_are_excluded_from_the_spread():
    table = spreads([run("pronghorn", 1, 1.0), run("pronghorn", 2, 5.0, error="it fell over")])
    assert table["small", "load", "pronghorn"]["cpu_us_per_request"].high == 1.0


def test_ratio_is_of_medians_with_the_range_of_single_rounds():
    table = spreads(OURS + THEIRS)
    between = ratio(
        *(table["small", "load", name]["cpu_us_per_request"] for name in ("pronghorn", "nginx"))
    )
    assert between.of_medians == pytest.approx(0.5)
    assert between.low == pytest.approx(0.9 / 2.3)
    assert between.high == pytest.approx(9.0 / 2.1)


@pytest.mark.parametrize(
    ("at_most", "word"),
    [
        (5.0, "met"),
        (0.5, "met, not in every round"),
        (0.45, "missed, within the spread"),
        (0.3, "missed"),
    ],
)
def test_verdict_says_whether_single_rounds_agree(at_most, word):
    found = verdict(
        "small", "load", Bound("cpu_us_per_request", at_most, peer="nginx"), spreads(OURS + THEIRS)
    )
    assert found.word == word
    assert found.holds == word.startswith("met")


def test_bound_without_a_peer_applies_to_the_figure_itself():
    table = spreads(OURS)
    assert verdict("small", "load", Bound("cpu_us_per_request", 1.1), table).holds
    assert not verdict("small", "load", Bound("cpu_us_per_request", 1.0), table).holds


@pytest.mark.parametrize(
    ("at_least", "word"),
    [
        (0.9, "met"),
        (1.05, "met, not in every round"),
        (9.5, "missed"),
        (1.2, "missed, within the spread"),
    ],
)
def test_lower_bound_is_met_above_it(at_least, word):
    found = verdict("small", "load", Bound("cpu_us_per_request", at_least=at_least), spreads(OURS))
    assert found.word == word
    assert found.holds == word.startswith("met")


def test_bound_without_a_limit_is_reported_with_its_note():
    http = [entry | {"workload": "other"} for entry in THEIRS]
    bound = Bound("cpu_us_per_request", peer="nginx", workload="other", note="the article says 16")
    found = verdict("small", "load", bound, spreads(OURS + http))
    assert (found.value, found.word) == (pytest.approx(0.5), "")
    assert (bound.against, bound.words) == ("nginx's under other", "the article says 16")


def test_bound_to_an_absent_peer_is_not_measured():
    found = verdict("small", "load", Bound("cpu_us_per_request", 1.0, peer="h2o"), spreads(OURS))
    assert found.word == "not measured"
    assert not found.holds


def test_bound_may_apply_to_another_contestant():
    found = verdict(
        "small",
        "load",
        Bound("cpu_us_per_request", 3.0, of="nginx", peer="pronghorn"),
        spreads(OURS + THEIRS),
    )
    assert found.value == pytest.approx(2.0)


def test_bound_to_another_workload_uses_our_own_figures():
    other = [entry | {"workload": "full"} for entry in THEIRS]
    table = spreads(OURS + [entry | {"contestant": "pronghorn"} for entry in other])
    found = verdict("small", "load", Bound("cpu_us_per_request", 0.6, workload="full"), table)
    assert found.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345.6, "12,346"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
    ],
)
def test_figures_have_three_digits(value, text):
    assert si(value) == text


def test_report_shows_noise_failures_absence_and_disagreement():
    runs = [
        *OURS,
        *THEIRS,
        run("pronghorn", 1, 3.0, generator="h2load", load={"requests": 999, "body_bytes": 12_987}),
        run("nginx", 1, 2.1, generator="h2load", quiet=False, foreign_cores=0.7),
        run("caddy", 1, 0.0, error="the server ended with 1"),
    ]
    entry = {"version": "1", "answers_from": "files", "notes": "", "fields": {"h3": ["date"]}}
    result = {
        "name": "a run",
        "command": "python -m bench",
        "commit": "abc1234",
        "started": "2026-01-01",
        "seed": 1,
        "rounds": 5,
        "scale": 1.0,
        "machine": {"cores": 2},
        "generators": {"load": "1", "h2load": "2"},
        "contestants": {"pronghorn": entry, "nginx": entry, "caddy": entry},
        "absent": {"h2o": "set PRONGHORN_BENCH_H2O to its path"},
        "runs": runs,
    }
    text = markdown(result, [small(Bound("cpu_us_per_request", 0.5, peer="nginx"))], ["small.svg"])
    assert "`python -m bench`, at abc1234, 2026-01-01, seed 1, 5 rounds." in text
    assert "in 1 of 12 runs other processes used over 0.1 of a processor, up to 0.70" in text
    assert "- caddy by load: the server ended with 1" in text
    assert "- h2o skipped: set PRONGHORN_BENCH_H2O to its path" in text
    assert (
        "| small | load | server CPU, µs per request (= ms per 1,000) by nginx's | ≤ 0.5 | 0.500 [0.391-4.29] |"
        in text
    )
    assert "| small | nginx | yes | 2.20 [2.00-2.40] | 2.10 [2.10-2.10] | 1.05 | yes |" in text
    assert "| small | pronghorn | no: {(1000, 13000)} and {(999, 12987)} |" in text
    assert "![small.svg](small.svg)" in text
