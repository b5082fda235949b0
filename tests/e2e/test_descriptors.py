"""A server that runs out of file descriptors says so once, and goes on when there are some."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack

from harness.gateway import SITE
from harness.server import Server

LACK = r"error: connections over TCP cannot be accepted and wait: out of file descriptors, with a limit of 64"


def limited(command, soft: int, hard: int):
    return ["prlimit", f"--nofile={soft}:{hard}", "--", *command]


def test_lack_of_descriptors_is_one_line_and_ends(start, gateway, protocol_fetcher):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    server: Server = start(limited(gateway.command(), 64, 64))
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection((server.host, server.port)))
        server.wait_for_lines(LACK)
        if protocol_fetcher.protocol == "HTTP/3":
            # A connection over QUIC takes no descriptor.
            assert protocol_fetcher.fetch(server.origin + "/").body == b"here"
    assert protocol_fetcher.fetch(server.origin + "/").body == b"here"
    server.wait_for_lines("connections over TCP are accepted again")
    assert len(server.wait_for_lines(LACK)) == 1


def test_server_that_takes_most_descriptors_itself_says_so_at_the_start(start, gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    server = start(limited(gateway.command(), 64, 64))
    server.wait_for_lines(r"warning: the server itself has \d+ of 64 file descriptors: \d+ are left for connections")


def test_limit_is_raised_to_what_the_user_may_have(start, gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n')
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = start(limited(gateway.command(), 64, hard))
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (hard, hard)
