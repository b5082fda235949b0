"""A WSGI application on Tornado's server that records how it interprets each request: FILE."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.wsgi import WSGIContainer

# Tornado's log of rejected requests is not needed.
logging.getLogger("tornado").setLevel(logging.CRITICAL)
written = Path(sys.argv[1])


def application(environ, start_response):
    # Like applications behind IIS or Symfony's front controller, or those that take methods from
    # forms.
    original = environ.get("HTTP_X_ORIGINAL_URL") or environ.get("HTTP_X_REWRITE_URL")
    methods = (
        "HTTP_X_HTTP_METHOD_OVERRIDE",
        "HTTP_X_HTTP_METHOD",
        "HTTP_X_METHOD_OVERRIDE",
        "REQUEST_METHOD",
    )
    path = original.encode() if original else environ["PATH_INFO"].encode("latin-1")
    seen = {
        "number": environ.get("HTTP_X_NUMBER"),
        "route": environ.get("HTTP_X_ROUTE"),
        "method": next(environ[name] for name in methods if environ.get(name)),
        "hosts": [
            environ[name]
            for name in ("HTTP_HOST", "SERVER_NAME", "HTTP_X_FORWARDED_HOST")
            if name in environ
        ],
        "paths": [path.hex()],
    }
    with written.open("a") as file:
        file.write(json.dumps(seen) + "\n")
    start_response("200 OK", [("content-type", "text/plain")])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [b"understood"]


async def main() -> None:
    [listener] = bind_sockets(0, "127.0.0.1")
    HTTPServer(WSGIContainer(application)).add_socket(listener)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
