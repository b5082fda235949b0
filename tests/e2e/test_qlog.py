"""`--qlog`: a file of events for each QUIC connection."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from conftest import BIG_FILE_SIZE
from harness.server import pronghorn, serve_command
from harness.waiting import eventually

PERMISSION_OR_MISSING = 66


def read_trace(path: Path) -> tuple[dict, list[dict]]:
    """Parses the header and the events of a file of JSON text sequences (RFC 7464)."""
    records = path.read_bytes().split(b"\x1e")
    assert records[0] == b"", "a record does not begin with its separator"
    header, *events = [json.loads(record) for record in records[1:]]
    return header, events


def get(ca, url: str, *arguments) -> None:
    command = [
        pronghorn(),
        "get",
        "--cacert",
        ca,
        "--http",
        "3",
        *arguments,
        "-o",
        "/dev/stdout",
        url,
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def end(server) -> None:
    """Returns the files once the server has stopped and they are complete."""
    server.terminate()
    assert server.wait() == 0, server.lines


def named(events: list[dict], name: str) -> list[dict]:
    return [event["data"] for event in events if event["name"] == name]


def fields(frames: list[dict]) -> list[dict[str, str]]:
    heads = [
        frame["frame"]["headers"] for frame in frames if frame["frame"]["frame_type"] == "headers"
    ]
    return [{field["name"]: field["value"] for field in head} for head in heads]


def test_server_and_client_write_both_sides_of_a_connection(start_serve, ca, tmp_path):
    server = start_serve("--qlog", tmp_path / "server")
    get(ca, f"{server.origin}/big.bin", "--qlog", tmp_path / "client", "-H", "cookie: id=hush-hush")
    (server_file,) = (tmp_path / "server").iterdir()
    # Otherwise the signal may precede the client's close.
    eventually("the close", lambda: b"connection_closed" in server_file.read_bytes())
    end(server)

    (client_file,) = (tmp_path / "client").iterdir()
    original_dcid, side = server_file.stem.split("_")
    assert (side, client_file.name) == ("server", f"{original_dcid}_client.sqlog")
    header, seen = read_trace(server_file)
    assert header["qlog_format"] == "JSON-SEQ"
    assert header["trace"]["vantage_point"]["type"] == "server"
    client_header, asked = read_trace(client_file)
    assert client_header["trace"]["vantage_point"]["type"] == "client"

    (request,) = fields(named(seen, "http:frame_parsed"))
    assert (request[":method"], request[":path"]) == ("GET", "/big.bin")
    assert request["cookie"] == "(not shown)"
    assert b"hush-hush" not in server_file.read_bytes() + client_file.read_bytes()
    (response,) = fields(named(asked, "http:frame_parsed"))
    assert response[":status"] == "200"
    sent = [
        frame
        for frame in named(seen, "http:frame_created")
        if frame["frame"]["frame_type"] == "data"
    ]
    assert sum(frame["length"] for frame in sent) == BIG_FILE_SIZE
    assert sum(moved["length"] for moved in named(asked, "transport:data_moved")) == BIG_FILE_SIZE

    # 10 MiB are more than the windows hold, and more than 1,500 bytes a packet.
    assert len(named(seen, "transport:packet_sent")) > BIG_FILE_SIZE / 65536
    assert named(seen, "recovery:metrics_updated")
    assert named(seen, "pronghorn:stream_blocked")
    owners = [settings["owner"] for settings in named(seen, "http:parameters_set")]
    assert sorted(owners) == ["local", "remote"]
    (ended,) = named(seen, "connectivity:connection_closed")
    assert (ended["owner"], ended["application_code"]) == ("remote", 0x100)
    times = [event["time"] for event in seen]
    assert times == sorted(times)


def test_each_connection_has_a_file(start_serve, ca, tmp_path):
    server = start_serve("--qlog", tmp_path, "--workers", "2")
    for _ in range(5):
        get(ca, f"{server.origin}/small.txt")
    end(server)
    traces = [read_trace(file) for file in tmp_path.iterdir()]
    assert len(traces) == 5
    assert all(len(fields(named(events, "http:frame_parsed"))) == 1 for _, events in traces)


def test_folder_that_cannot_be_created_is_an_error(identity, site, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    command = serve_command(site.root, identity, "--qlog", str(file / "sub"))
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=60)
    assert done.returncode == PERMISSION_OR_MISSING
    assert done.stderr.decode().count("\n") == 1
    assert "cannot write qlog files to" in done.stderr.decode()
