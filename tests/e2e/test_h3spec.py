"""Each error of QUIC, TLS, HTTP/3 and QPACK that h3spec looks for, and more: does the server raise it?

The cases stand in the package `conformance`; here each becomes a test named after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance import CASES, LACKS, Case, Lack, Result, Suite, Target, document
from harness.server import REPOSITORY

PAGE = REPOSITORY / "docs" / "conformance.md"
SUITES = {Suite.H3SPEC: 50, Suite.NEWER: 21}
"""How many cases the public suite has in the states that are written out here."""


def parameter(case: Case):
    marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason=case.known)] if case.known else []
    return pytest.param(case, marks=marks, id=case.name)


@pytest.fixture(scope="module")
def target(shared_server, identity) -> Iterator[Target]:
    target = Target(shared_server.origin, identity.ca)
    yield target
    with target.http() as h3:
        answer = h3.fetch("/small.txt")
    assert (answer.status, answer.body) == (200, b"a small file\n"), "an honest client is not served any more"


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_server_raises(target: Target, case: Case):
    result = Result.of(case.run(target))
    assert case.passes(result), f"it did this: {result}"


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
    assert PAGE.read_text() == document(), "run it with UPDATE_DOCS=1"
