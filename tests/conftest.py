"""Fixtures: a certificate authority, a folder to serve, servers and clients."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.certificates import Identity, make_identity
from harness.clients import FETCHERS, Fetcher
from harness.clients.spelled import VERSIONS, Speller
from harness.faulty_signer import FaultySigner
from harness.fleet import Fleet
from harness.gateway import EVERY_HOST, Gateway, Upstream, upstream
from harness.keys import Client, Edge, RunningSigner
from harness.pairs import LARGE, SMALL
from harness.pebble import Pebble
from harness.php import application, php_fpm
from harness.process import Process
from harness.redis import Redis, redis_server
from harness.server import Server, echo_command, serve_command

pytest_plugins = ["harness.waited"]

SEED = int(os.environ.get("PRONGHORN_TEST_SEED", "2026"))
"""Seed of all random bytes in the tests; printed in the header of a run."""


def pytest_report_header() -> str:
    return f"PRONGHORN_TEST_SEED={SEED}"


def random_bytes(size: int, salt: str = "") -> bytes:
    return random.Random(f"{SEED} {salt}").randbytes(size)


@dataclass(frozen=True)
class Site:
    """A folder to serve, and a file beside it that must never be served."""

    root: Path
    secret: bytes

    def read(self, path: str) -> bytes:
        return (self.root / path.lstrip("/")).read_bytes()


BIG_FILE_SIZE = 10 << 20


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers keep their state in this run's folder, not in the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("identity"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Created once and only read by the tests; a test that writes makes its own folder."""
    outside = tmp_path_factory.mktemp("outside")
    secret = b"this file stands outside of the served folder"
    (outside / "secret.txt").write_bytes(secret)
    root = outside / "site"
    files = {
        "index.html": b"<!doctype html><title>front page</title>",
        "small.txt": b"a small file\n",
        "empty.txt": b"",
        "big.bin": random_bytes(BIG_FILE_SIZE, "big.bin"),
        "medium.bin": random_bytes(100_000, "medium.bin"),
        "noextension": b"\x00\x01\x02",
        "name with space.txt": b"space",
        "\u00fcber 100%.txt": b"percent and umlaut",
        "sub/index.html": b"<!doctype html><title>sub</title>",
        "sub/page.html": b"<!doctype html><title>page</title>",
        "noindex/file.txt": b"a folder without an index",
    }
    for name, contents in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(contents)
    (root / "leak.txt").symlink_to(outside / "secret.txt")
    (root / "relative-leak.txt").symlink_to("../secret.txt")
    (root / "parent").symlink_to("..")
    (root / "broken").symlink_to("nowhere")
    return Site(root, secret)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files for transfers with independent QUIC stacks: one for each size, named by it."""
    folder = tmp_path_factory.mktemp("files")
    for size in (SMALL, LARGE):
        (folder / f"{size}.bin").write_bytes(random_bytes(size, "interop"))
    return folder


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers; stops them after the test, and fails it if one of them panicked."""
    started: list[Process] = []

    def run(command, **options) -> Server:
        server = Server(command, **options)
        started.append(server)
        return server

    yield run
    end(started)


def end(servers: list[Process]) -> None:
    """Stops servers and fails if one of them panicked."""
    for server in servers:
        server.stop()
    panics = [
        line
        for server in servers
        for line in server.lines
        if re.search(r"panicked at|SIGSEGV|BUG:", line)
    ]
    assert not panics, f"a server panicked: {panics}"


@pytest.fixture
def start_serve(start, identity: Identity, site: Site) -> Callable[..., Server]:
    """Starts `pronghorn serve` over the common folder; takes flags and listen addresses."""

    def run(*flags: str, listen=("127.0.0.1:0",), directory: Path = site.root) -> Server:
        return start(
            serve_command(directory, identity, *flags, listen=listen), listeners=len(listen)
        )

    return run


@pytest.fixture
def server(start_serve) -> Server:
    """Starts `pronghorn serve` over the common folder."""
    return start_serve()


@pytest.fixture(scope="module")
def shared_server(site: Site, identity: Identity) -> Iterator[Server]:
    """Starts one server for all tests of a file, none of which may disturb it."""
    server = Server(serve_command(site.root, identity))
    yield server
    end([server])


@pytest.fixture(scope="module")
def shared_handler(identity: Identity) -> Iterator[Server]:
    """Starts the engine's test handler, likewise."""
    server = Server(echo_command(identity))
    yield server
    end([server])


@pytest.fixture
def handler(start, identity: Identity) -> Server:
    """Starts the engine's test handler."""
    return start(echo_command(identity))


@pytest.fixture(params=FETCHERS, ids=lambda fetcher: fetcher.name)
def fetcher(request: pytest.FixtureRequest, identity: Identity) -> Fetcher:
    """Returns each client in turn."""
    return request.param.trusting(identity.ca)


@pytest.fixture(
    params=[
        fetcher for fetcher in FETCHERS if fetcher.name in ("curl-h1", "curl-h2", "aioquic-h3")
    ],
    ids=lambda fetcher: fetcher.protocol,
)
def protocol_fetcher(request: pytest.FixtureRequest, identity: Identity) -> Fetcher:
    """Returns one client for each protocol, for tests of the response, not the wire format."""
    return request.param.trusting(identity.ca)


@pytest.fixture
def ca(identity: Identity) -> Path:
    return identity.ca


@pytest.fixture
def gateway(tmp_path: Path, identity: Identity) -> Gateway:
    """Makes a folder for the configuration of a gateway."""
    return Gateway(tmp_path, identity)


@pytest.fixture(params=VERSIONS)
def speak(
    request: pytest.FixtureRequest, start, gateway: Gateway, ca: Path
) -> Callable[..., Speller]:
    """Serves routes for every host; sends requests spelled by the test over each protocol."""

    def serve(routes: str, **options) -> Speller:
        gateway.write(EVERY_HOST + routes, **options)
        return Speller(request.param, start(gateway.command()).origin, ca)

    return serve


@pytest.fixture
def up() -> Iterator[Upstream]:
    """Starts an upstream server for a gateway."""
    with upstream() as server:
        yield server


@pytest.fixture
def pebble(tmp_path: Path) -> Iterator[Pebble]:
    """Provides a certificate authority for ACME orders, which the test starts."""
    authority = Pebble(tmp_path)
    yield authority
    authority.stop()


@pytest.fixture
def edge(gateway: Gateway) -> Edge:
    """Makes the files of a gateway whose keys are elsewhere."""
    return Edge(gateway)


@pytest.fixture
def run_edge(start, edge: Edge) -> Callable[..., Client]:
    """Writes a configuration as `Edge.write` does, starts the gateway, and returns its clients."""

    def run(*arguments, env: dict[str, str] | None = None, **options) -> Client:
        edge.write(*arguments, **options)
        return Client(edge, start(edge.gateway.command(), env=env))

    return run


@pytest.fixture
def signer(edge: Edge) -> Iterator[RunningSigner]:
    """Starts a `pronghorn signer` with the keys of the edge."""
    running = RunningSigner(edge)
    yield running
    end([running.process])


@pytest.fixture
def faulty_signer(edge: Edge) -> Iterator[FaultySigner]:
    """Starts a signer with the keys of the edge, whose faults the test sets."""
    with FaultySigner(edge.signer.folder, list(edge.signer.keys.values())) as running:
        yield running


@pytest.fixture
def fpm(tmp_path: Path) -> Iterator[Path]:
    """Returns the socket of a PHP-FPM."""
    with php_fpm(tmp_path / "fpm") as socket:
        yield socket


@pytest.fixture
def www(tmp_path: Path) -> Path:
    """Returns the folder of a PHP application."""
    return application(tmp_path)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """Starts Redis for the test alone."""
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def make_fleet(start, tmp_path: Path, identity: Identity, up) -> Callable[..., Fleet]:
    """Makes a fleet whose nodes share what is in a Redis, and forward to the upstream."""

    def make(*redis: str, **options) -> Fleet:
        small = '[[sites.routes]]\nmatch = "/small.txt"\nrespond = "small"\n'
        routes = f'{small}[[sites.routes]]\nproxy = "{up.address}"\n'
        return Fleet(start, tmp_path, identity, routes, redis, **options)

    return make
