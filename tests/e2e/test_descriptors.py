"""A server that runs out of file descriptors logs it once, and recovers when some are free."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack

from harness.gateway import SITE
from harness.server import Server

LACK = (
    r"error: cannot accept TCP connections, they wait: out of file descriptors, with a limit of 64"
)


def limited(command, soft: int, hard: int):
    return ["prlimit", f"--nofile={soft}:{hard}", "--", *command]


def test_lack_of_descriptors_is_logged_once_and_recovers(start, gateway, protocol_fetcher):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    server: Server = start(limited(gateway.command(), 64, 64))
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection((server.host, server.port)))
        server.wait_for_lines(LACK)
        if protocol_fetcher.protocol == "HTTP/3":
            # A QUIC connection uses no descriptor.
            assert protocol_fetcher.fetch(server.origin + "/").body == b"here"
    assert protocol_fetcher.fetch(server.origin + "/").body == b"here"
    server.wait_for_lines("accepting TCP connections again")
    assert len(server.wait_for_lines(LACK)) == 1


def test_low_descriptor_limit_is_logged_at_start(start, gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    server = start(limited(gateway.command(), 64, 64))
    server.wait_for_lines(
        r"warning: the server itself uses \d+ of 64 file descriptors, which leaves \d+ for connections"
    )


def test_descriptor_limit_is_raised_to_the_hard_limit(start, gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = start(limited(gateway.command(), 64, hard))
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (hard, hard)
