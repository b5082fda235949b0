"""How far the measured costs go: what 10, 100 and 1,000 servers need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NODES = (10, 100, 1000)
REDIS_OPERATIONS_PER_SECOND = 100_000
"""Pipelined operations a second of one core of Redis 7.0, as measured apart from this suite."""


@dataclass(frozen=True)
class Assumptions:
    """What each server of a fleet does."""

    handshakes_per_second: float = 100.0
    """New connections a second, sustained."""
    resumed_share: float = 0.5
    lifetime_hours: float = 1.0
    """How long sessions are to be kept in Redis."""


@dataclass(frozen=True)
class Costs:
    """What one handshake takes."""

    operations_full: float
    operations_resumed: float
    sessions_full: float
    """Sessions that a full handshake adds to Redis."""
    sessions_resumed: float
    """Sessions that a resumed one adds, less the one that it removes."""
    bytes_per_session: float
    signatures_per_core: Mapping[str, float]
    """Signatures a second of one core of a signer, by the kind of key."""


@dataclass(frozen=True)
class Needs:
    """What a fleet needs."""

    nodes: int
    handshakes_per_second: float
    redis_operations_per_second: float
    redis_cores: float
    redis_gib: float
    signer_cores: Mapping[str, float]


def needs(nodes: int, costs: Costs, assumed: Assumptions) -> Needs:
    handshakes = nodes * assumed.handshakes_per_second
    resumed = handshakes * assumed.resumed_share
    full = handshakes - resumed
    operations = full * costs.operations_full + resumed * costs.operations_resumed
    # In balance, as many sessions expire as are added.
    added = max(0.0, full * costs.sessions_full + resumed * costs.sessions_resumed)
    present = added * assumed.lifetime_hours * 3600
    return Needs(
        nodes,
        handshakes,
        operations,
        operations / REDIS_OPERATIONS_PER_SECOND,
        present * costs.bytes_per_session / (1 << 30),
        {kind: full / rate for kind, rate in costs.signatures_per_core.items()},
    )


def nodes_for_one_core(costs: Costs, assumed: Assumptions) -> dict[str, float]:
    """Returns how many servers fill one core of Redis, and one of a signer for each kind of key."""
    one = needs(1, costs, assumed)
    cores = {"Redis": one.redis_cores} | {
        f"signer, {kind}": value for kind, value in one.signer_cores.items()
    }
    return {name: 1 / value for name, value in cores.items() if value > 0}
