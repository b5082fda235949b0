"""Hop-by-hop header fields."""

from __future__ import annotations

import json

import pytest

from harness.clients.raw_h1 import RawH1
from harness.fastcgi import HEAD, Asked, application, end, output, sent
from harness.gateway import SITE, seen, upstream


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["alone", "layers"])
def test_client_cannot_remove_gateway_fields_with_connection(start, gateway, ca, layers):
    asked: list[Asked] = []
    with upstream() as up, application(sent(output(HEAD) + end()), asked) as address:
        rules = 'request_headers = { set = { x-tenant = "a" } }'
        routes = "".join(
            f'[[sites.routes]]\nmatch = "{path}"\nproxy = "{server}"\n{layers}\n{rules}\n'
            for path, server in (("/http", up.address), ("/fastcgi", address))
        )
        gateway.write(SITE + routes)
        server = start(gateway.command())
        host = server.origin.removeprefix("https://")

        def send(path: str):
            fields = "connection: keep-alive, X-Tenant , x-own,x-forwarded-for\r\nx-own: 1\r\nx-other: 2\r\n"
            with RawH1(server.origin, ca) as client:
                client.socket.sendall(
                    f"GET {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n".encode()
                )
                return client.receive()

        told = dict(json.loads(send("/http").body)["headers"])
        wanted = {
            "x-tenant": "a",
            "x-own": None,
            "x-other": "2",
            "x-forwarded-for": "127.0.0.1",
            "connection": None,
        }
        assert {name: told.get(name) for name in wanted} == wanted
        assert send("/fastcgi").status == 200
        names = {name: "HTTP_" + name.upper().replace("-", "_") for name in wanted}
        assert {name: asked[0].parameter(names[name]) for name in wanted} == wanted


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'])
def test_route_sets_fields_that_clients_cannot(start, gateway, protocol_fetcher, layers):
    """`proxy_set_header X-Real-IP $remote_addr`, for applications that read no other field."""
    with upstream() as up:
        rules = (
            '{ X-Real-IP = "{client}", X-Forwarded-Proto = "https", X-Forwarded-Host = "a.test",'
            ' X-Forwarded-For = "192.0.2.1", X-Client = "at {client}" }'
        )
        route = f'proxy = "{up.address}"\n{layers}\nrequest_headers = {{ set = {rules} }}\n'
        forged = [("x-real-ip", "192.0.2.9"), ("x-forwarded-for", "192.0.2.9")]
        for trusted, client in (
            ("", "127.0.0.1"),
            ('trusted_proxies = ["127.0.0.1"]', "192.0.2.9"),
        ):
            gateway.write(SITE + f"[[sites.routes]]\n{route}", server=trusted)
            server = start(gateway.command())
            got = seen(protocol_fetcher.fetch(server.origin + "/", headers=forged))["headers"]
            assert (got["x-real-ip"], got["x-client"]) == (client, f"at {client}")
            assert (got["x-forwarded-proto"], got["x-forwarded-host"]) == ("https", "a.test")
            # The connection's own address is always there.
            assert got["x-forwarded-for"].endswith("127.0.0.1")
