"""Attacks on served folders: links to hidden files, and directory listings that clients do not
read.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from curl_cffi import requests

from attacks.attack import MIB, Ground
from attacks.tcp import INITIAL_WINDOW_SIZE, WINDOW_UPDATE, RawH2, frame
from harness.clients.curl import VERSIONS
from harness.gateway import SITE
from harness.php import php_fpm
from harness.waiting import eventually

SECRET = b"behind a dot"
PLAIN = b"for everybody"
HIDDEN = (".env", ".git/config", "pub/.htpasswd", "pub/.well-known/x")
SHOWN = ("pub/page.txt", ".well-known/security.txt")
LINKS = {
    "env": ".env",
    "twice": "env",
    "git": ".git",
    "here": ".",
    "pub/up.txt": "../.env",
    "password.txt": "pub/.htpasswd",
    "page.txt.gz": ".git/config",
    "known": ".well-known",
    "good.txt": "pub/page.txt",
}
LEAKS = (
    "/env",
    "/twice",
    "/git/config",
    "/here/env",
    "/pub/up.txt",
    "/password.txt",
    "/here/here/git/config",
)


@pytest.fixture
def www(tmp_path) -> Path:
    folder = tmp_path / "www"
    for names, content in ((HIDDEN, SECRET), (SHOWN, PLAIN), (("page.txt",), PLAIN)):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    return folder


@pytest.fixture
def serve(start, gateway, www):
    def run(options: str = ""):
        gateway.write(
            SITE + f'[[sites.routes]]\nfiles = {{ root = "www", listing = true{options} }}\n'
        )
        return start(gateway.command())

    return run


@pytest.mark.parametrize(
    "options", ["", ", links_outside = true", ', precompressed = true, fallback = "page.txt"']
)
def test_link_to_a_hidden_file_is_hidden(serve, www, protocol_fetcher, options):
    (www / "around").symlink_to(www / ".env")
    origin = serve(options).origin
    # Twice: from the disk, and from the cache.
    for _ in range(2):
        nothing = protocol_fetcher.fetch(origin + "/nothing")
        assert nothing.status == (200 if "fallback" in options else 404)
        # An absolute link leads out of the folder, and back into it from there.
        around = ("/around",) if "links_outside" in options else ()
        for path in (*LEAKS, *around, "/git", "/git/", "/git/nothing"):
            answer = protocol_fetcher.fetch(origin + path)
            # Responses do not reveal which of these names exist.
            assert (answer.status, answer.body) == (nothing.status, nothing.body), path
        assert protocol_fetcher.fetch(origin + "/.env").status == 404
        for path in (
            "/good.txt",
            "/here/pub/page.txt",
            "/known/security.txt",
            "/.well-known/security.txt",
        ):
            assert protocol_fetcher.fetch(origin + path).body == PLAIN, path
        answer = protocol_fetcher.fetch(origin + "/page.txt", headers=[("accept-encoding", "gzip")])
        assert (answer.status, answer.body) == (200, PLAIN)
    page = protocol_fetcher.fetch(origin + "/").text()
    shown = [
        name
        for name in ("env", "twice", "git/", "here/", "password.txt", "known/", "good.txt")
        if f'"./{name}"' in page
    ]
    assert shown == ["here/", "known/", "good.txt"]
    assert "up.txt" not in protocol_fetcher.fetch(origin + "/pub/").text()


def test_link_changed_to_a_hidden_file_is_hidden_from_then_on(serve, www, protocol_fetcher):
    origin = serve().origin
    for _ in range(3):
        assert protocol_fetcher.fetch(origin + "/good.txt").body == PLAIN
    (www / "new").symlink_to(".env")
    (www / "new").rename(www / "good.txt")
    assert protocol_fetcher.fetch(origin + "/good.txt").status == 404


def test_link_to_a_hidden_file_is_followed_where_hidden_files_are_served(serve, protocol_fetcher):
    origin = serve(", hidden = true").origin
    for path in LEAKS:
        assert protocol_fetcher.fetch(origin + path).body == SECRET, path
    assert '"./env"' in protocol_fetcher.fetch(origin + "/").text()


def test_link_to_a_hidden_file_is_not_found_for_php(
    start, gateway, www, tmp_path, protocol_fetcher
):
    (www / ".secret.php").write_text("<?php echo 'behind a dot';")
    (www / "index.php").write_text("<?php echo 'index';")
    (www / "leak.php").symlink_to(".secret.php")
    with php_fpm(tmp_path / "fpm") as socket:
        php = f'php = {{ root = "www", server = "unix:{socket}", fallback = "" }}'
        gateway.write(SITE + f"[[sites.routes]]\n{php}\n")
        origin = start(gateway.command()).origin
        assert protocol_fetcher.fetch(origin + "/").body == b"index"
        for path in ("/leak.php", "/leak.php/more", "/env", "/git/config", "/pub/up.txt"):
            answer = protocol_fetcher.fetch(origin + path)
            assert (answer.status, SECRET in answer.body) == (404, False), path


def test_unread_directory_listings_share_memory(start, gateway, identity):
    www = gateway.folder / "www"
    www.mkdir()
    for number in range(10_000):
        (www / f"a name of some length {number}").touch()
    gateway.write(SITE + '[[sites.routes]]\nfiles = { root = "www", listing = true }\n')
    server = start(gateway.command())
    ground = Ground(server, identity.ca)
    try:
        with requests.Session(verify=str(identity.ca), timeout=60) as honest:
            page = honest.get(server.origin + "/", http_version=VERSIONS["HTTP/2"])
            assert page.text.count("a name of some length") == 10_000
            before = server.forget_peak()
            # The windows are closed, so that each response is buffered.
            clients = [RawH2(ground, {INITIAL_WINDOW_SIZE: 0}) for _ in range(10)]
            for client in clients:
                for _ in range(200):
                    client.send(client.request(client.block(b"/"))[1])
            for client in clients:
                client.until(
                    "the head of each page", lambda client=client: len(client.heads) == 200
                )
            assert server.peak_resident_bytes() - before < 64 * MIB
            for protocol in VERSIONS:
                again = honest.get(server.origin + "/", http_version=VERSIONS[protocol])
                assert again.text == page.text, protocol
            # Each client gets the whole listing, however many share it.
            client = clients[0]
            client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
            client.send(frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1 << 30)))
            eventually("part of a page", lambda: client.receive(0.1))
    finally:
        ground.close()
