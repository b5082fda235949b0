"""Published attacks on other gateways, grouped by technique; `docs/security.md` has their names."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest

from harness.clients.tls import tls_connection
from harness.waiting import DEADLINE_SECONDS, eventually

DENY = '[[sites.routes]]\nmatch = ["/admin", "/admin/*"]\nrespond = { status = 403, body = "no" }\n'
SECRET = b"GET /admin/secret HTTP/1.1\r\nhost: localhost\r\n\r\n"


def received(connection: ssl.SSLSocket, until: bytes) -> bytes:
    """Reads until the bytes have arrived, or the server has closed the connection."""
    connection.settimeout(DEADLINE_SECONDS)
    data = b""
    while until not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data


@pytest.mark.parametrize(
    "answer", ['respond = "x"', 'redirect = "/y"', 'files = "www"', "respond = { status = 403 }"]
)
def test_content_for_a_route_that_ignores_it_is_not_a_request(start, gateway, up, ca, answer):
    (gateway.folder / "www").mkdir()
    gateway.write(
        '[[sites]]\nhosts = ["localhost"]\n{tls}\n'
        f'[[sites.routes]]\nmatch = "/unread"\n{answer}\n{DENY}[[sites.routes]]\nproxy = "{up.address}"\n'
    )
    server = start(gateway.command())
    with tls_connection(server.origin, ca, "http/1.1") as connection:
        head = f"POST /unread HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(SECRET)}\r\n\r\n".encode()
        connection.sendall(
            head + SECRET + b"GET /last HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        data = received(connection, b"never")
    # One response for the first request, and one for the last unless the connection ended before
    # it.
    assert data.count(b"HTTP/1.1 ") <= 2
    assert ("GET", "/admin/secret") not in up.requests
    assert {path for _, path in up.requests} <= {"/last"}


def test_line_breaks_in_a_target_do_not_split_requests(speak, up):
    client = speak(
        f'[[sites.routes]]\nmatch = "/moved/*"\nredirect = {{ to = "https://new.example{{path}}" }}\n'
        f'[[sites.routes]]\nmatch = "/in/*"\nrewrite = "/inner{{path}}"\nproxy = "{up.address}"\n'
    )
    broken = "x%0d%0ax-evil:%20yes%0d%0a%0d%0aGET%20/admin/secret%20HTTP/1.1"
    moved = client.ask(f"/moved/{broken}")
    assert "x-evil" not in moved.headers
    assert not {"\r", "\n"} & set(moved.headers.get("location", ""))
    assert client.ask(f"/in/{broken}").status == 200
    [(method, path)] = up.requests
    assert (method, path.lower().startswith("/inner/in/x%0d%0ax-evil")) == ("GET", True)
    if client.version != "1.1":
        # Targets that HTTP/1.1 cannot express.
        for raw in ("/in/x\r\nx-evil: yes", "/in/x HTTP/1.1\r\n", "/in/ x", "/in/\tx"):
            assert client.ask(raw).status in (None, 400), raw
        for method in ("GET /admin/secret HTTP/1.1\r\n", "G ET", "GET\n"):
            assert client.ask("/in/x", method=method).status in (None, 400), method
    assert len(up.requests) == 1


def test_target_does_not_select_another_server(speak, up):
    with socket.create_server(("127.0.0.1", 0)) as trap:
        port = trap.getsockname()[1]
        other = f"127.0.0.1:{port}"
        client = speak(f'[[sites.routes]]\nproxy = "{up.address}"\n')
        for path in (
            f"/?unix:{'A' * 5000}|http://{other}/",
            f"/@{other}/",
            f"/..@{other}/",
            f"/x?://{other}/",
            f"/http://{other}/",
        ):
            assert client.ask(path).status in (200, 400), path
        for path in (f"http://{other}/", f"//{other}/", f"@{other}", f":{port}/", f"\\\\{other}/"):
            client.ask(path)
        trap.settimeout(0)
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_fragment_is_not_part_of_a_target(speak, up):
    client = speak(DENY + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    for path, without in (
        ("/admin#.png", 403),
        ("/x#/../admin/secret", 200),
        ("/x#", 200),
        ("/admin/secret#?", 403),
    ):
        # The HTTP/2 library drops the fragment before the gateway sees the target.
        refused = (without,) if client.version == "2" else (None, 400)
        assert client.ask(path).status in refused, path
    assert {path for _, path in up.requests} <= {"/x"}


def test_encoded_delimiters_stay_in_the_path(speak, up):
    client = speak(DENY + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    for path in ("/x%3Fadmin", "/x%23admin", "/x%3Fa=b?c=d"):
        assert client.ask(path).status == 200, path
    assert [path for _, path in up.requests] == ["/x%3Fadmin", "/x%23admin", "/x%3Fa=b?c=d"]
    for path in ("/admin/%3Fx", "/admin/%23", "/admin?/../x", "/admin/?x=/../.."):
        assert client.ask(path).status == 403, path


def test_removed_prefix_ends_at_a_segment(speak, gateway):
    (gateway.folder / "www").mkdir()
    (gateway.folder / "secret.txt").write_text("secret")
    (gateway.folder / "www" / "index.html").write_text("page")
    client = speak('[[sites.routes]]\nmatch = "/assets/*"\nstrip_prefix = true\nfiles = "www"\n')
    for path in (
        "/assets../secret.txt",
        "/assets..%2fsecret.txt",
        "/assets/..%2fsecret.txt",
        "/assets/.%2e/secret.txt",
    ):
        answer = client.ask(path)
        assert (answer.status in (None, 400, 404), b"secret" in answer.body) == (True, False), path


@contextmanager
def refusing():
    """Runs an upstream that answers each upgrade with 426; yields what it received."""
    listener = socket.create_server(("127.0.0.1", 0))
    lines: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            stream = connection.makefile("rb")
            while line := stream.readline():
                lines.append(line)
                while stream.readline().strip():
                    pass
                connection.sendall(
                    b"HTTP/1.1 426 Upgrade Required\r\nsec-websocket-version: 13\r\ncontent-length: 0\r\n\r\n"
                )

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lines
    finally:
        # Wakes the thread that accepts.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_refused_upgrade_opens_no_tunnel(start, gateway, ca):
    with refusing() as (address, lines):
        gateway.write(
            f'[[sites]]\nhosts = ["localhost"]\n{{tls}}\n{DENY}[[sites.routes]]\nproxy = "{address}"\n'
        )
        server = start(gateway.command())
        with tls_connection(server.origin, ca, "http/1.1") as connection:
            connection.sendall(
                b"GET /socket HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
                b"sec-websocket-version: 1\r\nsec-websocket-key: nf6dB8Pb/BLinZ7UexUXHg==\r\n\r\n"
                + SECRET
            )
            data = received(connection, b"403")
        assert data.startswith(b"HTTP/1.1 426 ")
        # The second request went through the routes like any other, or the connection ended.
        assert b"HTTP/1.1 200" not in data
        assert not any(b"/admin" in line for line in lines)


@pytest.mark.parametrize("form", ["text", "json", "combined"])
def test_log_escapes_control_characters(speak, gateway, form):
    client = speak(
        f'[[sites.routes]]\nrespond = "x"\n[log]\naccess = "access.log"\nformat = "{form}"\n'
    )
    # CSI as a single byte, and an escape in the path, which a terminal would obey.
    client.ask(
        "/%1b%5b2J%0afake%20line?\x7f", headers=[("user-agent", "a\x9b2Jb"), ("referer", "\u202e")]
    )
    assert client.ask("/last", headers=[("user-agent", "plain")]).status == 200
    read = (gateway.folder / "access.log").read_bytes
    eventually("the last line", lambda: b"/last" in read())
    text = read().decode("utf-8", errors="strict")
    control = {
        character
        for character in text
        if character != "\n" and (ord(character) < 32 or 127 <= ord(character) < 160)
    }
    assert control == set()
    assert "fake line" not in text
