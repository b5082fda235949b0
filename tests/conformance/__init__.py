"""Error cases of QUIC, TLS, HTTP/3 and QPACK: a client's violation, and the error that the server
must raise.

The cases of the public suite h3spec (https://github.com/kazu-yamamoto/h3spec, state of April 2025)
are here under their own names, rewritten on `raw_quic`, with the cases added since, and more of the
same kind from the same RFCs. `docs/conformance.md` is generated from this package, and each case
runs against the program.
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
