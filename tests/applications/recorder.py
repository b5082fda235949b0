"""A server that answers each request after a delay, and records each request in a file: RECORD
PORT.

A request in the file was begun here, whatever became of the response.
"""

from __future__ import annotations

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOMENT = 0.005


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        # One call, so that lines of threads do not mix, and a line is written completely or not at
        # all.
        os.write(record, f"{self.command} {self.path}\n".encode())
        time.sleep(MOMENT)
        # One call again: if it is killed, the response is sent completely or not at all.
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nanswered")

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


record = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
server = Server(("127.0.0.1", int(sys.argv[2])), Handler)
print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
