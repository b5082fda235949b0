"""quic-go, and Go's own HTTP/1.1 and HTTP/2, through tests/clients/quic-go."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..process import end_by_input
from ..response import Response, lower
from ..server import quic_go_client

TIMEOUT_SECONDS = 120

PROTOCOLS = {"HTTP/1.1": "HTTP/1.1", "HTTP/2.0": "HTTP/2", "HTTP/3.0": "HTTP/3"}


def fetcher(version: str) -> Callable[..., Response]:
    def fetch(url: str, *, ca: Path, method: str, headers, body: bytes | None) -> Response:
        with GoClient(version, ca) as client:
            return client.fetch(url, method=method, headers=headers, body=body)

    return fetch


class RequestFailedError(Exception):
    """The client's own error message."""


@dataclass
class Round:
    """Results of the same request, sent several times at once."""

    connections: int
    """Connections opened by the client so far, including this round's."""
    responses: list[Response]
    errors: list[str]
    quic: dict | None
    """The latest HTTP/3 connection: version, resumed, early_data, and key_updates that the client
    started.
    """


class GoClient:
    """A running client; its connections stay open between rounds."""

    def __init__(
        self,
        version: str,
        ca: Path,
        *,
        idle_timeout: str = "30s",
        prefix: list[str] = (),
        flags=(),
        timeout_seconds: int = TIMEOUT_SECONDS,
    ):
        self.version = version
        self._timeout_seconds = timeout_seconds
        self._folder = tempfile.TemporaryDirectory()
        command = [
            *prefix,
            quic_go_client(),
            "-http",
            version,
            "-ca",
            ca,
            "-idle-timeout",
            idle_timeout,
            *flags,
        ]
        self.popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> GoClient:
        return self

    def __exit__(self, *_exception) -> None:
        # The client closes its connections at the end of its input.
        end_by_input(self.popen)
        self._folder.cleanup()

    def fetch(self, url: str, **asked) -> Response:
        done = self.round(url, **asked)
        if done.errors:
            raise RequestFailedError(done.errors[0])
        return done.responses[0]

    def round(self, url: str, **asked) -> Round:
        self.send(url, **asked)
        return self.receive()

    def send(
        self,
        url: str,
        *,
        method: str = "GET",
        headers=(),
        trailers=(),
        body: bytes | None = None,
        body_file: Path | None = None,
        body_length_unknown: bool = False,
        count: int = 1,
        print_head: bool = False,
        hold: bool = False,
        reconnect: bool = False,
        migrate: bool = False,
    ) -> None:
        asked = {
            "url": url,
            "method": method,
            "headers": list(headers),
            "trailers": list(trailers),
            "body_file": str(body_file or ""),
            "body_length_unknown": body_length_unknown,
            "count": count,
            "timeout_seconds": self._timeout_seconds,
            "print_head": print_head,
            "hold": hold,
            "reconnect": reconnect,
            "migrate": migrate,
        }
        if body is not None:
            file = Path(self._folder.name) / "body"
            file.write_bytes(body)
            asked["body_file"] = str(file)
        self.popen.stdin.write(json.dumps(asked) + "\n")
        self.popen.stdin.flush()

    def go_on(self) -> None:
        """Lets a round with `hold` read its response's content."""
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def receive_head(self) -> int:
        """Returns the status as soon as the head of the response to a round with `print_head` has
        arrived.
        """
        head = self._line()
        assert "status" in head, f"no response head arrived: {head}"
        return head["status"]

    def receive(self) -> Round:
        answer = self._line()
        responses = [response_of(each) for each in answer["responses"] if not each.get("error")]
        errors = [each["error"] for each in answer["responses"] if each.get("error")]
        return Round(answer["connections"], responses, errors, answer.get("quic"))

    def _line(self) -> dict:
        line = self.popen.stdout.readline()
        assert line, f"the Go client ended with {self.popen.wait()}"
        return json.loads(line)


def response_of(each: dict) -> Response:
    return Response(
        status=each["status"],
        protocol=PROTOCOLS[each["protocol"]],
        headers=lower(each["headers"]),
        size=each["size"],
        sha256=each["sha256"],
        body=base64.b64decode(each["body"])
        if "body" in each
        else (b"" if each["size"] == 0 else None),
        trailers=lower(each["trailers"]),
    )
