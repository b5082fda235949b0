"""Static files of `pronghorn run`: precompressed files, ranges, conditional requests, directories,
hidden files.
"""

from __future__ import annotations

import contextlib
import email
import gzip
import os
import subprocess

import pytest
from curl_cffi import requests

from harness.clients.curl import VERSIONS
from harness.gateway import SITE, Gateway
from harness.response import sha256
from harness.server import pronghorn, serve_command
from harness.unprivileged import copied, open_folder, without_rights

TEXT = b"the same words over and over, " * 500
LARGE = bytes(range(256)) * 1024
DOTTED = (".git/config", ".env", "sub/.htpasswd", ".well-known/security.txt")


@pytest.fixture
def www(tmp_path):
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "page.txt").write_bytes(TEXT)
    (folder / "page.txt.gz").write_bytes(gzip.compress(TEXT))
    (folder / "page.txt.br").write_bytes(b"in place of brotli")
    (folder / "alone.txt").write_bytes(TEXT)
    (folder / "large.bin").write_bytes(LARGE)
    for name in DOTTED:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"behind a dot")
    return folder


@pytest.fixture
def serve(start, tmp_path, identity, www):
    gateway = Gateway(tmp_path, identity)

    def run(options: str = ""):
        gateway.write(
            '[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{tls}\n'
            + f'[[sites.routes]]\nfiles = {{ root = "www"{options} }}\n'
        )
        return start(gateway.command())

    return run


def test_precompressed_file_is_served_to_clients_that_accept_it(serve, www, fetcher):
    server = serve(", precompressed = true")

    def get(path, takes=None, **fields):
        headers = [("accept-encoding", takes)] if takes else []
        return fetcher.fetch(
            server.origin + path,
            headers=[*headers, *((k.replace("_", "-"), v) for k, v in fields.items())],
        )

    tags = set()
    # Twice: from the disk, and from the cache.
    for _ in range(2):
        for takes, coding, body in [
            ("gzip, br", "br", b"in place of brotli"),
            ("gzip, br;q=0.5", "gzip", (www / "page.txt.gz").read_bytes()),
            ("zstd, br;q=0", None, TEXT),
            ("identity", None, TEXT),
        ]:
            answer = get("/page.txt", takes)
            assert (answer.status, answer.body, answer.header("content-encoding")) == (
                200,
                body,
                coding,
            ), takes
            assert answer.header("content-type") == "text/plain; charset=utf-8"
            assert answer.header("vary") == "accept-encoding"
            assert answer.header("content-length") == str(len(body))
            tags.add((coding, answer.header("etag")))
    assert len(tags) == len({tag for _, tag in tags}) == 3
    tag = dict(tags)["br"]
    assert get("/page.txt", "br", if_none_match=tag).status == 304
    assert get("/page.txt", "gzip", if_none_match=tag).status == 200
    part = get("/page.txt", "br", range="bytes=0-1")
    assert (part.status, part.body, part.header("content-encoding")) == (206, b"in", "br")
    # Requested by its own name, it is served as it is.
    own = get("/page.txt.gz", "gzip")
    assert (own.header("content-encoding"), own.header("content-type")) == (
        None,
        "application/gzip",
    )
    assert get("/alone.txt", "br, gzip").body == TEXT
    # A new, changed or removed variant is noticed.
    (www / "alone.txt.br").write_bytes(b"new")
    assert get("/alone.txt", "br").body == b"new"
    (www / "alone.txt.br").unlink()
    assert get("/alone.txt", "br").body == TEXT


def test_precompressed_files_are_ignored_by_default(serve, fetcher):
    answer = fetcher.fetch(serve().origin + "/page.txt", headers=[("accept-encoding", "br, gzip")])
    assert (answer.body, answer.header("content-encoding"), answer.header("vary")) == (
        TEXT,
        None,
        None,
    )


def test_precompressed_gzip_is_decoded_by_curl(serve, ca):
    server = serve(", precompressed = true")
    for version in VERSIONS.values():
        with requests.Session(verify=str(ca), timeout=60) as curl:
            answer = curl.get(
                server.origin + "/page.txt", accept_encoding="gzip", http_version=version
            )
            assert (answer.content, answer.headers["content-encoding"]) == (TEXT, "gzip")


def parts(response) -> list[tuple[str, str, bytes]]:
    """Returns type, range and content of each part, parsed by Python's email module."""
    head = f"content-type: {response.header('content-type')}\r\n\r\n".encode()
    message = email.message_from_bytes(head + response.body)
    assert message.is_multipart()
    assert not message.defects
    return [
        (p["content-type"], p["content-range"], p.get_payload(decode=True))
        for p in message.get_payload()
    ]


@pytest.mark.parametrize(("path", "content"), [("/alone.txt", TEXT), ("/large.bin", LARGE)])
def test_several_ranges_are_multipart(serve, fetcher, path, content):
    size = len(content)
    server = serve()
    asked = [(0, 9), (100, 149), (size - 5, size - 1)]
    ranges = [("range", "bytes=0-9, 100-149,-5")]
    answer = fetcher.fetch(server.origin + path, headers=ranges)
    assert answer.status == 206
    assert answer.header("content-length") == str(len(answer.body))
    assert answer.header("content-range") is None
    # The email parser may take the end of binary content for a line ending, so only the ranges are
    # compared there.
    found = parts(answer)
    assert [one[1] for one in found] == [f"bytes {first}-{last}/{size}" for first, last in asked]
    for first, last in asked:
        assert b"\r\n\r\n" + content[first : last + 1] + b"\r\n--" in answer.body
    whole = fetcher.fetch(server.origin + path)
    assert answer.header("etag") == whole.header("etag")
    assert {one[0] for one in found} == {whole.header("content-type")}
    old = fetcher.fetch(server.origin + path, headers=[*ranges, ("if-range", '"other"')])
    assert (old.status, old.sha256) == (200, sha256(content))


def test_ranges_that_exceed_the_file_return_the_file(serve, protocol_fetcher):
    server = serve()
    many = ",".join(f"{at}-{at}" for at in range(0, 100, 2))
    for ranges in ("0-,0-,0-", "5-9,0-5", many):
        answer = protocol_fetcher.fetch(
            server.origin + "/alone.txt", headers=[("range", "bytes=" + ranges)]
        )
        assert (answer.status, answer.body) == (200, TEXT), ranges
    answer = protocol_fetcher.fetch(
        server.origin + "/alone.txt", headers=[("range", "bytes=99999-,88888-")]
    )
    assert (answer.status, answer.header("content-range")) == (416, f"bytes */{len(TEXT)}")


def test_unsatisfiable_range_varies_on_accept_encoding(serve, www, protocol_fetcher):
    server = serve(", precompressed = true")
    lengths = {"br": (www / "page.txt.br").stat().st_size, "identity": len(TEXT)}
    for takes, length in lengths.items():
        headers = [("accept-encoding", takes), ("range", "bytes=99999-")]
        answer = protocol_fetcher.fetch(server.origin + "/page.txt", headers=headers)
        seen = (answer.status, answer.header("content-range"), answer.header("vary"))
        assert seen == (416, f"bytes */{length}", "accept-encoding")


def test_each_kind_of_condition_is_evaluated(serve, protocol_fetcher):
    server = serve()
    known = protocol_fetcher.fetch(server.origin + "/alone.txt")
    tag, date = known.header("etag"), known.header("last-modified")
    past, future = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 2044 08:49:37 GMT"
    for name, value, status in [
        ("if-none-match", tag, 304),
        ("if-none-match", f'"x", W/{tag}', 304),
        ("if-none-match", '"x"', 200),
        ("if-modified-since", date, 304),
        ("if-modified-since", past, 200),
        ("if-match", tag, 200),
        ("if-match", '"x"', 412),
        ("if-match", f"W/{tag}", 412),
        ("if-unmodified-since", future, 200),
        ("if-unmodified-since", past, 412),
    ]:
        answer = protocol_fetcher.fetch(server.origin + "/alone.txt", headers=[(name, value)])
        assert answer.status == status, (name, value)
    for value, status in [(tag, 206), ('"x"', 200), (date, 206), (past, 200), (f"W/{tag}", 200)]:
        headers = [("range", "bytes=0-3"), ("if-range", value)]
        assert (
            protocol_fetcher.fetch(server.origin + "/alone.txt", headers=headers).status == status
        ), value


@pytest.mark.parametrize("modified", [0, 1, 315_532_801], ids=["Bazel", "Nix", "build packs"])
@pytest.mark.parametrize("size", [4, 100_000], ids=["small", "large"])
def test_file_with_a_fixed_modification_time_has_an_etag_from_its_content(
    serve, www, protocol_fetcher, modified, size
):
    server = serve()
    url = server.origin + "/app.js"
    told = []
    for content in (b"a" * size, b"b" * size):
        # Like a package store or container deploys a version: another file of the same name, length
        # and modification time.
        new = www / "new"
        new.write_bytes(content)
        os.utime(new, (modified, modified))
        new.rename(www / "app.js")
        known = [("if-none-match", tag) for tag, _ in told]
        answer = protocol_fetcher.fetch(url, headers=known)
        assert (answer.status, answer.sha256) == (200, sha256(content))
        told.append((answer.header("etag"), answer.header("last-modified")))
        assert protocol_fetcher.fetch(url, headers=[("if-none-match", told[-1][0])]).status == 304
    (first, _), (second, _) = told
    assert first != second
    assert [date for _, date in told] == [None, None]
    # There is no date for a condition to compare with.
    epoch, future = "Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 06 Nov 2044 08:49:37 GMT"
    for name, value in [("if-modified-since", future), ("if-unmodified-since", epoch)]:
        assert protocol_fetcher.fetch(url, headers=[(name, value)]).status == 200, name
    part = [("range", "bytes=0-1"), ("if-range", epoch)]
    assert protocol_fetcher.fetch(url, headers=part).status == 200
    assert (
        protocol_fetcher.fetch(url, headers=[("range", "bytes=0-1"), ("if-range", second)]).status
        == 206
    )


# HTTP dates end with the year 9999.
@pytest.mark.parametrize("modified", [4_000_000_000, 260_000_000_000])
def test_file_from_the_future_has_no_last_modified(serve, www, protocol_fetcher, modified):
    server = serve()
    (www / "late.txt").write_bytes(b"late")
    try:
        os.utime(www / "late.txt", (modified, modified))
    except OverflowError:
        pytest.skip("the file system cannot store this time")
    answer = protocol_fetcher.fetch(server.origin + "/late.txt")
    assert (answer.status, answer.header("last-modified")) == (200, None)
    again = protocol_fetcher.fetch(
        server.origin + "/late.txt", headers=[("if-none-match", answer.header("etag"))]
    )
    assert again.status == 304


def test_content_type_follows_the_extension(serve, www, protocol_fetcher):
    wanted = {
        "a.cjs": "text/javascript; charset=utf-8",
        "a.mjs": "text/javascript; charset=utf-8",
        "a.m4s": "video/iso.segment",
        "a.usdz": "model/vnd.usdz+zip",
        "a.ktx2": "image/ktx2",
        "a.ts": "video/mp2t",
        "a.woff": "font/woff",
        "a.otf": "font/otf",
        "a.glsl": "application/octet-stream",
    }
    for name in wanted:
        (www / name).write_bytes(b"x")
    server = serve()
    for name, content_type in wanted.items():
        assert (
            protocol_fetcher.fetch(f"{server.origin}/{name}").header("content-type") == content_type
        ), name
    server = serve(', types = { glsl = "text/plain; charset=utf-8", TS = "text/x-typescript" }')
    own = {
        "a.glsl": "text/plain; charset=utf-8",
        "a.ts": "text/x-typescript",
        "a.woff": "font/woff",
    }
    for name, content_type in own.items():
        assert (
            protocol_fetcher.fetch(f"{server.origin}/{name}").header("content-type") == content_type
        ), name


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ('".ts" = "text/plain"', "invalid file extension"),
        ('ts = "typescript"', "invalid content type"),
    ],
)
def test_invalid_content_type_is_an_error(tmp_path, identity, www, types, problem):
    gateway = Gateway(tmp_path, identity)
    gateway.write(SITE + f'[[sites.routes]]\nfiles = {{ root = "www", types = {{ {types} }} }}\n')
    checked = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 65, checked.stderr
    assert problem in checked.stderr


def test_hidden_file_is_not_found(serve, protocol_fetcher):
    server = serve()
    for path in ("/.git/config", "/.env", "/sub/.htpasswd", "/sub/%2ehtpasswd", "/.git/"):
        assert protocol_fetcher.fetch(server.origin + path).status == 404, path
    assert (
        protocol_fetcher.fetch(server.origin + "/.well-known/security.txt").body == b"behind a dot"
    )


def test_hidden_file_is_served_if_configured(serve, protocol_fetcher):
    server = serve(", hidden = true")
    for path in DOTTED:
        assert protocol_fetcher.fetch(f"{server.origin}/{path}").body == b"behind a dot", path


def test_directory_is_listed_only_if_configured(serve, www, protocol_fetcher):
    (www / "a <b>").mkdir()
    assert protocol_fetcher.fetch(serve().origin + "/").status == 404
    server = serve(", listing = true")
    page = protocol_fetcher.fetch(server.origin + "/")
    assert (page.status, page.header("content-type")) == (200, "text/html; charset=utf-8")
    assert '<a href="./a%20%3Cb%3E/">a &lt;b&gt;/</a>' in page.text()
    assert "page.txt" in page.text()
    assert ".env" not in page.text()
    assert protocol_fetcher.fetch(server.origin + "/nowhere/").status == 404
    (www / "index.html").write_bytes(b"an index")
    assert protocol_fetcher.fetch(server.origin + "/").body == b"an index"


def test_first_existing_index_file_is_served_for_its_directory(serve, www, protocol_fetcher):
    server = serve(', index = ["main.html", "page.txt"], fallback = "alone.txt"')
    assert protocol_fetcher.fetch(server.origin + "/").body == TEXT
    (www / "main.html").write_bytes(b"main")
    assert protocol_fetcher.fetch(server.origin + "/").body == b"main"
    (www / "alone.txt").write_bytes(b"fallback")
    assert protocol_fetcher.fetch(server.origin + "/nowhere/").body == b"fallback"


def test_links_that_lead_outside_are_followed_if_configured(start, gateway, protocol_fetcher):
    www, elsewhere = gateway.folder / "www", gateway.folder / "elsewhere"
    www.mkdir()
    elsewhere.mkdir()
    (elsewhere / "page.txt").write_text("from elsewhere")
    (www / "out").symlink_to(elsewhere)
    (www / "page.txt").symlink_to("../elsewhere/page.txt")
    for said, status in (("", 404), (", links_outside = true", 200)):
        gateway.write(
            SITE + f'[[sites.routes]]\nfiles = {{ root = "www"{said}, listing = true }}\n'
        )
        server = start(gateway.command())
        answers = [
            protocol_fetcher.fetch(server.origin + path) for path in ("/out/page.txt", "/page.txt")
        ]
        assert [answer.status for answer in answers] == [status] * 2
        assert [b"elsewhere" in answer.body for answer in answers] == [status == 200] * 2
        # No other path in a request leads out of the folder.
        paths = (
            "/../elsewhere/page.txt",
            "/out/../../elsewhere/page.txt",
            "/%2e%2e/elsewhere/page.txt",
        )
        assert {protocol_fetcher.fetch(server.origin + path).status for path in paths} <= {400, 404}
        assert (b"page.txt" in protocol_fetcher.fetch(server.origin + "/").body) is (status == 200)


def test_encoded_slash_is_answered_by_the_fallback_page(serve, protocol_fetcher):
    server = serve(', fallback = "alone.txt"')
    for path in ("/wiki/AC%2FDC", "/sub%2fx/", "/page.txt%2F", "/wiki/a%5Cb"):
        answer = protocol_fetcher.fetch(server.origin + path)
        assert (answer.status, answer.body) == (200, TEXT), path
    # File names contain no slash.
    assert protocol_fetcher.fetch(serve().origin + "/sub%2F.htpasswd").status == 400
    assert (
        protocol_fetcher.fetch(
            serve(', listing = true, fallback = "alone.txt"').origin + "/sub%2F/"
        ).body
        == TEXT
    )


@pytest.mark.parametrize("command", ["run", "run, php", "serve"])
def test_unreadable_file_is_logged_with_the_reason(start, identity, command):
    with open_folder() as folder:
        www, program = folder / "www", copied(pronghorn(), folder)
        (www / "folder").mkdir(parents=True)
        (www / "index.html").write_bytes(b"unreadable")
        (www / "page.txt").write_bytes(b"unreadable")
        (www / "folder" / "page.txt").write_bytes(b"out of reach")
        (www / "open.txt").write_bytes(b"readable")
        if command == "serve":
            line = serve_command(www, None, listen=("http://127.0.0.1:0",))
        else:
            answer = 'files = "www"'
            if command == "run, php":
                answer = f'php = {{ root = "www", server = "unix:{folder}/none.sock", index = ["index.html"] }}'
            gateway = Gateway(folder, identity)
            site = '[[sites]]\nhosts = ["127.0.0.1"]\n[[sites.routes]]\n'
            gateway.write(site + answer, listen=("http://127.0.0.1:0",))
            line = gateway.command()
        server = start(without_rights([program, *line[1:]]))
        closed = [www / "index.html", www / "page.txt", www / "folder"]
        for one in closed:
            one.chmod(0)
        try:
            with requests.Session(timeout=30) as curl:
                for path, name in (
                    ("/page.txt", "page.txt"),
                    ("/folder/page.txt", "folder/page.txt"),
                    ("/", "index.html"),
                ):
                    assert curl.get(server.origin + path).status_code == 403, path
                    reason = (
                        rf"cannot read {name}: Permission denied \(os error 13\); answered 403$"
                    )
                    server.wait_for_lines(rf"^warning: folder {www}: {reason}")
                # Neither of these is logged: its line would precede that of the next request.
                assert curl.get(server.origin + "/none.txt").status_code == 404
                assert curl.get(server.origin + "/open.txt").content == b"readable"
                www.chmod(0)
                assert curl.get(server.origin + "/open.txt").status_code == 403
                server.wait_for_lines(
                    rf"^warning: folder {www}: cannot read open.txt: Permission denied"
                )
            assert sum("cannot read" in line for line in server.lines) == 4, server.lines
        finally:
            for one in [www, *closed]:
                one.chmod(0o755)


def test_removed_root_link_is_404_on_all_workers_and_logged_once(start, gateway):
    for release in ("1", "2"):
        (gateway.folder / release).mkdir()
        (gateway.folder / release / "page.txt").write_text(release)
    link = gateway.folder / "current"
    link.symlink_to("1")
    gateway.write(SITE + '[[sites.routes]]\nfiles = "current"\n', workers=2)
    server = start(gateway.command())
    # Enough connections that each worker has some.
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(requests.Session(verify=False, timeout=30)) for _ in range(16)
        ]

        def seen() -> set[tuple[int, str]]:
            answers = [
                session.get(server.origin + "/page.txt", http_version="v1") for session in sessions
            ]
            return {(answer.status_code, answer.text) for answer in answers}

        lost = rf"^warning: folder {link}: No such file or directory \(os error 2\); until .* answered 404$"
        assert seen() == {(200, "1")}
        # Only some workers see the second release.
        (gateway.folder / "next").symlink_to("2")
        (gateway.folder / "next").rename(link)
        assert sessions[0].get(server.origin + "/page.txt", http_version="v1").text == "2"
        link.unlink()
        for _ in range(2):
            assert seen() == {(404, "not found\n")}
        server.wait_for_lines(lost)
        link.symlink_to("2")
        assert seen() == {(200, "2")}
        # A removed folder behind its link behaves the same.
        (gateway.folder / "2").rename(gateway.folder / "3")
        assert seen() == {(404, "not found\n")}
        server.wait_for_lines(lost, 2)
        assert sum("warning: folder" in line for line in server.lines) == 2, server.lines
