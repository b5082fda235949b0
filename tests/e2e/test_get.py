"""`pronghorn get` over each protocol, from independent servers and from Pronghorn."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from conftest import random_bytes
from harness.admin import metrics
from harness.counting_server import ANSWER, CountingServer, Seen
from harness.gateway import SITE
from harness.response import sha256
from harness.server import Server, pronghorn, quic_go_server
from harness.serving import listening, read_head

MISSING = 66
UNKNOWN_HOST = 68
UNAVAILABLE = 69
OUTPUT = 73
TIMED_OUT = 75
PROTOCOL = 76
USAGE = 2

AIOQUIC_SERVER = Path(__file__).parents[1] / "clients" / "aioquic" / "server.py"

GO_PROTOCOL = {"1.1": "HTTP/1.1", "2": "HTTP/2.0", "3": "HTTP/3.0"}


@pytest.fixture
def peer(start, identity) -> Server:
    """Runs quic-go and Go's net/http on one port."""
    return start([quic_go_server(), "-cert", identity.cert, "-key", identity.key])


@pytest.fixture(params=["1.1", "2", "3"])
def version(request) -> str:
    return request.param


@pytest.fixture
def get(ca):
    """Runs `pronghorn get`, by default trusting the test's authority."""

    def run(
        *arguments, trust=("--cacert", None), code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        trusting = [ca if part is None else part for part in trust]
        command = [str(part) for part in [pronghorn(), "get", *trusting, *arguments]]
        done = subprocess.run(command, capture_output=True, timeout=90)
        assert done.returncode == code, done.stderr.decode()
        if code not in (0, USAGE):
            assert re.fullmatch(r"error: [^\n]+\n", done.stderr.decode())
        return done

    return run


def test_response_of_another_server_is_printed(get, peer, version):
    done = get("--http", version, f"{peer.origin}/request?a=b")
    seen = json.loads(done.stdout)
    assert seen["protocol"] == GO_PROTOCOL[version]
    assert (seen["method"], seen["path"]) == ("GET", "/request?a=b")
    assert seen["host"] == f"127.0.0.1:{peer.port}"
    assert done.stderr == b""


def test_file_of_pronghorn_is_printed(get, server, site, version):
    assert get("--http", version, f"{server.origin}/big.bin").stdout == site.read("big.bin")


def test_server_chooses_h2_without_a_version(get, peer):
    assert json.loads(get(f"{peer.origin}/request").stdout)["protocol"] == "HTTP/2.0"


def test_body_without_a_length_arrives_complete(get, peer, version, tmp_path):
    get("--http", version, "-o", tmp_path / "out", f"{peer.origin}/bytes/3000000")
    assert (tmp_path / "out").stat().st_size == 3_000_000


def test_output_pipe_is_written_to_and_not_replaced(get, server, site, tmp_path):
    """Likewise a device: as root, a temporary file renamed over /dev/null would replace it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    get("-o", pipe, f"{server.origin}/small.txt")
    assert os.read(reader, 1 << 16) == site.read("small.txt")
    os.close(reader)
    assert pipe.is_fifo()


def test_method_fields_and_data_are_sent(get, peer, version, tmp_path):
    body = random_bytes(1 << 20, "get")
    (tmp_path / "body").write_bytes(body)
    fields = ["-H", "x-one: first", "-H", "x-two: a:b"]
    sent = ["--http", version, "-X", "PUT", *fields, "--data", tmp_path / "body"]
    seen = json.loads(get(*sent, f"{peer.origin}/request").stdout)
    assert (seen["method"], seen["size"], seen["sha256"]) == ("PUT", len(body), sha256(body))
    assert (seen["headers"]["X-One"], seen["headers"]["X-Two"]) == (["first"], ["a:b"])


def test_data_without_a_method_is_a_post(get, peer, version, tmp_path):
    (tmp_path / "body").write_bytes(b"content")
    seen = json.loads(
        get("--http", version, "--data", tmp_path / "body", f"{peer.origin}/request").stdout
    )
    assert (seen["method"], seen["size"]) == ("POST", 7)


def test_head_prints_nothing(get, peer, version):
    assert get("--http", version, "-X", "HEAD", f"{peer.origin}/request").stdout == b""


def test_redirects_are_followed_only_with_the_flag(get, peer, version):
    assert b'"path"' not in get("--http", version, f"{peer.origin}/redirect/3").stdout
    followed = json.loads(get("--http", version, "-L", f"{peer.origin}/redirect/3").stdout)
    assert followed["path"] == "/request"


def test_endless_redirects_are_an_error(get, peer, version):
    get("--http", version, "-L", f"{peer.origin}/redirect/1000", code=PROTOCOL)


CONTENT = b"some content"

CONTENT_FIELDS = {
    "content-encoding": "identity",
    "content-language": "en",
    "content-length": str(len(CONTENT)),
    "content-type": "text/plain",
    "digest": "x",
}


@pytest.fixture
def redirected(get, identity, version, tmp_path):
    """Returns the requests that an independent server gets: the one that it redirects, and the one
    that follows.
    """
    (tmp_path / "data").write_bytes(CONTENT)

    def redirected(status: int, method: str, *, data: bool) -> tuple[Seen, Seen]:
        fields = {"x-mine": "kept"} | (CONTENT_FIELDS if data else {})
        given = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
        given += ["--data", tmp_path / "data"] if data else []
        with CountingServer(version, identity, redirects={"/from": (status, "/to")}) as server:
            done = get("--http", version, "-L", "-X", method, *given, f"{server.origin}/from")
            assert done.stdout == (b"" if method == "HEAD" else ANSWER)
            first, second = server.counts.seen
        return first, second

    return redirected


# RFC 9110 section 15.4: on 301 and 302 only POST becomes GET, on 303 every method but HEAD.
@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (302, "PATCH", "PATCH"),
        (303, "PUT", "GET"),
        (308, "PUT", "PUT"),
    ],
)
def test_redirect_keeps_or_drops_method_and_content(redirected, status, method, becomes):
    first, second = redirected(status, method, data=True)
    assert (first.method, first.path, first.body) == (method, "/from", CONTENT)
    assert CONTENT_FIELDS.items() <= first.fields.items()
    assert (second.method, second.path) == (becomes, "/to")
    assert second.fields["x-mine"] == "kept"
    if becomes == "GET":
        assert second.body == b""
        assert not CONTENT_FIELDS.keys() & second.fields.keys()
    else:
        assert second.body == CONTENT
        assert CONTENT_FIELDS.items() <= second.fields.items()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_redirect_of_a_method_without_content(redirected, status, method):
    _, second = redirected(status, method, data=False)
    assert second.method == ("GET" if (status, method) == (303, "OPTIONS") else method)


def test_redirect_to_another_origin_drops_credentials_and_host(get, identity, version):
    meant_for_one = ["authorization", "cookie", "host", "proxy-authorization"]
    given = [part for name in meant_for_one for part in ("-H", f"{name}: mine.test")]
    with CountingServer(version, identity) as other:
        away = {"/from": (307, f"{other.origin}/to"), "/here": (307, "/from")}
        with CountingServer(version, identity, redirects=away) as server:
            get("--http", version, "-L", *given, "-H", "x-mine: kept", f"{server.origin}/here")
            first, second = server.counts.seen
        (third,) = other.counts.seen
    for seen in (first, second):
        assert all(seen.fields.get(name, "mine.test") == "mine.test" for name in meant_for_one)
        assert seen.fields["authorization"] == "mine.test"
    assert third.fields.get("host", f"127.0.0.1:{other.port}") == f"127.0.0.1:{other.port}"
    assert not {"authorization", "cookie", "proxy-authorization"} & third.fields.keys()
    assert third.fields["x-mine"] == "kept"


def test_content_is_sent_with_its_length(get, identity, version, tmp_path):
    (tmp_path / "data").write_bytes(CONTENT)
    (tmp_path / "empty").write_bytes(b"")
    with CountingServer(version, identity) as server:
        for method in ("POST", "PUT", "GET", "DELETE"):
            get("--http", version, "-X", method, "--data", tmp_path / "data", f"{server.origin}/")
        for method in ("POST", "PUT", "GET"):
            get("--http", version, "-X", method, "--data", tmp_path / "empty", f"{server.origin}/")
        lengths = [(seen.method, seen.fields.get("content-length")) for seen in server.counts.seen]
    assert lengths == [
        *[(method, str(len(CONTENT))) for method in ("POST", "PUT", "GET", "DELETE")],
        ("POST", "0"),
        ("PUT", "0"),
        ("GET", None),
    ]


def test_verbose_shows_protocol_fields_and_timings(get, peer, version):
    shown = get("--http", version, "-v", f"{peer.origin}/status/404").stderr.decode()
    protocol = {"1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}[version]
    assert re.search(rf"^> GET /status/404 {protocol}$", shown, re.MULTILINE)
    assert re.search(rf"^< {protocol} 404", shown, re.MULTILINE)
    assert re.search(r"\d ms", shown)


def test_connect_to_changes_the_address_and_keeps_the_name(get, peer, version):
    arguments = ["--http", version, "--connect-to", f"127.0.0.1:{peer.port}"]
    seen = json.loads(get(*arguments, f"https://localhost:{peer.port + 1}/request").stdout)
    assert seen["host"] == f"localhost:{peer.port + 1}"


# //= RFC 9114 section 3.1
# //# If the certificate cannot be verified with respect to the URI's origin server, the client MUST
# //# NOT consider
# //# the server authoritative for that origin.
def test_unknown_authority_is_rejected_unless_disabled(get, peer, version):
    done = get("--http", version, f"{peer.origin}/request", trust=(), code=PROTOCOL)
    assert b"--no-verify" in done.stderr
    assert done.stdout == b""
    assert get("--http", version, f"{peer.origin}/request", trust=("--no-verify",)).stdout


# //= RFC 9114 section 3.1
# //# Upon receiving a server certificate in the TLS handshake, the client MUST verify that the
# //# certificate is an
# //# acceptable match for the URI's origin server using the process described in Section 4.3.4 of
# //# [HTTP].
def test_name_outside_the_certificate_is_rejected(get, peer, version):
    arguments = ["--http", version, "--connect-to", f"127.0.0.1:{peer.port}"]
    get(*arguments, "https://other.test/request", code=PROTOCOL)


def test_truncated_body_is_an_error_and_leaves_no_file(get, peer, version, tmp_path):
    get("--http", version, "-o", tmp_path / "out", f"{peer.origin}/cut", code=PROTOCOL)
    assert list(tmp_path.iterdir()) == []


def test_request_rejected_by_goaway_is_reported_as_unprocessed(get, start, identity):
    server = start([sys.executable, AIOQUIC_SERVER, "--cert", identity.cert, "--key", identity.key])
    done = get("--http", "3", f"{server.origin}/go-away", code=PROTOCOL)
    assert "refused the request" in done.stderr.decode()


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_refused_connection_is_unavailable(get, version):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        get("--http", version, f"https://127.0.0.1:{held.getsockname()[1]}/", code=UNAVAILABLE)


def test_silent_server_times_out(get, version):
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(tcp.getsockname())
            url = f"https://127.0.0.1:{tcp.getsockname()[1]}/"
            get("--http", version, "--timeout", "1", url, code=TIMED_OUT)


def test_server_is_notified_when_the_client_times_out(get, start, gateway, version):
    """Over HTTP/3 the server would otherwise only see it by its idle timeout."""
    asked, left = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        read_head(connection)
        asked.set()
        if connection.recv(1) == b"":
            left.set()

    with listening(answer) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = "http://{address}"\n', server='state_dir = "state"'
        )
        server = start(gateway.command())
        # On a busy machine a second may pass before the request has arrived.
        for seconds in ("1", "10", "60"):
            get("--http", version, "--timeout", seconds, server.origin, code=TIMED_OUT)
            if asked.is_set():
                break
        assert left.wait(60)
        counted = metrics(gateway.folder / "state/admin.sock")
    timed_out = [
        'pronghorn_connections_timed_out_total{transport="quic"}',
        "pronghorn_idle_timeouts_total",
    ]
    assert [counted[name] for name in timed_out] == [0, 0]


def test_unknown_host_has_its_exit_code(get):
    get("https://nosuchhost.invalid/", code=UNKNOWN_HOST)


def test_missing_inputs_and_outputs_have_exit_codes(get, peer, tmp_path):
    get("--data", tmp_path / "none", f"{peer.origin}/request", code=MISSING)
    get(f"{peer.origin}/request", trust=("--cacert", tmp_path / "none"), code=MISSING)
    get("-o", tmp_path / "no" / "such" / "folder", f"{peer.origin}/request", code=OUTPUT)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--http", "4", "https://localhost/"],
        ["-H", "no colon", "https://localhost/"],
        ["ftp://localhost/"],
        ["/path"],
    ],
    ids=" ".join,
)
def test_invalid_command_line_is_a_usage_error(get, arguments):
    get(*arguments, code=USAGE)


def test_too_large_request_head_is_reported(get, server, version):
    """Over HTTP/3 the client knows the server's limit from SETTINGS."""
    command = [
        pronghorn(),
        "get",
        "--no-verify",
        "--http",
        version,
        "-v",
        "-H",
        "x-big: " + "a" * 66_000,
    ]
    done = subprocess.run(
        [*command, server.origin + "/"], capture_output=True, text=True, timeout=90
    )
    if done.returncode == 0:
        assert " 431 " in done.stderr
    else:
        assert (version, done.returncode) == ("3", PROTOCOL), done.stderr
        assert re.search(
            r"^error: .* exceeds the peer's limit of \d+; .*fewer", done.stderr, re.MULTILINE
        ), done.stderr


def test_clear_text_port_hints_at_http(get, start_serve, site):
    clear = start_serve(listen=("http://127.0.0.1:0",))
    for version in "1.1", "2":
        failed = get("--http", version, f"https://127.0.0.1:{clear.port}/", code=PROTOCOL)
        assert b"try http://" in failed.stderr


def test_unknown_host_hints_at_the_spelling(get):
    assert b"check the name's spelling" in get("http://nothing.invalid/", code=UNKNOWN_HOST).stderr
    assert (
        b"--connect-to"
        in get("--connect-to", "nothing.invalid:1", "http://a.test/", code=UNKNOWN_HOST).stderr
    )
