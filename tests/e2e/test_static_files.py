"""`pronghorn serve`: static files, with each client over each protocol."""

from __future__ import annotations

import re
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import urljoin

import pytest

from harness.response import sha256


def test_small_file_arrives_complete(server, site, fetcher):
    response = fetcher.fetch(f"{server.origin}/small.txt")
    assert response.status == 200
    assert response.body == site.read("small.txt")
    assert response.header("content-length") == str(len(response.body))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], "pronghorn"), (["--server", "deer/1.0"], "deer/1.0"), (["--server", ""], None)],
    ids=["default", "named", "none"],
)
def test_server_field_is_as_configured(start_serve, fetcher, flags, expected):
    server = start_serve(*flags)
    for path, status in [("/small.txt", 200), ("/nothing-here", 404)]:
        response = fetcher.fetch(f"{server.origin}{path}")
        assert (response.status, response.header("server")) == (status, expected)


def test_empty_file_has_length_zero(server, fetcher):
    response = fetcher.fetch(f"{server.origin}/empty.txt")
    assert (response.status, response.size, response.header("content-length")) == (200, 0, "0")


def test_ten_megabyte_file_arrives_byte_for_byte(server, site, fetcher):
    contents = site.read("big.bin")
    response = fetcher.fetch(f"{server.origin}/big.bin")
    assert response.status == 200
    assert (response.size, response.sha256) == (len(contents), sha256(contents))


def test_head_gives_the_fields_of_get_and_no_body(server, site, fetcher):
    head = fetcher.fetch(f"{server.origin}/medium.bin", method="HEAD")
    get = fetcher.fetch(f"{server.origin}/medium.bin")
    assert (head.status, head.size) == (200, 0)
    for name in ("content-length", "content-type", "etag", "last-modified", "accept-ranges"):
        assert head.header(name) == get.header(name), name
    assert head.header("content-length") == str(len(site.read("medium.bin")))


def test_missing_file_is_404(server, fetcher):
    response = fetcher.fetch(f"{server.origin}/does/not/exist")
    assert response.status == 404


def test_five_kilobyte_request_header_is_accepted(server, site, fetcher):
    response = fetcher.fetch(f"{server.origin}/small.txt", headers=[("x-long", "v" * 5120)])
    assert response.status == 200
    assert response.body == site.read("small.txt")


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-99", 0, 99),
        ("bytes=99900-", 99_900, 99_999),
        ("bytes=-50", 99_950, 99_999),
        ("bytes=5-5", 5, 5),
    ],
)
def test_range_gives_exactly_those_bytes(server, site, fetcher, asked, first, last):
    response = fetcher.fetch(f"{server.origin}/medium.bin", headers=[("range", asked)])
    assert response.status == 206
    assert response.header("content-range") == f"bytes {first}-{last}/100000"
    assert response.body == site.read("medium.bin")[first : last + 1]
    assert response.header("content-length") == str(len(response.body))


def test_range_beyond_the_file_is_truncated(server, site, protocol_fetcher):
    response = protocol_fetcher.fetch(
        f"{server.origin}/medium.bin", headers=[("range", "bytes=99990-200000")]
    )
    assert (response.status, response.header("content-range")) == (206, "bytes 99990-99999/100000")
    assert response.body == site.read("medium.bin")[99990:]


@pytest.mark.parametrize("asked", ["bytes=100000-", "bytes=200000-300000", "bytes=-0"])
def test_unsatisfiable_range_is_416_with_the_length(server, protocol_fetcher, asked):
    response = protocol_fetcher.fetch(f"{server.origin}/medium.bin", headers=[("range", asked)])
    assert response.status == 416
    assert response.header("content-range") == "bytes */100000"


@pytest.mark.parametrize("asked", ["lines=0-9", "octets=0-9"])
def test_range_with_an_unknown_unit_is_ignored(server, site, protocol_fetcher, asked):
    # RFC 9110 section 14.2: "An origin server MUST ignore a Range header field that contains a
    # range unit it does not understand."
    response = protocol_fetcher.fetch(f"{server.origin}/medium.bin", headers=[("range", asked)])
    assert (response.status, response.sha256) == (200, sha256(site.read("medium.bin")))


@pytest.mark.parametrize(
    "asked", ["bytes=9-3", "bytes=a-b", "bytes=", "bytes=-", "bytes 0-9", "bytes=1-2-3"]
)
def test_malformed_range_is_ignored_or_rejected(server, site, protocol_fetcher, asked):
    # RFC 9110 section 14.2 allows both.
    response = protocol_fetcher.fetch(f"{server.origin}/medium.bin", headers=[("range", asked)])
    assert response.status in (200, 400, 416)
    if response.status == 200:
        assert response.sha256 == sha256(site.read("medium.bin"))


def test_if_range_with_another_etag_returns_the_whole_file(server, site, protocol_fetcher):
    url = f"{server.origin}/medium.bin"
    etag = protocol_fetcher.fetch(url).header("etag")
    # RFC 9110 section 13.1.5: If-Range compares strongly, so a weak tag never matches.
    same = protocol_fetcher.fetch(url, headers=[("range", "bytes=0-9"), ("if-range", etag)])
    assert same.status == (200 if etag.startswith("W/") else 206)
    other = protocol_fetcher.fetch(url, headers=[("range", "bytes=0-9"), ("if-range", '"another"')])
    assert (other.status, other.sha256) == (200, sha256(site.read("medium.bin")))


def test_matching_etag_is_304_without_a_body(server, fetcher):
    url = f"{server.origin}/small.txt"
    etag = fetcher.fetch(url).header("etag")
    assert re.fullmatch(r'(W/)?"[!#-~]+"', etag)
    for condition in (etag, f'"other", {etag}', "*"):
        response = fetcher.fetch(url, headers=[("if-none-match", condition)])
        assert (response.status, response.size) == (304, 0), condition
        assert response.header("etag") == etag
    assert fetcher.fetch(url, headers=[("if-none-match", '"other"')]).status == 200


def test_unchanged_last_modified_is_304(server, site, protocol_fetcher):
    url = f"{server.origin}/small.txt"
    modified = protocol_fetcher.fetch(url).header("last-modified")
    written = (site.root / "small.txt").stat().st_mtime
    assert parsedate_to_datetime(modified).timestamp() == int(written)
    assert protocol_fetcher.fetch(url, headers=[("if-modified-since", modified)]).status == 304
    earlier = formatdate(written - 3600, usegmt=True)
    assert protocol_fetcher.fetch(url, headers=[("if-modified-since", earlier)]).status == 200
    # RFC 9110 section 13.1.3: If-Modified-Since is ignored if If-None-Match is present.
    both = [("if-modified-since", modified), ("if-none-match", '"other"')]
    assert protocol_fetcher.fetch(url, headers=both).status == 200


def test_changed_file_gets_another_etag(start_serve, tmp_path, protocol_fetcher):
    page = tmp_path / "page.txt"
    page.write_bytes(b"before")
    server = start_serve(directory=tmp_path)
    before = protocol_fetcher.fetch(f"{server.origin}/page.txt")
    page.write_bytes(b"after, and longer")
    after = protocol_fetcher.fetch(
        f"{server.origin}/page.txt", headers=[("if-none-match", before.header("etag"))]
    )
    assert (after.status, after.body) == (200, b"after, and longer")
    assert after.header("etag") != before.header("etag")


@pytest.mark.parametrize(("path", "file"), [("/", "index.html"), ("/sub/", "sub/index.html")])
def test_folder_returns_its_index(server, site, protocol_fetcher, path, file):
    response = protocol_fetcher.fetch(server.origin + path)
    assert (response.status, response.body) == (200, site.read(file))
    assert response.header("content-type").startswith("text/html")


@pytest.mark.parametrize(("path", "location"), [("/sub", "/sub/"), ("/sub?a=b&c", "/sub/?a=b&c")])
def test_folder_without_slash_is_redirected(server, protocol_fetcher, path, location):
    response = protocol_fetcher.fetch(server.origin + path)
    assert response.status in (301, 308)
    assert urljoin(server.origin + path, response.header("location")) == server.origin + location


def test_folder_without_index_lists_no_files(server, protocol_fetcher):
    response = protocol_fetcher.fetch(f"{server.origin}/noindex/")
    assert response.status in (403, 404)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/name%20with%20space.txt", "name with space.txt"),
        ("/%C3%BCber%20100%25.txt", "\u00fcber 100%.txt"),
        ("/%73mall.txt", "small.txt"),
        ("/small.txt?query=ignored", "small.txt"),
        ("/sub/../small.txt", "small.txt"),
        ("/./sub/./page.html", "sub/page.html"),
    ],
)
def test_equivalent_spellings_of_a_path_return_the_same_file(
    server, site, protocol_fetcher, path, file
):
    response = protocol_fetcher.fetch(server.origin + path)
    # Dot segments may be resolved or rejected by the server (RFC 3986 section 6.2.2.3 leaves them
    # to the client).
    if "/." in path and response.status in (400, 404):
        return
    assert (response.status, response.body) == (200, site.read(file))


CONTENT_TYPES = {
    "page.html": r"text/html(; ?charset=utf-8)?",
    "style.css": r"text/css(; ?charset=utf-8)?",
    "app.js": r"(text|application)/javascript(; ?charset=utf-8)?",
    "module.mjs": r"(text|application)/javascript(; ?charset=utf-8)?",
    "data.json": r"application/json(; ?charset=utf-8)?",
    "text.txt": r"text/plain(; ?charset=utf-8)?",
    "image.png": r"image/png",
    "photo.jpg": r"image/jpeg",
    "photo.avif": r"image/avif",
    "photo.webp": r"image/webp",
    "drawing.svg": r"image/svg\+xml(; ?charset=utf-8)?",
    "font.woff2": r"font/woff2",
    "program.wasm": r"application/wasm",
    "movie.mp4": r"video/mp4",
    "UPPER.HTML": r"text/html(; ?charset=utf-8)?",
}


def test_content_type_follows_the_extension(start_serve, tmp_path, protocol_fetcher):
    for name in CONTENT_TYPES:
        (tmp_path / name).write_bytes(b"x")
    server = start_serve(directory=tmp_path)
    for name, expected in CONTENT_TYPES.items():
        got = protocol_fetcher.fetch(f"{server.origin}/{name}").header("content-type")
        assert re.fullmatch(expected, got or "", re.IGNORECASE), f"{name} came as {got}"


def test_unknown_type_is_not_sniffed_by_browsers(start_serve, tmp_path, protocol_fetcher):
    # RFC 9110 section 8.3 lets a server omit the type; a browser then inspects the content, and
    # would run what looks like a page.
    for name in ("unknown.qqqq", "noextension"):
        (tmp_path / name).write_bytes(b"<script>alert(1)</script>")
    server = start_serve(directory=tmp_path)
    for name in ("unknown.qqqq", "noextension"):
        response = protocol_fetcher.fetch(f"{server.origin}/{name}")
        binary = response.header("content-type") == "application/octet-stream"
        assert binary or response.header("x-content-type-options") == "nosniff", name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_unsupported_method_is_405_with_allow(server, protocol_fetcher, method):
    response = protocol_fetcher.fetch(f"{server.origin}/small.txt", method=method, body=b"x")
    assert response.status == 405
    # RFC 9110 section 15.5.6: "The origin server MUST generate an Allow header field".
    assert {"GET", "HEAD"} <= {method.strip() for method in response.header("allow").split(",")}


def test_range_of_a_head_request_is_ignored(server, protocol_fetcher):
    # RFC 9110 section 14.2: "A server MUST ignore a Range header field received with a request
    # method that is unrecognized or for which range handling is not defined. For this
    # specification, GET is the only method".
    whole = protocol_fetcher.fetch(f"{server.origin}/small.txt", method="HEAD")
    ranged = protocol_fetcher.fetch(
        f"{server.origin}/small.txt", method="HEAD", headers=[("range", "bytes=1-2")]
    )
    assert ranged.status == 200
    assert ranged.header("content-length") == whole.header("content-length")
    assert ranged.header("content-range") is None


def test_failed_precondition_is_412(server, protocol_fetcher):
    etag = protocol_fetcher.fetch(f"{server.origin}/small.txt").header("etag")
    for condition, status in [
        (("if-match", etag), 200),
        (("if-match", '"another"'), 412),
        (("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT"), 412),
    ]:
        assert (
            protocol_fetcher.fetch(f"{server.origin}/small.txt", headers=[condition]).status
            == status
        ), condition
