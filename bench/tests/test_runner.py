"""Validity of runs, and the figures derived from them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.generators import Load
from bench.runner import FAILURES, Bench, RunError, check, figures, noise
from bench.tables import Workload


def load(**more) -> Load:
    seen = {
        "requests": 1000,
        "failed": 0,
        "body_bytes": 13_000,
        "seconds": 2.0,
        "requests_per_second": 500.0,
    }
    return Load(**{**seen, "p50_ms": 1.0, "p99_ms": 2.0, "connections": 10, "resumed": 0, **more})


def workload(kind: str = "requests", **more) -> Workload:
    return Workload(
        **{"name": "w", "kind": kind, "protocol": "h3", "file": "13.txt", "connections": 10, **more}
    )


@pytest.mark.parametrize(
    ("under", "seen", "message"),
    [
        (workload(), load(failed=1), "1 of 1001 requests failed"),
        (workload(), load(requests=999), "999 of 1000 requests were answered"),
        (
            workload("handshakes", resume=True),
            load(resumed=900),
            "only 900 of 1000 connections were resumed",
        ),
        (workload("idle"), load(connections=8), "8 of 10 connections were opened"),
        (workload("idle"), load(connections=12), "12 of 10 connections were opened"),
        (
            workload("idle", websocket=True),
            load(websockets=9),
            "9 of 10 WebSockets were open to the end",
        ),
    ],
)
def test_incomplete_run_is_rejected(under, seen, message):
    with pytest.raises(RunError, match=message):
        check(under, seen, 1000)


def test_complete_run_is_accepted():
    check(workload(), load(), 1000)
    check(workload("handshakes", resume=True), load(resumed=1000), 1000)
    check(workload("idle", rate=1.0, seconds=1.0), load(requests=3), None)


def test_figures_are_per_request_connection_and_volume():
    idle = (1000, 900)
    assert figures(workload(), load(), 0.005, idle, idle)["cpu_us_per_request"] == pytest.approx(5)
    assert figures(workload("handshakes"), load(), 0.3, idle, idle)[
        "cpu_ms_per_connection"
    ] == pytest.approx(0.3)
    large = figures(workload("transfer"), load(body_bytes=2 << 30), 1.5, idle, idle)
    assert large["cpu_s_per_gib"] == pytest.approx(0.75)
    assert large["gbit_per_second"] == pytest.approx((2 << 30) * 8 / 2 / 1e9)
    held = figures(workload("idle"), load(), 0.0, idle, (1250, 1000))
    assert held == {"rss_kib_per_connection": 25, "pss_kib_per_connection": 10}


def test_memory_figure_is_the_growth_after_requests():
    left = figures(workload("memory"), load(), 0.0, (1000, 900), (3048, 1000))
    assert left == {"rss_growth_mib": 2, "rss_bytes_per_request": pytest.approx(2048 * 1024 / 1000)}


def test_contestant_without_the_handler_is_skipped():
    made = bench(lambda *_: quiet())
    made.options.entrants[1].contestant.handlers = ("raw", "express")
    names = {run["contestant"] for run in made.runs([workload(handler="express")], ["load"])}
    assert names == {"nginx"}


def bench(answers) -> Bench:
    """Builds a bench whose runs come from a function of the contestant's name and the round."""
    made = object.__new__(Bench)
    names = ("pronghorn", "nginx")
    entrants = [
        SimpleNamespace(
            contestant=SimpleNamespace(
                name=name, protocols=("h3",), handlers=("raw",), websocket=None
            )
        )
        for name in names
    ]
    made.options = SimpleNamespace(seed=1, rounds=5, repeats=2, entrants=entrants)
    made.run = lambda load, entrant, generator, turn: {
        "contestant": entrant.contestant.name,
        "round": turn,
        **answers(entrant.contestant.name, turn),
    }
    return made


def quiet(**more) -> dict:
    return {"error": None, "quiet": True, "foreign_cores": 0.0, "stolen_cores": 0.0, **more}


def test_rounds_are_interleaved_in_a_seeded_order():
    runs = [
        (run["round"], run["contestant"])
        for run in bench(lambda *_: quiet()).runs([workload()], ["load"])
    ]
    assert sorted(runs) == sorted(
        (turn, name) for turn in range(1, 6) for name in ("nginx", "pronghorn")
    )
    assert [turn for turn, _ in runs] == sorted(turn for turn, _ in runs)
    assert runs == [
        (run["round"], run["contestant"])
        for run in bench(lambda *_: quiet()).runs([workload()], ["load"])
    ]


def test_failing_contestant_is_skipped_and_others_continue():
    answers = bench(lambda name, _: quiet(error="it hangs") if name == "nginx" else quiet())
    names = [run["contestant"] for run in answers.runs([workload()], ["load"])]
    assert (names.count("nginx"), names.count("pronghorn")) == (FAILURES, 5)


def test_run_on_a_busy_machine_is_repeated_and_the_quietest_counts():
    noises = iter([0.9, 0.3, 0.5])
    loud = bench(lambda *_: quiet(quiet=False, foreign_cores=next(noises)))
    run = loud.quiet_run(workload(), loud.options.entrants[0], "load", 1)
    assert (run["foreign_cores"], run["attempt"]) == (0.3, 2)
    assert next(noises, None) is None
    assert noise(run) == 0.3
