"""Servers that others wrote, as processes at an address that the test chooses: they do not say where they listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .addresses import own_address
from .process import Process
from .waiting import eventually


@contextmanager
def serving_at(address: str, command: Sequence[str | Path], **options) -> Iterator[None]:
    """Runs a server, from when it accepts connections at `address` until the test has done with it."""
    process = Process(command, **options)
    host, _, port = address.partition(":")

    def listens() -> bool:
        assert process.popen.poll() is None, process.lines
        with suppress(ConnectionError), socket.create_connection((host, int(port))):
            return True
        return False

    try:
        eventually("a server that listens", listens)
        yield
    finally:
        process.stop()


@contextmanager
def nginx(folder: Path, configuration: str, **values: str) -> Iterator[str]:
    """Debian's nginx in a folder, and its address, which is `{address}` of the configuration."""
    address = own_address()
    (folder / "nginx.conf").write_text(configuration.format(address=address, **values))
    with serving_at(address, ["nginx", "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"]):
        yield address
