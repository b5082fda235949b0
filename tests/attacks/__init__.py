"""Attacks on servers of HTTP, by their names, and what stops them here.

The attacks stand in a file for each protocol. `docs/security.md` is generated from them; `e2e/test_attacks.py` carries
each out against the program.
"""

from . import transport, http3, tcp  # isort: skip
from .attack import ATTACKS, Attack, Elsewhere, Outcome, Uncovered, carry_out

__all__ = ["ATTACKS", "Attack", "Elsewhere", "Outcome", "Uncovered", "carry_out", "transport"]
