"""libcurl through curl_cffi: nghttp2 for HTTP/2, ngtcp2 and nghttp3 for HTTP/3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from curl_cffi import Curl, CurlHttpVersion, CurlInfo, CurlOpt, requests

from ..response import Response
from ..waiting import DEADLINE_SECONDS

VERSIONS = {
    "HTTP/1.1": CurlHttpVersion.V1_1,
    "HTTP/2": CurlHttpVersion.V2TLS,
    "HTTP/3": CurlHttpVersion.V3ONLY,
}
PROTOCOLS = {version: protocol for protocol, version in VERSIONS.items()} | {
    CurlHttpVersion.V2_0: "HTTP/2",
    CurlHttpVersion.V3: "HTTP/3",
}


def fetcher(protocol: str) -> Callable[..., Response]:
    def fetch(url: str, *, ca: Path, method: str, headers, body: bytes | None) -> Response:
        with session(ca) as curl:
            return ask(curl, protocol, url, method=method, headers=headers, body=body)

    return fetch


def session(ca: Path) -> requests.Session:
    """Opens a session. Connections are kept for its lifetime. Paths are sent as written."""
    return requests.Session(
        verify=str(ca),
        timeout=2 * DEADLINE_SECONDS,
        allow_redirects=False,
        curl_options={CurlOpt.PATH_AS_IS: 1},
    )


def ask(
    curl: requests.Session, protocol: str, url: str, *, method="GET", headers=(), body=None
) -> Response:
    # No Accept-Encoding: the tests compare bodies byte for byte.
    answer = curl.request(
        method,
        url,
        headers=list(headers),
        data=body,
        http_version=VERSIONS[protocol],
        accept_encoding=None,
        quote=False,
    )
    response = Response.with_body(
        answer.status_code,
        PROTOCOLS[CurlHttpVersion(answer.http_version)],
        answer.headers.multi_items(),
        answer.content,
    )
    response.local_port = answer.local_port
    return response


def heads(url: str, ca: Path, protocol: str, fields=(), status: int = 200) -> list[str]:
    """Returns the heads of a request's responses, interim ones first, as libcurl writes them."""
    curl, lines = Curl(), []
    try:
        curl.setopt(CurlOpt.URL, url.encode())
        curl.setopt(CurlOpt.CAINFO, str(ca).encode())
        curl.setopt(CurlOpt.HTTP_VERSION, VERSIONS[protocol])
        curl.setopt(CurlOpt.HTTPHEADER, [field.encode() for field in fields])
        curl.setopt(CurlOpt.HEADERFUNCTION, lambda line: lines.append(line) or len(line))
        curl.setopt(CurlOpt.WRITEFUNCTION, len)
        curl.perform()
        assert curl.getinfo(CurlInfo.RESPONSE_CODE) == status
    finally:
        curl.close()
    return b"".join(lines).decode().strip().split("\r\n\r\n")
