"""HTTP request smuggling: published messages that two parsers interpret differently.

A case has the exact bytes, the publication, and the result of a strict parser of RFC 9112. Each
contains a request, `INNER`, where a lenient parser would find one, and is followed by an honest
request, the marker.
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
