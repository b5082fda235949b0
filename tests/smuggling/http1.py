"""The cases over HTTP/1.1."""

from __future__ import annotations

from .message import INNER, Case, Verdict, content, cut_off, one_message, refused, two_messages

REBORN = "PortSwigger, HTTP Desync Attacks: Request Smuggling Reborn (2019)"
WATCHFIRE = "Linhart, Klein, Heled, Orrin: HTTP Request Smuggling (Watchfire, 2005)"
KLEIN = "Klein: HTTP Request Smuggling in 2020 (Black Hat 2020)"
TREQS = "Jabiyev, Sprecher, Onarlioglu, Kirda: T-Reqs (CCS 2021)"
BROWSER = "PortSwigger, Browser-Powered Desync Attacks (2022)"
MUST_DIE = "PortSwigger, HTTP/1.1 must die: the desync endgame (2025)"
FUNKY = "Weikop: Funky chunks (2025)"
GARDEN = "Kallus and others: The HTTP Garden (2024)"
H2C = "Bishop Fox: h2c Smuggling (2020)"

HOST = b"Host: localhost\r\n"
CASES: list[Case] = []


def add(name: str, source: str, message: bytes, verdict: Verdict = refused) -> None:
    CASES.append(Case(name, source, message, verdict))


def post(
    *lines: bytes, body: bytes = b"", target: bytes = b"/echo", version: bytes = b"HTTP/1.1"
) -> bytes:
    head = b"".join(line + b"\r\n" for line in lines)
    return b"POST " + target + b" " + version + b"\r\n" + HOST + head + b"\r\n" + body


def get(
    *lines: bytes, target: bytes = b"/bytes/1", version: bytes = b"HTTP/1.1", body: bytes = b""
) -> bytes:
    return post(*lines, target=target, version=version, body=body).replace(b"POST", b"GET", 1)


def length(size: int) -> bytes:
    return b"Content-Length: %d" % size


CHUNKED = b"Transfer-Encoding: chunked"
LAST_CHUNK = b"0\r\n\r\n"
SIZED = length(len(INNER))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


# Two lengths: content-length and transfer-encoding.

add(
    "CL.TE",
    REBORN,
    post(length(len(LAST_CHUNK + INNER)), CHUNKED, body=LAST_CHUNK + INNER),
)
add("TE.CL", REBORN, post(CHUNKED, length(4), body=chunk(INNER) + LAST_CHUNK))
add(
    "CL.TE in HTTP/1.0",
    "CVE-2021-33037",
    post(SIZED, CHUNKED, body=LAST_CHUNK + INNER, version=b"HTTP/1.0"),
)
add("TE in HTTP/1.0", "RFC 9112 6.1", post(CHUNKED, body=LAST_CHUNK + INNER, version=b"HTTP/1.0"))
add(
    "TE in HTTP/1.0 that is kept alive",
    "CVE-2021-33037",
    post(b"Connection: keep-alive", CHUNKED, body=LAST_CHUNK + INNER, version=b"HTTP/1.0"),
)
add(
    "a length beside TE that is no number",
    "CVE-2023-47641",
    post(b"Content-Length: x", CHUNKED, body=LAST_CHUNK + INNER),
)
add(
    "an empty length beside TE",
    "CVE-2023-40225",
    post(b"Content-Length:", CHUNKED, body=LAST_CHUNK + INNER),
)
add(
    "connection names content-length beside TE",
    "PortSwigger, Practical HTTP Header Smuggling (2021)",
    post(b"Connection: content-length", SIZED, CHUNKED, body=LAST_CHUNK + INNER),
)
add(
    "a second TE after the length",
    "CVE-2020-8287",
    post(CHUNKED, SIZED, b"Transfer-Encoding: false", body=LAST_CHUNK),
)

# Transfer-encoding that one of two parsers does not see.

OBFUSCATIONS: list[tuple[str, str, bytes]] = [
    ("xchunked", REBORN, b"Transfer-Encoding: xchunked"),
    ("a space before the colon", REBORN, b"Transfer-Encoding : chunked"),
    ("a tab before the colon", "CVE-2019-16869", b"Transfer-Encoding\t: chunked"),
    ("two lines, the second with x", REBORN, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
    ("two lines, the first with x", REBORN, b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
    ("a space before the name", REBORN, b" Transfer-Encoding: chunked"),
    ("a line break before the value", "CVE-2022-32215", b"Transfer-Encoding:\r\n chunked"),
    ("a folded line after another field", REBORN, b"X: x\r\n Transfer-Encoding: chunked"),
    ("LF before the name", REBORN, b"X: x\nTransfer-Encoding: chunked"),
    ("CR before the name", "CVE-2023-30589", b"X: x\rTransfer-Encoding: chunked"),
    ("a vertical tab before the value", "CVE-2019-18277", b"Transfer-Encoding: \x0bchunked"),
    ("a form feed before the value", "CVE-2019-16789", b"Transfer-Encoding: \x0cchunked"),
    ("NUL after the value", KLEIN, b"Transfer-Encoding: chunked\x00"),
    ("NUL in the name", KLEIN, b"Transfer\x00-Encoding: chunked"),
    ("0x85 after the value", "CVE-2019-16789", b"Transfer-Encoding: chunked\x85"),
    ("a no-break space before the value", "CVE-2022-24801", b"Transfer-Encoding: \xa0chunked"),
    ("quotes", REBORN, b'Transfer-Encoding: "chunked"'),
    ("single quotes", "CVE-2022-1705", b"Transfer-Encoding: 'chunked'"),
    ("identity after chunked", "CVE-2019-16786", b"Transfer-Encoding: chunked, identity"),
    ("identity before chunked", "CVE-2021-33037", b"Transfer-Encoding: identity, chunked"),
    ("chunked twice", "CVE-2021-21299", b"Transfer-Encoding: chunked, chunked"),
    ("gzip after chunked", "CVE-2021-21299", b"Transfer-Encoding: chunked, gzip"),
    ("a semicolon", "CVE-2022-32213", b"Transfer-Encoding: chunked;"),
    ("an empty list element", "CVE-2024-23829", b"Transfer-Encoding: , chunked"),
    ("cow", KLEIN, b"Transfer-Encoding: cow"),
    ("identity alone", "CVE-2024-6827", b"Transfer-Encoding: identity"),
    ("nothing", "CVE-2024-1135", b"Transfer-Encoding:"),
]
for name, source, line in OBFUSCATIONS:
    add(
        f"TE with {name}, and a length",
        source,
        post(line, length(4), body=chunk(INNER) + LAST_CHUNK),
    )
    add(f"TE with {name}", source, post(line, body=LAST_CHUNK + INNER))
add(
    "TE with an underscore is another field",
    "PortSwigger, Practical HTTP Header Smuggling (2021)",
    post(b"Transfer_Encoding: chunked", length(len(LAST_CHUNK)), body=LAST_CHUNK),
    content(LAST_CHUNK),
)
add(
    "TE in upper case is TE",
    "RFC 9112 7",
    post(b"TRANSFER-ENCODING: CHUNKED", body=chunk(b"abc") + LAST_CHUNK),
    content(b"abc"),
)

# Lengths.

for name, source, value in [
    ("a plus sign", "CVE-2021-32715", b"+%d"),
    ("a minus sign", WATCHFIRE, b"-%d"),
    ("a list of two", "CVE-2019-16792", b"%d, 0"),
    ("hexadecimal digits", "CVE-2022-24761", b"0x%d"),
    ("an underscore", "CVE-2022-24761", b"1_%d"),
    ("a fraction", "CVE-2022-24801", b"%d.0"),
    ("an exponent", GARDEN, b"%de0"),
    ("a space inside", KLEIN, b"1 %d"),
    ("a tab inside", KLEIN, b"1\t%d"),
    ("quotes", GARDEN, b'"%d"'),
    ("a semicolon", GARDEN, b"%d;"),
    ("a NUL", "CVE-2023-47627", b"%d\x00"),
    ("a vertical tab", "CVE-2023-47627", b"\x0b%d"),
    ("words", KLEIN, b"%d bytes"),
]:
    add(f"length with {name}", source, post(b"Content-Length: " + value % len(INNER), body=INNER))
add(
    "length with digits that are none in ASCII",
    "CVE-2023-47627",
    post("Content-Length: ٣".encode(), body=INNER),
)
add(
    "length beyond 2^64",
    "CVE-2021-40346",
    post(b"Content-Length: 18446744073709551617", body=INNER),
)
add(
    "length of 2^64 + its content",
    GARDEN,
    post(b"Content-Length: %d" % (2**64 + len(INNER)), body=INNER),
)
add("length that is empty", "CVE-2023-40225", post(b"Content-Length:", body=INNER))
add("two lengths that differ", WATCHFIRE, post(length(0), SIZED, body=INNER))
add("two lengths that differ, the longer first", WATCHFIRE, post(SIZED, length(0), body=INNER))
add("two lengths of one number", "RFC 9112 6.3", post(SIZED, SIZED, body=INNER), one_message)
add(
    "a list of one number",
    "CVE-2022-42252",
    post(SIZED + b", %d" % len(INNER), body=INNER),
    one_message,
)
add(
    "a second length that is invalid",
    "CVE-2020-10108",
    post(SIZED, b"Content-Length: x", body=INNER),
)
add(
    "length with a space before the colon",
    "CVE-2019-16276",
    post(b"Content-Length : %d" % len(INNER), body=INNER),
)
add(
    "length with a space before the name",
    "CVE-2024-27982",
    post(b" Content-Length: %d" % len(INNER), body=INNER),
)
add(
    "length in a first line that begins with a space",
    "CVE-2024-27982",
    b"GET /bytes/1 HTTP/1.1\r\n " + SIZED + b"\r\n" + HOST + b"\r\n" + INNER,
)
add(
    "length with zeros in front",
    GARDEN,
    post(b"Content-Length: 000%d" % len(INNER), body=INNER),
    content(INNER),
)
add(
    "length in a folded line",
    "RFC 9112 5.2",
    post(b"Content-Length:\r\n %d" % len(INNER), body=INNER),
)
add(
    "length folded between digits",
    GARDEN,
    post(b"Content-Length: 1\r\n %d" % len(INNER), body=INNER),
)

# Line endings.

add("LF alone ends every line", "CVE-2019-16785", get().replace(b"\r\n", b"\n") + INNER)
add("LF alone ends the head", "CVE-2022-32214", post(SIZED).removesuffix(b"\r\n") + b"\n" + INNER)
add(
    "LF alone ends a field line",
    "CVE-2021-41136",
    post(b"X: x\nContent-Length: %d" % len(INNER), body=INNER),
)
add("LF CR LF ends the head", "CVE-2022-35256", post(b"X: x\n", body=INNER))
add(
    "CR alone ends a field line",
    "CVE-2023-30589",
    post(b"X: x\rContent-Length: %d" % len(INNER), body=INNER),
)
add("CR CR LF ends a field line", GARDEN, post(b"X: x\r", SIZED, body=INNER))
add("CR in a value", "RFC 9112 2.2", post(b"X: a\rb", body=INNER))
add("NUL in a value", "RFC 9110 5.5", post(b"X: a\x00b", body=INNER))
add("DEL in a value", GARDEN, post(b"X: a\x7fb", body=INNER))
add("a folded line", "RFC 9112 5.2", post(b"X: a", b" b", body=INNER))
add("a folded line with a tab", "CVE-2025-32094", post(b"X: a", b"\tContent-Length: 1", body=INNER))
add("a field line without a colon", "CVE-2019-20444", post(b"Content-Length 13", body=INNER))
add("a field without a name", "CVE-2023-25725", post(b": x", SIZED, body=INNER))
add("a name with a space", TREQS, post(b"X Y: x", body=INNER))
add("a name with parentheses", TREQS, post(b"(X): x", body=INNER))
add("a name beyond ASCII", TREQS, post("Contént-Length: 1".encode(), body=INNER))
add("a name with a quote", GARDEN, post(b'"Content-Length": 1', body=INNER))
add("an empty line before the request", "RFC 9112 2.2", b"\r\n" + get(), one_message)
add("an empty line of LF before the request", GARDEN, b"\n" + get())
add("white space in front of the request", GARDEN, b" " + get())
add(
    "an empty line after the content",
    KLEIN,
    post(length(3), body=b"abc") + b"\r\n" + INNER,
    two_messages,
)
add(
    "bytes after the content",
    WATCHFIRE,
    post(length(3), body=b"abcdef\r\n") + INNER,
    lambda got: len(got) == 2 and got[0].body == b"abc" and refused(got[1:]),
)

# Request lines.

for name, source, line in [
    ("two spaces before the target", TREQS, b"GET  /bytes/1 HTTP/1.1"),
    ("two spaces before the version", TREQS, b"GET /bytes/1  HTTP/1.1"),
    ("a space after the version", TREQS, b"GET /bytes/1 HTTP/1.1 "),
    ("tabs", TREQS, b"GET\t/bytes/1\tHTTP/1.1"),
    ("a vertical tab", GARDEN, b"GET\x0b/bytes/1 HTTP/1.1"),
    ("a space in the target", TREQS, b"GET /bytes/1 x HTTP/1.1"),
    ("a version in the target", "CVE-2023-25690", b"GET /bytes/1 HTTP/1.1 HTTP/1.1"),
    ("no version", WATCHFIRE, b"GET /bytes/13"),
    ("HTTP/0.9", "RFC 9112 2.3", b"GET /bytes/13 HTTP/0.9"),
    ("HTTP/2.0", TREQS, b"GET /bytes/1 HTTP/2.0"),
    ("a version in lower case", TREQS, b"GET /bytes/1 http/1.1"),
    ("a version with zeros", TREQS, b"GET /bytes/1 HTTP/01.1"),
    ("a version with a sign", GARDEN, b"GET /bytes/1 HTTP/+1.1"),
    ("a version with one number", GARDEN, b"GET /bytes/1 HTTP/1"),
    ("another protocol", TREQS, b"GET /bytes/1 HTTPS/1.1"),
    ("a fragment", "CVE-2023-45539", b"GET /bytes/1#/x HTTP/1.1"),
    ("NUL in the target", TREQS, b"GET /bytes/1\x00 HTTP/1.1"),
    ("CR in the target", TREQS, b"GET /bytes/1\rx HTTP/1.1"),
    ("a target that is no path", TREQS, b"GET bytes/1 HTTP/1.1"),
    ("a method with a colon", TREQS, b"GET: /bytes/1 HTTP/1.1"),
    ("a method with a parenthesis", TREQS, b"G(ET /bytes/1 HTTP/1.1"),
    ("no method", GARDEN, b" /bytes/1 HTTP/1.1"),
    ("the preface of HTTP/2", H2C, b"PRI * HTTP/2.0"),
]:
    add(f"request line with {name}", source, line + b"\r\n" + HOST + b"\r\n" + INNER)

# Hosts.

for name, source, lines in [
    ("two hosts", "RFC 9112 3.2", b"Host: localhost\r\nHost: inner\r\n"),
    ("two hosts that are one", "RFC 9112 3.2", b"Host: localhost\r\nHost: localhost\r\n"),
    ("no host", "RFC 9112 3.2", b""),
    ("a host with a space before the colon", TREQS, b"Host : localhost\r\n"),
    ("a host in a folded line", TREQS, b"Host:\r\n localhost\r\n"),
    ("a list of hosts", TREQS, b"Host: localhost, inner\r\n"),
    ("a host with a path", TREQS, b"Host: localhost/x\r\n"),
    ("a host with a user", TREQS, b"Host: user@localhost\r\n"),
    ("a host with a bad port", TREQS, b"Host: localhost:x\r\n"),
    ("a host with a space inside", TREQS, b"Host: local host\r\n"),
]:
    add(name, source, b"GET /bytes/1 HTTP/1.1\r\n" + lines + b"\r\n" + INNER)
add(
    "an absolute target that contradicts the host",
    "RFC 9112 3.2.2",
    b"GET http://inner/bytes/1 HTTP/1.1\r\n" + HOST + b"\r\n",
    one_message,
)
add(
    "an absolute target without a host",
    "RFC 9112 3.2",
    b"GET http://localhost/bytes/1 HTTP/1.1\r\n\r\n" + INNER,
)
add(
    "an absolute target with a user",
    TREQS,
    b"GET http://localhost@inner/bytes/1 HTTP/1.1\r\n" + HOST + b"\r\n" + INNER,
)
add(
    "an absolute target of another scheme",
    TREQS,
    b"GET ftp://localhost/bytes/1 HTTP/1.1\r\n" + HOST + b"\r\n",
    one_message,
)

# Chunks.

THREE = b"3\r\nabc\r\n"


def broken(name: str, source: str, body: bytes) -> None:
    """Chunks that no strict parser accepts, for a handler that responds after their end."""
    add(name, source, post(CHUNKED, target=b"/upload", body=body + INNER), cut_off)


for name, source, body in [
    ("a size with 0x", "CVE-2022-24801", b"0x3\r\nabc\r\n"),
    ("a size with a plus sign", "CVE-2022-24761", b"+3\r\nabc\r\n"),
    ("a size with a minus sign", GARDEN, b"-3\r\nabc\r\n"),
    ("a size with an underscore", "CVE-2023-47627", b"0_3\r\nabc\r\n"),
    ("a size with a space in front", GARDEN, b" 3\r\nabc\r\n"),
    ("a size with an empty line in front", GARDEN, b"\r\n3\r\nabc\r\n"),
    ("a size that is empty", GARDEN, b"\r\nabc\r\n"),
    ("a size that is no number", GARDEN, b"g\r\nabc\r\n"),
    ("a size beyond 2^64", "CVE-2021-32714", b"10000000000000003\r\nabc\r\n"),
    ("a size of 2^64 - 1", "CVE-2021-32714", b"f0000000000000003\r\nabc\r\n"),
    ("a size line that ends in LF", "CVE-2025-22871", b"3\nabc\r\n"),
    ("a size line that ends in CR", GARDEN, b"3\rabc\r\n"),
    ("a size line that ends in CR CR LF", GARDEN, b"3\r\r\nabc\r\n"),
    ("an extension with LF", "CVE-2025-22871", b"3;x\nabc\r\n"),
    ("an extension with CR", "CVE-2025-55315", b"3;x\rabc\r\n"),
    ("an extension with CR and text", "CVE-2025-55315", b"3;\rx\r\nabc\r\n"),
    ("an extension with NUL", "CVE-2021-22960", b"3;\x00\r\nabc\r\n"),
    ("a space inside the size", GARDEN, b"3 3\r\nabc\r\n"),
    ("data longer than its size", FUNKY, b"3\r\nabcd\r\n"),
    ("data without its end", "CVE-2025-43859", b"3\r\nabc"),
    ("data that ends in any two bytes", "CVE-2025-43859", b"3\r\nabcXX"),
    ("data that ends in LF", FUNKY, b"3\r\nabc\n"),
    ("data that ends in CR", FUNKY, b"3\r\nabc\r"),
]:
    broken(f"chunk with {name}", source, body + LAST_CHUNK)
add(
    "chunk with an extension",
    "RFC 9112 7.1.1",
    post(CHUNKED, body=b"3;a=b;c\r\nabc\r\n" + LAST_CHUNK),
    content(b"abc"),
)
add(
    "chunk with zeros in front",
    "RFC 9112 7.1",
    post(CHUNKED, body=b"0003\r\nabc\r\n00" + LAST_CHUNK),
    content(b"abc"),
)
broken("chunk with white space after the size", FUNKY, b"3 \r\nabc\r\n" + LAST_CHUNK)
broken("a last chunk that ends in LF", FUNKY, THREE + b"0\n\n")
broken("a last chunk whose empty line is LF", FUNKY, THREE + b"0\r\n\n")
broken("a last chunk without its empty line", FUNKY, THREE + b"0\r\n")
broken("trailers that end in LF", "CVE-2025-22871", THREE + b"0\r\nX: x\n\r\n")
broken("a trailer in a folded line", FUNKY, THREE + b"0\r\nX: x\r\n y\r\n\r\n")
broken("a trailer without a colon", "CVE-2023-46589", THREE + b"0\r\nX\r\n\r\n")
broken("a trailer with a space before the colon", FUNKY, THREE + b"0\r\nX : x\r\n\r\n")
broken("a trailer with NUL", FUNKY, THREE + b"0\r\nX: \x00\r\n\r\n")
add(
    "a trailer that sets a length",
    "CVE-2023-40175",
    post(CHUNKED, body=THREE + b"0\r\n" + SIZED + b"\r\n\r\n"),
    one_message,
)
add(
    "a trailer that sets TE",
    "RFC 9110 6.5.1",
    post(CHUNKED, body=THREE + b"0\r\n" + CHUNKED + b"\r\n\r\n"),
    one_message,
)
broken("trailers without end", "CVE-2023-46589", THREE + b"0\r\n" + b"X: x\r\n" * 20_000)

# Content that a handler does not read, or that its method does not expect.

add(
    "CL.0: content of a request that is refused",
    BROWSER,
    post(SIZED, target=b"/nowhere", body=INNER),
    one_message,
)
add(
    "CL.0: content of a request that is answered early",
    BROWSER,
    post(SIZED, target=b"/early", body=INNER),
    one_message,
)
add(
    "CL.0: chunks of a request that is answered early",
    BROWSER,
    post(CHUNKED, target=b"/early", body=chunk(INNER) + LAST_CHUNK),
    one_message,
)
add("GET with content", BROWSER, get(SIZED, body=INNER), one_message)
add("GET with chunks", BROWSER, get(CHUNKED, body=chunk(INNER) + LAST_CHUNK), one_message)
add(
    "HEAD with content",
    KLEIN,
    get(SIZED, body=INNER).replace(b"GET", b"HEAD", 1).replace(b"/bytes/1 ", b"/nowhere "),
    one_message,
)
add(
    "OPTIONS with content",
    MUST_DIE,
    post(SIZED, target=b"*", body=INNER).replace(b"POST", b"OPTIONS", 1),
    one_message,
)
add(
    "CONNECT with content",
    "CVE-2021-21295",
    post(SIZED, target=b"localhost:1", body=INNER).replace(b"POST", b"CONNECT", 1),
    one_message,
)
add(
    "CONNECT with chunks",
    TREQS,
    post(CHUNKED, target=b"localhost:1", body=chunk(INNER) + LAST_CHUNK).replace(
        b"POST", b"CONNECT", 1
    ),
    one_message,
)
add(
    "TRACE with content",
    TREQS,
    post(SIZED, target=b"/x", body=INNER).replace(b"POST", b"TRACE", 1),
    one_message,
)
add(
    "a method nobody knows, with content",
    TREQS,
    post(SIZED, target=b"/x", body=INNER).replace(b"POST", b"FOO", 1),
    one_message,
)
add("no length at all", BROWSER, post(target=b"/nowhere") + INNER, two_messages)

# Expectations and upgrades.

for name, line in [
    ("100-continue", b"Expect: 100-continue"),
    ("in upper case", b"Expect: 100-CONTINUE"),
    ("with a word in front", b"Expect: y 100-continue"),
    ("with a list", b"Expect: 100-continue, x"),
    ("twice", b"Expect: 100-continue\r\nExpect: 100-continue"),
    ("that nobody knows", b"Expect: banana"),
    ("that is empty", b"Expect:"),
]:
    add(f"expectation {name}", MUST_DIE, post(line, SIZED, body=INNER), one_message)
    add(f"expectation {name} on GET", MUST_DIE, get(line, SIZED, body=INNER), one_message)
add(
    "expectation in HTTP/1.0",
    MUST_DIE,
    post(
        b"Expect: 100-continue", SIZED, b"Connection: keep-alive", body=INNER, version=b"HTTP/1.0"
    ),
    one_message,
)
add(
    "expectation in a folded line",
    "CVE-2025-32094",
    post(b"Expect:\r\n 100-continue", SIZED, body=INNER),
)
add(
    "expectation with a length of 0",
    MUST_DIE,
    post(b"Expect: 100-continue", length(0)) + INNER,
    two_messages,
)
UPGRADE = [
    b"Connection: Upgrade, HTTP2-Settings",
    b"Upgrade: h2c",
    b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
]
add("upgrade to h2c", H2C, get(*UPGRADE) + INNER, two_messages)
add("upgrade to h2c with content", H2C, post(*UPGRADE, SIZED, body=INNER), one_message)
add("upgrade to h2c that connection does not name", H2C, get(*UPGRADE[1:]) + INNER, two_messages)
add(
    "upgrade to a websocket",
    "Egorov: websocket smuggling (2019)",
    get(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 777") + INNER,
    two_messages,
)
add(
    "upgrade to TLS",
    "RFC 2817",
    get(b"Connection: Upgrade", b"Upgrade: TLS/1.0") + INNER,
    two_messages,
)

# Heads that are too large for one of two parsers.

add("a name of 64 KiB", "CVE-2021-40346", post(b"X" * 65_600 + b": x", SIZED, body=INNER))
add(
    "a length after a value of 64 KiB",
    "CVE-2021-40346",
    post(b"X: " + b"x" * 65_600, SIZED, body=INNER),
)
add("ten thousand field lines", GARDEN, post(*[b"X: x"] * 10_000, SIZED, body=INNER))
