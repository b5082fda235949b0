"""Long runs: what a server holds must not grow with what it has served."""

from __future__ import annotations

import pytest

from harness.clients.go import GoClient
from harness.response import sha256
from harness.waiting import eventually

MIB = 1 << 20
ROUNDS = 200
AT_ONCE = 100
NEW_CONNECTIONS = 300


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_memory_does_not_grow_with_requests_on_kept_connections(start_serve, site, ca, version):
    server = start_serve("--quiet")
    expected = sha256(site.read("medium.bin"))

    def half() -> int:
        for _ in range(ROUNDS // 2):
            done = client.round(f"{server.origin}/medium.bin", count=AT_ONCE)
            assert done.errors == []
            assert {response.sha256 for response in done.responses} == {expected}
        return server.resident_bytes()

    with GoClient(version, ca) as client:
        first, second = half(), half()
    assert second < first + 8 * MIB


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_memory_does_not_grow_with_connections(start_serve, ca, version):
    server = start_serve("--quiet", "--idle-timeout", "5")
    with GoClient(version, ca) as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
    quiet = server.descriptors_at_rest()

    def half() -> int:
        for _ in range(NEW_CONNECTIONS // 2):
            with GoClient(version, ca) as client:
                assert client.fetch(f"{server.origin}/small.txt").status == 200
        return server.resident_bytes()

    first, second = half(), half()
    assert second < first + 8 * MIB
    eventually("no descriptor left of them", lambda: server.open_descriptors() <= quiet)
