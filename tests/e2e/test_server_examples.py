"""The examples of the crate `server`: axum applications over each protocol, with libcurl and
Chromium as clients.
"""

from __future__ import annotations

import gzip
import json
import signal

import pytest

from conftest import random_bytes
from harness.clients.chromium import NAME, common_flags, protocol_flags, visit
from harness.clients.curl import VERSIONS, ask, session
from harness.server import serve_command, server_example_command

BROWSER_PROTOCOLS = ["http/1.1", "h2", "h3"]


@pytest.fixture(params=VERSIONS)
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fetch(ca, protocol):
    """Sends a request over one protocol, on one connection, and checks the protocol used."""
    with session(ca) as curl:

        def run(url: str, **options):
            response = ask(curl, protocol, url, **options)
            assert response.protocol == protocol
            return response

        yield run


@pytest.fixture
def example(start, identity):
    def run(name: str, *flags):
        return start(server_example_command(name, identity, *flags))

    return run


def test_hello_example_answers(example, fetch, protocol):
    version = {"HTTP/1.1": "HTTP/1.1", "HTTP/2": "HTTP/2.0", "HTTP/3": "HTTP/3.0"}[protocol]
    assert fetch(example("hello").origin).text() == f"hello over {version}\n"


def test_layers_example_traces_compresses_limits_and_allows(example, fetch):
    origin = example("axum_layers").origin
    assert fetch(f"{origin}/").text().startswith("127.0.0.1 over HTTP/")

    compressed = fetch(
        f"{origin}/numbers?to=5000",
        headers=[("accept-encoding", "gzip"), ("origin", "https://a.test")],
    )
    fields = dict(compressed.headers)
    assert fields["access-control-allow-origin"] == "*"
    assert fields["content-encoding"] == "gzip"
    body = compressed.body
    numbers = json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
    assert numbers == list(range(5000))

    as_json = [("content-type", "application/json")]
    assert fetch(f"{origin}/sum", method="POST", body=b"[1, 2, 3]", headers=as_json).text() == "6"
    assert fetch(f"{origin}/sum", method="POST", body=b"[1", headers=as_json).status == 400
    assert fetch(f"{origin}/numbers?to=many").status == 400
    assert fetch(f"{origin}/slow").status == 503


def test_handler_gets_the_server_name_of_the_client(example, fetcher):
    server = example("axum_layers")
    for host, name in [("localhost", "localhost"), ("127.0.0.1", "no name")]:
        answer = fetcher.fetch(server.listeners[0].origin(host) + "/").text()
        assert answer.endswith(f", server name: {name}\n"), answer


def test_preflight_is_answered(example, fetch):
    headers = [("origin", "https://a.test"), ("access-control-request-method", "POST")]
    answer = fetch(f"{example('axum_layers').origin}/sum", method="OPTIONS", headers=headers)
    assert answer.status == 200
    assert "POST" in dict(answer.headers)["access-control-allow-methods"]


def test_static_files_example_serves_files_ranges_and_304(example, fetch, site):
    origin = example("static_files", "--folder", site.root).origin
    assert fetch(f"{origin}/big.bin").body == site.read("big.bin")
    part = fetch(f"{origin}/big.bin", headers=[("range", "bytes=1000-1999")])
    assert (part.status, part.body) == (206, site.read("big.bin")[1000:2000])
    first = fetch(f"{origin}/small.txt")
    again = fetch(
        f"{origin}/small.txt", headers=[("if-modified-since", dict(first.headers)["last-modified"])]
    )
    assert again.status == 304
    assert fetch(f"{origin}/no-such-file").status == 404
    head = fetch(f"{origin}/big.bin", method="HEAD")
    assert (dict(head.headers)["content-length"], head.size) == (str(len(site.read("big.bin"))), 0)


def test_upload_example_reads_a_form_with_files(example, fetch):
    files = {f"file-{size}.bin": random_bytes(size, "form") for size in (0, 1, 70_000, 5 << 20)}
    boundary = "a-boundary-of-this-test"
    body = b"".join(
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in files.items()
    )
    body += f"--{boundary}--\r\n".encode()
    headers = [("content-type", f"multipart/form-data; boundary={boundary}")]
    answer = fetch(f"{example('upload').origin}/", method="POST", body=body, headers=headers)
    assert json.loads(answer.text()) == {name: len(content) for name, content in files.items()}


def test_events_arrive_without_delay(example, ca, protocol):
    with session(ca) as curl:
        url = f"{example('sse').origin}/events"
        answer = curl.get(url, http_version=VERSIONS[protocol], stream=True)
        assert answer.headers["content-type"] == "text/event-stream"
        received = b""
        # The stream has no end: any data that arrives shows that nothing is buffered.
        for piece in answer.iter_content():
            received += piece
            if received.count(b"\n\n") >= 5:
                break
        answer.close()
    events = [event.removeprefix("data:").strip() for event in received.decode().split("\n\n")]
    assert events[:5] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("browser_protocol", BROWSER_PROTOCOLS)
def test_browser_receives_events(example, identity, browser_protocol):
    server = example("sse")
    flags = common_flags(identity.spki_hash) + protocol_flags(browser_protocol, NAME, server.port)
    seen = visit(f"https://{NAME}:{server.port}/", flags, awaits_result=True)
    visited = seen["visits"][0]
    assert visited["result"] == {"seen": [0, 1, 2, 3, 4]}
    assert {request["protocol"] for request in visited["requests"]} == {browser_protocol}


@pytest.mark.parametrize("browser_protocol", BROWSER_PROTOCOLS)
def test_browser_chats_over_websocket(example, identity, browser_protocol):
    server = example("chat")
    flags = common_flags(identity.spki_hash) + protocol_flags(browser_protocol, NAME, server.port)
    seen = visit(f"https://{NAME}:{server.port}/#test", flags, awaits_result=True)
    assert seen["visits"][0]["result"] == {"heard": ["hello", "hello"]}
    assert seen["errors"] == []


def test_proxy_example_forwards_responses(example, start, identity, fetch, site):
    behind = start(serve_command(site.root, identity))
    origin = example("reverse_proxy", "--to", behind.origin, "--cacert", identity.ca).origin
    assert fetch(f"{origin}/big.bin").body == site.read("big.bin")
    part = fetch(f"{origin}/big.bin", headers=[("range", "bytes=0-9")])
    assert (part.status, part.body) == (206, site.read("big.bin")[:10])
    assert fetch(f"{origin}/no-such-file").status == 404


def test_proxy_example_forwards_uploads(example, fetch, identity):
    behind = example("upload")
    origin = example("reverse_proxy", "--to", behind.origin, "--cacert", identity.ca).origin
    body = (
        b'--b\r\ncontent-disposition: form-data; name="one"\r\n\r\n'
        + b"x" * (3 << 20)
        + b"\r\n--b--\r\n"
    )
    headers = [("content-type", "multipart/form-data; boundary=b")]
    assert json.loads(fetch(f"{origin}/", method="POST", body=body, headers=headers).text()) == {
        "one": 3 << 20
    }


def test_proxy_example_without_an_upstream_is_502(example, fetch, identity):
    behind = example("hello")
    origin = example("reverse_proxy", "--to", behind.origin, "--cacert", identity.ca).origin
    assert fetch(origin).status == 200
    behind.terminate()
    behind.wait()
    assert fetch(origin).status == 502


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_shuts_down_gracefully_on_a_signal(example, ca, number):
    server = example("hello")
    with session(ca) as curl:
        assert ask(curl, "HTTP/2", server.origin).status == 200
        # The connection stays open.
        server.popen.send_signal(number)
        assert server.wait() == 0, server.lines
