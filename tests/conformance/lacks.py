"""Features that the transport lacks, each with a check: an entry that is no longer true fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aioquic.quic.packet import QuicProtocolVersion

from harness.clients.quic_packets import Parameter

from .case import Target

VERSION_INFORMATION = 0x11
"""RFC 9368 section 3."""
INITIAL_MAX_PATH_ID = 0x3E
"""draft-ietf-quic-multipath."""
RESET_STREAM_AT = 0x17F7586D2CB571
"""draft-ietf-quic-reliable-stream-reset."""


@dataclass(frozen=True)
class Lack:
    what: str
    where: str
    consequence: str
    is_so: Callable[[Target], bool]


def answers_v2_with_version_negotiation(target: Target) -> bool:
    with target.quic(version=QuicProtocolVersion.VERSION_2) as quic:
        quic.start()
        quic.wait("Version Negotiation", lambda: quic.offered_versions is not None)
        versions = quic.offered_versions
        return (
            QuicProtocolVersion.VERSION_1 in versions
            and QuicProtocolVersion.VERSION_2 not in versions
        )


def does_not_send(parameter: int) -> Callable[[Target], bool]:
    def check(target: Target) -> bool:
        with target.connected() as quic:
            return parameter not in quic.peer_parameters

    return check


LACKS = [
    Lack(
        "QUIC version 2",
        "RFC 9369",
        "a client that starts with it gets a Version Negotiation packet with version 1 and loses a round trip",
        answers_v2_with_version_negotiation,
    ),
    Lack(
        "version_information, compatible version negotiation",
        "RFC 9368",
        "there is only one version, so there is no downgrade to protect against yet",
        does_not_send(VERSION_INFORMATION),
    ),
    Lack(
        "a preferred address",
        "RFC 9000 9.6",
        "the library could announce one; the engine does not use it",
        does_not_send(Parameter.PREFERRED_ADDRESS),
    ),
    Lack(
        "several paths at once",
        "draft-ietf-quic-multipath",
        "connections migrate from one path to another, and use one at a time",
        does_not_send(INITIAL_MAX_PATH_ID),
    ),
    Lack(
        "resets with a reliable part",
        "draft-ietf-quic-reliable-stream-reset",
        "data before a reset may be lost",
        does_not_send(RESET_STREAM_AT),
    ),
]
