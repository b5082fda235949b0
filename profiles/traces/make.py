#!/usr/bin/env python3
"""Writes the rate traces of this folder, reproducibly: a line is a millisecond in which 1500 bytes may pass.

The rates are random, not recorded. Their distribution is modelled on public recordings of LTE while
driving, which have 0.7 Mbit/s down at the 5th percentile of seconds, 5.4 at the median and 9.5 at the
95th, and about a third of that up. The resulting rates are printed.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

SECONDS = 40
STEP_MS = 20
# Approximate length of a good or a bad stretch.
MEMORY_MS = 2000
# Parameters of the logistic curve that maps a normal draw to a share of the highest rate; it has a
# longer tail below than above.
MIDDLE, ABOVE, BELOW = -0.04, 1.12, 1.62
OPPORTUNITY_BITS = 12_000


def normal(draws: random.Random) -> float:
    """Returns the sum of twelve uniform draws, which are the same in every version of Python."""
    return sum(draws.random() for _ in range(12)) - 6


def trace(seed: int, highest_mbit_per_second: float) -> list[int]:
    """Returns the milliseconds in which a packet may pass, in order."""
    draws = random.Random(seed)
    kept = math.exp(-STEP_MS / MEMORY_MS)
    state, bits, lines = normal(draws), 0.0, []
    for ms in range(1, SECONDS * 1000 + 1):
        if ms % STEP_MS == 1:
            state = kept * state + math.sqrt(1 - kept**2) * normal(draws)
        share = 1 / (1 + math.exp(-(MIDDLE + (ABOVE if state > 0 else BELOW) * state)))
        bits += share * highest_mbit_per_second * 1000
        while bits >= OPPORTUNITY_BITS:
            bits -= OPPORTUNITY_BITS
            lines.append(ms)
    return lines


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, seed, highest in [("lte-driving-down", 1, 11.0), ("lte-driving-up", 2, 4.0)]:
        lines = trace(seed, highest)
        (folder / f"{name}.trace").write_text("".join(f"{ms}\n" for ms in lines))
        seconds = sorted(
            sum(1 for ms in lines if (ms - 1) // 1000 == second) * 0.012
            for second in range(SECONDS)
        )
        low, middle, high = (seconds[int(len(seconds) * share)] for share in (0.05, 0.5, 0.95))
        print(
            f"{name}: {low:.1f}, {middle:.1f} and {high:.1f} Mbit/s in the worst, middle and best seconds"
        )


if __name__ == "__main__":
    main()
