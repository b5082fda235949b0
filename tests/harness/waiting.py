"""Waiting for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 60.0
"""Longest time for any step on a loaded machine before the test fails. No verdict depends on it."""


def eventually(what: str, condition: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Polls until the condition holds; returns its value, or fails with `what` and the last one."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s; the last value was {answer!r}")
        time.sleep(0.02)
