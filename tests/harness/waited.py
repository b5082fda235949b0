"""A pytest plugin that lists the tests that slept longest at the end of a run: it reveals fixed
waits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 10
NOTES = "PRONGHORN_RUN_NOTES"
"""File for the summary of `scripts/stages` after all stages, if set: which tests took and slept
longest.
"""
KEY = "slept_seconds"

slept = 0.0
"""Seconds that the running test has spent in `time.sleep` and `asyncio.sleep`, summed over parallel
tasks.
"""


def pytest_configure(config: pytest.Config) -> None:
    sleep, sleep_in_loop = time.sleep, asyncio.sleep

    def counted(seconds: float) -> None:
        global slept
        begin = time.monotonic()
        sleep(seconds)
        slept += time.monotonic() - begin

    async def counted_in_loop(delay: float, result: object = None) -> object:
        global slept
        begin = time.monotonic()
        try:
            return await sleep_in_loop(delay, result)
        finally:
            # A cancelled sleep did not last all of it.
            slept += time.monotonic() - begin

    time.sleep, asyncio.sleep = counted, counted_in_loop
    # An xdist worker reports to the process that prints.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(), "pronghorn-waited")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global slept
    slept = 0.0
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    # The report carries it from an xdist worker to the process that prints.
    if call.when == "teardown" and slept > 0:
        outcome.get_result().user_properties.append((KEY, slept))


class Table:
    """Collects the reports' values and prints them."""

    def __init__(self) -> None:
        self.slept: Counter[str] = Counter()
        self.took: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took[report.nodeid] += report.duration
        if report.when == "teardown":
            self.slept[report.nodeid] += sum(
                value for name, value in report.user_properties if name == KEY
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slept = rows(self.slept)
        if slept:
            terminalreporter.section(f"waited for time, {self.slept.total():.0f} s in all")
            terminalreporter.write("".join(slept))
        if path := os.environ.get(NOTES):
            with Path(path).open("a") as notes:
                notes.writelines(["tests that took longest, in seconds\n", *rows(self.took)])
                notes.writelines(["tests that slept longest, in seconds\n", *slept])


def rows(seconds: Counter[str]) -> list[str]:
    return [f"{each:6.1f} {test}\n" for test, each in seconds.most_common(SHOWN) if each >= 0.5]
