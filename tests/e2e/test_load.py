"""`pronghorn load`: its counts against those of the servers, its percentiles against a stall,
messages and exit codes.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.sync.server import ServerConnection, serve

from harness.counting_server import ANSWER, CountingServer
from harness.process import Process
from harness.server import (
    REPOSITORY,
    Server,
    echo_command,
    pronghorn,
    quic_go_server,
    serve_command,
)
from harness.waiting import eventually

REQUESTS_FAILED = 1
USAGE = 2
MISSING = 66
UNAVAILABLE = 69
TIMED_OUT = 75
PROTOCOL = 76

COUNTER = {"1.1": "requests_http1", "2": "requests_http2", "3": "requests_http3"}
NAME = {"1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}


@pytest.fixture(params=["1.1", "2", "3"])
def version(request) -> str:
    return request.param


@pytest.fixture
def peer(start, identity) -> Server:
    """Runs quic-go and Go's net/http on one port."""
    return start([quic_go_server(), "-cert", identity.cert, "-key", identity.key])


@pytest.fixture
def websockets_server(identity) -> Iterator[str]:
    """Yields the URL of an echo server on the Python library websockets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    context.set_alpn_protocols(["http/1.1"])

    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0, ssl=context) as server, ThreadPoolExecutor() as pool:
        pool.submit(server.serve_forever)
        yield f"https://localhost:{server.socket.getsockname()[1]}/"
        server.shutdown()


@pytest.fixture
def run(ca):
    """Runs `pronghorn load`, by default trusting the test's authority."""

    def run(
        *arguments, trust=("--cacert", None), code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        trusting = [ca if part is None else part for part in trust]
        command = [str(part) for part in [pronghorn(), "load", *trusting, *arguments]]
        done = subprocess.run(command, capture_output=True, timeout=100)
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        return done

    return run


@pytest.fixture
def load(run):
    """Returns the report of a run."""

    def load(*arguments, code: int = 0) -> dict:
        return json.loads(run("--json", *arguments, code=code).stdout)

    return load


def streams(version: str) -> tuple[str, ...]:
    """Returns the flags for concurrent requests, where the protocol supports them."""
    return () if version == "1.1" else ("-m", "8")


def stopped(server: Server) -> dict[str, int]:
    server.terminate()
    assert server.wait() == 0, server.lines
    return server.counters()


def test_report_matches_the_counters_of_the_server(load, start, identity, site, version):
    server = start(serve_command(site.root, identity, "--quiet", "--stats"))
    size = len(site.read("medium.bin"))
    report = load(
        "--http", version, "-c", "3", *streams(version), "-n", "500", f"{server.origin}/medium.bin"
    )
    assert report["requests"]["begun"] == report["requests"]["status"]["2xx"] == 500
    assert report["body"]["received_bytes"] == 500 * size
    assert report["latency_us"]["head"]["count"] == report["latency_us"]["response"]["count"] == 500
    connections = report["connections"]
    assert (connections["opened"], connections["failed"], connections["resumed"]) == (3, 0, 0)
    assert connections["protocols"] == {NAME[version]: 3}
    assert report["transport"]["received_bytes"] > 500 * size
    counters = stopped(server)
    assert counters[COUNTER[version]] == 500
    assert counters["quic_accepted" if version == "3" else "tcp_accepted"] == 3


@pytest.mark.parametrize("scheme", ["https", "wss"])
def test_websocket_messages_are_counted(load, handler, version, scheme):
    url = f"{handler.origin}/ws".replace("https", scheme)
    arguments = (
        "--http",
        version,
        "--websocket",
        "-c",
        "3",
        *streams(version),
        "-n",
        "500",
        "--data-size",
        "70000",
    )
    report = load(*arguments, url)
    opened = 3 * int(streams(version)[-1] if streams(version) else 1)
    assert report["websockets"] == {"opened": opened, "failed": 0, "ended": 0}
    assert report["requests"]["status"]["2xx"] == 500
    assert report["body"]["received_bytes"] == report["body"]["sent_bytes"] == 500 * 70_000
    assert report["connections"]["protocols"] == {NAME[version]: 3}


def test_websocket_messages_to_an_independent_server_are_counted(run, load, websockets_server):
    report = load("--http", "1.1", "--websocket", "-c", "4", "-n", "100", websockets_server)
    assert (report["websockets"]["opened"], report["requests"]["status"]["2xx"]) == (4, 100)
    words = run("--http", "1.1", "--websocket", "-n", "2", websockets_server).stdout.decode()
    assert "WebSocket https://" in words
    assert "messages     2 " in words
    assert "websockets   1 opened, 0 not granted, 0 ended" in words


def test_rejected_websockets_are_reported(run, start, identity, site, version):
    server = start(serve_command(site.root, identity))
    failed = run(
        "--http", version, "--websocket", f"{server.origin}/small.txt", code=PROTOCOL
    ).stderr.decode()
    assert "WebSocket" in failed or "websocket" in failed


def test_threads_share_connections_and_requests(load, start, identity, site, version):
    server = start(serve_command(site.root, identity, "--quiet", "--stats"))
    arguments = [
        "--http",
        version,
        "--threads",
        "3",
        "-c",
        "4",
        *streams(version),
        "-n",
        "400",
        "--warm-up",
        "0.2",
    ]
    report = load(*arguments, f"{server.origin}/small.txt")
    assert report["requests"]["status"]["2xx"] == 400
    assert report["requests"]["warm_up"] > 0
    assert len(report["threads"]) == 3
    assert report["connections"]["opened"] == 4
    assert stopped(server)[COUNTER[version]] == 400 + report["requests"]["warm_up"]


def test_fixed_rate_sends_exactly_that_many(load, start, identity, site, version):
    server = start(serve_command(site.root, identity, "--quiet", "--stats"))
    arguments = ["--http", version, "--rate", "150", "-c", "20", "-d", "2", "--warm-up", "1"]
    report = load(*arguments, f"{server.origin}/small.txt")
    requests = report["requests"]
    assert (requests["warm_up"], requests["begun"], requests["status"]["2xx"]) == (150, 300, 300)
    assert report["measured_seconds"] == 2
    assert report["latency_us"]["schedule_lag"]["count"] == 300
    assert stopped(server)[COUNTER[version]] == 450


def test_reconnect_opens_a_connection_for_each_request(load, start, identity, site, version):
    server = start(serve_command(site.root, identity, "--quiet", "--stats"))
    report = load(
        "--http", version, "--reconnect", "-c", "4", "-n", "40", f"{server.origin}/small.txt"
    )
    assert report["requests"]["status"]["2xx"] == 40
    assert report["connections"]["opened"] == report["latency_us"]["connect"]["count"] == 40
    assert report["plan"]["connection_use"] == "one_request"
    # A full handshake each time: the certificate alone has some hundred bytes.
    assert report["transport"]["received_bytes"] > 40 * 500
    counters = stopped(server)
    assert counters["quic_connected" if version == "3" else "tcp_accepted"] == 40


def test_connections_per_second_are_opened_at_that_rate(load, server, version):
    report = load(
        "--http",
        version,
        "--connections-per-second",
        "20",
        "-c",
        "10",
        "-d",
        "2",
        f"{server.origin}/small.txt",
    )
    assert report["requests"]["status"]["2xx"] == report["connections"]["opened"] == 40
    assert report["plan"]["rate_per_second"] == 20


@pytest.mark.parametrize("mode", ["off", "session", "early_data"])
def test_sessions_are_resumed_with_the_flag(load, start, identity, site, version, mode):
    server = start(serve_command(site.root, identity, "--quiet", "--stats"))
    flags = {"off": [], "session": ["--resume"], "early_data": ["--early-data"]}[mode]
    report = load(
        "--http",
        version,
        "--reconnect",
        *flags,
        "-c",
        "3",
        "-n",
        "30",
        f"{server.origin}/small.txt",
    )
    assert report["requests"]["status"]["2xx"] == report["connections"]["opened"] == 30
    assert report["plan"]["resumption"] == mode
    if mode == "early_data":
        # A response to early data precedes its connection's tickets, which may be too late for the
        # next one.
        assert 15 < report["connections"]["resumed"] <= 30
        assert report["connections"]["early_data_accepted"] == report["connections"]["resumed"]
    else:
        assert report["connections"]["resumed"] == {"off": 0, "session": 30}[mode]
        assert report["connections"]["early_data_accepted"] == 0
    counters = stopped(server)
    assert counters["early_data_accepted"] == report["connections"]["early_data_accepted"]
    resumed = report["connections"]["resumed"]
    # The end of the run may close the last three before the server has seen their handshakes end.
    assert resumed - 3 <= counters["quic_resumed" if version == "3" else "tcp_resumed"] <= resumed


def test_sessions_of_independent_servers_are_resumed(load, peer, version):
    report = load(
        "--http",
        version,
        "--reconnect",
        "--resume",
        "-c",
        "2",
        "-n",
        "20",
        f"{peer.origin}/request",
    )
    assert report["requests"]["status"]["2xx"] == report["connections"]["resumed"] == 20


def test_rejected_early_data_is_resent(load, start, identity, site, version):
    server = start(serve_command(site.root, identity, "--quiet", "--stats", "--early-data", "off"))
    arguments = ["--http", version, "--reconnect", "--early-data", "-n", "10"]
    report = load(*arguments, f"{server.origin}/small.txt")
    assert report["requests"]["status"]["2xx"] == report["connections"]["resumed"] == 10
    assert report["connections"]["early_data_accepted"] == 0
    assert stopped(server)["early_data_accepted"] == 0


def test_status_classes_of_several_urls_are_counted(load, peer, version):
    paths = ["/request", "/status/404", "/status/503", "/redirect/1", "/request"]
    report = load("--http", version, "-n", "50", *[f"{peer.origin}{path}" for path in paths])
    assert report["requests"]["status"] == {"1xx": 0, "2xx": 20, "3xx": 10, "4xx": 10, "5xx": 10}
    assert report["requests"]["errors"]["total"] == 0


@pytest.mark.parametrize("kind", ["file", "made"])
def test_upload_arrives_complete(load, peer, identity, version, kind, tmp_path):
    (tmp_path / "data").write_bytes(bytes(70_000))
    data = ["--data", tmp_path / "data"] if kind == "file" else ["--data-size", "70000"]
    with CountingServer(version, identity) as server:
        report = load(
            "--http", version, "-c", "2", *streams(version), "-n", "30", *data, f"{server.origin}/"
        )
        assert report["requests"]["status"]["2xx"] == 30
        assert report["body"]["sent_bytes"] == server.counts.body_bytes == 30 * 70_000
        assert report["plan"]["method"] == "POST"
    assert (
        load("--http", version, "-n", "30", *data, f"{peer.origin}/request")["requests"]["status"][
            "2xx"
        ]
        == 30
    )


def test_report_matches_independent_servers(load, identity, version):
    with CountingServer(version, identity) as server:
        report = load(
            "--http", version, "-c", "3", *streams(version), "-n", "300", f"{server.origin}/"
        )
        assert report["requests"]["status"]["2xx"] == server.counts.requests == 300
        assert report["body"]["received_bytes"] == 300 * len(ANSWER)
        assert report["connections"]["opened"] == server.counts.connections == 3


def test_stall_is_visible_at_a_fixed_rate_and_hidden_without(load, identity, version):
    stall = {"stall_at": 100, "stall_seconds": 1.0}
    with CountingServer(version, identity, **stall) as server:
        # A fifth of the requests are due during the stall; the average one of them waits for half
        # of it.
        fixed = load("--http", version, "--rate", "100", "-n", "500", f"{server.origin}/")
    with CountingServer(version, identity, **stall) as server:
        closed = load("--http", version, "-n", "500", f"{server.origin}/")
    for report in (fixed, closed):
        assert report["requests"]["status"]["2xx"] == 500
        assert report["latency_us"]["response"]["max"] >= 1e6
    latency = fixed["latency_us"]["response"]
    # Of those due during the stall, half waited longer than half of it: a tenth of all. A slow
    # machine only adds to it.
    assert latency["p90"] >= 0.45e6
    assert latency["p99"] >= 0.9e6
    assert fixed["requests"]["held_up"] >= 95
    assert "streams_taken" in {warning["kind"] for warning in fixed["warnings"]}
    # One request in five hundred met the stall: the 99th percentile shows none of it, only a slow
    # machine's own delay.
    assert closed["latency_us"]["response"]["p99"] < latency["p99"]


LOSSY_UPLINK = """
name = "test"
[up]
rate_mbit_per_second = 20
delay_ms = 2
loss_percent = 4
queue_ms = 200
[down]
rate_mbit_per_second = 20
delay_ms = 2
queue_ms = 200
"""


def test_losses_are_those_of_the_link(identity, version, tmp_path):
    (tmp_path / "profile.toml").write_text(LOSSY_UPLINK)
    far = shlex.join(str(part) for part in echo_command(identity, listen="10.77.0.2:443"))
    near = [
        pronghorn(),
        "load",
        "--json",
        "--http",
        version,
        "--no-verify",
        "-n",
        "20",
        "--data-size",
        "100000",
    ]
    command = [pronghorn(), "link", tmp_path / "profile.toml", "--far", far, "--far-ready", "443"]
    command += ["--report", tmp_path / "report.json", "--", *near, "https://10.77.0.2/upload"]
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=110)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["requests"]["status"]["2xx"] == 20
    lost = json.loads((tmp_path / "report.json").read_text())["up"]["packets_lost"]
    assert lost > 20
    # Lost acknowledgements are not retransmitted, and a few packets are declared lost too early.
    assert lost / 2 <= report["transport"]["lost_packets"] <= 2 * lost


def test_goaway_of_the_server_loses_no_request(load, identity):
    with CountingServer("2", identity, requests_per_connection=10) as server:
        report = load("--http", "2", "-c", "2", "-m", "4", "-n", "200", f"{server.origin}/")
        assert report["requests"]["status"]["2xx"] == server.counts.requests == 200
        assert report["connections"]["opened"] == server.counts.connections >= 20


def test_truncated_responses_are_errors(load, peer, version):
    report = load("--http", version, "-n", "5", f"{peer.origin}/cut", code=REQUESTS_FAILED)
    errors = report["requests"]["errors"]
    assert errors["total"] == 5
    assert errors["reset"] + errors["closed"] + errors["protocol"] == 5
    assert report["latency_us"]["response"]["count"] == 0
    assert {warning["kind"] for warning in report["warnings"]} >= {"errors"}


def test_server_crash_is_reported_and_ends_the_run(load, start, identity, site, version, ca):
    server = start(serve_command(site.root, identity, "--quiet"))
    command = [
        pronghorn(),
        "load",
        "--json",
        "--cacert",
        ca,
        "--http",
        version,
        "-c",
        "2",
        "--timeout",
        "2",
        "-d",
        "8",
    ]
    generator = Process([*command, f"{server.origin}/small.txt"])
    try:
        # The load starts with its first connection.
        wait_for_connection(server)
        server.kill()
        assert generator.wait() == REQUESTS_FAILED
        report = json.loads(generator.stdout)
    finally:
        generator.stop()
    requests = report["requests"]
    assert requests["errors"]["total"] > 0
    assert requests["begun"] == sum(requests["status"].values()) + requests["errors"]["total"]


def wait_for_connection(server: Server) -> None:
    """Returns a server's CPU time, which grows with the load."""
    before = server.cpu_seconds()
    eventually("the server to use CPU time", lambda: server.cpu_seconds() > before + 0.1)


def test_interrupted_run_reports_its_measurements(server, ca, version):
    command = [
        pronghorn(),
        "load",
        "--json",
        "--cacert",
        ca,
        "--http",
        version,
        "-c",
        "2",
        "-d",
        "100",
    ]
    generator = Process([*command, f"{server.origin}/small.txt"])
    try:
        wait_for_connection(server)
        generator.popen.send_signal(signal.SIGINT)
        assert generator.wait() == 0, generator.lines
        report = json.loads(generator.stdout)
    finally:
        generator.stop()
    assert report["interrupted"] is True
    requests = report["requests"]
    assert requests["status"]["2xx"] > 0
    assert requests["begun"] == requests["status"]["2xx"] + requests["given_up"]
    assert 0 < report["measured_seconds"] < 100


def test_json_has_the_documented_keys(load, server):
    report = load("--http", "3", "-n", "10", f"{server.origin}/small.txt")
    document = (REPOSITORY / "docs" / "load.md").read_text()
    table = document[document.index("## The JSON") :]
    described = set(re.findall(r"`([\w.-]+)`", table))
    described |= {part for name in described for part in name.split(".")}

    def names(value) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(names, value)) if value else set()
        if not isinstance(value, dict):
            return set()
        return set(value) | set().union(*map(names, value.values())) if value else set()

    # Keys that are data, not names.
    free = {"HTTP/3"}
    warnings = {"kind", "message"}
    assert names(report) - free <= described
    values = {"kept", "one_request", "off", "session", "early_data", "null", "--json"}
    missing = (
        {name for name in described if "." not in name and "/" not in name}
        - names(report)
        - warnings
        - values
    )
    assert missing <= {"pronghorn-load-report"}
    assert report["schema"] == "pronghorn-load-report/1"


def test_table_is_printed_by_default(run, server, version):
    shown = run("--http", version, "-n", "20", f"{server.origin}/small.txt").stdout.decode()
    assert re.search(
        rf"^{re.escape(NAME[version])}, 1 connection of 1 stream, 1 thread$", shown, re.MULTILINE
    )
    assert re.search(r"^requests     20 \(", shown, re.MULTILINE)
    assert re.search(r"^  answered   2xx 20$", shown, re.MULTILINE)
    assert re.search(r"^  response +\d", shown, re.MULTILINE)


def test_server_chooses_the_version_by_default(load, peer):
    assert load("-n", "3", f"{peer.origin}/request")["connections"]["protocols"] == {"HTTP/2": 1}


def test_clear_text_urls_work(load, start, site):
    server = start(serve_command(site.root, None, listen=("http://127.0.0.1:0",)))
    report = load("-n", "20", f"{server.origin}/small.txt")
    assert report["requests"]["status"]["2xx"] == 20
    assert report["connections"]["protocols"] == {"HTTP/1.1": 1}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "URL"),
        (["ftp://localhost/"], "invalid URL"),
        (["https://localhost/", "https://127.0.0.1/"], "different origins"),
        (["--http", "3", "http://localhost/"], "https"),
        (["--http", "4", "https://localhost/"], "1.1, 2 or 3"),
        (["--http", "1.1", "-m", "2", "https://localhost/"], "one request at a time"),
        (["-c", "0", "https://localhost/"], "connections"),
        (["-c", "200000", "https://localhost/"], "connections"),
        (["--threads", "2", "https://localhost/"], "threads"),
        (["-n", "0", "https://localhost/"], "requests"),
        (["-n", "-1", "https://localhost/"], "-1"),
        (["--rate", "0", "https://localhost/"], "rate"),
        (["--rate", "nan", "https://localhost/"], "rate"),
        (["--rate", "1e300", "https://localhost/"], "rate"),
        (["--rate", "1e-300", "https://localhost/"], "rate"),
        (["-d", "0", "https://localhost/"], "duration"),
        (["--timeout", "0", "https://localhost/"], "timeout"),
        (["--http", "2", "--early-data", "https://localhost/"], "early data"),
        (["--reconnect", "--early-data", "https://localhost/"], "early data"),
        (["--reconnect", "-m", "2", "https://localhost/"], "--streams"),
        (
            ["--rate", "1", "--connections-per-second", "1", "https://localhost/"],
            "--connections-per-second",
        ),
        (["--data", "x", "--data-size", "1", "https://localhost/"], "--data"),
    ],
)
def test_invalid_input_is_an_error(run, arguments, says):
    done = run(*arguments, trust=("--no-verify",), code=USAGE)
    assert says in done.stderr.decode()
    assert done.stdout == b""


def test_missing_data_file_is_an_error(run):
    done = run("--data", "/nowhere/data", "https://localhost/", code=MISSING)
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr.decode())


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_refused_connection_is_an_error(run, version):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        done = run(
            "--http", version, f"https://127.0.0.1:{held.getsockname()[1]}/", code=UNAVAILABLE
        )
    assert done.stdout == b""


def test_silent_server_times_out(run, version):
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(tcp.getsockname())
        url = f"https://127.0.0.1:{tcp.getsockname()[1]}/"
        run("--http", version, "--timeout", "1", url, code=TIMED_OUT)


def test_unknown_authority_is_rejected(run, server, version):
    done = run("--http", version, f"{server.origin}/", trust=(), code=PROTOCOL)
    assert b"--no-verify" in done.stderr


def test_connect_to_changes_only_the_address(load, server, version):
    arguments = ["--http", version, "--connect-to", f"127.0.0.1:{server.port}", "-n", "5"]
    assert (
        load(*arguments, f"https://localhost:{server.port + 1}/small.txt")["requests"]["status"][
            "2xx"
        ]
        == 5
    )
