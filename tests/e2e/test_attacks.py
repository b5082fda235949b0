"""Each attack by name: the server stays within its bounds and serves an honest client at the same
time.

The attacks are in the package `attacks`.
"""

from __future__ import annotations

import os
import re

import pytest

from attacks import ATTACKS, ELSEWHERE, ON_GATEWAY, Attack, carry_out, document, is_there, note
from attacks.attack import MIB
from harness.server import REPOSITORY, echo_command, serve_command

PAGE = REPOSITORY / "docs" / "security.md"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_server_withstands(start, site, identity, attack: Attack):
    flags = ("--workers", "1", *attack.flags)
    if attack.handler:
        server = start(echo_command(identity, *flags))
    else:
        server = start(serve_command(site.root, identity, "--stats", "--grace", "0.1", *flags))
    outcome = carry_out(attack, server, identity.ca)
    assert outcome.memory <= attack.memory_mib * MIB, outcome
    assert outcome.cpu_seconds <= attack.cpu_seconds, outcome
    if attack.counters:
        server.terminate()
        server.wait()
        counters = server.counters()
        assert any(counters[name] > 0 for name in attack.counters), counters
    if os.environ.get("UPDATE_DOCS"):
        note(attack, outcome, "debug" if "/debug/" in server.command[0] else "release")


def test_attack_names_are_unique():
    names = [each.name for each in [*ATTACKS, *ELSEWHERE, *ON_GATEWAY]]
    assert len(set(names)) == len(names)


def test_limits_named_by_attacks_exist():
    known = set(
        re.findall(r"^\| `(\w+)` \|", (REPOSITORY / "docs" / "limits.md").read_text(), re.MULTILINE)
    )
    named = {name for each in [*ATTACKS, *ELSEWHERE] for name in re.findall(r"`(\w+)`", each.limit)}
    assert named - known - {"datagrams_ignored"} == set()


@pytest.mark.parametrize(
    "reference", sorted({test for each in [*ELSEWHERE, *ON_GATEWAY] for test in each.tests})
)
def test_tests_named_by_attacks_exist(reference: str):
    assert is_there(REPOSITORY, reference)


def test_security_md_is_current():
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(document())
    assert PAGE.read_text() == document(), (
        "docs/security.md is out of date: run this test with UPDATE_DOCS=1"
    )
