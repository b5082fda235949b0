"""Rewrites, early hints, error pages and caching of `pronghorn run`."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import threading

import pytest

from harness.clients import curl
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h3 import RawH3
from harness.gateway import SITE, seen, upstream
from harness.server import pronghorn

# "antler"
BCRYPT = "$2y$04$abcdefghijklmnopqrstuu9b4SO151qbMABbat2g0cGT65vUfaadq"


def test_rewritten_target_keeps_its_query(start, gateway, up, fetcher):
    routes = "".join(
        f'[[sites.routes]]\nmatch = "{match}"\nproxy = "{up.address}"\nrewrite = "{rewrite}"\n{more}\n'
        for match, rewrite, more in [
            ("/old/*", "/new{path}", "strip_prefix = true"),
            ("/php/*", "/index.php?path={path}", ""),
            ("/all/*", "/one", ""),
        ]
    )
    gateway.write(SITE + routes)
    server = start(gateway.command())
    for asked, expected in [
        ("/old/a%20b?c=d", "/new/a%20b?c=d"),
        ("/php/x?y=1", "/index.php?path=/php/x"),
        ("/all/x?y=1", "/one?y=1"),
        ("/old//evil.example//x", "/new/evil.example//x"),
        ("/php/x&admin=1+1?y", "/index.php?path=/php/x%26admin=1%2B1"),
    ]:
        assert seen(fetcher.fetch(server.origin + asked))["path"] == expected, asked


def test_errors_have_custom_pages(start, gateway, up, fetcher):
    for name in ("404.html", "5xx.html", "403.txt"):
        (gateway.folder / name).write_text(f"the page {name}")
    gateway.write(
        SITE
        + 'errors = { 404 = "404.html", 5xx = "5xx.html" }\n'
        + f'[[sites.routes]]\nmatch = "/up/*"\nproxy = "{up.address}"\nstrip_prefix = true\n'
        + f'[[sites.routes]]\nmatch = "/both/*"\nproxy = "{up.address}"\nstrip_prefix = true\n'
        + 'errors = { 404 = "403.txt" }\nerrors_of_upstreams = true\n'
        + '[[sites.routes]]\nmatch = "/dead"\nproxy = "http://127.0.0.1:1"\n'
        + '[[sites.routes]]\nmatch = "/gone"\nrespond = { status = 404, body = "its own" }\n'
        + '[[sites.routes]]\nmatch = "/empty"\nrespond = { status = 404 }\n'
        + '[[sites.routes]]\nmatch = "/denied"\nrespond = ""\nerrors = { 4xx = "403.txt" }\n'
        + 'layers = [{ name = "deny", addresses = ["127.0.0.1"] }]\n'
    )
    server = start(gateway.command())
    for path, status, content, content_type in [
        ("/nothing", 404, b"the page 404.html", "text/html; charset=utf-8"),
        ("/gone", 404, b"its own", "text/plain; charset=utf-8"),
        ("/empty", 404, b"the page 404.html", "text/html; charset=utf-8"),
        ("/dead", 502, b"the page 5xx.html", "text/html; charset=utf-8"),
        ("/denied", 403, b"the page 403.txt", "text/plain; charset=utf-8"),
        ("/both/status/404", 404, b"the page 403.txt", "text/plain; charset=utf-8"),
    ]:
        answer = fetcher.fetch(server.origin + path)
        assert (answer.status, answer.body, answer.header("content-type")) == (
            status,
            content,
            content_type,
        ), path
        assert answer.header("content-length") == str(len(content))
    # An upstream's error is kept by default.
    assert (
        fetcher.fetch(server.origin + "/up/status/404").header("content-type") == "application/json"
    )
    head = fetcher.fetch(server.origin + "/nothing", method="HEAD")
    assert (head.status, head.size) == (404, 0)


def test_missing_error_page_is_reported_at_its_line(start, gateway, protocol_fetcher):
    gateway.write(
        SITE + 'errors = { 404 = "none.html" }\n[[sites.routes]]\nmatch = "/x"\nrespond = ""\n'
    )
    checked = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 66
    assert re.search(r"pronghorn\.toml:9:1: .*none\.html: No such file", checked.stderr), (
        checked.stderr
    )
    (gateway.folder / "none.html").write_text("one")
    server = start(gateway.command())
    assert protocol_fetcher.fetch(server.origin + "/").body == b"one"
    (gateway.folder / "none.html").unlink()
    server.popen.send_signal(signal.SIGHUP)
    server.wait_for_lines("nothing has changed")
    assert protocol_fetcher.fetch(server.origin + "/").body == b"one"


def test_cache_control_is_added_where_absent(start, gateway, up, protocol_fetcher):
    up.routes["/own"] = lambda h, _: h.reply(200, b"x", [("cache-control", "no-store")])
    gateway.write(
        SITE + f'[[sites.routes]]\nproxy = "{up.address}"\ncache_control = "public, max-age=60"\n'
    )
    server = start(gateway.command())
    for path, value in [("/", "public, max-age=60"), ("/own", "no-store"), ("/status/500", None)]:
        assert protocol_fetcher.fetch(server.origin + path).header("cache-control") == value, path


def linked(heads: list[str]) -> list[tuple[int, list[str]]]:
    """Returns the status and links of each head."""
    return [(int(head.split()[1]), re.findall(r"(?im)^link: (\S+);", head)) for head in heads]


def test_preload_links_are_sent_as_early_hints(start, gateway, ca):
    gateway.write(
        SITE
        + '[[sites.routes]]\nrespond = "a page"\n'
        + 'early_hints = ["</style.css>; rel=preload; as=style", "</app.js>; rel=preload; as=script"]\n'
    )
    server = start(gateway.command())

    def heads(protocol, *fields):
        return linked(curl.heads(server.origin, ca, protocol, fields))

    links = ["</style.css>", "</app.js>"]
    for protocol in ("HTTP/2", "HTTP/3"):
        assert heads(protocol, "sec-fetch-mode: navigate") == [(103, links), (200, links)]
        assert heads(protocol) == [(103, links), (200, links)]
        assert heads(protocol, "sec-fetch-mode: cors") == [(200, links)]
    assert heads("HTTP/1.1") == [(200, links)]
    with curl.session(ca) as client:
        assert client.post(server.origin + "/").status_code == 200


PASSWORD = f'{{ name = "basic-auth", users = {{ deer = "{BCRYPT}" }} }}'


@pytest.mark.parametrize("action", ['respond = "a page"', 'files = "www"', 'proxy = "{up}"'])
def test_early_hints_are_sent_only_to_clients_that_layers_admit(start, gateway, up, ca, action):
    (gateway.folder / "www").mkdir()
    (gateway.folder / "www" / "index.html").write_text("a page")
    with upstream("auth") as auth:
        auth.routes["/"] = lambda h, _: h.reply(
            200 if h.headers.get("x-key") == "right" else 403, b""
        )
        layers = f'{PASSWORD}, {{ name = "forward-auth", address = "{auth.address}" }}, "compress"'
        gateway.write(
            SITE
            + f"[[sites.routes]]\n{action.replace('{up}', up.address)}\nlayers = [{layers}]\n"
            + 'early_hints = ["</style.css>; rel=preload; as=style"]\n'
        )
        server = start(gateway.command())
        password = "authorization: Basic " + base64.b64encode(b"deer:antler").decode()
        links = ["</style.css>"]
        for protocol in ("HTTP/2", "HTTP/3"):

            def heads(*fields, status=200, protocol=protocol):
                return linked(curl.heads(server.origin + "/", ca, protocol, fields, status))

            assert heads(status=401) == [(401, [])]
            assert heads(password, status=403) == [(403, [])]
            assert heads(password, "x-key: right") == [(103, links), (200, links)]
            assert heads(password, "x-key: right", "sec-fetch-mode: cors") == [(200, links)]
        assert linked(
            curl.heads(server.origin + "/", ca, "HTTP/1.1", (password, "x-key: right"))
        ) == [(200, links)]


LAYERS = [
    "",
    'layers = ["compress", { name = "timeout", after = "30s" }, { name = "rate-limit", requests = 100 }]\n',
    f"layers = [{PASSWORD}]\n",
]


@pytest.mark.parametrize("layers", LAYERS, ids=["alone", "layers", "password"])
def test_interim_responses_of_an_upstream_are_forwarded(start, gateway, up, ca, layers):
    fields = ["authorization: Basic " + base64.b64encode(b"deer:antler").decode()]

    def hint(handler, _content) -> None:
        handler.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        handler.wfile.write(
            b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n"
        )
        handler.reply(200, b"a page", [("link", "</style.css>; rel=preload")])

    up.routes["/"] = hint
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n{layers}')
    server = start(gateway.command())
    final = (200, ["</style.css>"])
    for protocol in ("HTTP/2", "HTTP/3"):
        heads = curl.heads(server.origin + "/", ca, protocol, fields)
        assert linked(heads) == [(102, []), (103, ["</style.css>"]), final]
        assert not any("x-hop" in head.lower() for head in heads)
    # Some clients would take it for the final response.
    assert linked(curl.heads(server.origin + "/", ca, "HTTP/1.1", fields)) == [final]


def test_interim_responses_are_forwarded_before_the_final_one(start, gateway, up, ca):
    """An interim response that waited for a layer's response would be too late to be useful."""
    seen_by_client = threading.Event()

    def hint(handler, _content) -> None:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n")
        assert seen_by_client.wait(60)
        handler.reply(200, b"a page")

    up.routes["/"] = hint
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n{LAYERS[1]}')
    server = start(gateway.command())
    with H2Client(server.origin, ca) as client:
        stream = client.start("/")
        while not client.exchanges[stream].interim:
            assert client.read()
        seen_by_client.set()
        assert client.finish(stream).status == 200
    seen_by_client.clear()
    with RawH3(server.origin, ca) as h3:
        h3.open()
        stream = h3.request(h3.get("/"))
        h3.wait("an interim response", lambda: stream in h3.streams and h3.streams[stream].data)
        seen_by_client.set()
        answer = h3.answer(stream)
    assert (answer.interim, answer.status) == ([103], 200)
