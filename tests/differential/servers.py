"""Independent servers, and how they interpret requests."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from harness.clients.kept import Spelled
from harness.clients.spelled import Answer
from harness.foreign import nginx as running_nginx
from harness.php import php_fpm
from harness.process import Process
from harness.server import REPOSITORY
from harness.waiting import eventually

from .routes import LEAF, NAMES, Segments

APPLICATIONS = REPOSITORY / "tests" / "applications"


@dataclass(frozen=True)
class Understood:
    """How a server interpreted a request, in each of its representations."""

    mark: str | None
    """The route that the gateway matched."""
    method: str
    hosts: frozenset[str]
    paths: frozenset[Segments]
    own_rule: bool = False
    """A rule of the server itself protects it."""


def host_of(text: str) -> str:
    """Without port and trailing dot, in lower case."""
    return re.sub(r":\d*$", "", text).lower().removesuffix(".")


def segments(path: bytes) -> Segments:
    """Segments of a decoded path. Empty ones only count at the end."""
    return without_empty(path.split(b"/")[1:])


def without_empty(parts: list[bytes]) -> Segments:
    return (*(part for part in parts[:-1] if part), parts[-1])


Asked = dict[str, tuple[Spelled, Answer]]
Reading = dict[str, list[Understood]]
"""By number: a request may have been sent more than once."""


@dataclass
class Upstream:
    action: str
    """Action of a route for this server."""
    understood: Callable[[Asked], Reading]
    is_told_all: bool = False
    """Whether the server is told the stripped prefix."""


def lines_of(file: Path) -> list[dict]:
    return (
        [json.loads(line) for line in file.read_text("latin-1").split("\n")[:-1]]
        if file.exists()
        else []
    )


def by_number(lines: list[dict], read: Callable[[dict], Understood]) -> Reading:
    reading: Reading = {}
    for line in lines:
        reading.setdefault(line["number"], []).append(read(line))
    return reading


def read_line(line: dict) -> Understood:
    """Parses the output of the applications in `tests/applications/understood.*`."""
    paths = {segments(bytes.fromhex(path)) for path in line["paths"]}
    paths |= {
        without_empty([bytes.fromhex(part) for part in parts]) for parts in line.get("segments", ())
    }
    return Understood(
        line["route"], line["method"], frozenset(map(host_of, line["hosts"])), frozenset(paths)
    )


@contextmanager
def application(folder: Path, *command: str | Path) -> Iterator[Upstream]:
    file = folder / "understood"
    process = Process([*command, file])
    try:
        address = process.wait_for_lines(r"listening on (http://\S+)")[0][1]
        yield Upstream(f'proxy = "{address}"', lambda _: by_number(lines_of(file), read_line))
    finally:
        process.stop()


def wsgi(folder: Path) -> AbstractContextManager[Upstream]:
    return application(folder, sys.executable, APPLICATIONS / "understood.py")


def node(folder: Path) -> AbstractContextManager[Upstream]:
    return application(folder, "node", APPLICATIONS / "understood.cjs")


@contextmanager
def php(folder: Path) -> Iterator[Upstream]:
    """A front controller, and scripts of another name in some folders."""
    www, file = folder / "www", folder / "understood"
    for name in ("index.php", "run.php", "admin/run.php", "a/run.php", "priv\u00e9/run.php"):
        (www / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(APPLICATIONS / "understood.php", www / name)
    with php_fpm(folder / "fpm") as path:
        action = f'php = {{ root = "{www}", server = "unix:{path}", variables = {{ UNDERSTOOD = "{file}" }} }}'
        yield Upstream(action, lambda _: by_number(lines_of(file), read_line), is_told_all=True)


NGINX = r"""
error_log stderr crit;
log_format understood escape=json '{{"number": "$http_x_number", "route": "$http_x_route", "status": "$status", '
    '"method": "$request_method", "hosts": ["$host", "$http_x_forwarded_host"], "path": "$uri", "own": "$own"}}';
access_log understood understood;
server {{
    listen {address} default_server;
    set $own "";
    location = /admin {{ set $own rule; return 200 understood; }}
    location ^~ /admin/ {{ set $own rule; return 200 understood; }}
    location / {{ return 200 understood; }}
}}
server {{
    listen {address};
    server_name ~^[^.]+\.lab\.test$;
    set $own "";
    return 200 understood;
}}
server {{
    listen {address};
    server_name private.test;
    set $own rule;
    return 200 understood;
}}
"""


@contextmanager
def nginx(folder: Path) -> Iterator[Upstream]:
    file = folder / "understood"

    def read(line: dict) -> Understood:
        hosts = frozenset(host_of(host) for host in line["hosts"] if host)
        path = segments(line["path"].encode("latin-1"))
        return Understood(
            line["route"] or None, line["method"], hosts, frozenset([path]), line["own"] != ""
        )

    with running_nginx(folder, NGINX) as address:

        def understood(_: Asked) -> Reading:
            # A line is written after the response, and before the next request is read.
            host, _, port = address.partition(":")
            with socket.create_connection((host, int(port))) as last:
                last.sendall(b"GET / HTTP/1.0\r\nx-number: last\r\n\r\n")
                last.makefile("rb").read()
            lines = eventually("the last line", lambda: is_there(lines_of(file)))
            return by_number(
                [line for line in lines if line["status"] == "200" and line["number"] != "last"],
                read,
            )

        yield Upstream(f'proxy = "http://{address}"', understood)


def is_there(lines: list[dict]) -> list[dict] | None:
    return lines if any(line["number"] == "last" for line in lines) else None


@dataclass
class Folder:
    """Files, each with its own size, so that a response to HEAD also shows which one it is for."""

    root: Path
    paths: dict[int, Segments] = field(default_factory=dict)

    def write(self) -> None:
        folders = [
            (),
            *product(NAMES),
            *product([*NAMES, b"a;v"], NAMES),
            *product([b"c"], [b"d"], NAMES),
        ]
        for size, parts in enumerate(folders, 100):
            folder = self.root.joinpath(*(part.decode() for part in parts))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / LEAF.decode()).write_bytes(b"x" * size)
            self.paths[size] = (*parts, LEAF)

    def understood(self, asked: Asked) -> Reading:
        """Host and method are those of the request: files do not show them."""
        reading: Reading = {}
        for number, (request, answer) in asked.items():
            if answer.status == 200:
                path = self.paths[int(answer.headers["content-length"])]
                host = host_of(request.host.decode("latin-1"))
                method = "GET" if request.protocol else request.method
                mark = answer.headers.get("x-route")
                reading[number] = [Understood(mark, method, frozenset([host]), frozenset([path]))]
        return reading


@contextmanager
def files(folder: Path) -> Iterator[Upstream]:
    www = Folder(folder / "www")
    www.write()
    yield Upstream(f'files = "{www.root}"', www.understood)


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Upstream]]] = {
    "wsgi": wsgi,
    "node": node,
    "php-fpm": php,
    "nginx": nginx,
    "files": files,
}
