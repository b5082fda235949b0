"""RPC clients of other ecosystems call their service through Pronghorn, and through nginx.

A scenario that fails with nginx too is the client's own fault.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.certificates import Identity
from harness.ecosystem import identity_for_nginx
from harness.rpc import KINDS, Client, running_service

CLIENTS = [
    Client("connect", "connect"),
    Client("connect-http1", "connect", version="1.1"),
    Client("connect-grpc", "grpc"),
    Client("connect-grpc-web", "connect"),
    Client("grpc-go", "grpc"),
    Client("grpc-java", "grpc"),
]
SCENARIOS = ["unary", "large", "count", "sum", "sums", "refused", "broken", "deadline", "cancel"]
NEEDS_HTTP2 = {"sums", "cancel"}
"""Scenarios with messages in both directions at once."""


def cells() -> Iterator:
    for client, scenario, server in itertools.product(CLIENTS, SCENARIOS, KINDS):
        if client.version == "1.1" and scenario in NEEDS_HTTP2:
            continue
        yield pytest.param(client, scenario, server, id=f"{client.name}-{scenario}-{server}")


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return identity_for_nginx(tmp_path_factory.mktemp("identity"))


# Building the clients takes minutes.
@pytest.mark.long
@pytest.mark.parametrize(("client", "scenario", "server"), list(cells()))
def test_rpc_client_of_others(client, scenario, server, identity: Identity, tmp_path: Path):
    # The service remembers the calls that ended, so each test has its own.
    with (
        running_service(client.service) as service,
        KINDS[server](tmp_path, identity, service) as between,
    ):
        outcomes = client.run(scenario, between.origin, identity.ca)
        # On a busy machine a deadline may pass before its call is sent.
        sent = [outcome for outcome in outcomes if outcome["code"] != DEADLINE_EXCEEDED]
        requests = between.requests(len(sent))
    CHECKS[scenario](outcomes)
    assert len(sent) <= len(requests) <= len(outcomes)
    assert {request.protocol.removesuffix(".0") for request in requests} == {
        f"HTTP/{client.version}"
    }
    if client.version == "2":
        # All calls share a connection, also after those that ended early.
        assert len({request.port for request in requests}) == 1, requests


OK, CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED = 0, 1, 3, 4, 8
"""Codes of gRPC and Connect."""
DETAIL = "digits only: % é"
BYTES = "00ff10"
"""Binary metadata that the client sends, and the service in its errors, as hexadecimal digits."""


def successful(outcome: dict, *messages: str) -> bool:
    return (outcome["code"], outcome["messages"]) == (OK, list(messages))


def failed(outcome: dict, code: int, message: str, *messages: str) -> bool:
    """Returns whether a call failed with all that the service says about an error."""
    return (
        outcome["code"] == code
        and outcome["message"] == message
        and (outcome["messages"] or []) == list(messages)
        and outcome["details"] == [DETAIL]
        and (outcome["detail"], outcome["detail-bytes"]) == ("digits only", BYTES)
    )


def doubled(outcome: dict, message: str) -> bool:
    """Returns whether a call to `Double` succeeded and its metadata came back."""
    echoed = (outcome["header"], outcome["trailer"]) == ("a token", BYTES)
    return successful(outcome, message) and echoed


def both_are_answered_with_their_metadata(outcomes: list[dict]) -> None:
    first, second = outcomes
    assert doubled(first, "42"), first
    assert doubled(second, "100"), second


def large_message_comes_back(outcomes: list[dict]) -> None:
    (echo,) = outcomes
    assert successful(echo, hashlib.sha256(b"x" * (3 << 20)).hexdigest()), echo


def all_numbers_come_in_order(outcomes: list[dict]) -> None:
    (count,) = outcomes
    assert successful(count, *(str(number) for number in range(5000))), count["code"]


def sum_of_all_comes(outcomes: list[dict]) -> None:
    (total,) = outcomes
    assert successful(total, "500500"), total


def each_message_is_answered_before_the_next(outcomes: list[dict]) -> None:
    (talk,) = outcomes
    assert successful(talk, *sums(range(1, 101))), talk


def error_comes_with_details(outcomes: list[dict]) -> None:
    refusal, after = outcomes
    assert failed(refusal, INVALID_ARGUMENT, "no number: % é"), refusal
    assert doubled(after, "42"), after


def error_comes_after_the_messages(outcomes: list[dict]) -> None:
    count, after = outcomes
    assert failed(count, RESOURCE_EXHAUSTED, "no more numbers", "0", "1", "2"), count
    assert doubled(after, "42"), after


def deadline_reaches_the_service_and_ends_the_call(outcomes: list[dict]) -> None:
    remaining, wait, after = outcomes
    assert remaining["code"] == OK, remaining
    assert remaining["messages"][0].isdigit(), remaining
    assert 0 < int(remaining["messages"][0]) <= 60_000, remaining
    assert wait["code"] == DEADLINE_EXCEEDED, wait
    assert doubled(after, "42"), after


def cancelled_calls_end_and_bystanders_go_on(outcomes: list[dict]) -> None:
    first, *others, last = outcomes
    cancelled, seen, bystanders = others[:4], others[4:8], others[8:]
    assert doubled(first, "42"), first
    for outcome in cancelled:
        assert (outcome["code"], outcome["messages"]) == (CANCELLED, ["waiting"]), outcome
    # The service was notified.
    assert all(successful(outcome, "context canceled") for outcome in seen), seen
    assert len(bystanders) == 3
    for outcome in bystanders:
        assert successful(outcome, *sums([1, *range(10)])), outcome
    assert doubled(last, "100"), last


def sums(numbers) -> list[str]:
    return [str(total) for total in itertools.accumulate(numbers)]


CHECKS = {
    "unary": both_are_answered_with_their_metadata,
    "large": large_message_comes_back,
    "count": all_numbers_come_in_order,
    "sum": sum_of_all_comes,
    "sums": each_message_is_answered_before_the_next,
    "refused": error_comes_with_details,
    "broken": error_comes_after_the_messages,
    "deadline": deadline_reaches_the_service_and_ends_the_call,
    "cancel": cancelled_calls_end_and_bystanders_go_on,
}
