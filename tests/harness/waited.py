"""A plugin of pytest that lists at the end of a run the tests that slept longest: waits for luck show."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

SHOWN = 10
KEY = "slept_seconds"

slept = 0.0
"""Seconds that the running test has spent in `time.sleep` and `asyncio.sleep`, those of parallel tasks added up."""


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
            # One that is cancelled has not slept all of it.
            slept += time.monotonic() - begin

    time.sleep, asyncio.sleep = counted, counted_in_loop
    config.pluginmanager.register(Table(), "pronghorn-waited")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global slept
    slept = 0.0
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    # The report takes it from a worker of xdist to the process that prints.
    if call.when == "teardown" and slept > 0:
        outcome.get_result().user_properties.append((KEY, slept))


class Table:
    """Gathers what the reports say and prints it."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.of[report.nodeid] += sum(value for name, value in report.user_properties if name == KEY)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        longest = [(test, seconds) for test, seconds in self.of.most_common(SHOWN) if seconds >= 0.5]
        if longest:
            terminalreporter.section(f"waited for time, {self.of.total():.0f} s in all")
            for test, seconds in longest:
                terminalreporter.write_line(f"{seconds:6.1f}s {test}")
