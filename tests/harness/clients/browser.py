"""A browser that stays open and runs one command after the other, through
tests/clients/browser/session.mjs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from ..process import end_by_input
from ..server import REPOSITORY
from ..waiting import DEADLINE_SECONDS

SESSION = REPOSITORY / "tests" / "clients" / "browser" / "session.mjs"


class BrowserError(Exception):
    """The browser's own error message."""


class Browser:
    """A running browser with one tab. `prefix`: a command that starts it, such as `pronghorn link`."""

    def __init__(self, options: dict[str, Any], *, prefix: list[str | Path] = ()):
        command = [*prefix, "node", SESSION, json.dumps(options)]
        self.popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.version: str = self._answer()["version"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    def close(self) -> None:
        end_by_input(self.popen)

    def visit(self, url: str) -> None:
        """Returns when the page and its resources are loaded."""
        self._ask({"visit": url})

    def evaluate(self, expression: str) -> Any:
        """Returns the value of an expression in the page, awaited if it is a promise."""
        return self._ask({"evaluate": expression})["value"]

    def _ask(self, asked: dict) -> dict:
        self.popen.stdin.write(json.dumps(asked) + "\n")
        self.popen.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        line = self.popen.stdout.readline()
        if not line:
            raise BrowserError(f"the browser ended with {self.popen.wait(DEADLINE_SECONDS)}")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer
