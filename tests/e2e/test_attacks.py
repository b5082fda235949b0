"""Each attack by its name: the server stays within its bounds while an honest client beside it is served.

The attacks stand in the package `attacks`.
"""

from __future__ import annotations

import pytest

from attacks import ATTACKS, Attack, carry_out
from attacks.attack import MIB
from harness.server import echo_command, serve_command


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_server_withstands(start, site, identity, attack: Attack):
    flags = ("--workers", "1", *attack.flags)
    if attack.handler:
        server = start(echo_command(identity, *flags))
    else:
        server = start(serve_command(site.root, identity, "--stats", "--grace", "0.1", *flags))
    outcome = carry_out(attack, server, identity.ca)
    print(f"\n{attack.name}: {outcome}")
    assert outcome.memory <= attack.memory_mib * MIB, outcome
    assert outcome.cpu_seconds <= attack.cpu_seconds, outcome
    if attack.counters:
        server.terminate()
        server.wait()
        counters = server.counters()
        assert any(counters[name] > 0 for name in attack.counters), counters
