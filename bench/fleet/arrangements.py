"""What is compared: where a gateway has its sessions and its key, and how that is started."""

from __future__ import annotations

import contextlib
import re
import secrets
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ..processes import Server
from ..runner import RunError, make_certificate
from . import redis_server
from .keyless import Files
from .relay import delaying

READY_SECONDS = 20
CERTIFICATES = ("p256", "rsa2048")
SLOW_SECONDS = 0.2
"""Delay of a slow signer's answers."""


@dataclass(frozen=True)
class Arrangement:
    """Where a gateway has its sessions and its key."""

    name: str
    certificate: str = "p256"
    sessions: bool = False
    """In Redis, as `[fleet.sessions]`; otherwise in the gateway's memory."""
    signer: bool = False
    """The key is on a `pronghorn signer`; otherwise in a file."""
    delay: float = 0.0
    """How much later than the signer sends them its answers arrive, in seconds."""
    why: str = ""

    @property
    def base(self) -> str:
        """Returns the arrangement with the same certificate that shares nothing."""
        return f"file-{self.certificate}"


HANDSHAKES = (
    Arrangement("file-p256", why="no `[fleet]`, key in a file"),
    Arrangement("sessions-p256", sessions=True, why="`[fleet.sessions]`, key in a file"),
    Arrangement("signer-p256", signer=True, why="key on a signer"),
    Arrangement("file-rsa2048", "rsa2048", why="no `[fleet]`, key in a file"),
    Arrangement("signer-rsa2048", "rsa2048", signer=True, why="key on a signer"),
)
TURNS = (
    Arrangement("file-p256", why="key in a file"),
    Arrangement("signer-p256", signer=True, why="key on a signer"),
    Arrangement(
        "slow-p256",
        signer=True,
        delay=SLOW_SECONDS,
        why=f"key on a signer whose answers arrive {SLOW_SECONDS * 1000:g} ms late",
    ),
)


@dataclass(frozen=True)
class Cores:
    """Processors of the measured server, and of everything else."""

    server: int
    others: int


class Identities:
    """Certificates of the sites, of the signer and of the gateway as its client."""

    def __init__(self, folder: Path):
        self.sites = {name: make_certificate(folder, name) for name in CERTIFICATES}
        # Without the extensions that the system's configuration adds.
        (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
        self.authority = folder / "ca.pem"
        issue(folder, "ca", "basicConstraints=critical,CA:TRUE")
        for name in ("localhost", "gateway"):
            issue(folder, name, "basicConstraints=critical,CA:FALSE", f"subjectAltName=DNS:{name}")
        self.signer = Files(folder / "localhost.pem", folder / "localhost.key", self.authority)
        self.gateway = Files(folder / "gateway.pem", folder / "gateway.key", self.authority)


def issue(folder: Path, name: str, *extensions: str) -> None:
    command = ["openssl", "req", "-x509", "-nodes", "-days", "10", "-subj", f"/CN={name}"]
    command += ["-config", str(folder / "openssl.cnf")]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    if name != "ca":
        command += ["-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key")]
    for extension in extensions:
        command += ["-addext", extension]
    subprocess.run(command, check=True, capture_output=True)


@dataclass
class Started:
    """A running gateway with what it needs."""

    gateway: Server
    port: int
    admin: Path
    redis: Server | None = None
    redis_socket: Path | None = None
    signer: Server | None = None

    def others(self) -> list[int]:
        """Returns the processes beside the gateway."""
        found = [server for server in (self.redis, self.signer) if server is not None]
        return [pid for server in found for pid in server.pids()]


@dataclass(frozen=True)
class Starter:
    """Starts servers in folders of their own."""

    program: Path
    redis: Path
    identities: Identities
    cores: Cores

    def signer(
        self, folder: Path, core: int, stack: contextlib.ExitStack
    ) -> tuple[Server, int, Path]:
        """Runs a signer with one thread that signs; returns it with its port and admin socket."""
        own, config, admin = self.identities.signer, folder / "signer.toml", folder / "s.sock"
        keys = "".join(f'{name} = "{self.identities.sites[name][1]}"\n' for name in CERTIFICATES)
        config.write_text(
            f'listen = ["127.0.0.1:0"]\ncert = "{own.cert}"\nkey = "{own.key}"\n'
            f'client_ca = "{own.ca}"\nthreads = 1\n[admin]\nlisten = "unix:{admin}"\n'
            f'[keys]\n{keys}[[clients]]\nname = "gateway"\nkeys = ["*"]\n'
        )
        command = [str(self.program), "signer", "-c", str(config)]
        server = Server(command, core, folder / "signer.log", home(folder))
        stack.callback(server.stop)
        return server, wait_for_port(server, r"^listening on \S+:(\d+)$"), admin

    def gateway(
        self, arrangement: Arrangement, folder: Path, stack: contextlib.ExitStack
    ) -> Started:
        """Runs a gateway with one worker; `stack` stops it and what it needs."""
        redis = redis_socket = signer = signer_port = None
        if arrangement.sessions:
            redis, redis_socket = stack.enter_context(
                redis_server.running(self.redis, folder, self.cores.others)
            )
        if arrangement.signer:
            signer, signer_port, _ = self.signer(folder, self.cores.others, stack)
            if arrangement.delay:
                signer_port = stack.enter_context(delaying(signer_port, arrangement.delay))
        admin, config = folder / "g.sock", folder / "pronghorn.toml"
        if arrangement.sessions:
            secret = folder / "secrets"
            secret.touch(0o600)
            secret.write_text(secrets.token_hex(32) + "\n")
        config.write_text(self.config(arrangement, folder, admin, redis_socket, signer_port))
        command = [str(self.program), "run", "-c", str(config)]
        server = Server(command, self.cores.server, folder / "gateway.log", home(folder))
        stack.callback(server.stop)
        port = wait_for_port(server, r"listening on https://\S+?:(\d+)")
        started = Started(server, port, admin, redis, redis_socket, signer)
        self.wait_until_ready(started)
        return started

    def config(
        self,
        arrangement: Arrangement,
        folder: Path,
        admin: Path,
        redis: Path | None,
        signer: int | None,
    ) -> str:
        cert, key = self.identities.sites[arrangement.certificate]
        own = self.identities.gateway
        text = (
            '[server]\nlisten = ["127.0.0.1:0"]\nworkers = 1\n[log]\naccess = "off"\n'
            f'[admin]\nlisten = "unix:{admin}"\n'
            # All clients share one address.
            "[limits]\nconnections_per_client = 1000000\nconnections = 1000000\n"
        )
        if redis is not None:
            # A busy machine must not turn look-ups into full handshakes.
            text += f'[fleet]\nsecrets = "{folder / "secrets"}"\n'
            text += f'[fleet.sessions]\nredis = ["unix://{redis}"]\ntimeout = "2s"\n'
        if signer is not None:
            text += f'[fleet.signers.one]\naddresses = ["127.0.0.1:{signer}"]\ntimeout = "5s"\n'
            text += f'server_name = "localhost"\ncert = "{own.cert}"\nkey = "{own.key}"\n'
            text += f'trust = "{own.ca}"\n'
        where = 'keys = ["signer:one"]' if signer is not None else f'key = "{key}"'
        text += f'[[sites]]\nhosts = ["localhost"]\ntls = {{ cert = "{cert}", {where} }}\n'
        return text + '[[sites.routes]]\nrespond = "Hello, World!"\n'

    def wait_until_ready(self, started: Started) -> None:
        """Waits for an answer; a signer may not be connected before."""
        command = [str(self.program), "get", "--no-verify", "--timeout", "5"]
        command += ["--connect-to", f"127.0.0.1:{started.port}", "https://localhost/"]
        deadline = time.monotonic() + READY_SECONDS
        while True:
            answer = subprocess.run(command, capture_output=True, timeout=30, check=False)
            if answer.returncode == 0 and answer.stdout == b"Hello, World!":
                return
            if (why := started.gateway.ended()) is not None:
                raise RunError(why)
            if time.monotonic() > deadline:
                raise RunError(f"no answer within {READY_SECONDS} s: {answer.stderr[-300:]!r}")
            time.sleep(0.1)


def home(folder: Path) -> dict[str, str]:
    return {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}


def wait_for_port(server: Server, pattern: str) -> int:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, server.log.read_text(errors="replace"), re.MULTILINE)
        if found:
            return int(found[1])
        if (why := server.ended()) is not None:
            raise RunError(why)
        time.sleep(0.02)
    raise RunError(f"the server was not listening within {READY_SECONDS} s")
