"""Cost of an idle server."""

from __future__ import annotations

import time

import pytest

from harness.clients import FETCHERS
from harness.clients.go import GoClient

WINDOW_SECONDS = 6
MOST_CPU_SHARE = 0.01
MOST_RESIDENT_BYTES = 40 * 1000 * 1000


def measure(server) -> tuple[float, int]:
    """Returns the share of one core over a window, and the resident bytes at its end."""
    begin, spent = time.monotonic(), server.cpu_seconds()
    time.sleep(WINDOW_SECONDS)
    return (server.cpu_seconds() - spent) / (time.monotonic() - begin), server.resident_bytes()


@pytest.mark.serial
def test_idle_server_uses_under_one_percent_and_forty_megabytes(server, record_property):
    share, resident = measure(server)
    record_property("cpu_share", share)
    record_property("resident_bytes", resident)
    assert share < MOST_CPU_SHARE
    assert resident < MOST_RESIDENT_BYTES


@pytest.mark.serial
def test_server_is_idle_again_after_work_with_connections_open(server, ca):
    with GoClient("1.1", ca) as h1, GoClient("2", ca) as h2, GoClient("3", ca) as h3:
        for client in (h1, h2, h3):
            done = client.round(f"{server.origin}/medium.bin", count=50)
            assert done.errors == []
        share, resident = measure(server)
        assert share < MOST_CPU_SHARE
        assert resident < MOST_RESIDENT_BYTES
    for fetcher in FETCHERS:
        server.serves(fetcher.trusting(ca), "/small.txt")
