"""Independent servers as processes at an address that the test chooses: they do not report where
they listen.
"""

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
    """Runs a server, from when it accepts connections at `address` until the test is done."""
    process = Process(command, **options)
    host, _, port = address.partition(":")

    def listens() -> bool:
        assert process.popen.poll() is None, process.lines
        with suppress(ConnectionError), socket.create_connection((host, int(port))):
            return True
        return False

    try:
        eventually("the server to listen", listens)
        yield
    finally:
        process.stop()


# All files that nginx writes stay in its folder.
NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { }
http {
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    %s
}
"""


@contextmanager
def nginx(folder: Path, http: str, **values: str) -> Iterator[str]:
    """Runs Debian's nginx in a folder; yields its address, which is `{address}` in the `http` block
    of its configuration.
    """
    address = own_address()
    (folder / "nginx.conf").write_text(NGINX % http.format(address=address, **values))
    with serving_at(address, ["nginx", "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"]):
        yield address
