"""HTTP request smuggling: messages that two readers take for different ones, from what was published about it.

A case is the exact bytes, where it comes from, and what a strict reader of RFC 9112 makes of it. Each holds a request
of its own, `INNER`, where a lenient reader would find one, and is followed by an honest one, the marker.
"""

from .http1 import CASES
from .message import MARKER_SIZE, Answer, Case, answers
from .multiplexed import FIELD_CASES, FieldCase
from .mutation import mutated
from .strict import Message, messages

__all__ = [
    "CASES",
    "FIELD_CASES",
    "MARKER_SIZE",
    "Answer",
    "Case",
    "FieldCase",
    "Message",
    "answers",
    "messages",
    "mutated",
]
