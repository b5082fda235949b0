"""Spellings of paths, hosts and methods that would bypass a route of `pronghorn run`."""

from __future__ import annotations

import json
import subprocess
import wsgiref.simple_server
from collections.abc import Iterator
from contextlib import contextmanager

from harness.clients.spelled import Speller
from harness.fastcgi import HEAD, Asked, application, end, output, sent
from harness.gateway import EVERY_HOST, seen, upstream
from harness.server import pronghorn
from harness.serving import serving
from harness.waiting import eventually


def route(action: str, match: str = "") -> str:
    return "[[sites.routes]]\n" + (f"match = {match}\n" if match else "") + action + "\n"


def logged(gateway, count: int) -> list[dict]:
    """Waits for this many lines of the access log and returns them."""
    read = (gateway.folder / "access.log").read_text
    eventually("the lines", lambda: len(read().splitlines()) >= count)
    return [json.loads(line) for line in read().splitlines()]


DENY = 'respond = { status = 403, body = "no" }'


class QuietHandler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def wsgi() -> Iterator[tuple[str, list[str]]]:
    """A WSGI application that gets decoded paths, and the list of those paths."""
    paths: list[str] = []

    def answer(environ, start_response):
        paths.append(environ["PATH_INFO"])
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"protected"]

    server = wsgiref.simple_server.make_server("127.0.0.1", 0, answer, handler_class=QuietHandler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}", paths


def test_forward_auth_gets_the_path_that_is_served(speak, up):
    asked: list[dict[str, str]] = []
    with upstream("auth") as auth:

        def verify(handler, _) -> None:
            fields = {name.lower(): value for name, value in handler.headers.items()}
            asked.append(fields)
            status = 200 if fields["x-forwarded-uri"].startswith("/app/public/") else 403
            handler.reply(status, b"", [("connection", "close")])

        auth.routes["/"] = verify
        layer = f'layers = [{{ name = "forward-auth", address = "{auth.address}" }}]'
        rewritten = (
            f'strip_prefix = true\nrewrite = "/inner{{path}}"\nproxy = "{up.address}"\n{layer}'
        )
        client = speak(route(rewritten, '"/app/*"'))
        for path in (
            "/app/public/../admin2/secret",
            "/app/public/%2e%2e/admin2/secret",
            "//app//public//../../admin2/secret",
        ):
            assert client.ask(path).status == 403, path
        assert [one["x-forwarded-uri"] for one in asked][:2] == ["/app/admin2/secret"] * 2
        assert up.requests == []
        assert client.ask("/app/public/a%2e?b=%2e").status == 200
        assert asked[-1]["x-forwarded-uri"] == "/app/public/a.?b=%2e"
        assert up.requests == [("GET", "/inner/public/a.?b=%2e")]


def test_encoded_slash_does_not_bypass_a_route(speak):
    with wsgi() as (address, paths):
        client = speak(route(DENY, '["/admin", "/admin/*"]') + route(f'proxy = "{address}"'))
        for path in (
            "/admin%2Fsecret",
            "/admin%2fsecret",
            "/admin%5Csecret",
            "/a%2Fb",
            "/a%5cb",
            "/a/..%2fadmin",
        ):
            assert client.ask(path).status == 400, path
        assert client.ask("/admin/secret").status == 403
        assert paths == []
        assert client.ask("/a%20b").status == 200
        assert paths == ["/a b"]


def test_raw_backslash_does_not_bypass_a_route(speak):
    with wsgi() as (address, paths):
        client = speak(route(DENY, '["/admin", "/admin/*"]') + route(f'proxy = "{address}"'))
        for path in ("/admin\\secret", "/\\admin/secret", "/a\\..\\admin\\secret"):
            assert client.ask(path).status in (400, 403), path
        assert paths == []


def test_compatible_route_accepts_encoded_slashes_within_it(speak, up):
    with wsgi() as (address, paths):
        compatible = 'paths = "compatible"\n'
        client = speak(
            route(DENY, '["/admin", "/admin/*"]')
            + route(f'{compatible}proxy = "{up.address}"', '"/raw/*"')
            + route(f'{compatible}proxy = "{address}"')
        )
        for path in (
            "/admin%2Fsecret",
            "/admin%5Csecret",
            "/a/..%2Fadmin/secret",
            "/raw%2Fx",
            "/raw/a;b%2Fc",
        ):
            assert client.ask(path).status == 400, path
        assert (paths, up.requests) == ([], [])
        assert client.ask("/group%2Fname").status == 200
        assert paths == ["/group/name"]
        # Forwarded as written.
        assert client.ask("/raw/group%2fname%5Cx").status == 200
        assert up.requests == [("GET", "/raw/group%2Fname%5Cx")]


def test_path_parameter_does_not_bypass_a_route(speak, up):
    client = speak(route(DENY, '["/admin", "/admin/*"]') + route(f'proxy = "{up.address}"'))
    for path in (
        "/admin;x=1/secret",
        "/admin;/secret",
        "/admin%3Bx/secret",
        "/public/..;/admin/secret",
        "/public/.;x/y",
    ):
        assert client.ask(path).status == 400, path
    assert up.requests == []
    assert (
        json.loads(client.ask("/shop/cart;id=1%3B2?a;b").body)["path"] == "/shop/cart;id=1%3B2?a;b"
    )


SPELLINGS = {
    "/files/@admin/*": ["/files/%40admin/x", "/files/@admin/x"],
    "/files/%40staff/*": ["/files/%40staff/x", "/files/@staff/x"],
    "/files/priv(x)/*": ["/files/priv%28x%29/x", "/files/priv(x)/x", "/files/priv%28x)/x"],
    "/priv%28y%29/*": ["/priv(y)/x", "/priv%28y%29/x"],
    "/files/priv\u00e9/*": ["/files/priv%C3%A9/x", "/files/priv%c3%a9/x"],
    "/priv%C3%A9/*": ["/priv%C3%A9/x", "/priv%c3%a9/x"],
    "/%7Euser/*": ["/~user/x", "/%7Euser/x", "/%7euser/x"],
    "/%61/*": ["/a/x", "/%61/x"],
    "/b c/*": ["/b%20c/x"],
    "//d//./e/../f/*": ["/d/f/x", "//d//f//x"],
}


def test_rule_applies_to_each_spelling(speak, up):
    denied = "".join(route(DENY, f"'{pattern}'") for pattern in SPELLINGS)
    client = speak(denied + route(f'proxy = "{up.address}"'))
    for pattern, paths in SPELLINGS.items():
        for path in paths:
            assert client.ask(path).status == 403, f"{pattern} {path}"
    assert up.requests == []
    # Reserved characters are forwarded as written.
    assert json.loads(client.ask("/x%40y@/%3b/%5b[").body)["path"] == "/x%40y@/%3B/%5B%5B"


def test_rule_applies_to_links_in_a_listing(speak, gateway):
    for name in ("@admin", "priv(x)"):
        (gateway.folder / "www" / name).mkdir(parents=True)
        (gateway.folder / "www" / name / "secret.txt").write_text("secret")
    denied = route(DENY, '["/@admin/*", "/priv(x)/*"]')
    client = speak(denied + route('files = { root = "www", listing = true }'))
    links = [part.split('"')[0] for part in client.ask("/").body.decode().split('href="./')[1:]]
    assert len(links) == 2
    for link in links:
        assert client.ask(f"/{link}secret.txt").status == 403, link


def test_non_ascii_target_is_rejected(speak, up):
    client = speak(route(f'proxy = "{up.address}"'))
    for target in ("/priv\u00e9/x", "/x?\u00e9"):
        assert client.ask(target).status == 400, target
    assert up.requests == []


def test_check_reports_paths_that_are_not_canonical(gateway):
    patterns = ", ".join(
        f"'{pattern}'" for pattern in ("/%40admin/*", "/priv\u00e9", "/good/*", "/a%2Fb")
    )
    gateway.write(
        EVERY_HOST.replace("{tls}", "") + route('respond = "x"', f"[{patterns}]"),
        listen=("http://127.0.0.1:0",),
    )
    checked = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    told = checked.stdout + checked.stderr
    assert checked.returncode == 0, told
    for written, canonical in (("/%40admin/*", "/@admin/*"), ("/priv\u00e9", "/priv%C3%A9")):
        assert (
            f'the path "{written}" is not in canonical form; it is compared as "{canonical}": use that form'
            in told
        )
    assert '"/good/*"' not in told
    assert 'the path "/a%2Fb" has an encoded slash or a backslash' in told


def test_host_is_normalized(speak, up):
    client = speak(
        route(DENY, '{ host = "admin.test" }') + route(f'proxy = "{up.address}"'),
        server='trusted_proxies = ["192.0.2.1"]',
    )
    for host in (
        "admin.test",
        "admin.test.",
        "Admin.Test",
        "ADMIN.TEST.:443",
        "admin.test:443",
        "admin.test:0443",
    ):
        assert client.ask("/", host=host).status == 403, host
    for host in ("admin.test..", "%61dmin.test", "admin!.test", ".admin.test"):
        # The HTTP/2 library resets the stream of some of these itself.
        assert client.ask("/", host=host).status in (400, None), host
    assert up.requests == []
    told = seen(client.ask("/", host="Other.TEST.:443"))["headers"]
    assert (told["host"], told["x-forwarded-host"], told["x-forwarded-port"]) == (
        "other.test",
        "other.test",
        "443",
    )
    assert seen(client.ask("/", host="other.test:8443"))["headers"]["host"] == "other.test:8443"


def test_lower_case_method_is_rejected(speak, up):
    client = speak(route(DENY, '{ method = ["GET", "POST"] }') + route(f'proxy = "{up.address}"'))
    for method in ("get", "post", "Post", "gET", "options", "purge"):
        assert client.ask("/", method=method).status == 400, method
    assert client.ask("/").status == 403
    assert up.requests == []


EVIL = [
    "/\\evil.example",
    "//evil.example",
    "/%5Cevil.example",
    "/\\/evil.example",
    "/%2Fevil.example",
    "///evil.example",
]


def leads_nowhere_else(client: Speller, path: str) -> None:
    answer = client.ask(path)
    location = answer.headers.get("location", "/")
    assert answer.status in (308, 400), path
    assert location.startswith("/"), location
    assert not location[1:].startswith(("/", "\\")), location


def test_redirect_never_leads_to_another_host(speak):
    client = speak(
        route('strip_prefix = true\nredirect = { to = "{path}" }', '"/old/*"')
        + route('strip_prefix = true\nredirect = { to = "/{path}" }', '"/slash/*"')
        + route('redirect = { to = "https://new.example{path}" }')
    )
    for rest in EVIL:
        leads_nowhere_else(client, "/old" + rest)
        leads_nowhere_else(client, "/slash" + rest)
    assert client.ask("/old//evil.example/x?y").headers["location"] == "/evil.example/x?y"
    assert client.ask("//evil.example").headers["location"] == "https://new.example/evil.example"


def test_redirect_of_a_compatible_route_never_leads_to_another_host(speak):
    client = speak(
        route('paths = "compatible"\nstrip_prefix = true\nredirect = { to = "{path}" }', '"/old/*"')
    )
    for rest in EVIL:
        leads_nowhere_else(client, "/old" + rest)


def test_extended_connect_matches_routes_as_get(speak, up, gateway):
    asked: list[dict[str, str]] = []
    with upstream("auth") as auth:

        def verify(handler, _) -> None:
            asked.append({name.lower(): value for name, value in handler.headers.items()})
            handler.reply(403, b"", [("connection", "close")])

        auth.routes["/"] = verify
        layer = f'layers = [{{ name = "forward-auth", address = "{auth.address}" }}]'
        (gateway.folder / "www").mkdir()
        (gateway.folder / "www" / "file.txt").write_text("protected")
        client = speak(
            route(DENY, '{ path = "/denied/*", method = ["GET", "POST"] }')
            + route(f'proxy = "{up.address}"\n{layer}', '"/auth/*"')
            + route('files = "www"', '"/file.txt"')
            + route('respond = "protected"', '"/text"')
            + route(f'proxy = "{up.address}"')
            + '[log]\naccess = "access.log"\nformat = "json"\n'
        )
        websocket = {"protocol": "websocket", "headers": [("sec-websocket-version", "13")]}
        assert client.ask("/denied/x", **websocket).status == 403
        assert client.ask("/auth/x", **websocket).status == 403
        assert asked[-1]["x-forwarded-method"] == "GET"
        if client.version != "1.1":
            # Any 2xx would start the other protocol.
            for path in ("/file.txt", "/text"):
                assert client.ask(path, **websocket).status == 501, path
        assert up.requests == []
        lines = logged(gateway, 2 if client.version == "1.1" else 4)
        assert {line["method"] for line in lines} == {"GET"}


def test_log_and_application_get_the_matched_path(speak, gateway):
    asked: list[Asked] = []
    with application(sent(output(HEAD + b"page") + end()), asked) as address:
        client = speak(
            route(f'strip_prefix = true\nproxy = "{address}"', '"/app/*"')
            + '[log]\naccess = "access.log"\nformat = "json"\n'
        )
        assert client.ask("/x/..//app/%61/../b%40?c=%61", host="Other.TEST.").status == 200
        told = {
            name: asked[0].parameter(name)
            for name in ("REQUEST_URI", "SCRIPT_NAME", "PATH_INFO", "SERVER_NAME", "HTTP_HOST")
        }
        assert told == {
            "REQUEST_URI": "/app/b%40?c=%61",
            "SCRIPT_NAME": "/app",
            "PATH_INFO": "/b@",
            "SERVER_NAME": "other.test",
            "HTTP_HOST": "other.test",
        }
        [line] = logged(gateway, 1)
        assert (line["target"], line["host"]) == ("/app/b%40?c=%61", "other.test")


def test_redirect_to_https_has_the_canonical_target(start, gateway, ca):
    gateway.write(EVERY_HOST + route('respond = "x"'), listen=("127.0.0.1:0", "http://127.0.0.1:0"))
    server = start(gateway.command(), listeners=2)
    clear = next(listener for listener in server.listeners if listener.scheme == "http")
    port = server.listeners[0].port
    client = Speller("1.1", f"http://127.0.0.1:{clear.port}", ca)
    answer = client.ask("//evil.example/../x", host="A.Test.:80")
    assert (answer.status, answer.headers["location"]) == (308, f"https://a.test:{port}/x")
    # `*` names no resource that could be elsewhere.
    assert client.ask("*", method="OPTIONS", host="a.test").status == 204
