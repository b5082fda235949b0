"""`python -m bench.scale`: growth with the size of a configuration or the number of clients,
compared with nginx.

Each dimension increases one count. Measured per step and server: seconds to check the
configuration, seconds until it is served, memory, CPU of a request to the last entry of the
configuration, and the longest request time during a reload. A column that grows tenfold with a
tenfold size is linear; one that grows a hundredfold is a bug.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .ours import SECONDS, OursError, generate, make_certificate
from .processes import cpu_seconds, family, memory_kib

REQUESTS = 2_000
HANDSHAKES = 200
RELOADS = 3
CONTENT_BYTES = 1 << 20
CONNECT_SECONDS = 30


@dataclass(frozen=True)
class Place:
    """Address and files of a server in one step."""

    folder: Path
    port: int
    backend: int

    @property
    def certificate(self) -> tuple[Path, Path]:
        return self.folder.parent / "cert.pem", self.folder.parent / "key.pem"


@dataclass(frozen=True)
class Dimension:
    """One dimension.

    `ours` and `nginx` write a configuration with `size` entries; `last` is the URL's host and path
    for the last one.
    """

    ours: Callable[[int, Place], str]
    nginx: Callable[[int, Place], str]
    last: Callable[[int], str] = lambda _: "all.test/"
    secure: bool = False
    clients: Callable[[int, Place], contextlib.AbstractContextManager] | None = None
    """Connections that stay open while memory and requests are measured."""
    most: int = 1_000_000


@dataclass
class Result:
    dimension: str
    size: int
    server: str
    figures: dict[str, float] = field(default_factory=dict)


# ---- configurations ------------------------------------------------------------------------------


def our_sites(size: int, _: Place, more: str = "", tls: str = "") -> str:
    return "".join(
        f'[[sites]]\nhosts = ["s{number}.test"]\n{tls.format(number)}\n[[sites.routes]]\nrespond = "x"\n{more}\n'
        for number in range(size)
    )


def nginx_sites(size: int, place: Place, more: str = "", listen: str = "") -> str:
    return "".join(
        f"server {{ listen 127.0.0.1:{place.port} {listen}; server_name s{number}.test; {more.format(number)} "
        f'location / {{ return 200 "x"; }} }}\n'
        for number in range(size)
    )


def copies(size: int, place: Place) -> str:
    """Copies a certificate for each site; returns the folder."""
    for number in range(size):
        for source, kind in zip(place.certificate, ("cert", "key"), strict=True):
            shutil.copy(source, place.folder / f"{number}.{kind}")
    return str(place.folder)


def our_certificates(size: int, place: Place) -> str:
    folder = copies(size, place)
    return our_sites(
        size, place, tls=f'tls = {{{{ cert = "{folder}/{{0}}.cert", key = "{folder}/{{0}}.key" }}}}'
    )


def nginx_certificates(size: int, place: Place) -> str:
    folder = copies(size, place)
    files = f"ssl_certificate {folder}/{{0}}.cert; ssl_certificate_key {folder}/{{0}}.key;"
    return nginx_sites(size, place, files, "ssl")


def our_layers(size: int, place: Place) -> str:
    return our_sites(
        size,
        place,
        'layers = ["compress", { name = "rate-limit", requests = 1000000000, per = "1s" }]',
    )


def nginx_layers(size: int, place: Place) -> str:
    zones = "".join(
        f"limit_req_zone $server_name zone=z{number}:64k rate=1000000r/s;\n"
        for number in range(size)
    )
    return zones + nginx_sites(size, place, "gzip on; limit_req zone=z{0} burst=1000000 nodelay;")


def our_routes(size: int, _: Place) -> str:
    routes = (
        f'[[sites.routes]]\nmatch = "/p{number}/*"\nrespond = "x"\n' for number in range(size)
    )
    return '[[sites]]\nhosts = ["all.test"]\n' + "".join(routes)


def nginx_routes(size: int, place: Place) -> str:
    routes = (f'location /p{number}/ {{ return 200 "x"; }}\n' for number in range(size))
    return f"server {{ listen 127.0.0.1:{place.port}; server_name all.test;\n{''.join(routes)}}}\n"


def our_upstreams(size: int, place: Place) -> str:
    routes = (
        f'[[sites.routes]]\nmatch = "/p{number}/*"\nproxy = "u{number}"\n' for number in range(size)
    )
    servers = (
        f'[upstreams.u{number}]\nservers = ["http://127.0.0.1:{place.backend}"]\n'
        for number in range(size)
    )
    return '[[sites]]\nhosts = ["all.test"]\n' + "".join(routes) + "".join(servers)


def nginx_upstreams(size: int, place: Place) -> str:
    upstreams = (
        f"upstream u{number} {{ server 127.0.0.1:{place.backend}; keepalive 16; }}\n"
        for number in range(size)
    )
    routes = (
        f"location /p{number}/ {{ proxy_pass http://u{number}; {NGINX_PROXY} }}\n"
        for number in range(size)
    )
    return (
        "".join(upstreams)
        + f"server {{ listen 127.0.0.1:{place.port}; server_name all.test;\n{''.join(routes)}}}\n"
    )


def addresses(size: int) -> Iterator[str]:
    return (f"127.1.{number >> 8}.{number & 255}" for number in range(size))


def our_addresses(size: int, place: Place) -> str:
    servers = json.dumps([f"http://{address}:{place.backend}" for address in addresses(size)])
    route = '[[sites]]\nhosts = ["all.test"]\n[[sites.routes]]\nproxy = "app"\n'
    return f'{route}[upstreams.app]\nservers = {servers}\ncheck = {{ path = "/", every = "5s" }}\n'


def nginx_addresses(size: int, place: Place) -> str:
    servers = "".join(f"server {address}:{place.backend};\n" for address in addresses(size))
    route = f"location / {{ proxy_pass http://app; {NGINX_PROXY} }}"
    return (
        f"upstream app {{ {servers} keepalive {size + 16}; }}\n"
        f"server {{ listen 127.0.0.1:{place.port}; server_name all.test; {route} }}\n"
    )


NGINX_PROXY = 'proxy_http_version 1.1; proxy_set_header Connection "";'


def our_files(_: int, place: Place) -> str:
    return f'[[sites]]\nhosts = ["all.test"]\n[[sites.routes]]\nfiles = "{place.folder.parent / "files"}"\n'


def nginx_files(_: int, place: Place) -> str:
    files = place.folder.parent / "files"
    return f"server {{ listen 127.0.0.1:{place.port} backlog=4096; server_name all.test; root {files}; }}\n"


# ---- clients -------------------------------------------------------------------------------------


def asking(path: str, reads: bool) -> Callable[[int, Place], contextlib.AbstractContextManager]:
    """Opens this many connections with one request each, whose response is read or not."""

    @contextlib.contextmanager
    def held(size: int, place: Place) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            clients = []
            for number in range(size):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
                # One address does not have enough ports.
                client.bind((f"127.2.{number >> 12 & 255}.1", 0))
                client.settimeout(CONNECT_SECONDS)
                client.connect(("127.0.0.1", place.port))
                client.sendall(f"GET {path} HTTP/1.1\r\nhost: all.test\r\n\r\n".encode())
                clients.append(client)
            for client in clients:
                # The part of a response that the server has started to send is in its memory.
                client.recv(1 << 16 if reads else 1)
            yield

    return held


DIMENSIONS = {
    "sites": Dimension(our_sites, nginx_sites, lambda size: f"s{size - 1}.test/"),
    "certificates": Dimension(
        our_certificates,
        nginx_certificates,
        lambda size: f"s{size - 1}.test/",
        secure=True,
        most=10_000,
    ),
    "layers": Dimension(our_layers, nginx_layers, lambda size: f"s{size - 1}.test/", most=10_000),
    "routes": Dimension(our_routes, nginx_routes, lambda size: f"all.test/p{size - 1}/"),
    "upstreams": Dimension(
        our_upstreams, nginx_upstreams, lambda size: f"all.test/p{size - 1}/", most=10_000
    ),
    "addresses": Dimension(our_addresses, nginx_addresses, most=10_000),
    "connections": Dimension(
        our_files, nginx_files, lambda _: "all.test/small", clients=asking("/small", reads=True)
    ),
    "unread": Dimension(
        our_files, nginx_files, lambda _: "all.test/small", clients=asking("/large", reads=False)
    ),
}


# ---- servers -------------------------------------------------------------------------------------


def ours(
    program: Path, dimension: Dimension, size: int, place: Place
) -> tuple[list[str], list[str]]:
    """Returns the commands that check and serve a configuration."""
    listen = f"127.0.0.1:{place.port}" if dimension.secure else f"http://127.0.0.1:{place.port}"
    config = place.folder / "pronghorn.toml"
    head = f'[server]\nlisten = ["{listen}"]\nworkers = 1\n[log]\naccess = "off"\n'
    # All clients share one address, or nearly.
    limits = "[limits]\nconnections_per_client = 1000000\nconnections = 1000000\nresponse_bytes_per_second = 0\n"
    times = "".join(f"{name}_timeout = '10m'\n" for name in ("idle", "response", "head"))
    config.write_text(head + limits + times + dimension.ours(size, place))
    return [str(program), "check", str(config)], [str(program), "run", "-c", str(config)]


def nginx(
    program: Path, dimension: Dimension, size: int, place: Place
) -> tuple[list[str], list[str]]:
    config = place.folder / "nginx.conf"
    paths = "".join(
        f"{kind}_temp_path {place.folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # nginx's workers must be able to read this user's files.
    user = " user root;" if os.geteuid() == 0 else ""
    head = (
        f"daemon off; worker_processes 1; pid {place.folder}/pid; error_log stderr error;{user}\n"
    )
    events = "worker_rlimit_nofile 200000; events { worker_connections 100000; }\n"
    http = "access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; send_timeout 600s; sendfile on;\n"
    hashes = "server_names_hash_max_size 1048576; server_names_hash_bucket_size 128;\n"
    config.write_text(
        f"{head}{events}http {{ {http}{hashes}{paths}\n{dimension.nginx(size, place)} }}\n"
    )
    base = [str(program), "-e", "stderr", "-p", str(place.folder), "-c", str(config)]
    return [*base, "-t"], base


@contextlib.contextmanager
def serving(command: list[str], place: Place) -> Iterator[tuple[subprocess.Popen, float]]:
    """Starts a server; yields it with the seconds until it accepted a connection."""
    began = time.monotonic()
    with (place.folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while True:
            if server.poll() is not None or time.monotonic() - began > SECONDS:
                raise OursError(
                    f"{command[0]} did not start: {(place.folder / 'log').read_text()[-500:]}"
                )
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", place.port)).close()
                break
            time.sleep(0.002)
        yield server, time.monotonic() - began
    finally:
        server.kill()
        for pid in family(server.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.wait()


def longest_while_reloading(
    server: subprocess.Popen, ready: float, place: Place, host: str
) -> float:
    """Returns the longest request time in milliseconds over a few reloads."""
    longest, over = 0.0, threading.Event()

    def ask() -> None:
        nonlocal longest
        name, path = host.split("/", 1)
        request = f"GET /{path} HTTP/1.1\r\nhost: {name}\r\n\r\n".encode()
        while not over.is_set():
            # A server may close connections during a reload.
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", place.port), CONNECT_SECONDS) as client,
            ):
                while not over.is_set():
                    began = time.perf_counter()
                    client.sendall(request)
                    if not client.recv(1 << 16):
                        break
                    longest = max(longest, time.perf_counter() - began)
                    time.sleep(0.0005)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(RELOADS):
        server.send_signal(signal.SIGHUP)
        # The new configuration is read as at the start, and the previous one is freed.
        time.sleep(0.3 + 3 * ready)
    over.set()
    asking.join()
    return longest * 1e3


def measure(
    result: Result,
    dimension: Dimension,
    place: Place,
    commands: tuple[list[str], list[str]],
    load: Path,
) -> None:
    check, serve = commands
    size = result.size
    began = time.monotonic()
    checked = subprocess.run(check, capture_output=True, text=True, timeout=SECONDS, check=False)
    if checked.returncode != 0:
        raise OursError(f"{' '.join(check)}: {checked.stderr[-500:]}")
    result.figures["check s"] = time.monotonic() - began
    with serving(serve, place) as (server, ready):
        result.figures["start s"] = ready
        host = dimension.last(size)
        held = dimension.clients(size, place) if dimension.clients else contextlib.nullcontext()
        with held:
            url = f"{'https' if dimension.secure else 'http'}://{host.replace('/', f':{place.port}/', 1)}"
            options = [
                "--connect-to",
                f"127.0.0.1:{place.port}",
                *(["--reconnect"] if dimension.secure else []),
            ]
            requests = HANDSHAKES if dimension.secure else REQUESTS
            generate(load, options, requests // 10, url)
            before = cpu_seconds(family(server.pid))
            generate(load, options, requests, url)
            result.figures["request µs"] = (
                (cpu_seconds(family(server.pid)) - before) / requests * 1e6
            )
            result.figures["memory MiB"] = memory_kib(family(server.pid))[1] / 1024
        if not dimension.secure and not dimension.clients:
            result.figures["reload ms"] = longest_while_reloading(server, ready, place, host)


# ---- the command ---------------------------------------------------------------------------------


def sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def table(results: list[Result]) -> str:
    columns = ["check s", "start s", "request µs", "memory MiB", "reload ms"]
    rows = [["dimension", "size", "server", *columns], ["---"] * (3 + len(columns))]
    before: dict[tuple[str, str], Result] = {}
    for result in results:
        smaller = before.get((result.dimension, result.server))
        cells = []
        for column in columns:
            value = result.figures.get(column)
            text = "" if value is None else f"{value:.3g}"
            if value is not None and smaller and (old := smaller.figures.get(column)):
                text += f" (x {value / old:.2g})"
            cells.append(text)
        rows.append([result.dimension, f"{result.size:,}", result.server, *cells])
        before[result.dimension, result.server] = result
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "--dimensions", metavar="NAMES", default=",".join(DIMENSIONS), help="[default: all]"
    )
    parser.add_argument(
        "--sizes",
        metavar="NUMBERS",
        type=sizes,
        default=sizes("10,100,1000,10000"),
        help="[default: 10,100,1000,10000]",
    )
    options = parser.parse_args()
    program = Path(os.environ.get("PRONGHORN", "target/release/pronghorn")).resolve()
    found = shutil.which(
        os.environ.get("PRONGHORN_BENCH_NGINX", "nginx"), path=f"{os.environ['PATH']}:/usr/sbin"
    )
    servers = {"pronghorn": (ours, program)} | ({"nginx": (nginx, Path(found))} if found else {})
    unknown = set(options.dimensions.split(",")) - set(DIMENSIONS)
    if unknown or not program.exists():
        what = f"no program at {program}; run `make build-program`, or set PRONGHORN"
        if unknown:
            what = f"unknown dimension {', '.join(sorted(unknown))}; known: {', '.join(DIMENSIONS)}"
        print(f"error: {what}", file=sys.stderr)
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        root = Path(work)
        make_certificate(root)
        (root / "files").mkdir()
        (root / "files" / "small").write_bytes(b"x" * 13)
        (root / "files" / "large").write_bytes(bytes(CONTENT_BYTES))
        backend = free_port()
        behind = root / "backend"
        behind.mkdir()
        (behind / "pronghorn.toml").write_text(
            f'[server]\nlisten = ["http://0.0.0.0:{backend}"]\nworkers = 1\n[log]\naccess = "off"\n[limits]\n'
            "connections_per_client = 1000000\nconnections = 1000000\n"
            '[[sites]]\nhosts = ["*"]\n[[sites.routes]]\nrespond = "x"\n'
        )
        stack.enter_context(
            serving(
                [str(program), "run", "-c", str(behind / "pronghorn.toml")],
                Place(behind, backend, 0),
            )
        )
        for name in options.dimensions.split(","):
            dimension = DIMENSIONS[name]
            for size in (size for size in options.sizes if size <= dimension.most):
                for server, (commands, path) in servers.items():
                    folder = root / f"{name}-{size}-{server}"
                    folder.mkdir()
                    place = Place(folder, free_port(), backend)
                    result = Result(name, size, server)
                    try:
                        measure(
                            result,
                            dimension,
                            place,
                            commands(path, dimension, size, place),
                            program,
                        )
                    except OursError as error:
                        print(f"{name}, {size}, {server}: {error}", file=sys.stderr)
                        continue
                    results.append(result)
                    print(f"{name}, {size}, {server}: {result.figures}", file=sys.stderr)
                    shutil.rmtree(folder)
    print(table(results))
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
