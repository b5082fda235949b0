"""PHP applications, and others over FastCGI, behind `pronghorn run`."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress

import pytest

from harness.clients import curl
from harness.gateway import SITE
from harness.php import served
from harness.process import Process
from harness.response import sha256
from harness.server import TARGET
from harness.waiting import eventually


def test_script_gets_the_request(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}", ', variables = { APP_ENV = "prod" }')
    target = "/index.php/a%20b/c?x=%41&y[]=1"
    headers = [
        ("cookie", "a=1"),
        ("proxy", "http://evil"),
        ("x-forwarded-for", "1.2.3.4"),
        ("user-agent", "me"),
    ]
    headers.append(("authorization", "Basic dTpw"))
    answer = fetcher.fetch(server.origin + target, headers=headers)
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    seen = json.loads(answer.body)
    told = seen["server"]
    host = server.origin.removeprefix("https://")
    protocol = {"HTTP/1.1": "HTTP/1.1", "HTTP/2": "HTTP/2.0", "HTTP/3": "HTTP/3.0"}[
        fetcher.protocol
    ]
    wanted = {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": target,
        "SCRIPT_NAME": "/index.php",
        "SCRIPT_FILENAME": f"{www}/index.php",
        "PATH_INFO": "/a b/c",
        "QUERY_STRING": "x=%41&y[]=1",
        "DOCUMENT_ROOT": str(www),
        "PHP_SELF": "/index.php/a b/c",
        "SERVER_PROTOCOL": protocol,
        "SERVER_NAME": host.rsplit(":", 1)[0],
        "SERVER_PORT": host.rsplit(":", 1)[1],
        "HTTPS": "on",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": host,
        "HTTP_USER_AGENT": "me",
        "HTTP_X_FORWARDED_FOR": "127.0.0.1",
        "APP_ENV": "prod",
        "PHP_AUTH_USER": "u",
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert seen["get"] == {"x": "A", "y": ["1"]}
    assert seen["cookies"] == {"a": "1"}
    assert seen["proxy"] is False
    assert "HTTP_PROXY" not in told


def test_responses_are_forwarded_as_the_script_sends_them(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")

    def ask(query, **asked):
        return fetcher.fetch(f"{server.origin}/?do={query}", **asked)

    fields = ask("fields")
    assert (fields.status, fields.body) == (418, b"short and stout")
    assert fields.header_values("x-own") == ["one", "two"]
    assert fields.header_values("set-cookie") == ["a=1", "b=2"]
    assert fields.header("via") == "FastCGI/1.0 pronghorn"
    redirect = ask("redirect")
    assert (redirect.status, redirect.header("location"), redirect.size) == (302, "/elsewhere", 0)
    assert (ask("nothing").status, ask("nothing").size) == (204, 0)
    big = ask("big&bytes=20000000")
    assert (big.status, big.sha256) == (200, sha256(b"x" * 20_000_000))
    head = ask("fields", method="HEAD")
    assert (head.status, head.size) == (418, 0)
    whole = ask("length&announced=5000&bytes=5000")
    assert (whole.status, whole.size, whole.header("content-length")) == (200, 5000, "5000")
    assert ask("long-head").status == 502
    cookie = ask("session").header("set-cookie").split(";")[0]
    assert ask("session", headers=[("cookie", cookie)]).body == b"2"


def test_layers_wrap_the_application(start, gateway, fpm, www, protocol_fetcher):
    layers = 'layers = [{ name = "compress" }, { name = "body-limit", size = "10KiB" }]'
    server = served(start, gateway, www, f"unix:{fpm}", route=layers)

    def ask(path, **asked):
        return protocol_fetcher.fetch(server.origin + path, **asked)

    answer = ask("/users/5?do=", headers=[("accept-encoding", "gzip")])
    assert (answer.status, answer.header("content-encoding")) == (200, "gzip")
    assert ask("/?do=", method="POST", body=b"x" * 11_000).status == 413
    assert ask("/style.css").body == b"p { color: red }\n"
    assert json.loads(ask("/a/b?c").body)["server"]["REQUEST_URI"] == "/a/b?c"


def test_error_pages_do_not_replace_those_of_the_application(
    start, gateway, fpm, www, protocol_fetcher
):
    (gateway.folder / "teapot.html").write_text("ours")
    for of_upstreams, body in (("false", b"short and stout"), ("true", b"ours")):
        errors = f'errors = {{ 418 = "teapot.html" }}\nerrors_of_upstreams = {of_upstreams}'
        server = served(start, gateway, www, f"unix:{fpm}", route=errors)
        assert protocol_fetcher.fetch(server.origin + "/?do=fields").body == body


def test_first_piece_arrives_before_the_script_ends(start, gateway, fpm, www, ca):
    server, signal = served(start, gateway, www, f"unix:{fpm}"), gateway.folder / "go-on"
    with curl.session(ca) as session:
        answer = session.get(f"{server.origin}/?do=wait&for={signal}", stream=True, timeout=30)
        pieces = answer.iter_content()
        assert next(pieces) == b"begun\n"
        signal.touch()
        assert b"".join(pieces) == b"over\n"


def test_crashed_script_gives_no_complete_response(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    assert protocol_fetcher.fetch(server.origin + "/?do=die").status == 502
    with pytest.raises(Exception, match=r"."):
        protocol_fetcher.fetch(server.origin + "/?do=die&after=100000")
    with pytest.raises(Exception, match=r"."):
        protocol_fetcher.fetch(server.origin + "/?do=length&announced=5000&bytes=4000")
    assert protocol_fetcher.fetch(server.origin + "/?do=unread").body == b"enough"


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["alone", "layers"])
def test_script_stderr_and_failures_are_logged(start, gateway, fpm, www, protocol_fetcher, layers):
    (www / "complain.php").write_text(
        """<?php error_log("first\\n second \\e[31m"); error_log(str_repeat("x", 5000)); echo "said";"""
    )
    table = f'{{ servers = ["unix:{fpm}"], head_timeout = "5s" }}'
    server = served(start, gateway, www, table, route=layers)
    said = f"^warning: upstream unix:{fpm}: "
    assert protocol_fetcher.fetch(server.origin + "/complain.php").body == b"said"
    server.wait_for_lines(said + "PHP message: first$")
    server.wait_for_lines(said + r" second \\u\{1b\}\[31m.*$")
    long = server.wait_for_lines(said + ".*x{500,}…$")[0][0]
    assert len(long) < 1_500
    assert protocol_fetcher.fetch(server.origin + "/index.php?do=die&token=secret").status == 502
    server.wait_for_lines(
        said
        + r"GET 127.0.0.1/index.php\?…: connection closed before the exchange ended: .+; answered 502$"
    )
    assert protocol_fetcher.fetch(server.origin + "/index.php?do=sleep&seconds=60").status == 504
    late = r"GET 127.0.0.1/index.php\?…: no response in time \(head_timeout = 5s\); answered 504$"
    server.wait_for_lines(said + late)
    with suppress(Exception):
        protocol_fetcher.fetch(server.origin + "/index.php?do=die&after=100000")
    server.wait_for_lines(said + r"GET 127.0.0.1/index.php\?…: .+; response cut off$")


def test_slow_application_times_out(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f'{{ servers = ["unix:{fpm}"], head_timeout = "300ms" }}')
    assert protocol_fetcher.fetch(server.origin + "/?do=sleep&seconds=60").status == 504


def test_busy_application_has_a_bounded_queue(start, gateway, fpm, www, protocol_fetcher, ca):
    server = served(
        start, gateway, www, f'{{ servers = ["unix:{fpm}"], connections = 1, waiting = 0 }}'
    )
    signal = gateway.folder / "go-on"
    with curl.session(ca) as session:
        pieces = session.get(
            f"{server.origin}/?do=wait&for={signal}", stream=True, timeout=30
        ).iter_content()
        assert next(pieces) == b"begun\n"
        refused = protocol_fetcher.fetch(server.origin + "/?do=unread")
        assert (refused.status, refused.header("retry-after")) == (503, "1")
        signal.touch()
        assert b"".join(pieces) == b"over\n"
    # The server may see the end of the response after the client.
    eventually(
        "the connection is free",
        lambda: protocol_fetcher.fetch(server.origin + "/?do=unread").status == 200,
    )


def test_request_is_retried_on_another_server(start, gateway, fpm, www, protocol_fetcher):
    away = f"unix:{gateway.folder}/nobody.sock"
    server = served(
        start, gateway, www, f'{{ servers = ["{away}", "unix:{fpm}"], policy = "first" }}'
    )
    answer = protocol_fetcher.fetch(
        server.origin + "/", method="POST", headers=[("content-length", "2")], body=b"ab"
    )
    assert json.loads(answer.body)["input"] == sha256(b"ab")
    server = served(start, gateway, www, away)
    assert protocol_fetcher.fetch(server.origin + "/").status == 502
    assert protocol_fetcher.fetch(server.origin + "/style.css").status == 200


def test_application_stderr_is_logged(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    assert protocol_fetcher.fetch(server.origin + "/a/b?do=complain").body == b"said"
    server.wait_for_lines(rf"unix:{fpm}: PHP message: this is wrong$")
    server.wait_for_lines(rf"unix:{fpm}: and so is that$")
    assert protocol_fetcher.fetch(server.origin + "/a/b?do=die").status == 502
    server.wait_for_lines(rf"unix:{fpm}: GET \S*/a/b\?…: connection closed before .*; answered 502")


def test_http_server_as_fastcgi_upstream_is_a_502(start, gateway, up, www, protocol_fetcher):
    server = served(start, gateway, www, up.address.replace("http", "fastcgi"))
    assert protocol_fetcher.fetch(server.origin + "/").status == 502


@contextmanager
def go_application():
    process = Process([TARGET / "test-clients" / "fastcgi-application"])
    try:
        yield process.wait_for_lines(r"listening on (fastcgi://\S+)")[0][1]
    finally:
        process.stop()


def test_go_application_works_over_tcp(start, gateway, fetcher):
    with go_application() as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nmatch = "/api/*"\nstrip_prefix = true\nproxy = "{address}"\n'
        )
        server = start(gateway.command())
        content = bytes(range(256)) * 3_000
        headers = [("content-type", "x/y"), ("x-own", "1")]
        answer = fetcher.fetch(
            server.origin + "/api/users/5?x=%41", method="POST", headers=headers, body=content
        )
        seen = json.loads(answer.body)
        assert (seen["method"], seen["length"], seen["sha256"]) == (
            "POST",
            len(content),
            sha256(content),
        )
        assert seen["url"].endswith("/api/users/5?x=%41")
        assert (seen["host"], seen["secure"]) == (server.origin.removeprefix("https://"), True)
        assert seen["remote"].startswith("127.0.0.1:")
        assert seen["headers"]["X-Own"] == ["1"]
        named = f'[upstreams.go]\nservers = ["{address}"]\nprotocol = "fastcgi"\n'
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "go"\n{named}')
        assert (
            json.loads(fetcher.fetch(start(gateway.command()).origin + "/a").body)["method"]
            == "GET"
        )
