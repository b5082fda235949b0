"""PHP applications, and others over FastCGI, behind `pronghorn run`."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urljoin

import pytest

from harness.clients import aioquic_h3, curl
from harness.clients.raw_h1 import RawH1
from harness.fastcgi import HEAD, Asked, end, output, sent
from harness.fastcgi import application as fake
from harness.gateway import SITE
from harness.php import application, php_fpm
from harness.process import Process
from harness.response import sha256
from harness.server import TARGET
from harness.waiting import eventually

BOUNDARY = "----a-boundary"


@pytest.fixture
def fpm(tmp_path: Path):
    with php_fpm(tmp_path / "fpm") as socket:
        yield socket


@pytest.fixture
def www(tmp_path: Path) -> Path:
    return application(tmp_path)


def served(start, gateway, www: Path, server: str, more: str = "", route: str = ""):
    """`more` is of the table `php`, `route` of its route."""
    php = f'php = {{ root = "{www}", server = {server if server.startswith("{") else repr(server)}{more} }}'
    gateway.write(SITE + f"[[sites.routes]]\n{route}\n{php}\n")
    return start(gateway.command())


def test_script_is_told_of_the_request(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}", ', variables = { APP_ENV = "prod" }')
    target = "/index.php/a%20b/c?x=%41&y[]=1"
    headers = [("cookie", "a=1"), ("proxy", "http://evil"), ("x-forwarded-for", "1.2.3.4"), ("user-agent", "me")]
    headers.append(("authorization", "Basic dTpw"))
    answer = fetcher.fetch(server.origin + target, headers=headers)
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    seen = json.loads(answer.body)
    told = seen["server"]
    host = server.origin.removeprefix("https://")
    protocol = {"HTTP/1.1": "HTTP/1.1", "HTTP/2": "HTTP/2.0", "HTTP/3": "HTTP/3.0"}[fetcher.protocol]
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


def test_uploads_arrive_whole(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}", ', variables = { PHP_VALUE = "upload_max_filesize=8M" }')
    content = bytes(range(256)) * 8_000

    def send(path, method, kind, body):
        # The others say it themselves.
        length = [("content-length", str(len(body)))] if fetcher.name == "aioquic-h3" else []
        return fetcher.fetch(server.origin + path, method=method, headers=[("content-type", kind), *length], body=body)

    raw = send("/", "PUT", "x/y", content)
    seen = json.loads(raw.body)
    assert (seen["input"], seen["server"]["CONTENT_LENGTH"]) == (sha256(content), str(len(content)))
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="up"; filename="a.bin"\r\n\r\n'
    form = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    upload = send("/index.php", "POST", f"multipart/form-data; boundary={BOUNDARY}", form)
    assert json.loads(upload.body)["files"] == {"up": ["a.bin", sha256(content)]}
    posted = send("/?q=1", "POST", "application/x-www-form-urlencoded", b"name=J%C3%BCrgen&b=2")
    seen = json.loads(posted.body)
    assert (seen["post"], seen["get"]) == ({"name": "Jürgen", "b": "2"}, {"q": "1"})


def test_responses_come_as_the_script_gives_them(start, gateway, fpm, www, fetcher):
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


def test_paths_find_scripts_files_and_the_front_controller(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")

    def ask(path, **asked):
        return protocol_fetcher.fetch(server.origin + path, **asked)

    def script(path):
        return json.loads(ask(path).body)["server"]["SCRIPT_NAME"]

    assert [script(path) for path in ("/", "/users/5?a", "/missing.php", "/admin/")] == ["/index.php"] * 3 + [
        "/admin/index.php"
    ]
    style = ask("/style.css")
    assert (style.body, style.header("content-type")) == (b"p { color: red }\n", "text/css; charset=utf-8")
    assert ask("/style.css", headers=[("if-none-match", style.header("etag"))]).status == 304
    assert ask("/style.css", method="POST", body=b"x").status == 405
    assert urljoin("/admin?q", ask("/admin?q").header("location")) == "/admin/?q"
    # Neither code nor what only looks like a script.
    for path in ("/secret.php.bak", "/picture.jpg/x.php"):
        answer = ask(path)
        assert json.loads(answer.body)["server"]["SCRIPT_NAME"] == "/index.php", path
        assert b"password" not in answer.body
    assert ask("/picture.jpg").body == (www / "picture.jpg").read_bytes()
    (www / ".env").write_text("SECRET=x")
    assert [ask(path).status for path in ("/.env", "/%2e%2e/x", "/a%2fb")] == [404, 400, 400]
    (www / "index.php").unlink()
    assert ask("/users/5").status == 404


def test_application_below_a_prefix(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}", route='match = "/shop/*"\nstrip_prefix = true')
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


def test_layers_are_around_the_application(start, gateway, fpm, www, protocol_fetcher):
    layers = 'layers = [{ name = "compress" }, { name = "body-limit", size = "10KiB" }]'
    server = served(start, gateway, www, f"unix:{fpm}", route=layers)

    def ask(path, **asked):
        return protocol_fetcher.fetch(server.origin + path, **asked)

    answer = ask("/users/5?do=", headers=[("accept-encoding", "gzip")])
    assert (answer.status, answer.header("content-encoding")) == (200, "gzip")
    assert ask("/?do=", method="POST", body=b"x" * 11_000).status == 413
    assert ask("/style.css").body == b"p { color: red }\n"
    assert json.loads(ask("/a/b?c").body)["server"]["REQUEST_URI"] == "/a/b?c"


def test_pages_for_errors_leave_those_of_the_application(start, gateway, fpm, www, protocol_fetcher):
    (gateway.folder / "teapot.html").write_text("ours")
    for of_upstreams, body in (("false", b"short and stout"), ("true", b"ours")):
        errors = f'errors = {{ 418 = "teapot.html" }}\nerrors_of_upstreams = {of_upstreams}'
        server = served(start, gateway, www, f"unix:{fpm}", route=errors)
        assert protocol_fetcher.fetch(server.origin + "/?do=fields").body == body


def test_first_piece_comes_before_the_script_is_over(start, gateway, fpm, www, ca):
    server, signal = served(start, gateway, www, f"unix:{fpm}"), gateway.folder / "go-on"
    with curl.session(ca) as session:
        answer = session.get(f"{server.origin}/?do=wait&for={signal}", stream=True, timeout=30)
        pieces = answer.iter_content()
        assert next(pieces) == b"begun\n"
        signal.touch()
        assert b"".join(pieces) == b"over\n"


def test_script_may_answer_without_reading(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    # Too much to be collected.
    content = b"x" * 5_000_000
    # The others say it themselves.
    length = [("content-length", str(len(content)))] if fetcher.name == "aioquic-h3" else []
    headers = [("content-type", "x/y"), *length]
    answer = fetcher.fetch(server.origin + "/?do=unread", method="POST", headers=headers, body=content)
    assert (answer.status, answer.body) == (200, b"enough")


def test_content_of_unknown_length_is_collected_up_to_a_bound(start, gateway, fpm, www, ca):
    server = served(start, gateway, www, f"unix:{fpm}", ', collect = "10KiB"')
    origin = server.origin.removeprefix("https://")

    async def ask(size: int):
        async with aioquic_h3.h3_connection(server.origin, ca) as client:
            return await client.fetch("/", method="POST", body=b"x" * size)

    within = json.loads(asyncio.run(ask(10_240)).body)
    assert (within["server"]["CONTENT_LENGTH"], within["input"]) == ("10240", sha256(b"x" * 10_240))
    assert asyncio.run(ask(10_241)).status == 411
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(
            f"POST / HTTP/1.1\r\nhost: {origin}\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode()
        )
        seen = json.loads(client.receive().body)
        assert (seen["server"]["CONTENT_LENGTH"], seen["input"]) == ("5", sha256(b"hello"))


def test_script_that_dies_gives_no_whole_response(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    assert protocol_fetcher.fetch(server.origin + "/?do=die").status == 502
    with pytest.raises(Exception, match=r"."):
        protocol_fetcher.fetch(server.origin + "/?do=die&after=100000")
    with pytest.raises(Exception, match=r"."):
        protocol_fetcher.fetch(server.origin + "/?do=length&announced=5000&bytes=4000")
    assert protocol_fetcher.fetch(server.origin + "/?do=unread").body == b"enough"


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["alone", "layers"])
def test_operator_hears_what_scripts_complain_of_and_why_they_fail(start, gateway, fpm, www, protocol_fetcher, layers):
    (www / "complain.php").write_text(
        """<?php error_log("first\\n second \\e[31m"); error_log(str_repeat("x", 5000)); echo "said";"""
    )
    table = f'{{ servers = ["unix:{fpm}"], head_timeout = "2s" }}'
    server = served(start, gateway, www, table, route=layers)
    said = f"^warning: upstream unix:{fpm}: "
    assert protocol_fetcher.fetch(server.origin + "/complain.php").body == b"said"
    server.wait_for_lines(said + "PHP message: first$")
    server.wait_for_lines(said + r" second \\u\{1b\}\[31m.*$")
    long = server.wait_for_lines(said + ".*x{500,}…$")[0][0]
    assert len(long) < 1_500
    assert protocol_fetcher.fetch(server.origin + "/index.php?do=die&token=secret").status == 502
    server.wait_for_lines(
        said + r"GET 127.0.0.1/index.php\?…: the connection ended before the exchange: .+; answered 502$"
    )
    assert protocol_fetcher.fetch(server.origin + "/index.php?do=sleep&seconds=10").status == 504
    late = r"GET 127.0.0.1/index.php\?…: no response in time \(head_timeout = 2s\); answered 504$"
    server.wait_for_lines(said + late)
    with suppress(Exception):
        protocol_fetcher.fetch(server.origin + "/index.php?do=die&after=100000")
    server.wait_for_lines(said + r"GET 127.0.0.1/index.php\?…: .+; the response breaks off$")


def test_path_is_taken_from_what_matched(start, gateway, fpm, www, protocol_fetcher):
    php = f'php = {{ root = "{www}", server = "unix:{fpm}" }}'
    for layers in ("", 'layers = ["compress"]'):
        gateway.write(SITE + f'[[sites.routes]]\nmatch = ["/one/*", "/two/*"]\nstrip_prefix = true\n{layers}\n{php}\n')
        server = start(gateway.command())
        for prefix in ("/one", "/two"):
            told = json.loads(protocol_fetcher.fetch(f"{server.origin}{prefix}/index.php/a").body)["server"]
            assert (told["SCRIPT_NAME"], told["PATH_INFO"]) == (f"{prefix}/index.php", "/a")
            assert told["HTTP_X_FORWARDED_PREFIX"] == prefix


def test_slow_application_is_given_up(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f'{{ servers = ["unix:{fpm}"], head_timeout = "300ms" }}')
    assert protocol_fetcher.fetch(server.origin + "/?do=sleep&seconds=2").status == 504


def test_busy_application_is_not_waited_for_by_everybody(start, gateway, fpm, www, protocol_fetcher, ca):
    server = served(start, gateway, www, f'{{ servers = ["unix:{fpm}"], connections = 1, waiting = 0 }}')
    signal = gateway.folder / "go-on"
    with curl.session(ca) as session:
        pieces = session.get(f"{server.origin}/?do=wait&for={signal}", stream=True, timeout=30).iter_content()
        assert next(pieces) == b"begun\n"
        refused = protocol_fetcher.fetch(server.origin + "/?do=unread")
        assert (refused.status, refused.header("retry-after")) == (503, "1")
        signal.touch()
        assert b"".join(pieces) == b"over\n"
    assert protocol_fetcher.fetch(server.origin + "/?do=unread").status == 200


def test_another_server_is_asked_when_one_is_away(start, gateway, fpm, www, protocol_fetcher):
    away = f"unix:{gateway.folder}/nobody.sock"
    server = served(start, gateway, www, f'{{ servers = ["{away}", "unix:{fpm}"], policy = "first" }}')
    answer = protocol_fetcher.fetch(server.origin + "/", method="POST", headers=[("content-length", "2")], body=b"ab")
    assert json.loads(answer.body)["input"] == sha256(b"ab")
    server = served(start, gateway, www, away)
    assert protocol_fetcher.fetch(server.origin + "/").status == 502
    assert protocol_fetcher.fetch(server.origin + "/style.css").status == 200


def test_what_applications_complain_of_is_told(start, gateway, fpm, www, protocol_fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    assert protocol_fetcher.fetch(server.origin + "/a/b?do=complain").body == b"said"
    server.wait_for_lines(rf"unix:{fpm}: PHP message: this is wrong$")
    server.wait_for_lines(rf"unix:{fpm}: and so is that$")
    assert protocol_fetcher.fetch(server.origin + "/a/b?do=die").status == 502
    server.wait_for_lines(rf"unix:{fpm}: GET \S*/a/b\?…: the connection ended .*; answered 502")


def test_server_that_speaks_http_is_no_application(start, gateway, up, www, protocol_fetcher):
    server = served(start, gateway, www, up.address.replace("http", "fastcgi"))
    assert protocol_fetcher.fetch(server.origin + "/").status == 502


@contextmanager
def go_application():
    process = Process([TARGET / "test-clients" / "fastcgi-application"])
    try:
        yield process.wait_for_lines(r"listening on (fastcgi://\S+)")[0][1]
    finally:
        process.stop()


def test_application_of_go_over_tcp(start, gateway, fetcher):
    with go_application() as address:
        gateway.write(SITE + f'[[sites.routes]]\nmatch = "/api/*"\nstrip_prefix = true\nproxy = "{address}"\n')
        server = start(gateway.command())
        content = bytes(range(256)) * 3_000
        headers = [("content-type", "x/y"), ("x-own", "1")]
        answer = fetcher.fetch(server.origin + "/api/users/5?x=%41", method="POST", headers=headers, body=content)
        seen = json.loads(answer.body)
        assert (seen["method"], seen["length"], seen["sha256"]) == ("POST", len(content), sha256(content))
        assert seen["url"].endswith("/api/users/5?x=%41")
        assert (seen["host"], seen["secure"]) == (server.origin.removeprefix("https://"), True)
        assert seen["remote"].startswith("127.0.0.1:")
        assert seen["headers"]["X-Own"] == ["1"]
        named = f'[upstreams.go]\nservers = ["{address}"]\nprotocol = "fastcgi"\n'
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "go"\n{named}')
        assert json.loads(fetcher.fetch(start(gateway.command()).origin + "/a").body)["method"] == "GET"


def test_no_spelling_of_a_path_gets_by_the_route_before(start, gateway, fpm, www, up, ca):
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
        # Clients that write paths as they are told.
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            return client.receive()

    for name in ("x.php", "x.txt"):
        for folder in ("/uploads/", "//uploads/", "///uploads//", "/./uploads/", "//%75ploads/", "/a/..//uploads/"):
            answer = ask(folder + name)
            assert (answer.status, answer.body) == (403, b"no"), folder + name
    assert ask("/uploads%2fx.php").status == 400
    # What is passed on keeps what may mean something.
    for path, passed in [
        ("/proxy/http://a.example//b", "/proxy/http://a.example//b"),
        ("/proxy//a/", "/proxy//a/"),
        ("/app/http://a.example", "/http://a.example"),
        ("//app//x", "/x"),
    ]:
        assert json.loads(ask(path).body)["path"] == passed, path


def test_only_so_much_content_is_collected_at_one_time(start, gateway, fpm, www, ca):
    server = served(start, gateway, www, f"unix:{fpm}", ', collect = "10KiB"')
    host = server.origin.removeprefix("https://")
    head = f"POST / HTTP/1.1\r\nhost: {host}\r\n"
    chunked = f"{head}transfer-encoding: chunked\r\n\r\n".encode()

    def ask(request: bytes):
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(request)
            return client.receive()

    def ask_with_a_little() -> int:
        return ask(chunked + b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n").status

    with ExitStack() as waiting:
        for _ in range(64):
            client = waiting.enter_context(RawH1(server.origin, ca))
            client.socket.sendall(chunked + b"2800\r\n" + b"x" * 10_240 + b"\r\n")
        eventually("there is room for no more", lambda: ask_with_a_little() == 503)
        # What has a length is not collected.
        known = ask(f"{head}content-type: x/y\r\ncontent-length: 20000\r\n\r\n".encode() + b"x" * 20_000)
        assert json.loads(known.body)["input"] == sha256(b"x" * 20_000)
    eventually("there is room again", lambda: ask_with_a_little() == 200)


def test_encoded_slash_is_no_slash_of_path_info(start, gateway, ca):
    asked: list[Asked] = []
    with fake(sent(output(HEAD + b"page") + end()), asked) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        host = server.origin.removeprefix("https://")
        for path, status in [("/a%20b/%41", 200), ("/admin%2fx", 400), ("/admin%2Fx", 400), ("/a%00", 400)]:
            with RawH1(server.origin, ca) as client:
                client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
                assert client.receive().status == status, path
        assert [one.parameter("PATH_INFO") for one in asked] == ["/a b/A"]


def test_slow_senders_take_no_process(start, gateway, tmp_path, www, ca):
    with php_fpm(tmp_path / "one", children=1) as only:
        server = served(start, gateway, www, f"unix:{only}")
        head = f"POST / HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\ncontent-type: x/y\r\n"
        with ExitStack() as senders:
            slow = [senders.enter_context(RawH1(server.origin, ca)) for _ in range(4)]
            for client in slow:
                client.socket.sendall(f"{head}content-length: 10\r\n\r\nhello".encode())
            with RawH1(server.origin, ca) as quick:
                quick.socket.sendall(f"{head}content-length: 5\r\n\r\nquick".encode())
                assert json.loads(quick.receive().body)["input"] == sha256(b"quick")
            for client in slow:
                client.socket.sendall(b"world")
                seen = json.loads(client.receive().body)
                assert (seen["input"], seen["server"]["CONTENT_LENGTH"]) == (sha256(b"helloworld"), "10")


def test_script_does_not_run_for_a_small_upload_that_breaks_off(start, gateway, fpm, www, ca):
    ran = gateway.folder / "ran"
    (www / "run.php").write_text(
        f"<?php file_put_contents('{ran}', file_get_contents('php://input') . \"\\n\", FILE_APPEND);"
    )
    server = served(start, gateway, www, f"unix:{fpm}")
    head = f"POST /run.php HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\n"
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(f"{head}content-length: 10\r\n\r\nhalf".encode())
    server.wait_for_lines(r"POST /run.php (400|-)")
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(f"{head}content-length: 5\r\n\r\nwhole".encode())
        assert client.receive().status == 200
    assert ran.read_text() == "whole\n"


def test_content_for_which_there_is_no_room_goes_through_as_it_comes(start, gateway, fpm, www, ca):
    server = served(start, gateway, www, f"unix:{fpm}", ', collect = "1KiB"')
    head = f"POST / HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\ncontent-type: x/y\r\n"
    with ExitStack() as waiting:
        for _ in range(64):
            client = waiting.enter_context(RawH1(server.origin, ca))
            client.socket.sendall(f"{head}content-length: 1024\r\n\r\n".encode() + b"x" * 1023)
        with RawH1(server.origin, ca) as client:

            def ask_in_pieces() -> bool:
                client.socket.sendall(f"{head}content-length: 1000\r\n\r\n".encode() + b"a" * 500)
                client.socket.sendall(b"b" * 500)
                return json.loads(client.receive().body)["input"] == sha256(b"a" * 500 + b"b" * 500)

            assert all(ask_in_pieces() for _ in range(20))


def test_folder_with_a_route_of_its_own_runs_nothing(start, gateway, fpm, www, ca):
    (www / "uploads").mkdir()
    for name in ("x.php", "index.php"):
        (www / "uploads" / name).write_text("<?php echo 'it ran';")
    uploads = f'[[sites.routes]]\nmatch = "/uploads/*"\nfiles = "{www}"\n'
    gateway.write(SITE + uploads + f'[[sites.routes]]\nphp = {{ root = "{www}", server = "unix:{fpm}" }}\n')
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


def test_part_of_an_application_is_one_route_under_all_its_addresses(start, gateway, fpm, www, ca):
    match = 'match = ["/admin", "/admin/*", "/index.php/admin", "/index.php/admin/*"]'
    password = f"[[sites.routes]]\n{match}\nrespond = {{ status = 403 }}\n"
    gateway.write(SITE + password + f'[[sites.routes]]\nphp = {{ root = "{www}", server = "unix:{fpm}" }}\n')
    server = start(gateway.command())
    host = server.origin.removeprefix("https://")

    def ask(path: str) -> int:
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            return client.receive().status

    for prefix in ("", "/index.php", "//index.php/", "/./index.php", "/%69ndex.php"):
        for path in ("/admin", "/admin/", "//admin//x", "/%61dmin", "/x/../admin", "/admin/.", "/admin?x"):
            assert ask(prefix + path) == 403, prefix + path
    assert ask("/administrator") == 200
