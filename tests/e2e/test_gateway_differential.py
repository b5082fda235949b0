"""Compares, over each protocol, the route that matched with the route for what the upstream
understood.

Requests come from a seed, which a failure prints. `PRONGHORN_DIFFERENTIAL_REQUESTS` sets their
number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from conftest import SEED
from differential.comparison import Comparison
from differential.known import known
from differential.routes import Pattern, Route, Site, generated
from differential.servers import SERVERS
from differential.spellings import composed
from harness.clients.kept import ask_all
from harness.clients.spelled import VERSIONS

COMPOSED = int(os.environ.get("PRONGHORN_DIFFERENTIAL_REQUESTS", "400"))
"""Number of random requests to each server over each protocol, besides the known ones."""
ROUNDS_AT_LENGTH, COMPOSED_AT_LENGTH = 20, 5 * COMPOSED

Change = Callable[[Route], Route]


def changed(sites: Iterable[Site], change: Change) -> list[Site]:
    return [replace(site, routes=tuple(map(change, site.routes))) for site in sites]


def unchanged(route: Route) -> Route:
    return route


@pytest.fixture
def compared(start, gateway, ca) -> Callable[..., Comparison]:
    """Sends requests to a server behind a gateway; the routes and the requests are made from a
    seed.
    """
    numbers = count()

    def run(server: str, seed: str, requests: int, misstate: Change = unchanged) -> Comparison:
        random, folder = Random(seed), gateway.folder / str(next(numbers))
        folder.mkdir()
        sites = generated(random)
        spelled = [*known(), *(composed(sites, random) for _ in range(requests))]
        comparison = Comparison(sites)
        with SERVERS[server](folder) as upstream:
            gateway.write(
                "".join(site.written(upstream.action) for site in changed(sites, misstate))
            )
            running = start(gateway.command())
            for version in VERSIONS:
                numbered = [
                    (f"{version}-{number}", request) for number, request in enumerate(spelled)
                ]
                answers = ask_all(version, running.origin, ca, numbered)
                comparison.asked |= {
                    number: (request, answers[number]) for number, request in numbered
                }
            comparison.reading = upstream.understood(comparison.asked)
            comparison.is_told_all = upstream.is_told_all
            running.stop()
        return comparison

    return run


def some(found: list[str], seed: str) -> str:
    return "\n".join([f"{len(found)} requests with the seed {seed!r}, such as", *found[:8]])


def agrees(comparison: Comparison, seed: str) -> None:
    disagreements, differences = comparison.disagreements(), comparison.differences()
    assert not disagreements, some(disagreements, seed)
    assert not differences, some(differences, seed)
    shares = {version: comparison.reached(version) for version in VERSIONS}
    assert min(shares.values()) > 0.25, f"too few requests came through to show anything: {shares}"


def without_last_segment(route: Route) -> Route:
    def wider(pattern: Pattern) -> Pattern:
        return replace(pattern, segments=pattern.segments[:-1] or (b"",))

    return replace(route, patterns=tuple(map(wider, route.patterns)))


@pytest.mark.parametrize("server", SERVERS)
def test_matched_route_is_the_route_for_what_the_server_understood(compared, server):
    seed = f"{SEED} {server}"
    comparison = compared(server, seed, COMPOSED)
    agrees(comparison, seed)
    # Requests that arrived must be able to distinguish these routes from others.
    sites = comparison.sites
    wrong = {
        "no methods": changed(sites, lambda route: replace(route, methods=())),
        "no hosts": changed(sites, lambda route: replace(route, hosts=())),
        "other paths": changed(sites, without_last_segment),
        "another order": [replace(site, routes=site.routes[::-1]) for site in sites],
        "one site": [replace(sites[0], hosts=("*",))],
    }
    assert {
        why: bool(comparison.disagreements(other)) for why, other in wrong.items()
    } == dict.fromkeys(wrong, True)


def test_wrong_route_in_the_configuration_is_detected(compared):
    def misstate(route: Route) -> Route:
        texts = [
            replace(pattern, text=pattern.text.replace("admin", "admim"))
            for pattern in route.patterns
        ]
        return replace(route, patterns=tuple(texts)) if route.number == 0 else route

    found = compared("wsgi", f"{SEED} misstated", 0, misstate).disagreements()
    for version in VERSIONS:
        assert [
            each
            for each in found
            if each.startswith(f"HTTP/{version} ") and "is for route 0 " in each
        ]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(ROUNDS_AT_LENGTH))
@pytest.mark.parametrize("server", SERVERS)
def test_matched_route_is_the_route_for_what_the_server_understood_at_length(
    compared, server, number
):
    seed = f"{SEED} {server} {number}"
    agrees(compared(server, seed, COMPOSED_AT_LENGTH), seed)
