"""Other load on the machine, and the class of a machine for instruction counts."""

from __future__ import annotations

import os
import time

import pytest

from bench.instructions import TABLE as COUNTS
from bench.instructions import Count, machine_class, per_unit, read_table, with_counts
from bench.machine import CLOCK_TICKS_PER_SECOND, Others, Ticks
from bench.ours import OursError
from bench.processes import cpu_seconds, family


def stat(idle_seconds: float, steal_seconds: float = 0.0) -> str:
    idle, steal = (
        int(seconds * CLOCK_TICKS_PER_SECOND) for seconds in (idle_seconds, steal_seconds)
    )
    return f"cpu  5 0 5 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 0\n"


def test_foreign_load_is_neither_idle_nor_own_time():
    before, after = Ticks.parse(stat(100), 10.0), Ticks.parse(stat(105), 20.0)
    # Two processors for ten seconds; five of the twenty processor seconds are idle.
    others = Others.between(before, after, own_seconds=12.0)
    assert others.foreign == pytest.approx(0.3)
    assert others.stolen == 0


def test_stolen_time_does_not_count_as_a_local_process():
    before, after = Ticks.parse(stat(100, 1), 10.0), Ticks.parse(stat(106, 5), 20.0)
    others = Others.between(before, after, own_seconds=10.0)
    assert (others.foreign, others.stolen) == (pytest.approx(0.0), pytest.approx(0.4))


def test_cpu_time_of_a_process_matches_its_clock():
    before = time.process_time()
    found = cpu_seconds([os.getpid()])
    assert before <= found <= time.process_time()


def test_ended_processes_have_no_cpu_time():
    assert cpu_seconds([1 << 22]) == 0
    assert family(os.getpid())[0] == os.getpid()


def test_cost_per_unit_excludes_start_and_end():
    entry = Count("c", (), "/", fewer=10, more=30, growth=0.05, instructions=7)
    assert per_unit(entry, lambda units: 1_000_000 + 7 * units) == 7


@pytest.mark.parametrize(
    ("measured", "word"), [(104, "ok"), (106, "grown"), (96, "ok"), (94, "shrunk")]
)
def test_verdict_compares_a_count_with_its_bound(measured, word):
    assert Count("c", (), "/", 1, 2, growth=0.05, instructions=100).verdict(measured) == word


def test_updating_counts_leaves_the_rest_of_the_table_unchanged():
    text = COUNTS.read_text()
    machine, counts = read_table(text, "quick")
    assert all(entry.instructions > 0 for entry in counts)
    assert (
        with_counts(text, machine, "quick", {entry.name: entry.instructions for entry in counts})
        == text
    )
    raised = with_counts(text, "another class", "release", {counts[2].name: 1234567.4})
    assert read_table(raised, "release")[0] == "another class"
    assert read_table(raised, "release")[1][2].instructions == 1234567
    assert read_table(raised, "quick")[1] == counts
    assert read_table(raised, "release")[1][:2] == read_table(text, "release")[1][:2]
    with pytest.raises(OursError, match="no entry 'other'"):
        with_counts(text, machine, "quick", {"other": 1.0})


def test_class_is_the_processor_that_valgrind_reports():
    new, old = ["sse2", "avx", "avx2", "avx512f"], ["sse2", "avx", "avx2"]
    assert machine_class("valgrind-3.19.0", new) == machine_class("valgrind-3.19.1", old)
    assert machine_class("valgrind-3.19.0", new) != machine_class("valgrind-3.24.0", new)
    assert machine_class("valgrind-3.19.0", new) != machine_class("valgrind-3.19.0", ["sse2"])
