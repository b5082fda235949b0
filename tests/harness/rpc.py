"""Independent RPC clients and their service (tests/clients/rpc), with our gateway or nginx between."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .certificates import Identity
from .ecosystem import TIMEOUT_SECONDS
from .foreign import nginx
from .gateway import SITE, Gateway
from .process import Process
from .server import TARGET, Server, program
from .waiting import eventually

BUILT = TARGET / "test-clients"


def rpc_go() -> Path:
    return program("RPC_GO", BUILT / "rpc-go", "scripts/setup long")


def rpc_java() -> list[str]:
    folder = Path(os.environ.get("RPC_JAVA") or BUILT / "rpc-java")
    if not (folder / "rpc.jar").is_file():
        raise FileNotFoundError(f"{folder}/rpc.jar is not there: run `scripts/setup long`")
    classes = f"{folder}/rpc.jar:{folder}/lib/*"
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, "pronghorn.Rpc"]


@dataclass(frozen=True)
class Client:
    """A client library and the protocol that it speaks."""

    name: str
    service: str
    """The service's library: `grpc` for grpc-go, or `connect`, which also speaks gRPC."""
    version: str = "2"
    """The version of HTTP."""

    def run(self, scenario: str, origin: str, ca: Path) -> list[dict]:
        """Returns the outcome of each call."""
        command = [*rpc_java()] if self.name == "grpc-java" else [str(rpc_go()), self.name]
        done = subprocess.run(
            [*command, scenario, origin, str(ca)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, f"the client ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])["calls"]


@contextmanager
def running_service(library: str) -> Iterator[str]:
    """Runs the service without TLS; yields its address, such as `127.0.0.1:40123`."""
    process = Process([rpc_go(), "serve", library])
    try:
        yield process.wait_for_lines(r"listening on http://(\S+)")[0][1]
    finally:
        process.stop()


@dataclass(frozen=True)
class Request:
    """A line of the server's access log."""

    port: int
    protocol: str
    target: str


@dataclass(frozen=True)
class Between:
    """A server in front of the service."""

    origin: str
    log: Path

    def requests(self, count: int) -> list[Request]:
        """Returns the lines of the log once there are `count`."""

        def enough() -> list[str] | None:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return lines if len(lines) >= count else None

        lines = eventually("a line of the log for each call", enough)
        fields = ("port", "protocol", "target")
        return [Request(*(json.loads(line)[field] for field in fields)) for line in lines]


@contextmanager
def ours(folder: Path, identity: Identity, service: str) -> Iterator[Between]:
    """Runs `pronghorn run`."""
    gateway = Gateway(folder, identity)
    log = folder / "access.log"
    action = f'proxy = {{ servers = ["http://{service}"], protocol = "http2" }}'
    site = f"{SITE}[[sites.routes]]\n{action}\n"
    gateway.write(f'{site}[log]\naccess = "{log}"\nformat = "json"\n')
    server = Server(gateway.command())
    try:
        yield Between(server.origin, log)
    finally:
        server.stop()


NGINX = """
log_format lines escape=json '{{"port":$remote_port,"protocol":"$server_protocol",'
    '"target":"$request_uri"}}';
access_log {log} lines;
server {{
    listen {address} ssl http2;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    client_max_body_size 0;
    location / {{ grpc_pass grpc://{service}; }}
}}
"""


@contextmanager
def others(folder: Path, identity: Identity, service: str) -> Iterator[Between]:
    """Runs nginx."""
    log = folder / "access.log"
    values = {"log": log, "cert": identity.cert, "key": identity.key, "service": service}
    with nginx(folder, NGINX, **{name: str(value) for name, value in values.items()}) as address:
        yield Between(f"https://{address}", log)


KINDS = {"pronghorn": ours, "nginx": others}
