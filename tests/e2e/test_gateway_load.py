"""`pronghorn run` under load: large content, ten thousand concurrent requests, upstreams that are
killed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.clients.go import GoClient
from harness.gateway import SITE
from harness.process import Process
from harness.server import REPOSITORY, pronghorn
from harness.waiting import eventually

MIB = 1 << 20
MOST_ABOVE_IDLE = 64 * MIB
# More than the sockets on the way and the gateway may buffer.
HELD_BACK = 256 * MIB
PIECE = 1 * MIB


class Depot:
    """An upstream that accepts content of any size and returns its SHA-256; sends as much as
    requested. Counts both.
    """

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.taken = self.sent = 0
        self.may_take = threading.Event()
        self.may_take.set()
        self.numbers: Iterator[int] = itertools.repeat(0)
        """Names of the responses."""

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb", buffering=PIECE) as stream, suppress(OSError):
            while line := stream.readline():
                method, path, _ = line.split()
                fields = {}
                while (field := stream.readline()) != b"\r\n":
                    name, _, value = field.partition(b":")
                    fields[name.lower()] = value.strip()
                if method == b"PUT":
                    answer = self.take(stream, int(fields[b"content-length"])).encode()
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer)
                    )
                else:
                    self.send(connection, int(path.removeprefix(b"/")))

    def take(self, stream, left: int) -> str:
        digest, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
        while left:
            self.may_take.wait(60)
            read = stream.readinto1(piece[: min(left, PIECE)])
            digest.update(piece[:read])
            self.taken += read
            left -= read
        return digest.hexdigest()

    def send(self, connection: socket.socket, size: int) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-request-id: %08d\r\n\r\n"
        connection.sendall(head % (size, next(self.numbers)))
        piece = bytes(PIECE)
        for _ in range(size // PIECE):
            connection.sendall(piece)
            self.sent += PIECE


@pytest.fixture
def depot() -> Iterator[Depot]:
    depot = Depot()
    thread = threading.Thread(target=depot.run, daemon=True)
    thread.start()
    yield depot
    depot.may_take.set()
    depot.listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    depot.listener.close()


def zeros(size: int) -> str:
    digest, piece = hashlib.sha256(), bytes(PIECE)
    for _ in range(size // PIECE):
        digest.update(piece)
    return digest.hexdigest()


SIZES = [
    pytest.param(256 * MIB, id="256-MiB"),
    pytest.param(2048 * MIB, id="2-GiB", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
]


def proxied(start, gateway, address: str, more: str = "", **options):
    gateway.write(
        SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"]{more} }}\n', **options
    )
    gateway.file.write_text(gateway.file.read_text() + '[limits]\nrequest_body_bytes = "4GiB"\n')
    return start(gateway.command())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_large_content_is_forwarded_in_little_memory(
    start, gateway, depot, ca, tmp_path, version, size
):
    server = proxied(start, gateway, depot.address)
    expected = zeros(size)
    file = tmp_path / "zeros"
    with file.open("wb") as large:
        large.truncate(size)
    with GoClient(version, ca, timeout_seconds=600) as client:
        assert client.fetch(f"{server.origin}/0").status == 200
        idle = server.forget_peak()
        down = client.fetch(f"{server.origin}/{size}")
        assert (down.status, down.size, down.sha256) == (200, size, expected)
        up = client.fetch(f"{server.origin}/", method="PUT", body_file=file)
        assert (up.status, up.text()) == (200, expected)
        assert server.peak_resident_bytes() - idle < MOST_ABOVE_IDLE


def test_hpack_table_entries_do_not_retain_head_buffers(start, gateway, depot, ca):
    server = proxied(start, gateway, depot.address)
    connections, each = 40, 80

    def held() -> int:
        idle = server.forget_peak()
        command = [pronghorn(), "load", "--cacert", ca, "--json", "--http", 2, "-c", connections]
        command += ["-n", connections * each, server.origin + "/0"]
        done = subprocess.run([str(part) for part in command], capture_output=True, timeout=250)
        assert done.returncode == 0, done.stderr.decode()
        assert json.loads(done.stdout)["requests"]["status"]["2xx"] == connections * each
        return server.peak_resident_bytes() - idle

    held()
    alike = held()
    depot.numbers = itertools.count()
    # Heads are read into buffers of 8 KiB: 50 retained ones for each connection would be 16 MiB. A
    # busy machine adds some requests that are open at once.
    assert held() - alike < 8 * MIB


def stands_still(count: Callable[[], int]) -> Callable[[], int | None]:
    """Returns the count once it is stable and not 0."""

    def look() -> int | None:
        before = count()
        time.sleep(0.5)
        return before if before and count() == before else None

    return look


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_slow_client_throttles_its_upstream(start, gateway, depot, ca, version):
    server = proxied(start, gateway, depot.address)
    size = HELD_BACK
    with GoClient(version, ca, timeout_seconds=600) as client:
        assert client.fetch(f"{server.origin}/0").status == 200
        idle = server.forget_peak()
        # The client reads the head, and none of the content until it is told to.
        client.send(f"{server.origin}/{size}", print_head=True, hold=True)
        assert client.receive_head() == 200
        assert eventually("the throttled upstream stops", stands_still(lambda: depot.sent)) < size
        assert server.peak_resident_bytes() - idle < MOST_ABOVE_IDLE
        client.go_on()
        (answer,) = client.receive().responses
        assert (answer.size, answer.sha256) == (size, zeros(size))
        assert server.peak_resident_bytes() - idle < MOST_ABOVE_IDLE


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_slow_upstream_throttles_its_client(start, gateway, depot, ca, tmp_path, version):
    server = proxied(start, gateway, depot.address)
    size = HELD_BACK
    file = tmp_path / "zeros"
    with file.open("wb") as large:
        large.truncate(size)
    with GoClient(version, ca, timeout_seconds=600) as client:
        assert client.fetch(f"{server.origin}/0").status == 200
        idle = server.forget_peak()
        depot.may_take.clear()
        client.send(f"{server.origin}/", method="PUT", body_file=file)
        eventually("the throttled client stops", stands_still(lambda: server.peak_resident_bytes()))
        assert server.peak_resident_bytes() - idle < MOST_ABOVE_IDLE
        depot.may_take.set()
        (answer,) = client.receive().responses
        assert answer.text() == zeros(size)
        assert server.peak_resident_bytes() - idle < MOST_ABOVE_IDLE


APPLICATIONS = REPOSITORY / "tests" / "applications"


@contextmanager
def gathering(awaited: int) -> Iterator[str]:
    """Starts a server that responds only when this many requests are open, in a process with enough
    descriptors.
    """
    process = Process([sys.executable, APPLICATIONS / "gathering.py", str(awaited)])
    try:
        yield process.wait_for_lines(r"listening on (http://\S+)")[0][1]
    finally:
        process.stop()


# Over HTTP/1.1 each request needs a handshake.
OPEN_AT_ONCE = [
    ("1.1", 2_000),
    pytest.param("1.1", 10_000, marks=pytest.mark.long),
    ("2", 10_000),
    ("3", 10_000),
]


@pytest.mark.parametrize(("version", "at_once"), OPEN_AT_ONCE)
def test_thousands_of_requests_are_open_at_once(start, gateway, ca, version, at_once):
    connections = at_once // 100
    if version == "1.1":
        # One connection to the client and one to the upstream.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        at_once = connections = min(at_once, most // 2 - 200)
    with gathering(at_once) as address:
        # No time-out ends an exchange before all are open, however busy the machine is.
        timeouts = "head_timeout = '5m', connect_timeout = '5m'"
        more = f", connections = {at_once}, waiting = {at_once}, {timeouts}"
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"]{more} }}\n', workers=2
        )
        limits = f"[limits]\nopen_requests = {at_once}\nconnections_per_client = {2 * at_once}\n"
        limits += 'handshake_timeout = "5m"\n'
        gateway.file.write_text(gateway.file.read_text() + limits)
        server = start(gateway.command())
        command = [
            pronghorn(),
            "load",
            "--cacert",
            ca,
            "--json",
            "--http",
            version,
            "-c",
            connections,
        ]
        command += [
            "-m",
            at_once // connections,
            "-n",
            at_once,
            "--timeout",
            250,
            server.origin + "/",
        ]
        done = subprocess.run([str(part) for part in command], capture_output=True, timeout=260)
        assert done.returncode == 0, done.stderr.decode()
        assert json.loads(done.stdout)["requests"]["status"]["2xx"] == at_once


class Recorder:
    """An upstream that records each request when it begins; it can be killed and restarted on the
    same port.
    """

    def __init__(self, record: Path):
        self.record = record
        self.port = 0
        self.start()

    def start(self) -> None:
        self.process = Process(
            [sys.executable, APPLICATIONS / "recorder.py", self.record, str(self.port)]
        )
        self.port = int(self.process.wait_for_lines(r"listening on http://127.0.0.1:(\d+)")[0][1])

    def is_asked(self) -> bool:
        before = self.record.stat().st_size
        time.sleep(0.05)
        return self.record.stat().st_size > before

    def begun(self) -> Counter[str]:
        return Counter(self.record.read_text().splitlines())


KILLS = 5
ROUND = 20


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_killed_upstreams_fail_only_requests_that_cannot_be_retried(
    start, gateway, ca, tmp_path, version
):
    recorders = [Recorder(tmp_path / name) for name in ("one", "two")]
    servers = ", ".join(f'"http://127.0.0.1:{recorder.port}"' for recorder in recorders)
    gateway.write(SITE + f"[[sites.routes]]\nproxy = {{ servers = [{servers}] }}\n")
    server = start(gateway.command())
    over = threading.Event()
    asked = {"GET": 0, "POST": 0}
    failed: list[str] = []

    def ask(method: str) -> None:
        with GoClient(version, ca) as client:
            while not over.is_set():
                number = asked[method]
                asked[method] += ROUND
                done = client.round(
                    f"{server.origin}/{method}/{number}", method=method, count=ROUND
                )
                failed.extend(f"{method} /{method}/{number} {error}" for error in done.errors)
                wrong = [answer.status for answer in done.responses if answer.status != 200]
                failed.extend(f"{method} /{method}/{number} {status}" for status in wrong)

    def some_more(what: str) -> None:
        enough = {method: number + 5 * ROUND for method, number in asked.items()}
        eventually(what, lambda: all(asked[method] > number for method, number in enough.items()))

    threads = [threading.Thread(target=ask, args=[method]) for method in asked]
    try:
        for thread in threads:
            thread.start()
        for turn in range(KILLS):
            victim = recorders[turn % 2]
            some_more("requests under way")
            victim.process.kill()
            some_more("requests without it")
            victim.start()
            # The server is retried when its ejection is over, and is not needed before.
            eventually("requests to it", victim.is_asked)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for recorder in recorders:
            recorder.process.stop()
    assert [failure for failure in failed if failure.startswith("GET")] == [], server.lines
    # A POST that may have begun is not retried: those in flight at the server are lost, and none
    # begins twice.
    assert len(failed) <= KILLS * ROUND, failed
    begun = recorders[0].begun() + recorders[1].begun()
    assert [
        (line, count) for line, count in begun.items() if line.startswith("POST") and count > ROUND
    ] == []
