"""`docs/conformance.md`, written from the cases."""

from __future__ import annotations

from collections.abc import Iterable

from .case import CASES, Case, Suite
from .lacks import LACKS

HEAD = """\
<!-- Generated from tests/conformance: UPDATE_DOCS=1 .venv/bin/python -m pytest -c tests/pytest.ini -k conformance_md -->

# Conformance

What a client does wrong, and the error that the server has to raise. A client of ours sends single frames, packets and
TLS messages that no library would; `make test-e2e` runs each case against the program and fails when a result differs
from this page. A case passes with the error that its RFC names, not with a generic one. The cause of a known failure is
in a library.

HTTP/2 is checked by h2spec in strict mode, which finds nothing. One rule that it looks for is kept in part: a flow-control
window that overflows (RFC 9113 6.9.1) is an error as long as the answer has not been sent to its end; after that the
library h2 does not look at it.
"""  # noqa: E501

H3SPEC = """
## The cases of h3spec

The public suite [h3spec](https://github.com/kazu-yamamoto/h3spec), in its own words and section names (Transport: RFC
9000, TLS: RFC 9001, HTTP/3: RFC 9114, QPACK: RFC 9204). It is written for a compiler that the tests do not have, so its
cases are written anew here.
"""

NEWER = """
## What it has had since then

Of its HTTP/3 and QPACK part, which now stands beside the library that its author tests with it. The later state of the
QUIC part was not to be found; more cases of that kind stand below.
"""

OURS = """
## More of the same kind

"""

LACKING = """
## What the transport does not have

| what | where it stands | what follows |
|---|---|---|
"""


def document() -> str:
    """The page."""
    public, newer, ours = (table(each for each in CASES if each.suite == suite) for suite in Suite)
    lacking = "".join(f"| {lack.what} | {lack.where} | {lack.consequence} |\n" for lack in LACKS)
    return HEAD + H3SPEC + "\n" + public + NEWER + "\n" + newer + OURS + ours + LACKING + lacking


def table(cases: Iterable[Case]) -> str:
    rows = ["| case | error | section | result |", "|---|---|---|---|"]
    rows += [f"| {cell(case.words)} | {error_of(case)} | {case.section} | {result_of(case)} |" for case in cases]
    return "\n".join(rows) + "\n"


def error_of(case: Case) -> str:
    return " or ".join(f"`{error.name}`" for error in case.errors) or "none"


def result_of(case: Case) -> str:
    return f"known failure: {case.known}" if case.known else "passes"


def cell(text: str) -> str:
    return text.replace("|", "\\|")
