"""Layers of `pronghorn run`: the built-in ones, and a custom one in another program."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import signal
import ssl
import subprocess
import threading
import tomllib
import zlib

import jsonschema
import pytest
from curl_cffi import requests

from harness.clients.aioquic_h3 import ask_with_aioquic, h3_connection
from harness.clients.curl import VERSIONS
from harness.gateway import SITE, Gateway, seen, upstream
from harness.server import REPOSITORY, custom_layer, pronghorn
from harness.waiting import eventually

TEXT = b"the same words over and over, " * 500

# "antler" as hashed by libxcrypt, and with OpenSSL's Argon2id, both at the lowest cost.
BCRYPT = "$2y$04$abcdefghijklmnopqrstuu9b4SO151qbMABbat2g0cGT65vUfaadq"
ARGON2 = (
    "$argon2id$v=19$m=8,t=1,p=1$cHJvbmdob3JuLXNhbHQuLg$KP1aRIWuJymeDoUb8dMS3Tf4cFkq+klJiBq4uaolYR0"
)


def serve(start, gateway, routes: str, **options):
    gateway.write(SITE + routes, **options)
    return start(gateway.command())


def basic(name: str, password: str) -> tuple[str, str]:
    return ("authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())


def test_text_is_compressed_with_an_accepted_coding(start, gateway, ca):
    www = gateway.folder / "www"
    www.mkdir()
    (www / "page.txt").write_bytes(TEXT)
    (www / "tiny.txt").write_bytes(b"tiny")
    (www / "picture.png").write_bytes(TEXT)
    server = serve(start, gateway, '[[sites.routes]]\nfiles = "www"\nlayers = ["compress"]\n')
    for protocol, version in VERSIONS.items():
        with requests.Session(verify=str(ca), timeout=30) as curl:

            def get(path, encoding, version=version, curl=curl, **options):
                return curl.get(
                    server.origin + path, accept_encoding=encoding, http_version=version, **options
                )

            for encoding in ("br", "zstd", "gzip"):
                answer = get("/page.txt", encoding)
                assert answer.content == TEXT, (protocol, encoding)
                assert answer.headers["content-encoding"] == encoding
                assert answer.headers["vary"].lower() == "accept-encoding"
                assert answer.headers["etag"].startswith('W/"')
                assert "accept-ranges" not in answer.headers
                again = get(
                    "/page.txt", encoding, headers={"if-none-match": answer.headers["etag"]}
                )
                assert again.status_code == 304
            plain = get("/page.txt", None)
            assert (plain.content, plain.headers.get("content-encoding")) == (TEXT, None)
            assert plain.headers["vary"].lower() == "accept-encoding"
            assert plain.headers["etag"].startswith('"')
            part = get("/page.txt", "gzip", headers={"range": "bytes=4-7"})
            assert (part.status_code, part.content, part.headers.get("content-encoding")) == (
                206,
                b"same",
                None,
            )
            for path in ("/tiny.txt", "/picture.png"):
                assert "content-encoding" not in get(path, "gzip").headers, path


def test_untransformable_responses_are_not_compressed(start, gateway, up, protocol_fetcher):
    packed = gzip.compress(TEXT)
    text = ("content-type", "text/plain")
    up.routes["/packed"] = lambda h, _: h.reply(200, packed, [text, ("content-encoding", "gzip")])
    up.routes["/kept"] = lambda h, _: h.reply(200, TEXT, [text, ("cache-control", "no-transform")])
    up.routes["/plain"] = lambda h, _: h.reply(200, TEXT, [text, ("etag", '"one"')])
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = ["compress"]\n'
    )
    takes = [("accept-encoding", "br;q=0, gzip")]
    answer = protocol_fetcher.fetch(server.origin + "/packed", headers=takes)
    assert (answer.body, answer.header_values("content-encoding")) == (packed, ["gzip"])
    answer = protocol_fetcher.fetch(server.origin + "/kept", headers=takes)
    assert (answer.body, answer.header("content-encoding")) == (TEXT, None)
    answer = protocol_fetcher.fetch(server.origin + "/plain", headers=takes)
    assert (gzip.decompress(answer.body), answer.header("etag")) == (TEXT, 'W/"one"')


def test_head_has_the_fields_of_get(start, gateway, up, protocol_fetcher):
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = ["compress"]\n'
    )
    up.routes["/plain"] = lambda h, _: h.reply(
        200, TEXT, [("content-type", "text/plain"), ("etag", '"one"')]
    )
    said = []
    for method in ("GET", "HEAD"):
        answer = protocol_fetcher.fetch(
            server.origin + "/plain", method=method, headers=[("accept-encoding", "zstd")]
        )
        assert answer.status == 200
        said.append(
            [answer.header(name) for name in ("content-encoding", "vary", "etag", "content-type")]
        )
    assert said == [["zstd", "accept-encoding", 'W/"one"', "text/plain"]] * 2


def test_not_modified_response_keeps_the_weak_etag(start, gateway, protocol_fetcher):
    """With a strong ETag a client would resume its download, and get a range of the uncompressed
    file.
    """
    (gateway.folder / "page.txt").write_bytes(TEXT)
    server = serve(start, gateway, '[[sites.routes]]\nfiles = "."\nlayers = ["compress"]\n')
    for takes in ("gzip", "identity"):
        headers = [("accept-encoding", takes)]
        tag = protocol_fetcher.fetch(server.origin + "/page.txt", headers=headers).header("etag")
        assert tag.startswith("W/") == (takes == "gzip")
        known = protocol_fetcher.fetch(
            server.origin + "/page.txt", headers=[*headers, ("if-none-match", tag)]
        )
        assert (known.status, known.header("etag")) == (304, tag)
        assert known.header("vary").lower() == "accept-encoding"


def test_fastest_coding_is_chosen_among_equal_weights(start, gateway, protocol_fetcher):
    (gateway.folder / "page.txt").write_bytes(TEXT)
    server = serve(start, gateway, '[[sites.routes]]\nfiles = "."\nlayers = ["compress"]\n')
    for takes, coding in [
        ("gzip, br, zstd", "zstd"),
        ("gzip, br", "br"),
        ("gzip, br;q=0.9", "gzip"),
    ]:
        answer = protocol_fetcher.fetch(
            server.origin + "/page.txt", headers=[("accept-encoding", takes)]
        )
        assert answer.header("content-encoding") == coding, takes


@pytest.mark.parametrize("takes", ["gzip", "identity", None])
def test_partial_response_varies_like_the_whole_one(start, gateway, protocol_fetcher, takes):
    """RFC 9110 section 15.3.7.

    A cached response must not be used for clients that accept another coding.
    """
    (gateway.folder / "page.txt").write_bytes(TEXT)
    (gateway.folder / "tiny.txt").write_bytes(b"tiny")
    (gateway.folder / "picture.png").write_bytes(TEXT)
    server = serve(start, gateway, '[[sites.routes]]\nfiles = "."\nlayers = ["compress"]\n')
    encoding = [("accept-encoding", takes)] if takes else []
    for path, ranges, status, vary in [
        ("/page.txt", "bytes=0-9", 206, "accept-encoding"),
        ("/page.txt", "bytes=0-9,20-29", 206, "accept-encoding"),
        ("/page.txt", "bytes=999999-", 416, "accept-encoding"),
        ("/tiny.txt", "bytes=0-1", 206, None),
        ("/picture.png", "bytes=0-9", 206, None),
    ]:
        answer = protocol_fetcher.fetch(
            server.origin + path, headers=[*encoding, ("range", ranges)]
        )
        assert (answer.status, answer.header("vary")) == (status, vary), (path, ranges)


def test_slow_stream_is_compressed_piece_by_piece(start, gateway, up, ca):
    more = threading.Event()

    def slow(handler, _):
        handler.send_response(200)
        for name, value in [("content-type", "text/plain"), ("transfer-encoding", "chunked")]:
            handler.send_header(name, value)
        handler.end_headers()
        for piece in (b"first", b"second"):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
            more.wait(60)
        handler.wfile.write(b"0\r\n\r\n")

    up.routes["/slow"] = slow
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = ["compress"]\n'
    )
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=60, context=ssl.create_default_context(cafile=ca)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/slow", headers={"accept-encoding": "gzip"})
        answer = connection.getresponse()
        assert answer.headers["content-encoding"] == "gzip"
        unpack, content = zlib.decompressobj(wbits=31), b""
        while content != b"first":
            piece = answer.read1()
            assert piece
            content += unpack.decompress(piece)
        more.set()
        assert content + unpack.decompress(answer.read()) == b"firstsecond"


def test_cors_allows_configured_origins(start, gateway, up, protocol_fetcher):
    options = 'origins = ["https://app.example"], methods = ["PUT"], headers = ["x-own"], credentials = true'
    layer = f'{{ name = "cors", {options} }}'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    asked = [("access-control-request-method", "PUT"), ("access-control-request-headers", "x-own")]
    flight = protocol_fetcher.fetch(
        server.origin + "/", method="OPTIONS", headers=[("origin", "https://app.example"), *asked]
    )
    assert flight.status == 200
    assert flight.header("access-control-allow-origin") == "https://app.example"
    assert flight.header("access-control-allow-methods") == "PUT"
    assert flight.header("access-control-allow-credentials") == "true"
    assert up.requests == []
    answer = protocol_fetcher.fetch(
        server.origin + "/", headers=[("origin", "https://app.example")]
    )
    assert answer.header("access-control-allow-origin") == "https://app.example"
    stranger = protocol_fetcher.fetch(
        server.origin + "/", headers=[("origin", "https://evil.example")]
    )
    assert stranger.header("access-control-allow-origin") is None


def test_password_is_required_and_the_user_name_forwarded(start, gateway, up, fetcher):
    (gateway.folder / "users").write_text(f"# people\ndeer:{BCRYPT}\nmoose:{ARGON2}\n")
    layer = '{ name = "basic-auth", file = "users", realm = "the wood", user_header = "x-user" }'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    refused = fetcher.fetch(server.origin + "/")
    assert (refused.status, refused.header("www-authenticate")) == (
        401,
        'Basic realm="the wood", charset="UTF-8"',
    )
    for name, password in [("deer", "horn"), ("elk", "antler"), ("deer", "")]:
        assert fetcher.fetch(server.origin + "/", headers=[basic(name, password)]).status == 401
    assert up.requests == []
    # The second time the result is cached.
    for _ in range(2):
        forged = [("x-user", "elk"), ("x_user", "elk")]
        answer = fetcher.fetch(server.origin + "/", headers=[basic("deer", "antler"), *forged])
        assert (answer.status, seen(answer)["headers"]["x-user"]) == (200, "deer")
        assert "x_user" not in seen(answer)["headers"]
    assert fetcher.fetch(server.origin + "/", headers=[basic("deer", "horn")]).status == 401
    assert fetcher.fetch(server.origin + "/", headers=[basic("moose", "antler")]).status == 200


def test_forward_auth_server_decides(start, gateway, up, protocol_fetcher):
    with upstream("auth") as auth:
        asked = []

        def verify(handler, _):
            fields = {name.lower(): value for name, value in handler.headers.items()}
            asked.append(fields)
            if fields.get("cookie") == "good":
                # A kept connection would outlive its server.
                handler.reply(
                    200, b"", [("x-user", "deer"), ("x-other", "no"), ("connection", "close")]
                )
            else:
                fields = [("www-authenticate", "Own"), ("location", "/login")]
                handler.reply(401, b"log in", [*fields, ("connection", "close")])

        auth.routes["/verify"] = verify
        layer = f'{{ name = "forward-auth", address = "{auth.address}", path = "/verify", copy = ["x-user"] }}'
        server = serve(
            start,
            gateway,
            f'[[sites.routes]]\nmatch = "/app/*"\nstrip_prefix = true\nproxy = "{up.address}"\nlayers = [{layer}]\n',
        )
        refused = protocol_fetcher.fetch(
            server.origin + "/app/x?y=1", method="POST", body=b"content"
        )
        assert (refused.status, refused.body, refused.header("www-authenticate")) == (
            401,
            b"log in",
            "Own",
        )
        assert up.requests == []
        granted = protocol_fetcher.fetch(
            server.origin + "/app/x?y=1",
            method="POST",
            body=b"content",
            headers=[
                ("cookie", "good"),
                ("x-user", "forged"),
                ("X_User", "forged"),
                ("x-forwarded-for", "10.0.0.1"),
            ],
        )
        assert granted.status == 200
        fields = seen(granted)["headers"]
        assert (fields["x-user"], seen(granted)["content"], seen(granted)["path"]) == (
            "deer",
            7,
            "/x?y=1",
        )
        assert not {"x-other", "x_user"} & set(fields)
        question = asked[-1]
        assert question["x-forwarded-uri"] == "/app/x?y=1"
        assert question["x-forwarded-method"] == "POST"
        assert question["x-forwarded-for"] == "127.0.0.1"
        assert "content-length" not in question
    # The auth server is gone: all requests are rejected.
    assert (
        protocol_fetcher.fetch(server.origin + "/app/x", headers=[("cookie", "good")]).status == 502
    )


def test_forward_auth_verifies_the_certificate_of_the_auth_server(
    start, gateway, identity, ca, protocol_fetcher
):
    (gateway.folder / "auth").mkdir()
    auth = serve(
        start,
        Gateway(gateway.folder / "auth", identity),
        "[[sites.routes]]\nrespond = { status = 204 }\n",
    )
    layer = f'{{ name = "forward-auth", address = "{auth.origin}", TRUST }}'
    for trust, status in [(f'trust = "{ca}"', 200), ('path = "/"', 502)]:
        routes = f'[[sites.routes]]\nrespond = "here"\nlayers = [{layer.replace("TRUST", trust)}]\n'
        server = serve(start, gateway, routes)
        assert protocol_fetcher.fetch(server.origin + "/").status == status, trust


def test_slow_forward_auth_server_is_a_502(start, gateway, protocol_fetcher):
    leave = threading.Event()
    with upstream("auth") as auth:
        auth.routes["/"] = lambda handler, _: (
            leave.wait(60),
            handler.reply(200, b"", [("connection", "close")]),
        )
        layer = f'{{ name = "forward-auth", address = "{auth.address}", timeout = "100ms" }}'
        server = serve(start, gateway, f'[[sites.routes]]\nrespond = "here"\nlayers = [{layer}]\n')
        assert protocol_fetcher.fetch(server.origin + "/").status == 502
        leave.set()


async def test_early_data_is_rejected_by_layers_that_use_the_client_address(start, gateway, ca):
    """The source address of a QUIC first flight can be forged."""
    layers = [
        '{ name = "allow", addresses = ["127.0.0.0/8"] }',
        '{ name = "deny", addresses = ["10.0.0.0/8"] }',
        '{ name = "rate-limit", requests = 100 }',
        '{ name = "concurrency-limit", requests = 100 }',
        '{ name = "forward-auth", address = "http://127.0.0.1:1" }',
    ]
    route = '[[sites.routes]]\nmatch = "/{}"\nrespond = "here"\nlayers = [{}]\n'
    routes = "".join(route.format(number, layer) for number, layer in enumerate(layers))
    at_once = '{ name = "concurrency-limit", requests = 9, by = "all" }'
    plain = f'[[sites.routes]]\nrespond = "here"\nlayers = ["compress", {at_once}]\n'
    server, tickets = serve(start, gateway, routes + plain), []

    async def ask(path, *, early):
        answer, _, accepted = await ask_with_aioquic(
            server.origin, ca, tickets, early=early, path=path
        )
        assert accepted or not early
        return answer.status

    assert await ask("/", early=False) == 200
    for number in range(len(layers)):
        assert await ask(f"/{number}", early=True) == 425, layers[number]
        # The auth server does not exist.
        assert await ask(f"/{number}", early=False) == (
            502 if "forward" in layers[number] else 200
        ), layers[number]
    assert await ask("/", early=True) == 200
    # The address of a trusted proxy does not count before it is validated.
    server, tickets = serve(start, gateway, plain, server='trusted_proxies = ["127.0.0.1"]'), []
    assert await ask("/", early=False) == 200
    assert await ask("/", early=True) == 425


def test_allow_and_deny_use_the_forwarded_address_of_trusted_proxies_only(
    start, gateway, protocol_fetcher
):
    routes = """
[[sites.routes]]
match = "/inner"
respond = "inner"
layers = [{ name = "allow", addresses = ["10.0.0.0/8"] }]

[[sites.routes]]
match = "/outer"
respond = "outer"
layers = [{ name = "deny", addresses = ["10.6.6.6"] }]
"""
    trusting = serve(start, gateway, routes, server='trusted_proxies = ["127.0.0.1"]')

    def ask(server, path, client):
        headers = [("x-forwarded-for", client)] if client else []
        return protocol_fetcher.fetch(server.origin + path, headers=headers).status

    assert ask(trusting, "/inner", "10.1.2.3") == 200
    assert ask(trusting, "/inner", "10.1.2.3, 192.0.2.1") == 403
    assert ask(trusting, "/inner", None) == 403
    assert ask(trusting, "/outer", "10.6.6.6") == 403
    assert ask(trusting, "/outer", "10.6.6.7") == 200
    plain = serve(start, gateway, routes)
    assert ask(plain, "/inner", "10.1.2.3") == 403


def test_rate_limit_is_per_client_over_all_workers_and_reloads(start, gateway, protocol_fetcher):
    layer = '{ name = "rate-limit", requests = 3, per = "1h" }'
    routes = f'[[sites.routes]]\nrespond = "here"\nlayers = [{layer}]\n'
    server = serve(start, gateway, routes, server='trusted_proxies = ["127.0.0.1"]', workers=2)

    def ask(client):
        return protocol_fetcher.fetch(server.origin + "/", headers=[("x-forwarded-for", client)])

    assert [ask("192.0.2.1").status for _ in range(4)] == [200, 200, 200, 429]
    assert int(ask("192.0.2.1").header("retry-after")) > 600
    assert ask("192.0.2.2").status == 200
    gateway.write(
        SITE + routes.replace('"here"', '"there"'),
        server='trusted_proxies = ["127.0.0.1"]',
        workers=2,
    )
    server.popen.send_signal(signal.SIGHUP)
    server.wait_for_lines("serving 1 site of", 2)
    eventually("the new configuration", lambda: ask("192.0.2.3").body == b"there")
    assert ask("192.0.2.1").status == 429


HOSTS_TURNED = ("localhost", "127.0.0.1")
SITES_WITH_RATES = """
[[sites]]
hosts = ["{host}"]
{tls}
{rate_of_site}
[[sites.routes]]
match = "/{host}/*"
respond = "{host}"
{rate_of_route}
[[sites.routes]]
respond = "{host} else"
"""


@pytest.mark.parametrize("of", ["site", "route"])
def test_rate_limit_state_follows_host_and_route_when_others_are_inserted(
    start, gateway, protocol_fetcher, of
):
    layers = 'layers = [{ name = "rate-limit", requests = 2, per = "1h" }]'
    rates = {
        "rate_of_site": layers if of == "site" else "",
        "rate_of_route": layers if of == "route" else "",
    }

    def site(host: str) -> str:
        return SITES_WITH_RATES.format(host=host, tls="{tls}", **rates)

    gateway.write(site("127.0.0.1") + site("localhost"))
    server = start(gateway.command())

    def ask(host: str) -> int:
        return protocol_fetcher.fetch(f"https://{host}:{server.port}/{host}/x").status

    assert [ask("127.0.0.1") for _ in range(3)] == [200, 200, 429]
    assert ask("localhost") == 200
    # Another site, and another route of each site, before the existing ones; and the sites in
    # reverse order.
    before = (
        "[[sites.routes]]\nmatch = '/other/*'\nrespond = 'other'\n" + rates["rate_of_route"] + "\n"
    )
    others = [
        site(host).replace("[[sites.routes]]", before + "[[sites.routes]]", 1)
        for host in HOSTS_TURNED
    ]
    gateway.write(site("new.example") + "".join(others))
    server.popen.send_signal(signal.SIGHUP)
    server.wait_for_lines("serving 3 sites")
    assert ask("127.0.0.1") == 429
    assert [ask("localhost") for _ in range(2)] == [200, 429]


def test_rate_limit_state_stays_with_a_site_that_gains_hosts(start, gateway):
    def site(*hosts: str) -> str:
        layer = '{ name = "rate-limit", requests = 1, per = "1h" }'
        return f'[[sites]]\nhosts = {json.dumps(hosts)}\n[[sites.routes]]\nrespond = "x"\nlayers = [{layer}]\n'

    gateway.write(site("a.test"), listen=("http://127.0.0.1:0",))
    server = start(gateway.command())

    def ask(host: str) -> int:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        connection.request("GET", "/", headers={"host": host})
        return connection.getresponse().status

    assert [ask("a.test"), ask("a.test")] == [200, 429]
    gateway.write(site("b.test") + site("c.test", "a.test"), listen=("http://127.0.0.1:0",))
    server.popen.send_signal(signal.SIGHUP)
    eventually("the new configuration", lambda: ask("b.test") == 200)
    assert [ask("b.test"), ask("a.test"), ask("c.test")] == [429, 429, 429]


def test_concurrency_limit_rejects_further_requests(start, gateway, up, protocol_fetcher):
    entered, leave = threading.Semaphore(0), threading.Event()

    def slow(handler, _):
        entered.release()
        leave.wait(60)
        handler.reply(200, b"done")

    up.routes["/slow"] = slow
    layer = '{ name = "concurrency-limit", requests = 1, by = "all" }'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    answers = []
    first = threading.Thread(
        target=lambda: answers.append(protocol_fetcher.fetch(server.origin + "/slow"))
    )
    first.start()
    assert entered.acquire(timeout=60)
    refused = protocol_fetcher.fetch(server.origin + "/")
    leave.set()
    first.join()
    assert (refused.status, refused.header("retry-after")) == (503, "1")
    assert answers[0].status == 200
    eventually("a free slot", lambda: protocol_fetcher.fetch(server.origin + "/").status == 200)


def test_content_over_the_limit_is_rejected_with_or_without_a_length(start, gateway, up, fetcher):
    layer = '{ name = "body-limit", size = "1KiB" }'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    fits = fetcher.fetch(server.origin + "/", method="POST", body=b"x" * 1024)
    assert (fits.status, seen(fits)["content"]) == (200, 1024)
    assert fetcher.fetch(server.origin + "/", method="POST", body=b"x" * 1025).status == 413


async def test_content_without_a_length_is_counted(start, gateway, up, ca):
    layer = '{ name = "body-limit", size = "1KiB" }'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    for size, status in [(1000, 200), (100_000, 413)]:
        for version in ("--http1.1", "--http2"):
            command = [
                "curl",
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                version,
                "--cacert",
                str(ca),
            ]
            command += ["-X", "POST", "-T", "-", server.origin + "/"]
            asked = subprocess.run(
                command, input=b"x" * size, capture_output=True, timeout=60, check=False
            )
            assert asked.stdout.decode() == str(status), (version, size)
        async with h3_connection(server.origin, ca) as client:
            authority = server.origin.removeprefix("https://").encode()
            head = [
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":authority", authority),
                (b":path", b"/"),
            ]
            exchange = client.start_fields(head)
            client.http.send_data(exchange.stream, b"x" * size, end_stream=True)
            client.transmit()
            assert (await client.finish(exchange)).status == status, size


def test_slow_response_times_out(start, gateway, up, protocol_fetcher):
    leave = threading.Event()
    up.routes["/slow"] = lambda handler, _: (leave.wait(60), handler.reply(200, b"late"))
    layer = '{ name = "timeout", after = "100ms" }'
    server = serve(
        start, gateway, f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n'
    )
    late = protocol_fetcher.fetch(server.origin + "/slow")
    leave.set()
    assert late.status == 504


def test_layers_of_a_site_wrap_those_of_its_routes(start, gateway, up, protocol_fetcher):
    sites = (
        SITE
        + 'layers = [{ name = "deny", addresses = ["127.0.0.1"] }]\n'
        + f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{{ name = "cors", origins = ["*"] }}]\n'
    )
    gateway.write(sites)
    server = start(gateway.command())
    refused = protocol_fetcher.fetch(server.origin + "/", headers=[("origin", "https://a.example")])
    assert (refused.status, refused.header("access-control-allow-origin")) == (403, None)


def test_wrong_layers_are_reported_at_their_position(gateway):
    gateway.write(
        SITE
        + """
[[sites.routes]]
respond = ""
layers = [
  "compres",
  { name = "rate-limit", request = 5 },
  { name = "timeout", after = "soon" },
  { name = "cors" },
  { name = "basic-auth", users = { deer = "antler" } },
]
"""
    )
    checked = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 65
    lines = [line.rpartition("pronghorn.toml:")[2] for line in checked.stderr.splitlines()]
    assert lines[0] == '13:3: unknown layer "compres"; did you mean "compress"?'
    assert '14:26: unknown key "request"; did you mean "requests"?' in lines
    assert any(
        line.startswith('14:3: the layer "rate-limit" has no `requests`') for line in lines
    ), lines
    assert any(line.startswith('15:31: invalid time "soon"') for line in lines), lines
    assert any(line.startswith("16:3: missing `origins`") for line in lines), lines
    assert any(line.startswith('17:3: user "deer"') and "htpasswd -B" in line for line in lines), (
        lines
    )


def test_websocket_passes_layers_that_allow_it(start, gateway, ca):
    pytest.importorskip("websockets")
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect
    from websockets.sync.server import serve as serve_websocket

    with serve_websocket(
        lambda socket: [socket.send(message) for message in socket], "127.0.0.1", 0
    ) as echo:
        threading.Thread(target=echo.serve_forever, daemon=True).start()
        port = echo.socket.getsockname()[1]
        layers = f'["compress", {{ name = "basic-auth", users = {{ deer = "{BCRYPT}" }} }}]'
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = "http://127.0.0.1:{port}"\nlayers = {layers}\n',
            listen=("127.0.0.1:0", "http://127.0.0.1:0"),
        )
        gateway.file.write_text(
            gateway.file.read_text().replace(
                "[[sites.routes]]", 'clear_text = "serve"\n[[sites.routes]]'
            )
        )
        server = start(gateway.command(), listeners=2)
        url = f"ws://127.0.0.1:{server.listeners[1].port}/"
        with connect(url, additional_headers=dict([basic("deer", "antler")])) as socket:
            socket.send("through")
            assert socket.recv(timeout=60) == "through"
        with pytest.raises(InvalidStatus) as refused:
            connect(url)
        assert refused.value.response.status_code == 401
        echo.shutdown()


def test_program_with_a_custom_layer_serves_it(start, gateway, up, fetcher):
    layers = '[{ name = "server-timing", metric = "app" }, "compress"]'
    routes = f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = {layers}\n'
    gateway.write(SITE + routes)
    server = start([custom_layer(), "run", "-c", gateway.file])
    answer = fetcher.fetch(server.origin + "/x")
    assert answer.header("server-timing").startswith("app;dur=")
    assert json.loads(answer.body)["path"] == "/x"
    gateway.write(SITE + routes.replace('metric = "app"', 'metric = "an app"'))
    wrong = subprocess.run(
        [custom_layer(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert 'invalid metric name "an app"' in wrong.stderr
    # `pronghorn` itself does not have this layer.
    unknown = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert 'unknown layer "server-timing"' in unknown.stderr


API = REPOSITORY / "examples" / "gateway" / "api-with-limits.toml"


def test_api_example_works_as_documented(start, gateway, up, fetcher):
    origin = ("origin", "https://app.example.org")
    text = API.read_text()
    assert "[server]" not in text
    gateway.file.write_text('[server]\nlisten = ["127.0.0.1:0"]\n' + text)
    environment = {"API": up.address, "DOMAIN": "127.0.0.1", "ADMIN": BCRYPT}
    environment |= {"CERT": str(gateway.identity.cert), "KEY": str(gateway.identity.key)}
    server = start(gateway.command(), env={**os.environ, **environment})
    asked = fetcher.fetch(server.origin + "/v1/things", headers=[origin])
    assert (asked.status, asked.header("access-control-allow-origin")) == (
        200,
        "https://app.example.org",
    )
    assert (
        fetcher.fetch(server.origin + "/v1/things", method="POST", body=b"x" * (256 << 10)).status
        == 413
    )
    assert fetcher.fetch(server.origin + "/admin/").status == 401
    assert (
        fetcher.fetch(server.origin + "/admin/", headers=[basic("admin", "antler")]).status == 200
    )

    def log_in() -> int:
        return fetcher.fetch(server.origin + "/v1/login", method="POST", body=b"{}").status

    assert [log_in() for _ in range(5)] == [200] * 5
    # One more attempt is allowed every ten seconds, which the first five may take on a busy machine.
    assert 429 in {log_in() for _ in range(10)}
    assert fetcher.fetch(server.origin + "/v1/things").status == 200
    assert fetcher.fetch(server.origin + "/other").status == 404


def test_schema_covers_layers_and_their_options():
    schema = json.loads(
        subprocess.run([pronghorn(), "schema"], capture_output=True, timeout=60, check=True).stdout
    )
    validator = jsonschema.Draft202012Validator(schema)
    for example in (REPOSITORY / "examples" / "gateway").glob("*.toml"):
        validator.validate(tomllib.loads(example.read_text()))
    for layer, is_right in [
        ("compress", True),
        ("compres", False),
        ({"name": "timeout", "after": "5s"}, True),
        ({"name": "timeout"}, False),
        ({"name": "timeout", "after": "5s", "aftr": 1}, False),
        ({"name": "rate-limit", "requests": "many"}, False),
    ]:
        routes = [{"respond": "", "layers": [layer]}]
        assert validator.is_valid({"sites": [{"hosts": ["a"], "routes": routes}]}) == is_right, (
            layer
        )
    for match, is_right in [
        ("/a", True),
        (["/a", {"path": ["/b"], "method": "GET"}], True),
        ([], False),
        ([["/a"]], False),
        ([{"pth": "/a"}], False),
    ]:
        routes = [{"respond": "", "match": match}]
        assert validator.is_valid({"sites": [{"hosts": ["a"], "routes": routes}]}) == is_right, (
            match
        )
