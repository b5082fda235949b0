"""`pronghorn run`: sites, routes and a proxy, as clients of each protocol see them."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
from urllib.parse import urljoin, urlsplit

import pytest
from cryptography import x509
from curl_cffi import requests

from harness.addresses import own_address
from harness.certificates import make_identity
from harness.clients.raw_h1 import RawH1
from harness.gateway import SITE, seen, upstream
from harness.process import Process
from harness.server import REPOSITORY, pronghorn
from harness.waiting import eventually


def ask(fetcher, server, path, **options):
    return fetcher.fetch(server.origin + path, **options)


def test_server_listens_only_after_the_configuration_is_built(gateway):
    """The build waits for a pipe here; with thousands of sites it takes time too."""
    trust, address = gateway.folder / "trust.pem", own_address()
    os.mkfifo(trust)
    servers = '{ servers = ["https://127.0.0.1:1"], tls = { trust = "trust.pem" } }'
    gateway.write(SITE + f"[[sites.routes]]\nproxy = {servers}\n", listen=(address,))
    process = Process(gateway.command())
    host, port = address.split(":")
    try:
        # Returns when the server reads.
        with trust.open("wb") as pipe:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))
            pipe.write(gateway.identity.ca.read_bytes())
        process.wait_for_lines("listening on")
        socket.create_connection((host, int(port))).close()
    finally:
        process.stop()


def test_first_matching_route_answers(start, gateway, fetcher):
    (gateway.folder / "www" / "folder").mkdir(parents=True)
    (gateway.folder / "www" / "page.txt").write_text("a page")
    gateway.write(
        SITE
        + """
[[sites.routes]]
match = { path = "/fixed", method = "GET" }
respond = { status = 203, body = "fixed", content_type = "text/x-fixed" }

[[sites.routes]]
match = { path = "/fixed" }
respond = { status = 405, body = "another method" }

[[sites.routes]]
match = { path = "/by-field", header = { x-beta = "1" } }
respond = "beta"

[[sites.routes]]
match = "/moved/*"
strip_prefix = true
redirect = { to = "https://example.org/new{path}", status = 301 }

[[sites.routes]]
match = "/files/*"
strip_prefix = true
files = "www"
response_headers = { set = { cache-control = "no-store" }, remove = ["etag"] }
"""
    )
    server = start(gateway.command())
    fixed = ask(fetcher, server, "/fixed")
    assert (fixed.status, fixed.body, fixed.header("content-type")) == (
        203,
        b"fixed",
        "text/x-fixed",
    )
    assert ask(fetcher, server, "/fixed", method="DELETE").status == 405
    assert ask(fetcher, server, "/by-field", headers=[("x-beta", "1")]).body == b"beta"
    redirect = ask(fetcher, server, "/files/folder?q").header("location")
    assert urljoin("/files/folder?q", redirect) == "/files/folder/?q"
    assert ask(fetcher, server, "/by-field", headers=[("x-beta", "2")]).status == 404
    moved = ask(fetcher, server, "/moved/a?b=c")
    assert (moved.status, moved.header("location")) == (301, "https://example.org/new/a?b=c")
    page = ask(fetcher, server, "/files/page.txt")
    assert (page.status, page.body, page.header("cache-control")) == (200, b"a page", "no-store")
    assert page.header("etag") is None
    assert ask(fetcher, server, "/elsewhere").status == 404


def test_route_applies_if_any_of_its_matches_applies(start, gateway, up, fetcher):
    gateway.write(
        SITE
        + f"""
[[sites.routes]]
match = ["/api/*", "/v2/*", "/exact"]
strip_prefix = true
proxy = "{up.address}"

[[sites.routes]]
match = [{{ path = "/old/*", method = "GET" }}, {{ path = "/*", header = {{ x-beta = "1" }} }}]
strip_prefix = true
proxy = "{up.address}"
layers = ["compress"]

[[sites.routes]]
respond = "another"
"""
    )
    server = start(gateway.command())

    def asked(path, method="GET", headers=()):
        answer = ask(fetcher, server, path, method=method, headers=list(headers))
        if answer.body == b"another":
            return None
        return seen(answer)["path"], seen(answer)["headers"].get("x-forwarded-prefix")

    beta = [("x-beta", "1")]
    assert asked("/api/a?b") == ("/a?b", "/api")
    assert asked("/v2/a") == ("/a", "/v2")
    assert asked("/exact") == ("/exact", None)
    assert asked("/old/a") == ("/a", "/old")
    assert asked("/old/a", method="POST") is None
    assert asked("/old/a", method="POST", headers=beta) == ("/old/a", None), (
        "the matched prefix was not removed from the path"
    )
    assert asked("/new/a", headers=beta) == ("/new/a", None)
    assert asked("/api") is None


def test_fallback_file_answers_for_all_paths(start, gateway, protocol_fetcher):
    www = gateway.folder / "www"
    www.mkdir()
    (www / "index.html").write_text("the application")
    (www / "real.js").write_text("code")
    gateway.write(SITE + '[[sites.routes]]\nfiles = { root = "www", fallback = "index.html" }\n')
    server = start(gateway.command())
    for path in ("/", "/some/address", "/some/address"):
        page = ask(protocol_fetcher, server, path)
        assert (page.status, page.body, page.header("content-type")) == (
            200,
            b"the application",
            "text/html; charset=utf-8",
        )
    assert ask(protocol_fetcher, server, "/real.js").body == b"code"


def test_upstream_gets_the_client_address_and_no_forged_fields(start, gateway, up, fetcher):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    forged = [
        ("x-forwarded-for", "10.9.9.9"),
        ("forwarded", "for=10.9.9.9"),
        ("x-forwarded-proto", "ftp"),
        ("early-data", "1"),
    ]
    response = ask(fetcher, server, "/where?x=1", headers=[*forged, ("x-own", "kept")])
    assert response.status == 200
    asked = seen(response)
    authority = urlsplit(server.origin).netloc
    assert (asked["method"], asked["path"]) == ("GET", "/where?x=1")
    fields = asked["headers"]
    assert fields["host"] == authority
    assert fields["x-own"] == "kept"
    assert fields["x-forwarded-for"] == "127.0.0.1"
    assert (fields["x-forwarded-proto"], fields["x-forwarded-host"]) == ("https", authority)
    assert fields["x-forwarded-port"] == str(server.port)
    assert fields["forwarded"] == f'for=127.0.0.1;host="{authority}";proto=https'
    assert "pronghorn" in fields["via"]
    assert "early-data" not in fields
    assert response.header("via") == "1.1 pronghorn"


def test_fields_of_a_trusted_proxy_are_kept(start, gateway, up, protocol_fetcher):
    gateway.write(
        SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n',
        server='trusted_proxies = ["127.0.0.0/8"]',
    )
    server = start(gateway.command())
    fields = seen(
        ask(
            protocol_fetcher,
            server,
            "/",
            headers=[("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "http")],
        )
    )
    assert fields["headers"]["x-forwarded-for"] == "203.0.113.9, 127.0.0.1"
    assert fields["headers"]["x-forwarded-proto"] == "http"


@pytest.mark.parametrize(
    "spelling", ["/private/x", "/%70rivate/x", "/public/../private/x", "/public/%2e%2E/private/x"]
)
def test_no_spelling_of_a_path_bypasses_its_route(start, gateway, up, identity, spelling):
    gateway.write(
        SITE
        + '[[sites.routes]]\nmatch = "/private/*"\nrespond = { status = 403 }\n\n'
        + f'[[sites.routes]]\nproxy = "{up.address}"\n'
    )
    server = start(gateway.command())
    with RawH1(server.origin, identity.ca) as client:
        assert client.fetch(spelling).status == 403
    assert up.requests == []


def test_content_is_forwarded_both_ways(start, gateway, up, fetcher):
    big = bytes(range(256)) * 8192
    up.routes["/big"] = lambda handler, content: handler.reply(
        200, big + content[-1:], [("x-got", str(len(content)))]
    )
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    response = ask(fetcher, server, "/big", method="POST", body=big)
    assert (response.status, response.size, response.header("x-got")) == (
        200,
        len(big) + 1,
        str(len(big)),
    )


def test_status_and_fields_of_an_upstream_are_forwarded(start, gateway, up, protocol_fetcher):
    up.routes["/fields"] = lambda handler, _: handler.reply(
        418,
        b"tea",
        [
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("alt-svc", 'h3=":1"'),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ],
    )
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    response = ask(protocol_fetcher, server, "/fields")
    assert (response.status, response.body) == (418, b"tea")
    assert response.header_values("set-cookie") == ["a=1", "b=2"]
    assert response.header("x-hop") is None
    assert 'h3=":1"' not in response.header_values("alt-svc")
    head = ask(protocol_fetcher, server, "/fields", method="HEAD")
    assert (head.status, head.header("content-length"), head.size) == (418, "3", 0)
    assert ask(protocol_fetcher, server, "/status/204").status == 204
    assert ask(protocol_fetcher, server, "/status/304").status == 304


def test_servers_alternate_and_a_dead_one_is_skipped(start, gateway, protocol_fetcher):
    with upstream("one") as one, upstream("two") as two, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        servers = f'["{one.address}", "{dead}", "{two.address}"]'
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = "app"\n[upstreams.app]\nservers = {servers}\n'
        )
        server = start(gateway.command())
        answered = [
            seen(ask(protocol_fetcher, server, "/", method=method))["server"]
            for method in ("GET", "POST") * 6
        ]
        assert set(answered) == {"one", "two"}


def test_upstream_without_a_server_is_502(start, gateway, protocol_fetcher):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = "http://127.0.0.1:{taken.getsockname()[1]}"\n'
        )
        server = start(gateway.command())
        assert ask(protocol_fetcher, server, "/").status == 502


def test_silent_upstream_times_out(start, gateway, protocol_fetcher):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        gateway.write(
            SITE
            + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], head_timeout = "300ms" }}\n'
        )
        server = start(gateway.command())
        assert ask(protocol_fetcher, server, "/").status == 504


@pytest.mark.parametrize("protocol", ["http1", "http2", "http3"])
def test_upstream_works_over_each_protocol(
    start, gateway, start_serve, identity, site, fetcher, protocol
):
    behind = start_serve()
    gateway.write(
        SITE
        + f'[[sites.routes]]\nproxy = {{ servers = ["https://localhost:{behind.port}"], protocol = "{protocol}", '
        + f'tls = {{ trust = "{identity.ca}" }} }}\n'
    )
    server = start(gateway.command())
    for _ in range(2):
        response = ask(fetcher, server, "/medium.bin")
        assert response.status == 200
        assert response.size == len(site.read("medium.bin"))
    via = {"http1": "1.1 pronghorn", "http2": "2.0 pronghorn", "http3": "3.0 pronghorn"}[protocol]
    assert response.header("via") == via
    part = ask(fetcher, server, "/medium.bin", headers=[("range", "bytes=5-9")])
    assert (part.status, part.body) == (206, site.read("medium.bin")[5:10])


def test_untrusted_upstream_certificate_is_502(
    start, gateway, start_serve, tmp_path, protocol_fetcher
):
    other = make_identity(tmp_path / "other")
    behind = start_serve()
    servers = f'servers = ["https://localhost:{behind.port}"]'
    gateway.write(
        SITE + f'[[sites.routes]]\nproxy = {{ {servers}, tls = {{ trust = "{other.ca}" }} }}\n'
    )
    server = start(gateway.command())
    assert ask(protocol_fetcher, server, "/").status == 502


def test_redirect_to_the_request_host_keeps_the_port(start, gateway, protocol_fetcher):
    gateway.write(SITE + '[[sites.routes]]\nredirect = "https://{host}/z{path}"\n')
    server = start(gateway.command())
    answer = protocol_fetcher.fetch(server.origin + "/a?b")
    assert (answer.status, answer.header("location")) == (308, f"{server.origin}/z/a?b")


def test_redirect_to_another_scheme_drops_the_port(start, gateway):
    gateway.write(
        '[[sites]]\nhosts = ["127.0.0.1"]\n[[sites.routes]]\nredirect = "https://{host}{path}"\n',
        listen=("http://127.0.0.1:0",),
    )
    server = start(gateway.command())
    answer = requests.get(server.origin + "/a", allow_redirects=False, timeout=30)
    assert (answer.status_code, answer.headers["location"]) == (308, "https://127.0.0.1/a")


def test_clear_text_is_redirected_and_unknown_host_is_misdirected(start, gateway, identity):
    gateway.write(
        SITE + '[[sites.routes]]\nrespond = "x"\n', listen=("127.0.0.1:0", "http://127.0.0.1:0")
    )
    server = start(gateway.command(), listeners=2)
    clear = next(listener for listener in server.listeners if listener.scheme == "http")

    def head(host: str) -> str:
        with socket.create_connection(("127.0.0.1", clear.port), timeout=10) as connection:
            connection.sendall(
                f"GET /a?b HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
            )
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    answer = head("localhost")
    assert answer.startswith("HTTP/1.1 308 ")
    assert f"location: https://localhost:{server.port}/a?b\r\n" in answer
    assert head("elsewhere.example").startswith("HTTP/1.1 421 ")


def test_site_without_http3_is_neither_announced_nor_served_over_http3(
    start, gateway, protocol_fetcher
):
    gateway.write(SITE + 'http3 = false\n[[sites.routes]]\nrespond = "x"\n')
    server = start(gateway.command())
    if protocol_fetcher.protocol == "HTTP/3":
        with pytest.raises(ConnectionError):
            ask(protocol_fetcher, server, "/")
    else:
        assert ask(protocol_fetcher, server, "/").header("alt-svc") is None


def test_alt_svc_announces_the_public_port(start, gateway, protocol_fetcher):
    gateway.write(
        SITE + '[[sites.routes]]\nrespond = "x"\n',
        server='alt_svc = { port = 443, max_age = "5m" }',
    )
    response = ask(protocol_fetcher, start(gateway.command()), "/")
    expected = None if protocol_fetcher.protocol == "HTTP/3" else 'h3=":443"; ma=300'
    assert response.header("alt-svc") == expected


def test_reload_applies_a_valid_file_and_rejects_an_invalid_one(start, gateway, protocol_fetcher):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "first"\n')
    server = start(gateway.command())
    assert ask(protocol_fetcher, server, "/").body == b"first"

    gateway.write(SITE + '[[sites.routes]]\nrespond = "second"\n', workers=2)
    server.popen.send_signal(signal.SIGHUP)
    server.wait_for_lines("`workers` in \\[server\\] has changed; restart the server")
    eventually("the new answer", lambda: ask(protocol_fetcher, server, "/").body == b"second")

    gateway.write(SITE + '[[sites.routes]]\nrepond = "third"\n')
    server.popen.send_signal(signal.SIGHUP)
    server.wait_for_lines('unknown key "repond"; did you mean "respond"\\?')
    server.wait_for_lines("nothing has changed")
    assert ask(protocol_fetcher, server, "/").body == b"second"


def test_check_reports_all_errors_and_exits_65(gateway):
    gateway.write(
        SITE
        + '[[sites.routes]]\nproxi = "http://127.0.0.1:1"\n[[sites.routes]]\nfiles = "nowhere"\n'
    )
    wrong = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=30
    )
    assert wrong.returncode == 65
    assert 'unknown key "proxi"; did you mean "proxy"?' in wrong.stderr

    gateway.write(SITE + '[[sites.routes]]\nfiles = "nowhere"\n')
    missing = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=30
    )
    assert missing.returncode == 66
    assert "nowhere: No such file or directory" in missing.stderr
    refused = subprocess.run(gateway.command(), capture_output=True, text=True, timeout=30)
    assert refused.returncode == 66

    gateway.write(SITE + '[[sites.routes]]\nrespond = "x"\n')
    right = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=30
    )
    assert (right.returncode, right.stderr) == (0, "")


def test_certificate_is_chosen_by_name_and_replaced_by_reload(start, gateway, tmp_path, identity):
    first, second = make_identity(tmp_path / "first"), make_identity(tmp_path / "second")
    sites = """
[[sites]]
hosts = ["localhost"]
{tls}
[[sites.routes]]
respond = "x"

[[sites]]
hosts = ["*.example.test"]
tls = { cert = "CERT", key = "KEY" }
[[sites.routes]]
respond = "x"
"""

    def serial_of(identity) -> int:
        return x509.load_pem_x509_certificate(identity.cert.read_bytes()).serial_number

    def shown(server, name: str) -> int:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as tcp,
            context.wrap_socket(tcp, server_hostname=name) as tls,
        ):
            return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)).serial_number

    gateway.write(sites.replace("CERT", str(first.cert)).replace("KEY", str(first.key)))
    server = start(gateway.command())
    assert shown(server, "localhost") == serial_of(identity)
    assert shown(server, "a.example.test") == serial_of(first)
    gateway.write(sites.replace("CERT", str(second.cert)).replace("KEY", str(second.key)))
    server.popen.send_signal(signal.SIGHUP)
    eventually("the new certificate", lambda: shown(server, "a.example.test") == serial_of(second))
    assert shown(server, "localhost") == serial_of(identity)


EXAMPLES = sorted((REPOSITORY / "examples" / "gateway").glob("*.toml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_is_valid_and_formatted(example, tmp_path):
    (tmp_path / "index.html").write_text("page")
    # The certificate has the names of its sites, so that there is no warning about it.
    written = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", example.read_text())
    hosts = re.findall(
        r'"([^"]+)"', " ".join(re.findall(r"^hosts = \[(.*?)\]", written, re.MULTILINE))
    )
    identity = make_identity(tmp_path / "identity", names=tuple(hosts))
    environment = {
        **os.environ,
        "CERT": str(identity.cert),
        "KEY": str(identity.key),
        "SITE": str(tmp_path),
    }
    checked = subprocess.run(
        [pronghorn(), "check", example], capture_output=True, text=True, timeout=30, env=environment
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    styled = subprocess.run(
        [pronghorn(), "fmt", "--check", example], capture_output=True, text=True, timeout=30
    )
    assert (styled.returncode, styled.stdout) == (0, "")
