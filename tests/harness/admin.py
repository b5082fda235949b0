"""Client of the admin API of `pronghorn run`."""

from __future__ import annotations

import http.client
import json
import re
import socket


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, content=None, headers=()):
    connection.request(method, path, body=content, headers=dict(headers))
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, json.loads(body) if body.startswith(("{", "[")) else body


SERIES = re.compile(r'((\w+)(?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})?) (\d+(?:\.\d+)?)')


def metrics(path) -> dict[str, float]:
    """Returns the values of `/metrics`, by name and labels, as Prometheus would parse them."""
    status, text = ask(UnixConnection(path), "GET", "/metrics")
    assert status == 200
    values, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds, f"{name} occurs twice"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            series, name, value = SERIES.fullmatch(line).groups()
            whole = re.sub("_(bucket|sum|count)$", "", name)
            assert name in kinds or kinds.get(whole) == "histogram", line
            assert series not in values, line
            values[series] = float(value)
    return values
