"""Independent HTTP clients (tests/clients/ecosystem); our gateway and nginx with the same site."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .addresses import own_address
from .certificates import Identity, make_identity
from .gateway import Gateway, Handler
from .process import Process
from .server import REPOSITORY, TARGET, Server, program
from .waiting import eventually

SOURCES = REPOSITORY / "tests" / "clients" / "ecosystem"
BUILT = TARGET / "test-clients"
TIMEOUT_SECONDS = 100
"""Shorter than a test's timeout, so that the client's own error message is shown."""


def python_client(name: str) -> list[str]:
    return [sys.executable, str(SOURCES / "python" / f"{name}_client.py")]


def go_client(name: str) -> list[str]:
    return [str(program("ECOSYSTEM_GO", BUILT / "ecosystem-go", "scripts/setup")), name]


def rust_client(name: str) -> list[str]:
    return [str(program("ECOSYSTEM_RUST", BUILT / "ecosystem-rust", "scripts/setup long")), name]


def node_client(name: str) -> list[str]:
    return ["node", str(SOURCES / "node" / f"{name}.mjs")]


def java_client(name: str) -> list[str]:
    folder = Path(os.environ.get("ECOSYSTEM_JAVA") or BUILT / "ecosystem-java")
    if not (folder / "ecosystem.jar").is_file():
        raise FileNotFoundError(f"{folder}/ecosystem.jar is not there: run `scripts/setup long`")
    return [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{folder}/ecosystem.jar:{folder}/lib/*",
        "pronghorn.Main",
        name,
    ]


@dataclass(frozen=True)
class Client:
    """A program that runs one scenario of a client library."""

    name: str
    protocols: tuple[str, ...]
    """`1.1` and `2`, as passed to the library."""
    kind: str
    """The library's language: `python`, `go`, `node`, `rust` or `java`."""

    @property
    def command(self) -> list[str]:
        kinds = {
            "python": python_client,
            "go": go_client,
            "node": node_client,
            "rust": rust_client,
            "java": java_client,
        }
        return kinds[self.kind](self.name)


class Run:
    """A running scenario; `report` is the line of JSON that the client prints at its end."""

    def __init__(
        self,
        client: Client,
        protocol: str,
        scenario: str,
        origin: str,
        ca: Path,
        file: Path,
        tag: str,
    ):
        command = [*client.command, protocol, scenario, origin, ca, file, tag]
        self.popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_reading(self) -> None:
        """Returns when the client has read the first bytes of its download, and waits for `go_on`."""
        line = self.popen.stdout.readline()
        if line != "reading\n":
            raise AssertionError(f"the client read nothing: {line}{self.popen.communicate()}")

    def go_on(self) -> None:
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def report(self, more_seconds: int = 0) -> dict:
        try:
            out, err = self.popen.communicate(timeout=TIMEOUT_SECONDS + more_seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            out, err = self.popen.communicate()
            raise AssertionError(f"the client did not end: {out}{err}") from None
        assert self.popen.returncode == 0, (
            f"the client ended with {self.popen.returncode}: {out}{err}"
        )
        return json.loads(out.splitlines()[-1])

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.communicate()


@dataclass(frozen=True)
class Request:
    """A line of the server's access log."""

    port: int
    """The client's port, which identifies the connection."""
    protocol: str
    method: str
    target: str
    status: int


@dataclass
class Site:
    """Content of a server: files, `/upload` that counts content, and `/forbidden`, which is
    rejected at once.
    """

    root: Path
    identity: Identity


class Contestant:
    """Common parts of the servers."""

    log: Path
    origin: str
    process: Process

    def requests(self, tag: str) -> list[Request]:
        lines = (
            [json.loads(line) for line in self.log.read_text().splitlines()]
            if self.log.exists()
            else []
        )
        fields = ("port", "protocol", "method", "target", "status")
        return [
            Request(*(line[key] for key in fields))
            for line in lines
            if line["target"].endswith(f"?{tag}")
        ]

    def stop(self) -> None:
        self.process.stop()


class Ours(Contestant):
    """`pronghorn run`."""

    name = "pronghorn"

    def __init__(self, folder: Path, site: Site, upstream_address: str):
        self.log = folder / "access.log"
        gateway = Gateway(folder, site.identity)
        routes = f"""
[[sites]]
hosts = ["localhost", "127.0.0.1"]
{{tls}}
[[sites.routes]]
match = "/upload"
proxy = "{upstream_address}"
[[sites.routes]]
match = "/forbidden"
respond = {{ status = 403, body = "not here" }}
[[sites.routes]]
match = "/*"
files = "{site.root}"
[log]
access = "{self.log}"
format = "json"
"""
        # At shutdown, an open download lasts as long as a test waits for its client.
        gateway.write(routes, server='grace = "10m"')
        self.process = Server(gateway.command())
        self.origin = self.process.origin

    def begin_to_end(self) -> None:
        self.process.terminate()


NGINX = """
daemon off;
worker_processes 1;
{user}
pid nginx.pid;
error_log stderr warn;
events {{ }}
http {{
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    log_format lines escape=json '{{"port":$remote_port,"protocol":"$server_protocol",'
        '"method":"$request_method","target":"$request_uri","status":$status}}';
    access_log {folder}/access.log lines;
    keepalive_timeout {keepalive};
    server {{
        listen {address} ssl http2;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        client_max_body_size 0;
        root {root};
        location = /upload {{
            proxy_pass {upstream};
            proxy_http_version 1.1;
            proxy_request_buffering off;
        }}
        location = /forbidden {{ return 403; }}
    }}
}}
"""


class Nginx(Contestant):
    """Debian's nginx, with graceful shutdown."""

    name = "nginx"
    keepalive = "30s"
    """As long as an idle connection lives by default in ours."""

    def __init__(self, folder: Path, site: Site, upstream_address: str):
        address = own_address()
        self.log = folder / "access.log"
        # As root its workers would run as another user, who may not read the folder.
        user = f"user {pwd.getpwuid(os.getuid()).pw_name};" if os.getuid() == 0 else ""
        configuration = folder / "nginx.conf"
        configuration.write_text(
            NGINX.format(
                user=user,
                folder=folder,
                keepalive=self.keepalive,
                address=address,
                cert=site.identity.cert,
                key=site.identity.key,
                root=site.root,
                upstream=upstream_address,
            )
        )
        self.process = Process(["nginx", "-e", "stderr", "-p", folder, "-c", configuration])
        self.origin = f"https://{address}"
        eventually(
            "nginx to listen", lambda: accepts(address) or self.process.popen.poll() is not None
        )
        assert self.process.popen.poll() is None, self.process.lines

    def begin_to_end(self) -> None:
        self.process.popen.send_signal(signal.SIGQUIT)

    def stop(self) -> None:
        # Killing the front process would leave the other one running.
        if self.process.popen.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.process.stop()


class NginxByDefault(Nginx):
    """nginx with its own default, as most operators leave it."""

    keepalive = "75s"


def accepts(address: str) -> bool:
    """Returns whether a server listens there."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


def identity_for_nginx(folder: Path) -> Identity:
    """Makes a certificate for our address, which nginx uses too."""
    return make_identity(folder, addresses=(own_address().rpartition(":")[0],))


def count_content(handler: Handler, content: bytes) -> None:
    """Parses the application's response about an upload."""
    fields = {name: handler.headers.get(name) for name in ("content-length", "transfer-encoding")}
    answer = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **fields}
    handler.reply(200, json.dumps(answer).encode(), [("content-type", "application/json")])
