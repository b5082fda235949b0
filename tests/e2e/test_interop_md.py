"""Checks that `docs/interop.md` matches the tests."""

from __future__ import annotations

import os

from harness.interop_table import collected, document
from harness.server import REPOSITORY


def test_interop_md_is_current():
    page = REPOSITORY / "docs" / "interop.md"
    wanted = document(collected())
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(wanted)
    assert page.read_text() == wanted, (
        "docs/interop.md is out of date: run this test with UPDATE_DOCS=1"
    )
