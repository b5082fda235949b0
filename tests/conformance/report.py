"""`docs/conformance.md`, generated from the cases."""

from __future__ import annotations

from collections.abc import Iterable

from .case import CASES, Case, Suite
from .lacks import LACKS

HEAD = """\
<!-- Generated from tests/conformance: UPDATE_DOCS=1 .venv/bin/python -m pytest -c tests/pytest.ini -k conformance_md -->

# Conformance

This page lists protocol errors that a client can make over QUIC, TLS, HTTP/3 and QPACK, and the
error that the server must raise. Our own test client sends single frames, packets and TLS messages
that no library would send. `make test-e2e` runs each case against the program and fails if a result
differs from this page. A case passes with the error that its RFC names, not with a generic one. The
cause of a known failure is in a library.

h2spec checks HTTP/2 in strict mode and finds no failure. One of its rules is only partly enforced:
a flow-control window that overflows (RFC 9113 6.9.1) is an error until the response has been sent
to its end. After that the library h2 does not check it.
"""  # noqa: E501

H3SPEC = """
## The cases of h3spec

These are the cases of the public suite [h3spec](https://github.com/kazu-yamamoto/h3spec), with its
own names for cases and sections (Transport: RFC 9000, TLS: RFC 9001, HTTP/3: RFC 9114, QPACK: RFC
9204). The suite needs a compiler that the tests do not have, so its cases are written again here.
"""

NEWER = """
## Cases added to h3spec since

These are later cases of h3spec's HTTP/3 and QPACK part, which is now part of the library that its
author tests with it. A later state of the QUIC part could not be found; the next table has more
cases of that kind.
"""

OURS = """
## Our own cases

"""

LACKING = """
## What the transport does not support

| feature | specification | consequence |
|---|---|---|
"""


def document() -> str:
    """Renders the page."""
    public, newer, ours = (table(each for each in CASES if each.suite == suite) for suite in Suite)
    lacking = "".join(f"| {lack.what} | {lack.where} | {lack.consequence} |\n" for lack in LACKS)
    return HEAD + H3SPEC + "\n" + public + NEWER + "\n" + newer + OURS + ours + LACKING + lacking


def table(cases: Iterable[Case]) -> str:
    rows = ["| case | error | section | result |", "|---|---|---|---|"]
    rows += [
        f"| {cell(case.words)} | {error_of(case)} | {case.section} | {result_of(case)} |"
        for case in cases
    ]
    return "\n".join(rows) + "\n"


def error_of(case: Case) -> str:
    return " or ".join(f"`{error.name}`" for error in case.errors) or "none"


def result_of(case: Case) -> str:
    return f"known failure: {case.known}" if case.known else "passes"


def cell(text: str) -> str:
    return text.replace("|", "\\|")
