"""Addresses of `pronghorn serve`, and what it reports about them to clients and the operator."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from curl_cffi import CurlHttpVersion, requests

from harness.certificates import spki_hash
from harness.clients.go import GoClient
from harness.clients.raw_h1 import RawH1
from harness.server import pronghorn
from harness.waiting import eventually

ALT_SVC = r'h3=":{port}"; ?ma=\d+'


def test_port_zero_gives_tcp_and_udp_the_same_number(server, fetcher):
    assert server.port != 0
    assert server.listeners[0].protocols == ("h1", "h2", "h3")
    assert fetcher.fetch(f"{server.origin}/small.txt").status == 200


@pytest.mark.parametrize("path", ["/small.txt", "/does/not/exist", "/sub"])
def test_alt_svc_with_the_bound_port_is_on_each_response(server, fetcher, path):
    offered = fetcher.fetch(server.origin + path).header("alt-svc")
    assert re.fullmatch(ALT_SVC.format(port=server.port), offered or ""), offered


def test_alt_svc_is_on_error_responses_too(server, ca):
    with RawH1(server.origin, ca) as client:
        response = client.fetch("/../secret.txt")
    assert 400 <= response.status < 500
    assert re.fullmatch(ALT_SVC.format(port=server.port), response.header("alt-svc") or "")


def test_ipv6_is_served(start_serve, fetcher):
    server = start_serve(listen=("[::1]:0",))
    assert server.listeners[0].host == "[::1]"
    assert fetcher.fetch(f"{server.origin}/small.txt").status == 200


def test_unspecified_ipv6_address_serves_ipv4_too(start_serve, fetcher):
    server = start_serve(listen=("[::]:0",))
    for host in ("127.0.0.1", "[::1]"):
        response = fetcher.fetch(f"https://{host}:{server.port}/small.txt")
        assert response.status == 200, host


def test_several_listeners_are_all_served(start_serve, fetcher):
    server = start_serve(listen=("127.0.0.1:0", "[::1]:0", "127.0.0.1:0"))
    assert len({listener.port for listener in server.listeners}) >= 2
    for listener in server.listeners:
        assert fetcher.fetch(f"{listener.origin()}/small.txt").status == 200


def test_clear_text_listener_serves_without_tls(start_serve, site):
    server = start_serve(listen=("https://127.0.0.1:0", "http://127.0.0.1:0"))
    plain = next(listener for listener in server.listeners if listener.scheme == "http")
    assert "h3" not in plain.protocols
    with RawH1(plain.origin(), None) as client:
        assert client.fetch("/small.txt").body == site.read("small.txt")
        assert client.fetch("/small.txt", headers=[("range", "bytes=2-6")]).body == b"small"


def test_clear_text_listener_supports_http2_with_prior_knowledge(start_serve, site):
    server = start_serve(listen=("http://127.0.0.1:0",))
    assert server.listeners[0].protocols == ("h1", "h2")
    with requests.Session(timeout=60) as session:
        answer = session.get(
            f"{server.origin}/small.txt", http_version=CurlHttpVersion.V2_PRIOR_KNOWLEDGE
        )
        assert (answer.http_version, answer.content) == (
            CurlHttpVersion.V2_0,
            site.read("small.txt"),
        )
    with RawH1(server.origin, None) as client:
        assert client.fetch("/small.txt").status == 200


@pytest.fixture
def start_in_own_network(start, identity):
    """Starts `pronghorn serve` without --listen in a new network namespace, where its default port
    is free.
    """

    def start_in_own_network(root, prepare="true"):
        command = [
            *("unshare", "--net", "--map-root-user", "--kill-child", "--"),
            *("sh", "-c", f'ip link set lo up && {prepare} && exec "$0" "$@"'),
            *(pronghorn(), "serve", root, "--cert", identity.cert, "--key", identity.key),
        ]
        return start(command)

    return start_in_own_network


def entering(server):
    return ["nsenter", f"--target={server.pid}", "--net", "--user", "--preserve-credentials", "--"]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_default_is_port_8443_on_ipv4_and_ipv6(start_in_own_network, site, ca, host, version):
    server = start_in_own_network(site.root)
    assert server.listeners[0].port == 8443
    with GoClient(version, ca, prefix=entering(server)) as client:
        assert client.fetch(f"https://{host}:8443/small.txt").status == 200


def test_full_socket_is_written_to_when_it_is_writable_again(start_in_own_network, tmp_path):
    """Data that the link cannot accept yet stays in the socket's buffer, which is smaller than what
    these connections send.
    """
    connections = 600
    (tmp_path / "large.bin").write_bytes(bytes(200_000))
    link = "tc qdisc {} dev lo root tbf rate {} burst 64kb limit 200mb"
    # Slow, so that even a busy machine sends more than the link accepts.
    server = start_in_own_network(root=tmp_path, prepare=link.format("add", "20mbit"))
    url = "https://127.0.0.1:8443/large.bin"
    load = [
        pronghorn(),
        "load",
        "--http",
        "3",
        "--no-verify",
        "--json",
        f"-c{connections}",
        f"-n{connections}",
        "--timeout=240",
        url,
    ]
    client = subprocess.Popen([*entering(server), *load], stdout=subprocess.PIPE, text=True)
    try:
        # The kernel grants twice the requested size, for its own bookkeeping.
        full = 2 * min(4 << 20, int(Path("/proc/sys/net/core/wmem_max").read_text()))
        eventually("the socket is full", lambda: unsent_bytes(server.pid) > 0.9 * full)
        subprocess.run([*entering(server), *link.format("change", "1gbit").split()], check=True)
        output, _ = client.communicate(timeout=250)
    finally:
        client.kill()
    assert json.loads(output)["requests"]["status"]["2xx"] == connections, output


def unsent_bytes(pid):
    """Returns the most bytes that a UDP socket in the process's network has in its send buffer."""
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("udp", "udp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return max(int(row[4].partition(":")[0], 16) for row in rows)


def test_generated_certificate_is_stored_and_reused(start, site, tmp_path):
    command = [pronghorn(), "serve", site.root, "--listen", "127.0.0.1:0"]
    environment = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    seen = []
    for _ in range(2):
        server = start(command, env=environment)
        certificate = certificate_of(server.port)
        assert spki_hash(x509.load_der_x509_certificate(certificate).public_key()) in "\n".join(
            server.lines
        )
        assert lifetime_days(certificate) <= 14
        server.kill()
        seen.append(certificate)
    assert seen[0] == seen[1]
    keys = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    assert keys, "the key is not in the data folder"
    assert [oct(key.stat().st_mode & 0o077) for key in keys] == ["0o0"] * len(keys), (
        "the key is accessible to others"
    )


def certificate_of(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.getpeercert(binary_form=True)


def lifetime_days(certificate: bytes) -> float:
    parsed = x509.load_der_x509_certificate(certificate)
    return (parsed.not_valid_after_utc - parsed.not_valid_before_utc).total_seconds() / 86400


def test_each_request_is_one_log_line(server, fetcher):
    fetcher.fetch(f"{server.origin}/small.txt")
    fetcher.fetch(f"{server.origin}/missing")
    small, missing = (
        server.wait_for_lines(rf" (HTTP/[\d.]+) GET {path} (\d+) (\d+) ")[0]
        for path in ("/small.txt", "/missing")
    )
    assert (small[1], small[2], small[3]) == (fetcher.protocol, "200", "13")
    assert (missing[1], missing[2]) == (fetcher.protocol, "404")
    assert len([line for line in server.lines if "/small.txt" in line]) == 1


def test_request_cannot_inject_log_lines(server, ca):
    with RawH1(server.origin, ca) as client:
        client.fetch("/%0a2026-01-01T00:00:00Z%0dforged%1b[31m")
        client.fetch("/last")
    server.wait_for_lines(r"GET /last ")
    assert not [
        line
        for line in server.lines
        if line.startswith("2026-01-01") or "\x1b" in line or "\r" in line
    ]


def test_help_lists_the_exit_codes():
    shown = subprocess.run(
        [pronghorn(), "--help"], capture_output=True, text=True, timeout=30, check=True
    )
    for code in ("65", "66", "69", "77"):
        assert re.search(rf"\b{code}\b", shown.stdout), f"exit code {code} is not in --help"


def tcp_congestion_of(port: int) -> set[str]:
    """Returns the kernel's information about the connections to a port, at both ends."""
    sockets = subprocess.run(
        ["ss", "-tinH", f"( sport = :{port} )"], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"\b(reno|cubic|bbr)\b", sockets))


def test_accepted_connections_have_the_configured_congestion_control(start_serve, ca):
    server = start_serve("--congestion", "newreno")
    said = "newreno over QUIC, reno over TCP"
    eventually("the state of the sockets", lambda: any(said in line for line in server.lines))
    with RawH1(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200
        assert tcp_congestion_of(server.port) == {"reno"}


def test_small_udp_buffers_are_reported_in_one_line(start_serve, ca):
    # Half of the kernel's maximum, which it then doubles for its own bookkeeping: larger than what
    # it grants.
    server = start_serve("--udp-buffer", str(2**31 - 1), "--workers", "2")
    with RawH1(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200
    warnings = [line for line in server.lines if "warning" in line]
    assert len(warnings) == 1
    assert "net.core.rmem_max" in warnings[0]
    assert "net.core.wmem_max" in warnings[0]
