#!/usr/bin/env python3
"""Compares the pauses of `jitter_ms` with those of recorded links; docs/link.md quotes the output.

    pauses.py TRACE...      files in Mahimahi's format, such as those of github.com/ravinet/mahimahi (GPL)

From each recording, it uses the seconds with 9 to 15 Mbit/s, which the profile lte represents, and
without a pause above 16 ms, which profiles model as outages. A packet waits for the next millisecond
in which packets pass. The last lines are the pauses of crates/link/src/scheduler/jitter.rs, and a
delay that changes linearly from one value to the next over 10 ms, as in earlier versions.
"""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path

SECOND_MS = 1000
OPPORTUNITY_MBIT = 0.012
MBIT_PER_SECOND = (9, 15)
LONGEST_PAUSE_MS = 16
LAGS_MS = (2, 5, 10)
LATE_MS = (2, 4)
MODEL_SECONDS = 200


def waits_of(second: list[int]) -> list[int]:
    """Returns the wait of a packet at each millisecond, up to the last one in which packets pass."""
    passes = sorted(set(second))
    waits, at = [], 0
    for ms in range(passes[-1] + 1):
        while passes[at] < ms:
            at += 1
        waits.append(passes[at] - ms)
    return waits


def recorded(path: Path) -> list[list[float]]:
    """Returns the waits in each second with the selected rate."""
    seconds: dict[int, list[int]] = {}
    for line in path.read_text().split():
        second, ms = divmod(int(line), SECOND_MS)
        seconds.setdefault(second, []).append(ms)
    low, high = MBIT_PER_SECOND
    waits = [waits_of(ms) for ms in seconds.values() if low <= len(ms) * OPPORTUNITY_MBIT <= high]
    return [second for second in waits if max(second) <= LONGEST_PAUSE_MS]


def pauses(longest_ms: float) -> list[list[float]]:
    """Draws one pause in each slot, like jitter.rs."""
    draws = random.Random(1)
    slot_ms = 1.5 * longest_ms
    waits: list[float] = [0.0] * (MODEL_SECONDS * SECOND_MS)
    for slot in range(int(len(waits) / slot_ms)):
        length = draws.uniform(0, longest_ms)
        begins = slot * slot_ms + draws.uniform(0, slot_ms - length)
        for ms in range(int(begins) + 1, int(begins + length) + 1):
            if ms < len(waits):
                waits[ms] = begins + length - ms
    return [waits]


def straight_lines(bound_ms: float, step_ms: int = 10) -> list[list[float]]:
    """Draws a new value at each step, with linear interpolation in between."""
    draws = random.Random(1)
    values = [
        draws.uniform(0, 2 * bound_ms) for _ in range(MODEL_SECONDS * SECOND_MS // step_ms + 1)
    ]
    return [[a + (b - a) * ms / step_ms for a, b in pairwise(values) for ms in range(step_ms)]]


def correlation(seconds: list[list[float]], lag_ms: int) -> float:
    """Returns the correlation of the waits of two packets with this lag, within a second."""
    together = varies = 0.0
    for waits in seconds:
        mean = sum(waits) / len(waits)
        pairs = list(zip(waits, waits[lag_ms:], strict=False))
        together += sum((first - mean) * (second - mean) for first, second in pairs) / len(pairs)
        varies += sum((wait - mean) ** 2 for wait in waits) / len(waits)
    return together / varies


def main() -> None:
    rows = {Path(name).name: recorded(Path(name)) for name in sys.argv[1:]}
    rows |= {f"pauses of up to {ms} ms": pauses(ms) for ms in (6, 8)}
    rows["straight lines, 8 ms"] = straight_lines(8)
    late = [f"> {ms} ms" for ms in LATE_MS]
    lags = [f"{ms} ms" for ms in LAGS_MS]
    print("| link | seconds |", " | ".join(f"waits {each}" for each in late), "|", end=" ")
    print(" | ".join(f"correlation after {each}" for each in lags), "|")
    print("|---" * (2 + len(late) + len(lags)) + "|")
    for name, seconds in rows.items():
        waits = [wait for second in seconds for wait in second]
        if not waits:
            continue
        cells = [name, str(len(waits) // SECOND_MS)]
        if seconds is not rows["straight lines, 8 ms"]:
            cells += [f"{sum(wait > ms for wait in waits) / len(waits):.0%}" for ms in LATE_MS]
        else:
            cells += ["" for _ in LATE_MS]
        print("|", " | ".join(cells + [f"{correlation(seconds, lag):.2f}" for lag in LAGS_MS]), "|")


if __name__ == "__main__":
    main()
