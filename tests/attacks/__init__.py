"""Attacks on HTTP servers, by name, and the limits that stop them.

Each transport has a file of attacks. `docs/security.md` is generated from them;
`e2e/test_attacks.py` runs each against the program.
"""

from . import transport, http3, tcp  # isort: skip
from .attack import ATTACKS, Attack, Outcome, carry_out
from .elsewhere import ELSEWHERE, UNCOVERED, is_there
from .gateway import ON_GATEWAY
from .report import document, note

__all__ = [
    "ATTACKS",
    "ELSEWHERE",
    "ON_GATEWAY",
    "UNCOVERED",
    "Attack",
    "Outcome",
    "carry_out",
    "document",
    "http3",
    "is_there",
    "note",
    "tcp",
    "transport",
]
