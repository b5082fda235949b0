"""Each error of QUIC, TLS, HTTP/3 and QPACK that h3spec looks for, and more: does the server raise it?

The cases stand in the package `conformance`; here each becomes a test named after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance import CASES, LACKS, Case, Lack, Result, Target, document
from harness.server import REPOSITORY

PAGE = REPOSITORY / "docs" / "conformance.md"
H3SPEC_CASES = 50
"""How many cases the public suite has in the state that is written out here."""


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
    assert result.code in case.errors, f"it did this: {result}"


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.what)
def test_transport_lacks(target: Target, lack: Lack):
    assert lack.is_so(target)


def test_cases_of_the_public_suite_are_complete():
    assert sum(not case.ours for case in CASES) == H3SPEC_CASES
    assert len({case.name for case in CASES}) == len(CASES)


def test_conformance_md_is_current():
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(document())
    assert PAGE.read_text() == document(), "run it with UPDATE_DOCS=1"
