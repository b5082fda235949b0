"""Error cases of QUIC, TLS, HTTP/3 and QPACK: what a client does wrong, and the error that a server has to raise.

The cases of the public suite h3spec (https://github.com/kazu-yamamoto/h3spec, state of April 2025) stand here by their
own words, written anew on `raw_quic`, then what it has had since, and more of the same kind, from the same RFCs.
`docs/conformance.md` is generated from what stands here, and each case is run against the program.
"""

from . import transport, tls, http3, qpack  # isort: skip
from .case import CASES, Case, Result, Suite, Target
from .lacks import LACKS, Lack
from .report import document

__all__ = [
    "CASES",
    "LACKS",
    "Case",
    "Lack",
    "Result",
    "Suite",
    "Target",
    "document",
    "http3",
    "qpack",
    "tls",
    "transport",
]
