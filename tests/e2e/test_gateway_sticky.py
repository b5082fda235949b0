"""Sticky sessions: a cookie binds a client to a server of an upstream."""

from __future__ import annotations

import re

from harness.gateway import SITE, seen, upstream

SECRET = "0123456789abcdef"


def write(gateway, servers, more=""):
    addresses = ", ".join(f'"{server}"' for server in servers)
    sticky = f'sticky = {{ cookie = "at", secret = "{SECRET}", max_age = "1h" }}'
    text = f'{SITE}[[sites.routes]]\nproxy = "app"\n[upstreams.app]\nservers = [{addresses}]\n{sticky}\n{more}\n'
    return gateway.write(text, workers=2)


def ask(fetcher, server, cookie=None):
    """Returns the server that answered, and the cookie that was set."""
    headers = [("cookie", f"a=b; at={cookie}")] if cookie else []
    response = fetcher.fetch(server.origin + "/", headers=headers)
    assert response.status == 200
    found = response.header("set-cookie")
    if found is None:
        return seen(response)["server"], None
    value = re.fullmatch(
        r"at=([\w-]{16}); Path=/; HttpOnly; SameSite=Lax; Max-Age=3600; Secure", found
    )
    assert value, found
    return seen(response)["server"], value[1]


def test_client_stays_over_reorder_and_restart_and_moves_when_its_server_is_removed(
    start, gateway, protocol_fetcher
):
    with upstream("a") as a, upstream("b") as b:
        write(gateway, [a.address, b.address])
        server = start(gateway.command())
        first, cookie = ask(protocol_fetcher, server)
        other = next(name for name in ("a", "b") if name != first)
        for _ in range(6):
            assert ask(protocol_fetcher, server, cookie) == (first, None)
        assert {ask(protocol_fetcher, server)[0] for _ in range(8)} == {"a", "b"}

        write(gateway, [b.address, a.address])
        again = start(gateway.command())
        for _ in range(4):
            assert ask(protocol_fetcher, again, cookie) == (first, None)

        gone = {"a": a, "b": b}[first]
        kept = {"a": a, "b": b}[other]
        write(gateway, [kept.address])
        without = start(gateway.command())
        answered, replaced = ask(protocol_fetcher, without, cookie)
        assert answered == other
        assert replaced not in (None, cookie)
        assert ask(protocol_fetcher, without, replaced) == (other, None)
        assert gone.address.split(":")[-1] not in cookie


def test_client_of_an_ejected_server_gets_another_server_and_cookie(
    start, gateway, protocol_fetcher
):
    with upstream("a") as a, upstream("b") as b:
        a.routes["/fail"] = lambda handler, _: handler.reply(500, b"broken")
        health = 'health = { failures = 1, statuses = [500], out = "1h", out_max = "1h" }\npolicy = "first"'
        write(gateway, [a.address, b.address], health)
        server = start(gateway.command())
        answered, cookie = ask(protocol_fetcher, server)
        assert answered == "a"
        headers = [("cookie", f"at={cookie}")]
        assert protocol_fetcher.fetch(server.origin + "/fail", headers=headers).status == 500
        answered, replaced = ask(protocol_fetcher, server, cookie)
        assert answered == "b"
        assert replaced not in (None, cookie)


def test_forged_cookie_selects_no_server(start, gateway, protocol_fetcher):
    with upstream("a") as a, upstream("b") as b:
        write(gateway, [a.address, b.address], 'policy = "first"')
        server = start(gateway.command())
        for made_up in ["x", "1", a.address, b.address.removeprefix("http://"), "A" * 16, "0"]:
            answered, cookie = ask(protocol_fetcher, server, made_up)
            assert answered == "a"
            assert cookie is not None
