"""Definition of a case, and evaluation of a server's reaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path

from harness.clients.quic_packets import Close, TransportError
from harness.clients.raw_h3 import H3Error, RawH3
from harness.clients.raw_quic import ClosedError, RawQuic


class Alert(IntEnum):
    """TLS alerts (RFC 8446 section 6)."""

    UNEXPECTED_MESSAGE = 10
    HANDSHAKE_FAILURE = 40
    ILLEGAL_PARAMETER = 47
    DECODE_ERROR = 50
    PROTOCOL_VERSION = 70
    INTERNAL_ERROR = 80
    MISSING_EXTENSION = 109
    NO_APPLICATION_PROTOCOL = 120


Code = TransportError | Alert | H3Error


class Suite(Enum):
    """Origin of a case."""

    H3SPEC = "the public suite of April 2025"
    NEWER = "the HTTP/3 part of the suite as it was extended later"
    OURS = "ours"


@dataclass(frozen=True)
class Target:
    """The server under test."""

    origin: str
    ca: Path

    def quic(self, **options) -> RawQuic:
        return RawQuic(self.origin, self.ca, **options)

    @contextmanager
    def connected(self, **options) -> Iterator[RawQuic]:
        """Opens a connection and completes its handshake."""
        with self.quic(**options) as quic:
            quic.handshake()
            yield quic

    @contextmanager
    def http(self, *, open_streams: bool = True, **options) -> Iterator[RawH3]:
        """Opens a connection and completes its handshake, by default with the HTTP/3 streams."""
        with RawH3(self.origin, self.ca, **options) as h3:
            if open_streams:
                h3.open()
            else:
                h3.handshake()
            yield h3


@dataclass(frozen=True)
class Result:
    """The server's reaction: an error code with its scope, or none."""

    code: Code | None
    scope: str = "connection"
    says: str = ""

    @classmethod
    def of(cls, seen: Close | int | None) -> Result:
        if seen is None:
            return cls(None)
        if isinstance(seen, int):
            return cls(H3Error(seen), "stream")
        if seen.layer == "application":
            return cls(H3Error(seen.code), says=str(seen))
        return cls(
            TransportError(seen.code) if seen.alert is None else Alert(seen.alert), says=str(seen)
        )


@dataclass(frozen=True)
class Case:
    """One case; `run` performs the violation against the target and returns the result."""

    errors: tuple[Code, ...]
    words: str
    section: str
    run: Callable[[Target], Close | int | None]
    suite: Suite = Suite.H3SPEC
    known: str = ""
    """Reason of a failure that is caused by a library and cannot be fixed above it."""

    @property
    def name(self) -> str:
        errors = " or ".join(error.name for error in self.errors) or "no error"
        return f"{errors}: {self.words} ({self.section})"

    def passes(self, result: Result) -> bool:
        """Generic errors, which the RFCs allow in place of each other, are not accepted."""
        return result.code in self.errors if self.errors else result.code is None


CASES: list[Case] = []


def case(*errors: Code, words: str, section: str, suite: Suite = Suite.H3SPEC, known: str = ""):
    """Registers a function as a case. `errors`: the codes in the RFC, empty if it names none."""

    def register(run: Callable[[Target], Close | int | None]):
        CASES.append(Case(errors, words, section, run, suite=suite, known=known))
        return run

    return register


def in_handshake(quic: RawQuic) -> Close | None:
    """Runs a handshake with a violation in it."""
    with quic:
        try:
            quic.handshake()
        except ClosedError as error:
            return error.close
        return quic.settle()


def sends(*frames: bytes, **changes) -> Callable[[Target], Close | None]:
    """A case of one 1-RTT packet after the handshake."""

    def run(target: Target) -> Close | None:
        with target.connected() as quic:
            quic.send(*frames, **changes)
            return quic.settle()

    return run
