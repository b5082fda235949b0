"""The arithmetic of the suite `fleet`, and what it reads from Redis, metrics and signers."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.fleet import keyless, redis_server
from bench.fleet.__main__ import QUICK, arguments, commands
from bench.fleet.arrangements import HANDSHAKES, TURNS
from bench.fleet.capacity import Assumptions, Costs, needs, nodes_for_one_core
from bench.fleet.keyless import Answers, KeylessError
from bench.fleet.measure import (
    Job,
    Plan,
    Suite,
    Workload,
    check,
    load_command,
    of_signatures,
    of_turns,
)
from bench.fleet.redis_server import (
    Counters,
    Redis,
    RedisError,
    bytes_per_session,
    operations,
    parse_commandstats,
    parse_info,
)
from bench.fleet.relay import delaying
from bench.fleet.report import costs, markdown
from bench.fleet.turns import Histogram, MetricsError
from bench.generators import Load
from bench.runner import RunError
from bench.summary import spreads

STATS = """# Commandstats\r
cmdstat_set:calls=20,usec=40,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r
cmdstat_getdel:calls=7,usec=9,usec_per_call=1.28,rejected_calls=0,failed_calls=0\r
cmdstat_config|get:calls=1,usec=5,usec_per_call=5.00,rejected_calls=0,failed_calls=0\r
"""


# ---- Redis ---------------------------------------------------------------------------------------


def test_calls_are_read_from_commandstats():
    assert parse_commandstats(STATS) == {"set": 20, "getdel": 7, "config|get": 1}
    assert parse_info("# Memory\r\nused_memory:1024\r\nhuman:1:2\r\n") == {
        "used_memory": "1024",
        "human": "1:2",
    }


def test_operations_are_the_gateways_alone():
    before = Counters({"set": 100, "getdel": 5, "info": 3, "dbsize": 2}, 0, 0)
    after = Counters({"set": 300, "getdel": 105, "info": 55, "dbsize": 9, "ping": 4}, 0, 0)
    assert operations(before, after, 100) == {"set": 2.0, "getdel": 1.0, "info": 0.5}
    assert operations(before, Counters({"set": 100, "info": 5}, 0, 0), 100) == {}
    with pytest.raises(RedisError, match="no handshakes"):
        operations(before, after, 0)


def test_bytes_are_per_new_session():
    assert bytes_per_session(Counters({}, 1000, 10), Counters({}, 5000, 20)) == 400
    assert bytes_per_session(Counters({}, 1000, 10), Counters({}, 5000, 10)) is None


def answering(path: Path, reply: bytes) -> threading.Thread:
    """Answers one request on a Unix socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as client:
            client.recv(1 << 16)
            client.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("reply", "value"),
    [(b"+PONG\r\n", "PONG"), (b":12\r\n", 12), (b"$3\r\na:b\r\n", "a:b"), (b"$-1\r\n", None)],
)
def test_reply_of_redis_is_read(tmp_path, reply, value):
    thread = answering(tmp_path / "socket", reply)
    with Redis(tmp_path / "socket") as redis:
        assert redis.command("PING") == value
    thread.join()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"-ERR unknown command\r\n", "answered PING with -ERR unknown command"),
        (b"", "closed the connection after PING"),
    ],
)
def test_failure_of_redis_is_an_error(tmp_path, reply, message):
    thread = answering(tmp_path / "socket", reply)
    with Redis(tmp_path / "socket") as redis, pytest.raises(RedisError, match=message):
        redis.command("PING")
    thread.join()


def test_absent_redis_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setenv(redis_server.VARIABLE, "no-such-redis")
    with pytest.raises(RedisError, match="PRONGHORN_BENCH_REDIS=no-such-redis: program not found"):
        redis_server.program()
    monkeypatch.delenv(redis_server.VARIABLE)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RedisError, match="redis-server not found; install Redis"):
        redis_server.program()


# ---- turns ---------------------------------------------------------------------------------------


def exposition(*counts: int) -> str:
    name, bounds = "pronghorn_worker_turn_seconds", ("0.0005", "0.001", "0.002", "0.005")
    cumulative = [sum(counts[: place + 1]) for place in range(len(counts))]
    lines = [
        f'{name}_bucket{{le="{bound}"}} {count}'
        for bound, count in zip((*bounds, "+Inf"), cumulative, strict=True)
    ]
    other = 'pronghorn_handshake_seconds_bucket{transport="tcp",le="10"} 7'
    return "\n".join(
        [f"# TYPE {name} histogram", *lines, f"{name}_sum 1.5", f"{name}_count 9", other]
    )


def test_longest_turn_is_the_bound_of_the_highest_new_bucket():
    before = Histogram.parse(exposition(5, 1, 0, 0, 3))
    after = Histogram.parse(exposition(25, 11, 2, 0, 3))
    new = after.since(before)
    assert new.longest() == 0.002
    assert (new.above(0.002), new.above(0.001), new.above(0.0005)) == (0, 2, 12)
    assert Histogram.parse(exposition(0, 0, 0, 0, 1)).longest() == float("inf")
    nothing = after.since(after)
    assert (nothing.longest(), nothing.mean()) == (None, None)
    assert of_turns(nothing)["longest_ms"] is None
    assert of_turns(new)["longest_ms"] == pytest.approx(2)


def test_server_without_the_metric_is_an_error():
    with pytest.raises(MetricsError, match="no metric pronghorn_worker_turn_seconds"):
        Histogram.parse("pronghorn_requests_total 1\n")


# ---- signers -------------------------------------------------------------------------------------


def answer(opcode: int, payload: bytes, number: int = 1) -> bytes:
    body = keyless.item(keyless.OPCODE, bytes([opcode])) + keyless.item(keyless.PAYLOAD, payload)
    return struct.pack(">BBHI", 1, 0, len(body), number) + body


def test_request_is_padded_and_has_its_parts():
    message = keyless.request(7, keyless.ECDSA_SHA256, b"d" * 32, b"s" * 20)
    assert struct.unpack(">BBHI", message[:8]) == (1, 0, 1024, 7)
    found = keyless.items(message[8:])
    assert found[keyless.OPCODE] == bytes([keyless.ECDSA_SHA256])
    assert (found[keyless.PAYLOAD], found[keyless.SKI]) == (b"d" * 32, b"s" * 20)


def test_answers_are_counted_wherever_the_bytes_are_split():
    stream = answer(keyless.RESPONSE, b"first") + answer(keyless.RESPONSE, b"second", 2)
    for size in range(1, len(stream) + 1):
        answers = Answers()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert sum(answers.add(piece) for piece in pieces) == 2
        assert (answers.first, answers.rest) == (b"first", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (answer(keyless.ERROR, b"\x02"), "refused to sign with error code 2"),
        (answer(keyless.RSA_PSS_SHA256, b""), "answered with opcode 35"),
        (b"\x02" + answer(keyless.RESPONSE, b"")[1:], "speaks version 2"),
        (struct.pack(">BBHI", 1, 0, 0, 1), "answered with opcode none"),
        (struct.pack(">BBHI", 1, 0, 4, 1) + b"\x11\x00\x09a", "longer than the answer"),
        (struct.pack(">BBHI", 1, 0, 2, 1) + b"\x11\x00", "cut off"),
    ],
)
def test_answer_without_a_signature_is_an_error(data, message):
    with pytest.raises(KeylessError, match=message):
        Answers().add(data)


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)]
)
def test_bit_string_is_the_key_within_its_info(key):
    public = key.public_key()
    info = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if isinstance(key, rsa.RSAPrivateKey):
        expected = public.public_bytes(Encoding.DER, PublicFormat.PKCS1)
    else:
        expected = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    assert hashlib.sha1(keyless.bit_string(info)).digest() == hashlib.sha1(expected).digest()


def test_signatures_are_per_second_of_processor_time():
    assert of_signatures(1000, 4.0, 2.0) == {
        "per_cpu_second": 500,
        "cpu_us_per_signature": pytest.approx(2000),
        "per_second": 250,
    }
    with pytest.raises(KeylessError):
        of_signatures(0, 4.0, 2.0)


def test_relay_delays_what_the_server_sends_and_keeps_its_order():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            with server.accept()[0] as client:
                while data := client.recv(1 << 16):
                    client.sendall(data)

        thread = threading.Thread(target=echo)
        thread.start()
        sent, received = bytes(range(256)) * 2000, b""
        with (
            delaying(server.getsockname()[1], 0.1) as port,
            socket.create_connection(("127.0.0.1", port), 30) as client,
        ):
            began = time.monotonic()
            writer = threading.Thread(target=client.sendall, args=(sent,))
            writer.start()
            while len(received) < len(sent):
                piece = client.recv(1 << 16)
                assert piece, "the relay closed the connection"
                if not received:
                    assert time.monotonic() - began >= 0.1
                received += piece
            writer.join()
            # The end passes through, too.
            client.shutdown(socket.SHUT_WR)
            thread.join()
    assert received == sent


def test_relay_ends_with_open_connections():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with delaying(server.getsockname()[1], 60.0) as port:
            client = socket.create_connection(("127.0.0.1", port), 30)
            far, _ = server.accept()
            far.sendall(b"never delivered")
        with client, far:
            assert client.recv(1) == b""


# ---- runs ----------------------------------------------------------------------------------------


def load(**more) -> Load:
    seen = {"requests": 100, "failed": 0, "body_bytes": 0, "seconds": 1.0}
    seen |= {"requests_per_second": 100.0, "p50_ms": 1.0, "p99_ms": 2.0}
    return Load(**{**seen, "connections": 100, "resumed": 0, **more})


FULL, EARLY = Workload("h3-full", "h3"), Workload("h3-early-data", "h3", early=True)


@pytest.mark.parametrize(
    ("workload", "seen", "early", "message"),
    [
        (FULL, load(failed=2), 0, "2 of 102 handshakes failed"),
        (FULL, load(requests=0), 0, "0 of 0 handshakes failed"),
        (FULL, load(requests=90), 0, "90 of 100 handshakes were made"),
        (FULL, load(resumed=1), 0, "1 of 100 handshakes were not full ones"),
        (EARLY, load(resumed=97), 100, "only 97 of 100 connections resumed"),
        (EARLY, load(resumed=100), 97, "only 97 of 100 connections had early data accepted"),
    ],
)
def test_run_of_other_handshakes_is_rejected(workload, seen, early, message):
    with pytest.raises(RunError, match=message):
        check(workload, seen, early, 100)


def test_large_run_may_miss_one_in_a_hundred():
    check(EARLY, load(requests=2000, resumed=1980), 1980, 2000)
    with pytest.raises(RunError, match="only 1979 of 2000"):
        check(EARLY, load(requests=2000, resumed=1980), 1979, 2000)


def test_run_of_the_right_handshakes_is_accepted():
    check(FULL, load(), 0, 100)
    check(EARLY, load(resumed=98), 98, 100)
    check(FULL, load(requests=7), 0, None)


def test_commands_are_those_of_the_load():
    command = load_command(Path("pronghorn"), EARLY, 1234)
    assert command[-3:] == ["--reconnect", "--early-data", "https://localhost/"]
    timed = load_command(Path("pronghorn"), Workload("h2-turns", "h2", rate=300), 1234)
    assert "--reconnect" not in timed
    assert timed[timed.index("--connections-per-second") + 1] == "300"
    assert int(timed[timed.index("-c") + 1]) >= 300
    assert "127.0.0.1:PORT" in commands(plan())["turns"]


def plan(**more) -> Plan:
    whole = {"rounds": 3, "repeats": 0, "handshakes": 50, "rate": 20, "seconds": 1, "seed": 1}
    return Plan(**{**whole, "minutes": 60, "parts": ("handshakes", "turns"), **more})


def runs(suite: Suite, measured) -> list[dict]:
    """Returns the runs of a suite that measures by this function of the job."""
    suite.run = lambda job, turn: {
        "workload": job.workload,
        "contestant": job.contestant,
        "round": turn,
        "error": None,
        "quiet": True,
        **measured(job),
    }
    return list(suite.runs())


def test_each_round_has_each_arrangement_once_beside_its_base(tmp_path):
    found = runs(Suite(plan(), None, tmp_path), lambda _: {})
    assert len(found) == 3 * (4 * len(HANDSHAKES) + 2 * len(TURNS))
    assert len({(run["workload"], run["contestant"], run["round"]) for run in found}) == len(found)
    assert [run["round"] for run in found] == sorted(run["round"] for run in found)
    names = {one.name for one in HANDSHAKES}
    assert all(one.base in names for one in HANDSHAKES)


def test_failing_arrangement_is_skipped(tmp_path):
    def measured(job: Job) -> dict:
        return {"error": "no"} if job.contestant == "sessions-p256" else {}

    found = runs(Suite(plan(rounds=5), None, tmp_path), measured)
    names = [run["contestant"] for run in found if run["workload"] == "h3-full"]
    assert (names.count("sessions-p256"), names.count("file-p256")) == (2, 5)


def test_no_run_starts_after_the_time_limit(tmp_path):
    assert runs(Suite(plan(minutes=0), None, tmp_path), lambda _: {}) == []


def test_run_on_a_busy_machine_is_repeated(tmp_path):
    noises = iter([0.5, 0.2, 0.9])
    suite = Suite(plan(rounds=1, repeats=2, parts=("signatures",)), None, tmp_path)

    def measured(job: Job) -> dict:
        if job.contestant == "p256":
            return {}
        return {"quiet": False, "foreign_cores": next(noises), "stolen_cores": 0.0}

    [run] = [run for run in runs(suite, measured) if run["contestant"] == "rsa2048"]
    assert (run["foreign_cores"], run["attempt"]) == (0.2, 2)


def test_error_of_a_run_is_recorded(tmp_path):
    def fails(_: Path) -> dict:
        raise RunError("the server ended with 1")

    run = Suite(plan(), None, tmp_path).run(Job("h3-full", "file-p256", fails), 1)
    assert run["error"] == "RunError: the server ended with 1"


# ---- the report ----------------------------------------------------------------------------------

COSTS = Costs(2.0, 4.0, 2.0, 1.0, 400.0, {"p256": 25_000.0, "rsa2048": 1000.0})


def test_needs_grow_with_the_number_of_servers():
    found = needs(10, COSTS, Assumptions(100.0, 0.5, 1.0))
    assert found.handshakes_per_second == 1000
    assert found.redis_operations_per_second == 500 * 2 + 500 * 4
    assert found.redis_cores == pytest.approx(0.03)
    # 500 x 2 + 500 x 1 sessions a second, for an hour.
    assert found.redis_gib == pytest.approx(1500 * 3600 * 400 / (1 << 30))
    assert found.signer_cores == {"p256": pytest.approx(0.02), "rsa2048": pytest.approx(0.5)}
    more = needs(1000, COSTS, Assumptions(100.0, 0.5, 1.0))
    assert more.redis_gib == pytest.approx(100 * found.redis_gib)


def test_servers_for_one_core_are_the_inverse_of_what_one_needs():
    found = nodes_for_one_core(COSTS, Assumptions(100.0, 0.5, 1.0))
    assert found["Redis"] == pytest.approx(100_000 / 300)
    assert found["signer, rsa2048"] == pytest.approx(20)
    # All resumed: no signatures.
    assert set(nodes_for_one_core(COSTS, Assumptions(100.0, 1.0, 1.0))) == {"Redis"}


def measured_run(workload: str, contestant: str, turn: int, figures: dict, **more) -> dict:
    run = {"workload": workload, "contestant": contestant, "generator": "load", "round": turn}
    run |= {"error": None, "quiet": True, "foreign_cores": 0.0, "stolen_cores": 0.0}
    return {**run, "figures": figures, **more}


def some_runs() -> list[dict]:
    found = []
    for turn, cpu in ((1, 1.0), (2, 2.0), (3, 1.5)):
        cpu = {"cpu_ms_per_handshake": cpu}
        twice = {"cpu_ms_per_handshake": 2 * cpu["cpu_ms_per_handshake"]}
        for workload, calls in (
            ("h3-full", {"set": 2.0}),
            ("h3-early-data", {"set": 2.0, "getdel": 1.0, "info": 0.5}),
        ):
            redis = {"operations": calls, "bytes_per_session": 400.0 + turn, "sessions": 10}
            found.append(measured_run(workload, "file-p256", turn, cpu))
            found.append(measured_run(workload, "sessions-p256", turn, twice, redis=redis))
        for kind, rate in (("p256", 25_000.0), ("rsa2048", 1000.0)):
            figures = {"per_cpu_second": rate, "cpu_us_per_signature": 1e6 / rate, "per_second": 9}
            found.append(measured_run("signatures", kind, turn, figures))
        turns = {"longest_ms": 1.0, "above_bound": 0, "turns": 5, "mean_us": 9.0}
        found.append(measured_run("h3-turns", "slow-p256", turn, turns))
    return found


def result(found: list[dict]) -> dict:
    text = {name: "x" for name in ("name", "command", "commit", "started")}
    numbers = {"seed": 1, "rounds": 3, "scale": 1, "handshakes": 50, "seconds": 1}
    used = {"machine": {"cores": 2}, "programs": {"pronghorn": "1"}, "commands": commands(plan())}
    return {**text, **numbers, **used, "runs": found}


def test_report_has_ratios_operations_and_what_fleets_need():
    report = markdown(result(some_runs()))
    assert "| 3.00 [2.00-4.00] | 2.00 [2.00-2.00] |" in report
    assert "| h3-early-data | 3.50 | GETDEL 1.00, INFO 0.500, SET 2.00 | 402 |" in report
    assert "| rsa2048 | 1,000 [1,000-1,000] | 1,000 [1,000-1,000] |" in report
    # (50 x 2 + 50 x 3.5) operations for each server.
    assert "| 1,000 | 100,000 | 275,000 | 2.75 | 202 |" in report
    assert "Servers that fill one core: signer, rsa2048: 20.0; Redis: 364; " in report
    assert report.endswith("- cores: 2\n")
    assert "## Failed runs\n\nNone." in report


def test_report_of_nothing_says_so():
    failed = measured_run("h3-full", "file-p256", 1, {}, error="RunError: it hangs")
    report = markdown(result([failed]))
    assert "**1 of 1 runs failed**" in report
    assert "- h3-full, file-p256, round 1: RunError: it hangs" in report
    assert report.count("Not measured.") == 4
    assert costs(spreads([failed]), [failed]) is None


# ---- the command line ----------------------------------------------------------------------------


def test_quick_run_can_be_changed_by_further_options():
    options = arguments(["--quick", "--rounds", "2"])
    assert (options.rounds, options.handshakes, options.repeats) == (2, 50, 0)
    assert "--rounds" in QUICK


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--rounds", "0"], "0 is not from 1 to 1000"),
        (["--handshakes", "1000000"], "1000000 is not from 10 to 10000"),
        (["--seconds", "x"], "invalid number value: 'x'"),
        (["--minutes", "nan"], "nan is not from"),
    ],
)
def test_wrong_number_is_refused(given, message, capsys):
    with pytest.raises(SystemExit):
        arguments(given)
    assert message in capsys.readouterr().err
