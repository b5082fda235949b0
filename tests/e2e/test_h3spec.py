"""Errors of QUIC, TLS, HTTP/3 and QPACK that h3spec checks, and more: the server must raise each of
them.

The cases are in the package `conformance`; here each becomes a test named after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance import CASES, LACKS, Case, Lack, Result, Suite, Target, document
from harness.server import REPOSITORY

PAGE = REPOSITORY / "docs" / "conformance.md"
SUITES = {Suite.H3SPEC: 50, Suite.NEWER: 21}
"""Number of cases of the public suite, in the versions that are implemented here."""


def parameter(case: Case):
    marks = (
        [pytest.mark.xfail(strict=True, raises=AssertionError, reason=case.known)]
        if case.known
        else []
    )
    return pytest.param(case, marks=marks, id=case.name)


@pytest.fixture(scope="module")
def target(shared_server, identity) -> Iterator[Target]:
    target = Target(shared_server.origin, identity.ca)
    yield target
    with target.http() as h3:
        answer = h3.fetch("/small.txt")
    assert (answer.status, answer.body) == (200, b"a small file\n"), (
        "an honest client is no longer served"
    )


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_server_raises(target: Target, case: Case):
    result = Result.of(case.run(target))
    assert case.passes(result), f"the server did this: {result}"


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.what)
def test_transport_lacks(target: Target, lack: Lack):
    assert lack.is_so(target)


def test_cases_of_the_public_suite_are_complete():
    for suite, cases in SUITES.items():
        assert sum(case.suite == suite for case in CASES) == cases
    assert len({case.name for case in CASES}) == len(CASES)


def test_conformance_md_is_current():
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(document())
    assert PAGE.read_text() == document(), (
        "docs/conformance.md is out of date: run this test with UPDATE_DOCS=1"
    )
