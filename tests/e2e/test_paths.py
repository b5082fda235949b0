"""No path reaches a file outside of the served folder, with any encoding or link."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urljoin

import pytest

from harness.clients.aioquic_h3 import StreamResetError, h3_connection
from harness.clients.h2_frames import H2Client
from harness.clients.h2_frames import StreamResetError as H2StreamResetError
from harness.clients.raw_h1 import RawH1
from harness.response import Response

ESCAPES = [
    "/../secret.txt",
    "/sub/../../secret.txt",
    "/./../secret.txt",
    "//../secret.txt",
    "/..//secret.txt",
    "/%2e%2e/secret.txt",
    "/%2E%2E/secret.txt",
    "/.%2e/secret.txt",
    "/%2e./secret.txt",
    "/..%2fsecret.txt",
    "/..%2Fsecret.txt",
    "/%2e%2e%2fsecret.txt",
    "/sub%2f..%2f..%2fsecret.txt",
    "/%252e%252e/secret.txt",
    "/%252e%252e%252fsecret.txt",
    "/..\\secret.txt",
    "/..%5csecret.txt",
    "/..%5c..%2fsecret.txt",
    "/%c0%ae%c0%ae/secret.txt",
    "/..%c0%afsecret.txt",
    "/%uff0e%uff0e/secret.txt",
    "/..;/secret.txt",
    "/..%00/secret.txt",
    "/..%0d%0a/secret.txt",
    "/small.txt/../../secret.txt",
    "/small.txt%00/../../secret.txt",
    "/" + "../" * 1000 + "secret.txt",
    "/leak.txt",
    "/relative-leak.txt",
    "/parent/secret.txt",
    "/parent/site/../secret.txt",
    "/sub/../parent/secret.txt",
    "/broken",
]

NOT_FILES = [
    "/small.txt%00",
    "/small.txt%00.html",
    "/%00",
    "/small.txt/",
    "/small.txt/more",
    "/%",
    "/%zz",
    "/%ff%fe",
    "/" + "a" * 300,
    "/" + "a/" * 2000,
]

# A request line cannot carry these; a pseudo-header field could, without validation.
MALFORMED = ["/small.txt\x00", "/small\r\nx: y", "small.txt", "../secret.txt", ""]


# A server may treat a path with characters that no URL has as a malformed request, which is a
# stream error (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2): rejected, like a response of 400.
RESET = Response.with_body(400, "", [], b"")


@pytest.fixture(params=["HTTP/1.1", "HTTP/2", "HTTP/3"])
def raw_fetch(request, server, ca):
    """Sends paths as given, all over one connection."""
    if request.param == "HTTP/1.1":

        def fetch(paths):
            answers = []
            for path in paths:
                # A server may close the connection after a 400.
                with RawH1(server.origin, ca) as client:
                    answers.append(client.fetch(path))
            return answers

        return fetch
    if request.param == "HTTP/2":

        def fetch(paths):
            answers = []
            with H2Client(server.origin, ca) as client:
                for path in paths:
                    try:
                        answers.append(client.fetch(path))
                    except H2StreamResetError:
                        answers.append(RESET)
            return answers

        return fetch

    def fetch(paths):
        async def run():
            answers = []
            async with h3_connection(server.origin, ca) as client:
                for path in paths:
                    try:
                        answers.append(await client.fetch(path))
                    except StreamResetError:
                        answers.append(RESET)
            return answers

        return asyncio.run(run())

    return fetch


def test_no_path_leaves_the_folder(server, site, raw_fetch):
    answers = dict(zip(ESCAPES, raw_fetch(ESCAPES), strict=True))
    leaked = [path for path, response in answers.items() if site.secret in (response.body or b"")]
    assert not leaked
    served = {
        path: response.status
        for path, response in answers.items()
        if not 400 <= response.status < 500
    }
    assert not served
    assert [response.status for response in raw_fetch(["/small.txt"])] == [200]


def test_path_without_a_file_is_rejected(server, raw_fetch):
    statuses = {
        path: response.status
        for path, response in zip(NOT_FILES, raw_fetch(NOT_FILES), strict=True)
    }
    assert {
        path: status for path, status in statuses.items() if status not in (400, 404, 414)
    } == {}


def test_link_created_later_does_not_leave_the_folder(start_serve, tmp_path, protocol_fetcher):
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (tmp_path / "site" / "folder").mkdir(parents=True)
    (tmp_path / "site" / "folder" / "file.txt").write_bytes(b"file")
    (tmp_path / "site" / "page.txt").write_bytes(b"page")
    server = start_serve(directory=tmp_path / "site")
    assert protocol_fetcher.fetch(f"{server.origin}/page.txt").body == b"page"
    assert protocol_fetcher.fetch(f"{server.origin}/folder/file.txt").body == b"file"
    (tmp_path / "site" / "page.txt").unlink()
    (tmp_path / "site" / "page.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "site" / "folder" / "file.txt").unlink()
    (tmp_path / "site" / "folder").rmdir()
    (tmp_path / "site" / "folder").symlink_to(tmp_path)
    for path in ("/page.txt", "/folder/secret.txt", "/folder/site/page.txt"):
        response = protocol_fetcher.fetch(server.origin + path)
        assert 400 <= response.status < 500, path
        assert b"secret" not in response.body


def test_link_within_the_folder_is_followed(start_serve, tmp_path, protocol_fetcher):
    (tmp_path / "releases" / "2").mkdir(parents=True)
    (tmp_path / "releases" / "2" / "page.txt").write_bytes(b"page of release 2")
    (tmp_path / "current").symlink_to("releases/2")
    (tmp_path / "page.txt").symlink_to("current/page.txt")
    server = start_serve(directory=tmp_path)
    for path in ("/current/page.txt", "/page.txt"):
        assert protocol_fetcher.fetch(server.origin + path).body == b"page of release 2", path


def test_folder_that_is_itself_a_link_is_served(start_serve, site, tmp_path, protocol_fetcher):
    (tmp_path / "link").symlink_to(site.root)
    server = start_serve(directory=tmp_path / "link")
    assert protocol_fetcher.fetch(f"{server.origin}/small.txt").body == site.read("small.txt")


@pytest.mark.parametrize(
    "path", ["//sub", "///sub", "//sub/..//sub", "/%2fsub", "/\\sub", "/%5csub"]
)
def test_redirect_never_names_another_host(server, raw_fetch, path):
    # `//sub/` in a Location field is a URL on the host "sub" (RFC 3986 section 4.2); browsers read
    # `\` as `/`.
    location = raw_fetch([path])[0].header("location")
    if location is not None:
        assert not re.match(r"[/\\]{2}|[^/?#]*:", location), location
        assert urljoin(server.origin + "/", location.replace("\\", "/")).startswith(
            server.origin + "/"
        ), location


@pytest.mark.parametrize("path", MALFORMED)
def test_malformed_h2_path_is_rejected(server, ca, path):
    protocol_error = 0x1
    with H2Client(server.origin, ca) as client:
        stream = client.start(path)
        try:
            assert client.finish(stream).status in (400, 404)
        except H2StreamResetError as error:
            # RFC 9113 section 8.1.1: "Malformed requests or responses that are detected MUST be
            # treated as a stream error (Section 5.4.2) of type PROTOCOL_ERROR."
            assert error.code == protocol_error
        assert client.fetch("/small.txt").status == 200


@pytest.mark.parametrize("path", MALFORMED)
async def test_malformed_h3_path_is_rejected(server, ca, path):
    h3_message_error = 0x10E
    async with h3_connection(server.origin, ca) as client:
        try:
            assert (await client.fetch(path)).status in (400, 404)
        except StreamResetError as error:
            # RFC 9114 section 4.1.2: "Malformed requests or responses that are detected MUST be
            # treated as a stream error of type H3_MESSAGE_ERROR."
            assert error.code == h3_message_error
        assert (await client.fetch("/small.txt")).status == 200


@pytest.mark.parametrize(
    "line", [b"GET /small.txt\x00 HTTP/1.1", b"GET small.txt HTTP/1.1", b"GET  HTTP/1.1"]
)
def test_malformed_h1_request_line_is_rejected(server, ca, line):
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(line + b"\r\nhost: " + client.authority.encode() + b"\r\n\r\n")
        assert client.receive().status in (400, 404)
    with RawH1(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200
