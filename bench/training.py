"""Workload of the profiling build in `make optimized`: servers, gateways and applications over each
protocol.

The compiler orders and inlines by what ran here, so it covers a bit of everything rather than what
benches measure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from .ours import OursError, gateway, generate, make_certificate, running

VERSIONS = ("3", "2", "1.1")
BROWSER = (
    "user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "accept-encoding: gzip, deflate, br, zstd",
    "accept-language: en-GB,en;q=0.9,de;q=0.8",
    "cookie: session=0123456789abcdef0123456789abcdef; theme=dark",
)
"""Header fields of a browser's requests, which are more than half of these requests."""

UPSTREAM = """
[[sites.routes]]
match = {{ path = "/api/*" }}
respond = "an answer of the application"
[[sites.routes]]
files = "{pages}"
"""
GATEWAY = """
[[sites.routes]]
match = {{ path = "/static/*" }}
strip_prefix = true
layers = ["compress"]
files = "{pages}"
[[sites.routes]]
proxy = {{ servers = ["http://127.0.0.1:{port}"] }}
"""


def make_pages(folder: Path) -> None:
    words = "<p>Requests and answers, each with some text that can be compressed, as pages have it.</p>\n"
    for name, size in (
        ("small.txt", 13),
        ("page.html", 9_000),
        ("script.js", 70_000),
        ("large.bin", 4 << 20),
    ):
        (folder / name).write_text((words * (size // len(words) + 1))[:size])


def streams(version: str, count: int) -> list[str]:
    """Sends this many concurrent requests per connection, where the protocol has streams."""
    return ["--http", version] + ([] if version == "1.1" else ["-m", str(count)])


def fields(lines: Sequence[str]) -> list[str]:
    return [argument for line in lines for argument in ("-H", line)]


def pages(version: str, origin: str) -> Iterator[tuple[list[str], int, list[str]]]:
    """Loads on files: arguments, requests and addresses."""
    few = [f"{origin}/{name}" for name in ("small.txt", "page.html", "script.js")]
    yield [*streams(version, 10), "-c", "10", *fields(BROWSER)], 3000, few
    yield [*streams(version, 1), "-c", "50", *fields(BROWSER)], 3000, few
    yield [*streams(version, 100), "-c", "4"], 6000, [f"{origin}/small.txt"]
    yield [*streams(version, 4), "-c", "2"], 40, [f"{origin}/large.bin"]


def handshakes(version: str, origin: str) -> Iterator[tuple[list[str], int, list[str]]]:
    for resume in ([], ["--resume"]):
        yield ["--http", version, "-c", "2", "--reconnect", *resume], 100, [f"{origin}/small.txt"]


def passed_on(version: str, origin: str) -> Iterator[tuple[list[str], int, list[str]]]:
    yield (
        [*streams(version, 10), "-c", "10", *fields(BROWSER)],
        3000,
        [f"{origin}/api/items?page=2"],
    )
    yield (
        [*streams(version, 1), "-c", "50", *fields(BROWSER)],
        3000,
        [f"{origin}/api/items?page=2", f"{origin}/page.html"],
    )
    yield (
        [*streams(version, 10), "-c", "4", "-X", "POST", "--data-size", "2000"],
        1000,
        [f"{origin}/api/items"],
    )
    yield [*streams(version, 4), "-c", "2"], 20, [f"{origin}/large.bin"]
    yield [*streams(version, 10), "-c", "4", *fields(BROWSER)], 1500, [f"{origin}/static/page.html"]


def application(version: str, origin: str) -> Iterator[tuple[list[str], int, list[str]]]:
    asked = [
        f"{origin}/{path}"
        for path in ("hello", "users/17?wants=all", "fetch/17?wants=all", "later")
    ]
    yield [*streams(version, 10), "-c", "10", *fields(BROWSER)], 6000, asked
    yield [*streams(version, 100), "-c", "4"], 10000, [f"{origin}/hello"]
    yield [*streams(version, 1), "-c", "20"], 3000, asked
    yield [*streams(version, 4), "-c", "4"], 100, [f"{origin}/large"]
    yield (
        [*streams(version, 10), "-c", "4", "-X", "POST", "--data-size", "5000"],
        1000,
        [f"{origin}/echo"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.training", description=__doc__)
    parser.add_argument("program", type=Path, help="`pronghorn`, server, gateway and generator")
    parser.add_argument("package", type=Path, help="folder of the npm package, with the addon")
    options = parser.parse_args()
    program = options.program.resolve()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        work = Path(folder)
        make_certificate(work)
        site = work / "site"
        site.mkdir()
        make_pages(site)
        identity = [str(work / "cert.pem"), str(work / "key.pem")]

        def start(command: Sequence[str]) -> int:
            return servers.enter_context(running(command, work))

        serve = [
            str(program),
            "serve",
            str(site),
            "--listen",
            "127.0.0.1:0",
            "--workers",
            "1",
            "--quiet",
        ]
        serve += ["--cert", identity[0], "--key", identity[1], "--state-dir", str(work / "state")]
        node = ["node", str(Path(__file__).parent / "training.cjs"), str(options.package.resolve())]
        upstream = start(gateway(program, work / "upstream", UPSTREAM.format(pages=site)))
        front = GATEWAY.format(pages=site, port=upstream)
        files = f"https://127.0.0.1:{start(serve)}"
        proxy = f"https://127.0.0.1:{start(gateway(program, work / 'gateway', front, work))}"
        secure = f"https://127.0.0.1:{start(node + identity)}"
        clear = f"http://127.0.0.1:{start(node)}"
        for version in VERSIONS:
            loads = [
                *pages(version, files),
                *handshakes(version, files),
                *passed_on(version, proxy),
                *application(version, secure),
            ]
            if version == "1.1":
                loads += application(version, clear)
            for load, units, urls in loads:
                generate(program, load, units, *urls)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OursError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
