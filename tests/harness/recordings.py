"""Hand-written recordings for `pronghorn replay`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .response import sha256


@dataclass(frozen=True)
class Recorded:
    """One entry. `coded` is the content in the content coding `coding`."""

    url: str
    body: bytes = b""
    method: str = "GET"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    coding: str | None = None
    coded: bytes = field(default=b"")
    think_seconds: float | None = None


def write_recording(folder: Path, entries: Iterable[Recorded], **changes) -> Path:
    """Writes a recording; `changes` replace values in its manifest."""
    (folder / "bodies").mkdir(parents=True)
    manifest = {"schema": 1, "url": "https://127.0.0.1/", "requests": 1, "entries": []}
    for number, entry in enumerate(entries):
        described = {
            "method": entry.method,
            "url": entry.url,
            "status": entry.status,
            "headers": entry.headers,
        }
        if entry.body:
            described["body"] = store(folder, f"bodies/{number}", entry.body)
        if entry.coding is not None:
            stored = store(folder, f"bodies/{number}.{entry.coding}", entry.coded)
            described["encoded"] = {"coding": entry.coding, **stored}
        if entry.think_seconds is not None:
            described["thinkSeconds"] = entry.think_seconds
        manifest["entries"].append(described)
    (folder / "recording.json").write_text(json.dumps(manifest | changes))
    return folder


def store(folder: Path, file: str, body: bytes) -> dict[str, object]:
    (folder / file).write_bytes(body)
    return {"file": file, "size": len(body), "sha256": sha256(body)}
