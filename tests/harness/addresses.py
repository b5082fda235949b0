"""Addresses for servers that cannot say where they listen, which no other test of a run takes."""

from __future__ import annotations

import os
import socket

HELD: list[socket.socket] = []
"""Bound until the process of the tests ends."""


def refusing_address() -> str:
    """An address at which connections are refused: it is bound, and no server listens."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    HELD.append(bound)
    return f"127.0.0.1:{bound.getsockname()[1]}"


def own_address() -> str:
    """A port that is free on an address of the loopback network that only this process of the tests uses."""
    number = os.getpid()
    host = f"127.77.{number >> 8 & 255}.{number & 255}"
    with socket.create_server((host, 0)) as free:
        return f"{host}:{free.getsockname()[1]}"
