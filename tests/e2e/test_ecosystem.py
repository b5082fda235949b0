"""HTTP clients of other ecosystems, used as their users use them, against Pronghorn and nginx.

A scenario that fails with nginx too is the client's own fault.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from conftest import random_bytes
from harness.ecosystem import (
    Client,
    Contestant,
    Nginx,
    NginxByDefault,
    Ours,
    Request,
    Run,
    Site,
    accepts,
    count_content,
    identity_for_nginx,
)
from harness.gateway import Upstream, upstream
from harness.waiting import eventually

LARGE = random_bytes(50 << 20, "large")
UPLOADED = random_bytes(8 << 20, "uploaded")
SMALL = b"a small file\n"

QUICK = [
    Client("httpx", ("1.1", "2"), "python"),
    Client("niquests", ("1.1", "2"), "python"),
    Client("aiohttp", ("1.1",), "python"),
    Client("net-http", ("1.1", "2"), "go"),
    Client("undici", ("1.1", "2"), "node"),
    Client("got", ("1.1", "2"), "node"),
]
LONG = [
    Client("reqwest", ("1.1", "2"), "rust"),
    Client("okhttp", ("1.1", "2"), "java"),
    Client("jetty", ("1.1", "2"), "java"),
    Client("apache", ("1.1", "2"), "java"),
    Client("jdk", ("1.1", "2"), "java"),
]
"""Clients that need a JDK and Maven, or minutes to build."""

SCENARIOS = [
    "small",
    "download",
    "upload",
    "stream",
    "refused",
    "cancel",
    "shutdown",
    "idle-31",
    "idle-65",
]
"""Ours closes idle connections after 30 s. nginx does so as well, in the second before the request
of `idle-31`, but keeps the connection of `idle-65`.
"""
ALWAYS = {"small", "stream", "refused", "cancel"}
"""Scenarios that `make test` runs with the clients of QUICK against Pronghorn, over the protocol
that the client chooses.
"""

OPENS_MORE = {"niquests", "undici", "got", "apache"}
"""Clients that open more HTTP/2 connections although one has capacity."""

IGNORES_THE_RESET = (
    "the answer to an upload is lost to the reset without error behind it (RFC 9113, section 8.1)"
)
ENDS_AT_GOAWAY = "running downloads end with GOAWAY, whatever stream it names as the last"
OWN_FAULTS = {
    # The connection is neither reset nor given credit for the received data, so its window stays
    # full.
    ("httpx", "2", "cancel"): "a response that is closed early stays open towards the server",
    ("httpx", "2", "refused"): IGNORES_THE_RESET,
    ("httpx", "2", "shutdown"): ENDS_AT_GOAWAY,
    ("undici", "2", "shutdown"): ENDS_AT_GOAWAY,
    ("got", "2", "refused"): IGNORES_THE_RESET,
    ("jetty", "2", "shutdown"): ENDS_AT_GOAWAY,
    ("jdk", "2", "shutdown"): ENDS_AT_GOAWAY,
    (
        "jdk",
        "2",
        "refused",
    ): "it goes on sending after the reset, and waits for windows of a stream that is closed",
    (
        "apache",
        "1.1",
        "refused",
    ): "the classic face waits for its output although the answer is there",
    (
        "apache",
        "2",
        "refused",
    ): "the classic face waits for its output although the answer is there",
    ("apache", "2", "upload"): "no content-length is sent over HTTP/2",
}
"""Excluded cases: they fail with both servers and show nothing about Pronghorn."""


def cells() -> Iterator:
    for client in [*QUICK, *LONG]:
        for protocol, scenario, server in itertools.product(
            client.protocols, SCENARIOS, (Ours, Nginx)
        ):
            cell = (client.name, protocol, scenario)
            if cell in OWN_FAULTS:
                continue
            marks = []
            chosen = protocol == client.protocols[-1] and scenario in ALWAYS and server is Ours
            if client in LONG or not chosen:
                marks.append(pytest.mark.long)
            if scenario == "idle-65":
                marks.append(pytest.mark.timeout(600))
            yield pytest.param(
                client,
                protocol,
                scenario,
                NginxByDefault if (scenario, server) == ("idle-65", Nginx) else server,
                id=f"{'-'.join(cell)}-{server.name}",
                marks=marks,
            )


@pytest.fixture(scope="module")
def application() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("ecosystem")
    root = folder / "site"
    root.mkdir()
    (root / "large.bin").write_bytes(LARGE)
    (root / "small.txt").write_bytes(SMALL)
    (folder / "uploaded.bin").write_bytes(UPLOADED)
    return Site(root, identity_for_nginx(folder / "identity"))


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, made: Site, application: Upstream
) -> Iterator[Servers]:
    running = Servers(tmp_path_factory, made, application)
    yield running
    running.stop()


class Servers:
    """One server of each kind, shared by all scenarios except those that stop it."""

    def __init__(self, folders: pytest.TempPathFactory, made: Site, application: Upstream):
        self.folders, self.made, self.application = folders, made, application
        self.shared: dict[type[Contestant], Contestant] = {}
        self.resting: dict[tuple, tuple[Run, str]] = {}
        self.tags = itertools.count()

    def start(self, kind: type[Contestant]) -> Contestant:
        return kind(self.folders.mktemp(kind.name), self.made, self.application.address)

    def get(self, kind: type[Contestant]) -> Contestant:
        if kind not in self.shared:
            self.shared[kind] = self.start(kind)
        return self.shared[kind]

    def run(
        self, client: Client, protocol: str, scenario: str, server: Contestant
    ) -> tuple[Run, str]:
        """Starts a client; returns it and the tag of its requests."""
        tag = f"run={next(self.tags)}"
        self.application.routes[f"/upload?{tag}"] = count_content
        uploaded = self.made.root.parent / "uploaded.bin"
        origin, ca = server.origin, self.made.identity.ca
        return Run(client, protocol, scenario, origin, ca, uploaded, tag), tag

    def rest(self, cell: tuple, cells: list[tuple]) -> tuple[Run, str]:
        """Returns the client of a cell. The first call starts those of all cells: they only wait."""
        if not self.resting:
            for each in cells:
                # A program that was not built fails its own test.
                with suppress(FileNotFoundError):
                    self.resting[each] = self.run(*each[:3], self.get(each[3]))
        return self.resting.get(cell) or self.run(*cell[:3], self.get(cell[3]))

    def stop(self) -> None:
        for run, _ in self.resting.values():
            run.stop()
        for server in self.shared.values():
            server.stop()


def selected_cells(session: pytest.Session, scenario: str) -> list[tuple]:
    """Returns the cells of a scenario that this process runs; none beside other processes, which
    would start the same cells.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return []
    found = (
        tuple(item.callspec.params[name] for name in ("client", "protocol", "scenario", "kind"))
        for item in session.items
        if getattr(item, "originalname", "") == "test_client_of_others"
    )
    return [cell for cell in found if cell[2] == scenario]


@pytest.mark.parametrize(("client", "protocol", "scenario", "kind"), list(cells()))
def test_client_of_others(request, client, protocol, scenario, kind, servers: Servers):
    server = servers.start(kind) if scenario == "shutdown" else servers.get(kind)
    if scenario == "idle-65":
        cells = selected_cells(request.session, scenario)
        run, tag = servers.rest((client, protocol, scenario, kind), cells)
    else:
        run, tag = servers.run(client, protocol, scenario, server)
    try:
        if scenario == "shutdown":
            run.wait_until_reading()
            server.begin_to_end()
            address = server.origin.removeprefix("https://")
            eventually("the server to stop accepting connections", lambda: not accepts(address))
            run.go_on()
        answers = run.report(65 if scenario == "idle-65" else 0)["answers"]
        requests = eventually(
            "a line of the log for each request",
            lambda: enough(server.requests(tag), EXPECTED_REQUESTS[scenario]),
        )
        if scenario == "shutdown":
            assert server.process.wait() == 0, server.process.lines
    finally:
        run.stop()
        if scenario == "shutdown":
            server.stop()
    spoken = {"1.1": "HTTP/1.1", "2": "HTTP/2"}[protocol]
    # Report of the client, and log of the server.
    assert {answer["protocol"].removesuffix(".0") for answer in answers} == {spoken}
    assert {request.protocol.removesuffix(".0") for request in requests} == {spoken}
    CHECKS[scenario](answers, requests)
    if scenario == "cancel" and protocol == "2" and client.name not in OPENS_MORE:
        assert len({request.port for request in requests}) == 1, requests
    if scenario == "idle-65" and server.name == Ours.name:
        assert len({request.port for request in requests}) == 2, requests


EXPECTED_REQUESTS = {
    "small": 2,
    "download": 1,
    "upload": 1,
    "stream": 1,
    "refused": 2,
    "cancel": 9,
    "idle-31": 2,
    "idle-65": 2,
    "shutdown": 1,
}


def enough(requests: list[Request], count: int) -> list[Request] | None:
    return requests if len(requests) >= count else None


def is_whole(answer: dict, content: bytes) -> bool:
    return (answer["status"], answer["bytes"]) == (200, len(content)) and answer[
        "sha256"
    ] == digest(content)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def large_comes_whole(answers: list[dict], _requests: list[Request]) -> None:
    assert len(answers) == 1
    assert is_whole(answers[0], LARGE)


def upload_arrives(answers: list[dict]) -> dict:
    assert [answer["status"] for answer in answers] == [200]
    seen = json.loads(answers[0]["text"])
    assert (seen["bytes"], seen["sha256"]) == (len(UPLOADED), digest(UPLOADED))
    return seen


def upload_arrives_with_its_length(answers: list[dict], _requests: list[Request]) -> None:
    assert upload_arrives(answers)["content-length"] == str(len(UPLOADED))


def upload_arrives_without_length(answers: list[dict], _requests: list[Request]) -> None:
    assert upload_arrives(answers)["transfer-encoding"] == "chunked"


def refusal_arrives_and_the_next_request_is_served(answers: list[dict], _requests) -> None:
    assert [answer["status"] for answer in answers] == [403, 200]
    assert is_whole(answers[1], SMALL)


def bystanders_get_all(answers: list[dict], _requests: list[Request]) -> None:
    first, *bystanders, last = answers
    assert is_whole(first, SMALL)
    assert len(bystanders) == 3
    assert all(is_whole(answer, LARGE) for answer in bystanders)
    assert is_whole(last, SMALL)


def both_are_served(answers: list[dict], _requests: list[Request]) -> None:
    assert len(answers) == 2
    assert all(is_whole(answer, SMALL) for answer in answers)


CHECKS = {
    "small": both_are_served,
    "download": large_comes_whole,
    "upload": upload_arrives_with_its_length,
    "stream": upload_arrives_without_length,
    "refused": refusal_arrives_and_the_next_request_is_served,
    "cancel": bystanders_get_all,
    "idle-31": both_are_served,
    "idle-65": both_are_served,
    "shutdown": large_comes_whole,
}
