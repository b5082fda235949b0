"""Trailers of upstreams, forwarded to clients (RFC 9110 section 6.5)."""

from __future__ import annotations

import socket

import pytest

from harness.clients import FETCHERS
from harness.clients.raw_h1 import RawH1
from harness.gateway import SITE
from harness.h2_origin import h2_origin
from harness.serving import listening, read_head

TRAILERS = [("x-checksum", "abc"), ("grpc-status", "0")]
ANNOUNCED = ("trailer", "x-checksum, grpc-status")


def over_http1(announced: bool):
    def answer(peer: socket.socket) -> None:
        read_head(peer)
        head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
        head += f"{': '.join(ANNOUNCED)}\r\n" if announced else ""
        trailers = "".join(f"{name}: {value}\r\n" for name, value in TRAILERS)
        peer.sendall(f"{head}\r\n5\r\nhello\r\n0\r\n{trailers}\r\n".encode())

    return answer


def over_http2(*fields: tuple[str, str]):
    def answer(connection, stream: int, _) -> None:
        connection.send_headers(stream, [(":status", "200"), *fields])
        connection.send_data(stream, b"hello")
        connection.send_headers(stream, TRAILERS, end_stream=True)

    return answer


ORIGINS = {
    "h1 announced": lambda: listening(over_http1(True)),
    "h1": lambda: listening(over_http1(False)),
    "h2": lambda: h2_origin(over_http2()),
    "h2 length": lambda: h2_origin(over_http2(("content-length", "5"))),
    "h2 length announced": lambda: h2_origin(over_http2(("content-length", "5"), ANNOUNCED)),
}


@pytest.fixture(params=ORIGINS.keys())
def server(request, start, gateway):
    with ORIGINS[request.param]() as address:
        protocol = ', protocol = "http2"' if "h2" in request.param else ""
        origin = address if "://" in address else f"http://{address}"
        gateway.write(SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{origin}"]{protocol} }}\n')
        started = start(gateway.command())
        started.has_length = "length" in request.param
        yield started


@pytest.mark.parametrize("client", ["go-h2", "quic-go-h3", "aioquic-h3"])
def test_trailers_reach_http2_and_http3_clients(server, ca, client):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == client).trusting(ca)
    answer = fetcher.fetch(server.origin + "/", headers=[("te", "trailers")])
    assert (answer.status, answer.body) == (200, b"hello")
    assert sorted(answer.trailers) == sorted(TRAILERS)


WISHES = {
    "trailers": "te: trailers\r\nconnection: te\r\n",
    "a list": "te: gzip;q=0.5, trailers\r\nconnection: te\r\n",
    "nothing": "",
}


@pytest.mark.parametrize("wish", WISHES)
def test_announced_trailers_reach_http1_clients_that_accept_them(server, ca, wish):
    with RawH1(server.origin, ca) as client:
        fields = f"host: {client.authority}\r\n{WISHES[wish]}connection: close\r\n"
        client.socket.sendall(f"GET / HTTP/1.1\r\n{fields}\r\n".encode())
        answer = b""
        while piece := client.socket.recv(65536):
            answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    is_announced = b"\ntrailer: " in head
    told = [tuple(line.decode().split(": ")) for line in content.split(b"\r\n") if b": " in line]
    assert b"hello" in content
    assert sorted(told) == (sorted(TRAILERS) if is_announced and wish != "nothing" else [])
    # Either field delimits the content.
    assert (b"content-length" in head) != (b"chunked" in head)
    assert (b"content-length" in head) == (server.has_length and not is_announced)


def test_head_response_keeps_the_content_length(start, gateway, ca):
    def answer(connection, stream: int, _) -> None:
        connection.send_headers(
            stream, [(":status", "200"), ("content-length", "5"), ANNOUNCED], end_stream=True
        )

    with h2_origin(answer) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], protocol = "http2" }}\n'
        )
        with RawH1(start(gateway.command()).origin, ca) as client:
            assert client.fetch("/", method="HEAD").header("content-length") == "5"
