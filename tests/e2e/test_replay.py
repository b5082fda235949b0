"""`pronghorn replay`: a recorded page with all its hosts, with each client, and errors in
recordings.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import time

import pytest

from conftest import random_bytes
from harness.recordings import Recorded, write_recording
from harness.response import sha256
from harness.server import pronghorn, serve_command

LARGE = random_bytes(3_000_000, "replay")
STYLE = b"body { color: #123456; margin: 0 auto }\n" * 200

ENTRIES = [
    Recorded(
        "https://127.0.0.1/",
        b"<!doctype html><title>one</title>",
        headers=(("content-type", "text/html"),),
    ),
    # The other host, with the same path.
    Recorded("https://[::1]/", b"the other host"),
    Recorded(
        "https://127.0.0.1/large.bin", LARGE, headers=(("etag", '"large"'), ("alt-svc", 'h3=":9"'))
    ),
    Recorded(
        "https://127.0.0.1/style.css", STYLE, coding="gzip", coded=gzip.compress(STYLE, mtime=0)
    ),
    Recorded("https://127.0.0.1/moved", status=302, headers=(("location", "/"),)),
    Recorded("https://127.0.0.1/gone", b"no more\n", status=410),
    Recorded("https://127.0.0.1/nothing", status=204),
    Recorded("https://127.0.0.1/form", b"accepted", method="POST", status=201),
    Recorded("https://127.0.0.1/api?page=1&t=5", b"first page"),
    Recorded("https://127.0.0.1/api?page=2&t=5", b"second page"),
    Recorded(
        "https://127.0.0.1/fields",
        b"fields",
        headers=(
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("content-length", "4711"),
            ("server", "another"),
            ("timing-allow-origin", "https://nobody.test"),
            ("link", "</a>; rel=preload"),
            ("link", "</b>; rel=preload"),
            ("x-kept", "yes"),
        ),
    ),
]


def replay_command(folder, identity, *flags, **options):
    command = serve_command(folder, identity, *flags, **options)
    command[1] = "replay"
    return command


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return write_recording(tmp_path_factory.mktemp("replay") / "recording", ENTRIES)


@pytest.fixture
def replay(start, identity, recording):
    """Serves the recording over TLS at two hosts."""
    return start(
        replay_command(recording, identity, listen=("127.0.0.1:0", "[::1]:0")), listeners=2
    )


def test_each_host_has_its_own_responses(replay, fetcher):
    first, second = replay.listeners
    one, other = fetcher.fetch(f"{first.origin()}/"), fetcher.fetch(f"{second.origin()}/")
    assert (one.status, one.body, one.header("content-type")) == (200, ENTRIES[0].body, "text/html")
    assert (other.status, other.body) == (200, ENTRIES[1].body)
    assert fetcher.fetch(f"{second.origin()}/gone").status == 404


def test_large_body_arrives_byte_for_byte(replay, fetcher):
    response = fetcher.fetch(f"{replay.origin}/large.bin")
    assert (response.status, response.size, response.sha256) == (200, len(LARGE), sha256(LARGE))
    assert response.header("etag") == '"large"'
    assert response.header("content-length") == str(len(LARGE))


def test_coded_response_is_for_clients_that_accept_the_coding(replay, fetcher):
    url = f"{replay.origin}/style.css"
    coded = fetcher.fetch(url, headers=[("accept-encoding", "br, gzip")])
    assert (coded.header("content-encoding"), coded.size) == ("gzip", len(ENTRIES[3].coded))
    assert gzip.decompress(coded.body) == STYLE
    plain = fetcher.fetch(url, headers=[("accept-encoding", "identity")])
    assert (plain.header("content-encoding"), plain.body) == (None, STYLE)


def test_status_and_method_match_the_recording(replay, protocol_fetcher):
    def fetch(path, method="GET", body=None):
        return protocol_fetcher.fetch(f"{replay.origin}{path}", method=method, body=body)

    moved = fetch("/moved")
    assert (moved.status, moved.header("location"), moved.size) == (302, "/", 0)
    assert (fetch("/gone").status, fetch("/gone").body) == (410, b"no more\n")
    assert (fetch("/nothing").status, fetch("/nothing").size) == (204, 0)
    assert (fetch("/form", "POST", b"x" * 5000).status, fetch("/form").status) == (201, 404)
    head = fetch("/large.bin", "HEAD")
    assert (head.status, head.size, head.header("content-length")) == (200, 0, str(len(LARGE)))


@pytest.mark.parametrize("body", [b"thought about", LARGE], ids=["small", "large"])
def test_recorded_think_times_are_applied(start, identity, tmp_path, protocol_fetcher, body):
    think = 0.4
    folder = write_recording(
        tmp_path / "recording", [Recorded("https://127.0.0.1/", body, think_seconds=think)]
    )
    server = start(replay_command(folder, identity, "--think-times"))
    began = time.monotonic()
    response = protocol_fetcher.fetch(f"{server.origin}/")
    assert (response.status, response.sha256) == (200, sha256(body))
    assert time.monotonic() - began >= think


def test_think_times_are_off_by_default(start, identity, tmp_path, fetcher):
    # Longer than any client's timeout here.
    folder = write_recording(
        tmp_path / "recording", [Recorded("https://127.0.0.1/", b"at once", think_seconds=600)]
    )
    assert fetcher.fetch(f"{start(replay_command(folder, identity)).origin}/").body == b"at once"


def test_unknown_query_gets_the_closest_response(replay, protocol_fetcher):
    for query, body in [
        ("page=2&t=99", b"second page"),
        ("page=1&t=99", b"first page"),
        ("new", b"first page"),
    ]:
        assert protocol_fetcher.fetch(f"{replay.origin}/api?{query}").body == body


def test_hop_by_hop_fields_of_the_recording_are_dropped(replay, fetcher):
    response = fetcher.fetch(f"{replay.origin}/fields")
    assert response.body == b"fields"
    names = {name for name, _ in response.headers}
    assert names.isdisjoint({"connection", "transfer-encoding", "keep-alive"})
    assert response.header("server") == "pronghorn"
    assert response.header("timing-allow-origin") == "*"
    assert response.header("x-kept") == "yes"
    assert response.header_values("link") in (
        ["</a>; rel=preload", "</b>; rel=preload"],
        ["</a>; rel=preload, </b>; rel=preload"],
    )
    large = fetcher.fetch(f"{replay.origin}/large.bin")
    assert 'h3=":9"' not in "".join(large.header_values("alt-svc"))


def test_unrecorded_preflight_is_answered_for_recorded_requests(replay, protocol_fetcher):
    def ask(path, method):
        fields = [
            ("origin", "https://shop.test"),
            ("access-control-request-method", method),
            ("access-control-request-headers", "content-type"),
        ]
        return protocol_fetcher.fetch(f"{replay.origin}{path}", method="OPTIONS", headers=fields)

    leave = ask("/form", "POST")
    assert (leave.status, leave.size) == (204, 0)
    assert leave.header("access-control-allow-origin") == "https://shop.test"
    assert leave.header("access-control-allow-methods") == "POST"
    assert leave.header("access-control-allow-headers") == "content-type"
    assert ask("/form", "PUT").status == 404
    assert ask("/other", "GET").status == 404


def test_404_names_the_unrecorded_request(replay, protocol_fetcher, start, identity, tmp_path):
    missing = protocol_fetcher.fetch(f"{replay.origin}/other?x=1")
    assert missing.status == 404
    assert missing.text() == "the recording has no GET /other?x=1 for 127.0.0.1\n"
    folder = write_recording(tmp_path / "elsewhere", [Recorded("https://example.test/", b"x")])
    other = start(replay_command(folder, identity))
    unknown = protocol_fetcher.fetch(f"{other.origin}/")
    assert unknown.status == 404
    assert unknown.text() == "the recording has no host 127.0.0.1; it has example.test\n"


def test_clear_text_request_gets_the_response_recorded_over_tls(start, recording):
    server = start(replay_command(recording, None, listen=("http://127.0.0.1:0",)))
    answer = subprocess.run(
        [pronghorn(), "get", f"{server.origin}/gone"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert answer.stdout == "no more\n"


def test_requests_are_logged_as_by_serve(replay, protocol_fetcher):
    protocol_fetcher.fetch(f"{replay.origin}/gone")
    line = replay.wait_for_lines(r"(\S+ GET /gone 410 8 [\d.]+ms 127\.0\.0\.1)$", 1)[0][1]
    assert line.startswith(protocol_fetcher.protocol)
    assert any(
        re.match(r"replaying https://127.0.0.1/, 11 responses of 127.0.0.1, \[::1\], with ", each)
        for each in replay.lines
    )


def refused(folder, identity) -> tuple[int, str]:
    command = [str(part) for part in replay_command(folder, identity)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stderr.splitlines()
    assert (done.stdout, len(lines)) == ("", 1), done.stderr
    return done.returncode, lines[0]


def test_invalid_recordings_are_rejected_in_one_line(identity, tmp_path):
    good = [Recorded("https://a.test/", b"content")]
    for code, says, change in [
        (
            66,
            r"cannot read .*nowhere/recording.json: .*; give the folder of a recording",
            lambda _: "nowhere",
        ),
        (
            65,
            r"invalid recording .*; capture the page again",
            lambda folder: overwrite(folder, "recording.json", b"{"),
        ),
        (65, r"unsupported schema 7: expected 1", lambda folder: rewrite(folder, schema=7)),
        (65, r"no entries", lambda folder: rewrite(folder, entries=[])),
        (
            65,
            r"bodies/0: content differs from the recording",
            lambda folder: overwrite(folder, "bodies/0", b"Content"),
        ),
        (
            65,
            r"bodies/0: size differs from the recording",
            lambda folder: overwrite(folder, "bodies/0", b"cont"),
        ),
        (66, r"cannot read .*bodies/0: ", lambda folder: (folder / "bodies/0").unlink()),
    ]:
        folder = write_recording(tmp_path / re.sub(r"\W", "", says), good)
        changed = change(folder)
        status, line = refused(tmp_path / changed if isinstance(changed, str) else folder, identity)
        assert status == code, line
        assert line.startswith("error: ")
        assert re.search(says, line), line


def overwrite(folder, file, content) -> None:
    (folder / file).write_bytes(content)


def rewrite(folder, **changes) -> None:
    path = folder / "recording.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_body_changed_while_serving_fails_only_that_response(
    start, identity, tmp_path, protocol_fetcher
):
    entries = [
        Recorded("https://127.0.0.1/gone", LARGE),
        Recorded("https://127.0.0.1/longer", LARGE),
        Recorded("https://127.0.0.1/shorter", LARGE),
        Recorded("https://127.0.0.1/small", b"small"),
    ]
    folder = write_recording(tmp_path / "changing", entries)
    server = start(replay_command(folder, identity))
    (folder / "bodies/0").unlink()
    (folder / "bodies/1").write_bytes(LARGE + b"more")
    (folder / "bodies/2").write_bytes(b"less")
    for path in ("gone", "longer", "shorter"):
        response = protocol_fetcher.fetch(f"{server.origin}/{path}")
        assert (response.status, response.text()) == (
            500,
            "the recording has changed since it was opened\n",
        )
    assert protocol_fetcher.fetch(f"{server.origin}/small").body == b"small"
