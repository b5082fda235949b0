"""Findings of a review after the other attacks were fixed: trailers, path interpretations and field
names around rules.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.clients.h2_frames import Exchange, H2Client
from harness.clients.raw_h1 import RawH1
from harness.fastcgi import HEAD, application, end, output, sent
from harness.gateway import EVERY_HOST, seen, upstream
from harness.serving import listening
from harness.waiting import DEADLINE_SECONDS

FORGED = [
    "x-forwarded-for",
    "remote-user",
    "client-cert",
    "x-tenant",
    "x_tenant",
    "cookie",
    "authorization",
    "x-hop",
]


@contextmanager
def recording() -> Iterator[tuple[str, list[bytes]]]:
    """Runs an upstream that keeps the bytes of a chunked request, trailers included, and answers
    200.
    """
    requests: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.settimeout(DEADLINE_SECONDS)
        data = b""
        while b"\r\n0\r\n" not in data or not data.endswith(b"\r\n\r\n"):
            data += connection.recv(65536) or b"\r\n0\r\n\r\n"
        requests.append(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    with listening(answer) as address:
        yield f"http://{address}", requests


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize(
    "layers", ["", 'layers = [{ name = "body-limit", size = "1MiB" }]'], ids=["plain", "layered"]
)
def test_request_trailers_are_not_forwarded(start, gateway, ca, version, layers):
    with recording() as (address, requests):
        rules = 'request_headers = { set = { x-tenant = "one" } }\n'
        gateway.write(EVERY_HOST + f'[[sites.routes]]\nproxy = "{address}"\n{rules}{layers}\n')
        server = start(gateway.command())
        if version == "1.1":
            with RawH1(server.origin, ca) as client:
                trailers = "".join(f"{name}: forged\r\n" for name in FORGED)
                client.socket.sendall(
                    f"POST /x HTTP/1.1\r\nhost: localhost\r\nconnection: x-hop\r\ntrailer: {', '.join(FORGED)}\r\n"
                    f"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n{trailers}\r\n".encode()
                )
                assert client.receive("POST").status == 200
        else:
            with H2Client(server.origin, ca) as client:
                stream = client.http.get_next_available_stream_id()
                client.exchanges[stream] = Exchange()
                authority = server.origin.partition("://")[2]
                head = [
                    (":method", "POST"),
                    (":scheme", "https"),
                    (":authority", authority),
                    (":path", "/x"),
                ]
                client.http.send_headers(stream, [*head, ("trailer", ", ".join(FORGED))])
                client.http.send_data(stream, b"abc")
                client.http.send_headers(
                    stream, [(name, "forged") for name in FORGED], end_stream=True
                )
                client.flush()
                assert client.finish(stream).status == 200
    [request] = requests
    assert b"abc" in request
    assert b"forged" not in request
    assert b"\r\ntrailer:" not in request.lower()


def test_forward_auth_gets_the_path_that_routes_match(speak, up):
    told: list[str] = []
    with upstream("auth") as auth:

        def verify(handler, _) -> None:
            told.append(handler.headers["x-forwarded-uri"])
            denied = told[-1].startswith(("/fa/admin", "/fa/@admin", "/fa/priv(x)"))
            handler.reply(403 if denied else 200, b"", [("connection", "close")])

        auth.routes["/"] = verify
        layer = f'layers = [{{ name = "forward-auth", address = "{auth.address}" }}]'
        client = speak(f'[[sites.routes]]\npaths = "compatible"\nproxy = "{up.address}"\n{layer}\n')
        for path in (
            "/fa//admin/x",
            "/fa/%40admin/x",
            "/fa/priv%28x%29/x",
            "//fa///@admin//x?y=//",
        ):
            assert client.ask(path).status == 403, path
        assert told == ["/fa/admin/x", "/fa/@admin/x", "/fa/priv(x)/x", "/fa/@admin/x?y=//"]
        # The gateway rejects a path that the upstream may interpret as another; the auth server
        # does not decide on it.
        for path in (
            "/fa/admin;a=1/x",
            "/fa/x;/admin",
            "/fa/x%3Badmin",
            "/fa/admin%2Fx",
            "/fa/admin%5Cx",
        ):
            assert client.ask(path).status == 400, path
        assert (len(told), up.requests) == (4, [])
        assert client.ask("/fa/open/x%20y").status == 200


def test_condition_on_a_field_sees_what_the_client_sent(speak, up):
    denied = "respond = { status = 403 }\n"
    client = speak(
        f'[[sites.routes]]\nmatch = {{ header = {{ x-http-method-override = "*" }} }}\n{denied}'
        f'[[sites.routes]]\nmatch = {{ header = {{ user_id = "1" }} }}\n{denied}'
        f'[[sites.routes]]\nkeep_fields = ["x-http-method-override", "user_id"]\nproxy = "{up.address}"\n'
    )
    for fields in ([("x-http-method-override", "DELETE")], [("user_id", "1")]):
        assert client.ask("/", headers=fields).status == 403, fields
    told = seen(client.ask("/", headers=[("user_id", "2")]))["headers"]
    assert told["user_id"] == "2"


def test_condition_does_not_expose_a_field_to_a_route_that_drops_it(speak, up):
    client = speak(f'[[sites.routes]]\nproxy = "{up.address}"\n')
    told = seen(client.ask("/", headers=[("user_id", "2"), ("x-original-url", "/admin")]))[
        "headers"
    ]
    assert not {"user_id", "x-original-url"} & set(told)


def test_rule_with_an_underscore_removes_the_dashed_name_too(speak, up):
    rules = 'request_headers = { remove = ["x_internal"], set = { x_tenant = "one" } }\n'
    fields = [("x-internal", "forged"), ("x-tenant", "forged")]
    client = speak(f'[[sites.routes]]\nproxy = "{up.address}"\n{rules}')
    told = seen(client.ask("/", headers=fields))["headers"]
    assert {name: told.get(name) for name in ("x-internal", "x_internal", "x-tenant")} == {
        "x-internal": None,
        "x_internal": None,
        "x-tenant": None,
    }


def test_application_gets_no_field_removed_by_a_rule_with_an_underscore(speak):
    asked: list = []
    with application(sent(output(HEAD + b"x") + end()), asked) as address:
        rules = 'request_headers = { remove = ["x_internal"], set = { x_tenant = "one" } }\n'
        client = speak(f'[[sites.routes]]\nproxy = "{address}"\n{rules}')
        assert (
            client.ask("/", headers=[("x-internal", "forged"), ("x-tenant", "forged")]).status
            == 200
        )
    assert not any("forged" in value for _, value in asked[0].parameters)
