"""Mapping of paths to scripts and routes behind `pronghorn run`."""

from __future__ import annotations

import json
from urllib.parse import urljoin

import pytest

from harness.clients.raw_h1 import RawH1
from harness.fastcgi import HEAD, Asked, end, output, sent
from harness.fastcgi import application as fake
from harness.gateway import SITE
from harness.php import served


def test_paths_map_to_scripts_files_and_the_front_controller(
    start, gateway, fpm, www, protocol_fetcher
):
    server = served(start, gateway, www, f"unix:{fpm}")

    def ask(path, **asked):
        return protocol_fetcher.fetch(server.origin + path, **asked)

    def script(path):
        return json.loads(ask(path).body)["server"]["SCRIPT_NAME"]

    assert [script(path) for path in ("/", "/users/5?a", "/missing.php", "/admin/")] == [
        "/index.php"
    ] * 3 + ["/admin/index.php"]
    style = ask("/style.css")
    assert (style.body, style.header("content-type")) == (
        b"p { color: red }\n",
        "text/css; charset=utf-8",
    )
    assert ask("/style.css", headers=[("if-none-match", style.header("etag"))]).status == 304
    assert ask("/style.css", method="POST", body=b"x").status == 405
    assert urljoin("/admin?q", ask("/admin?q").header("location")) == "/admin/?q"
    # Neither source code nor a file that only looks like a script.
    for path in ("/secret.php.bak", "/picture.jpg/x.php"):
        answer = ask(path)
        assert json.loads(answer.body)["server"]["SCRIPT_NAME"] == "/index.php", path
        assert b"password" not in answer.body
    assert ask("/picture.jpg").body == (www / "picture.jpg").read_bytes()
    (www / ".env").write_text("SECRET=x")
    assert [ask(path).status for path in ("/.env", "/%2e%2e/x", "/.git%2fconfig")] == [
        404,
        400,
        404,
    ]
    (www / "index.php").unlink()
    assert ask("/users/5").status == 404


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["alone", "layers"])
def test_encoded_slash_goes_to_the_front_controller(
    start, gateway, fpm, www, protocol_fetcher, layers
):
    private = '[[sites.routes]]\nmatch = ["/private/*", "/index.php/private/*"]\nrespond = { status = 403 }\n'
    php = f'php = {{ root = "{www}", server = "unix:{fpm}" }}\n'
    strict = f'[[sites.routes]]\nmatch = "/strict/*"\npaths = "strict"\n{php}'
    gateway.write(SITE + private + strict + f"[[sites.routes]]\n{layers}\n{php}")
    server = start(gateway.command())

    def told(path: str) -> tuple[str, str, str]:
        answer = protocol_fetcher.fetch(server.origin + path)
        assert answer.status == 200, (path, answer.body)
        seen = json.loads(answer.body)["server"]
        return seen["REQUEST_URI"], seen["SCRIPT_FILENAME"], seen.get("PATH_INFO", "")

    index, admin = f"{www}/index.php", f"{www}/admin/index.php"
    for path, script, path_info in [
        ("/wiki/AC%2FDC?a=%2F", index, ""),
        ("/style.css%2Fx", index, ""),
        ("/admin%2Findex.php", index, ""),
        ("/wiki/a%5Cb", index, ""),
        ("/admin/index.php/AC%2FDC", admin, "/AC/DC"),
    ]:
        assert told(path) == (path, script, path_info), path
    # A path that would match another route with a decoded slash is rejected.
    spelled = (
        "/private%2Fx",
        "/x/%2e%2e/private%2Fx",
        "/index.php%2Fprivate/x",
        "/a%2F..%2Fprivate/x",
    )
    for path in (*spelled, "/strict/a%2Fb"):
        assert protocol_fetcher.fetch(server.origin + path).status == 400, path


def test_application_below_a_prefix(start, gateway, fpm, www, protocol_fetcher):
    server = served(
        start, gateway, www, f"unix:{fpm}", route='match = "/shop/*"\nstrip_prefix = true'
    )
    answer = protocol_fetcher.fetch(server.origin + "/shop/admin/index.php/x?q=1")
    told = json.loads(answer.body)["server"]
    wanted = {
        "REQUEST_URI": "/shop/admin/index.php/x?q=1",
        "SCRIPT_NAME": "/shop/admin/index.php",
        "SCRIPT_FILENAME": f"{www}/admin/index.php",
        "PATH_INFO": "/x",
        "HTTP_X_FORWARDED_PREFIX": "/shop",
    }
    assert {name: told.get(name) for name in wanted} == wanted
    moved = protocol_fetcher.fetch(server.origin + "/shop/admin")
    assert urljoin("/shop/admin", moved.header("location")) == "/shop/admin/"


def test_prefix_is_passed_unescaped(start, gateway, fpm, www, protocol_fetcher):
    server = served(
        start, gateway, www, f"unix:{fpm}", route="match = '/caf\u00e9 [x]/*'\nstrip_prefix = true"
    )
    told = json.loads(
        protocol_fetcher.fetch(server.origin + "/caf%C3%A9%20%5Bx%5D/admin/index.php/%5Bx%5D").body
    )["server"]
    assert (told["SCRIPT_NAME"], told["PATH_INFO"]) == ("/caf\u00e9 [x]/admin/index.php", "/[x]")
    assert told["PHP_SELF"] == "/caf\u00e9 [x]/admin/index.php/[x]"
    assert told["HTTP_X_FORWARDED_PREFIX"] == "/caf%C3%A9%20%5Bx%5D"


def test_path_is_taken_from_the_match(start, gateway, fpm, www, protocol_fetcher):
    php = f'php = {{ root = "{www}", server = "unix:{fpm}" }}'
    for layers in ("", 'layers = ["compress"]'):
        gateway.write(
            SITE
            + f'[[sites.routes]]\nmatch = ["/one/*", "/two/*"]\nstrip_prefix = true\n{layers}\n{php}\n'
        )
        server = start(gateway.command())
        for prefix in ("/one", "/two"):
            told = json.loads(protocol_fetcher.fetch(f"{server.origin}{prefix}/index.php/a").body)[
                "server"
            ]
            assert (told["SCRIPT_NAME"], told["PATH_INFO"]) == (f"{prefix}/index.php", "/a")
            assert told["HTTP_X_FORWARDED_PREFIX"] == prefix


def test_no_spelling_of_a_path_bypasses_the_route_before(start, gateway, fpm, www, up, ca):
    (www / "uploads").mkdir()
    (www / "uploads" / "x.php").write_text("<?php echo 'it ran';")
    (www / "uploads" / "x.txt").write_text("a file")
    uploads = '[[sites.routes]]\nmatch = "/uploads/*"\nrespond = { status = 403, body = "no" }\n'
    proxy = f'[[sites.routes]]\nmatch = "/proxy/*"\nproxy = "{up.address}"\n'
    stripped = f'[[sites.routes]]\nmatch = "/app/*"\nstrip_prefix = true\nproxy = "{up.address}"\n'
    php = f'[[sites.routes]]\nphp = {{ root = "{www}", server = "unix:{fpm}" }}\n'
    gateway.write(SITE + uploads + proxy + stripped + php)
    server = start(gateway.command())
    host = server.origin.removeprefix("https://")

    def ask(path: str):
        # Clients that write paths as given.
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            return client.receive()

    for name in ("x.php", "x.txt"):
        for folder in (
            "/uploads/",
            "//uploads/",
            "///uploads//",
            "/./uploads/",
            "//%75ploads/",
            "/a/..//uploads/",
        ):
            answer = ask(folder + name)
            assert (answer.status, answer.body) == (403, b"no"), folder + name
    assert ask("/uploads%2fx.php").status == 400
    # Forwarded paths keep characters that may be significant.
    for path, passed in [
        ("/proxy/http://a.example//b", "/proxy/http://a.example//b"),
        ("/proxy//a/", "/proxy//a/"),
        ("/app/http://a.example", "/http://a.example"),
        ("//app//x", "/x"),
    ]:
        assert json.loads(ask(path).body)["path"] == passed, path


def test_encoded_slash_is_not_a_slash_of_path_info(start, gateway, ca):
    asked: list[Asked] = []
    with fake(sent(output(HEAD + b"page") + end()), asked) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        host = server.origin.removeprefix("https://")
        for path, status in [
            ("/a%20b/%41", 200),
            ("/admin%2fx", 400),
            ("/admin%2Fx", 400),
            ("/a%00", 400),
        ]:
            with RawH1(server.origin, ca) as client:
                client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
                assert client.receive().status == status, path
        assert [one.parameter("PATH_INFO") for one in asked] == ["/a b/A"]


def test_folder_with_its_own_route_runs_no_scripts(start, gateway, fpm, www, ca):
    (www / "uploads").mkdir()
    for name in ("x.php", "index.php"):
        (www / "uploads" / name).write_text("<?php echo 'it ran';")
    uploads = f'[[sites.routes]]\nmatch = "/uploads/*"\nfiles = "{www}"\n'
    gateway.write(
        SITE + uploads + f'[[sites.routes]]\nphp = {{ root = "{www}", server = "unix:{fpm}" }}\n'
    )
    server = start(gateway.command())
    host = server.origin.removeprefix("https://")
    for path, status in [
        ("/uploads/x.php", 200),
        ("//uploads//x.php", 200),
        ("/uploads/x.php/y", 404),
        ("/uploads/", 404),
        ("/uploads//", 404),
    ]:
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            answer = client.receive()
            assert (answer.status, answer.body == b"it ran") == (status, False), path


def test_protected_part_of_an_application_is_matched_under_all_its_paths(
    start, gateway, fpm, www, ca
):
    match = 'match = ["/admin", "/admin/*", "/index.php/admin", "/index.php/admin/*"]'
    password = f"[[sites.routes]]\n{match}\nrespond = {{ status = 403 }}\n"
    gateway.write(
        SITE + password + f'[[sites.routes]]\nphp = {{ root = "{www}", server = "unix:{fpm}" }}\n'
    )
    server = start(gateway.command())
    host = server.origin.removeprefix("https://")

    def ask(path: str) -> int:
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            return client.receive().status

    for prefix in ("", "/index.php", "//index.php/", "/./index.php", "/%69ndex.php"):
        for path in (
            "/admin",
            "/admin/",
            "//admin//x",
            "/%61dmin",
            "/x/../admin",
            "/admin/.",
            "/admin?x",
        ):
            assert ask(prefix + path) == 403, prefix + path
    assert ask("/administrator") == 200
