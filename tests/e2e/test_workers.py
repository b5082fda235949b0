"""Several workers on one port: a connection stays with its worker, wherever its packets arrive."""

from __future__ import annotations

import asyncio

from harness.clients.aioquic_h3 import h3_connection
from harness.clients.go import GoClient
from harness.response import sha256

WORKERS = 4
REBINDS = 16


async def test_connection_survives_a_change_of_address_between_workers(start_serve, site, ca):
    server = start_serve("--workers", str(WORKERS), "--stats")
    async with h3_connection(server.origin, ca) as client:
        for _ in range(REBINDS):
            assert (await client.fetch("/small.txt")).body == site.read("small.txt")
            # The kernel selects the worker's socket by address and port, so most changes select
            # another one.
            await client.rebind()
        assert (await client.fetch("/medium.bin")).body == site.read("medium.bin")
    server.terminate()
    assert await asyncio.to_thread(server.wait) == 0
    counters = server.counters()
    assert counters["quic_accepted"] == 1
    assert counters["requests_http3"] == REBINDS + 1
    assert counters["strays_passed_on"] > 0
    assert counters["strays_dropped"] == 0


async def test_download_survives_a_change_of_address(start_serve, site, ca):
    server = start_serve("--workers", str(WORKERS))
    async with h3_connection(server.origin, ca) as client:
        download = client.start("/big.bin")
        await client.head(download)
        await client.rebind()
        await client.ping()
        response = await client.finish(download)
    assert response.sha256 == sha256(site.read("big.bin"))


def test_each_worker_accepts_connections(start_serve, site, ca):
    server = start_serve("--workers", str(WORKERS), "--stats")
    for _ in range(10):
        for version in ("1.1", "2", "3"):
            with GoClient(version, ca) as client:
                assert client.fetch(f"{server.origin}/small.txt").body == site.read("small.txt")
    server.terminate()
    assert server.wait() == 0, server.lines
    counters = server.counters()
    assert (counters["tcp_accepted"], counters["quic_accepted"]) == (20, 10)
    assert [counters[f"requests_http{version}"] for version in (1, 2, 3)] == [10, 10, 10]
