"""Waiting for a condition, never for an amount of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 30.0
"""How long anything may take on a loaded machine before the test gives up. No test's verdict depends on it."""


def eventually(what: str, condition: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Asks until the condition holds and returns what it gave; fails with `what` and the last answer."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s; the last answer was {answer!r}")
        time.sleep(0.02)
