"""Addresses for servers that cannot report where they listen; no other test of a run uses them."""

from __future__ import annotations

import os
import socket

HELD: list[socket.socket] = []
"""Bound until the test process ends."""


def refusing_address() -> str:
    """Returns an address that refuses connections: it is bound, and no server listens."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    HELD.append(bound)
    return f"127.0.0.1:{bound.getsockname()[1]}"


def own_address() -> str:
    """Returns a free port on a loopback address that only this test process uses."""
    number = os.getpid()
    host = f"127.77.{number >> 8 & 255}.{number & 255}"
    with socket.create_server((host, 0)) as free:
        return f"{host}:{free.getsockname()[1]}"
