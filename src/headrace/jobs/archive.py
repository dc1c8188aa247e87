"""The archive: JSON lines by day, complete on disk before anything is deleted.

``<directory>/date=2026-01-31/part-<node>-<first>-<last>.jsonl``: one message per line, with the outcome of
its jobs; beside it ``_part-….json`` with the number of lines and a SHA-256 (Spark ignores names that begin
with an underscore, and reads ``date`` as a column). A file is written under an ignored name, synced and
renamed, and its directory is synced. After a crash before the deletion the same messages are archived
again; ``seq`` identifies them. The archive contains no tokens.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigurationError
from .models import payload_fields, rfc3339, state_name
from .service.retention import Window
from .store import Row

__all__ = ["Archive"]


class Archive:
    """Writes windows of messages below ``directory``. Blocking: call it on a thread."""

    def __init__(self, directory: Path, node: str) -> None:
        if not directory.is_dir():
            raise ConfigurationError(f"the archive directory does not exist: {directory}")
        self._directory = directory
        self._node = node

    def write(self, window: Window) -> list[Path]:
        """Make the window's messages durable. Returns the files that were written."""
        by_date: dict[str, list[Row]] = {}
        for row in window.messages:
            by_date.setdefault(rfc3339(row["received_us"])[:10], []).append(row)
        return [
            self._write_part(
                date, rows, [_line(row, window.jobs.get(row["seq"], [])) for row in rows]
            )
            for date, rows in sorted(by_date.items())
        ]

    def _write_part(self, date: str, rows: Sequence[Row], lines: Iterable[bytes]) -> Path:
        directory = self._directory / f"date={date}"
        if not directory.is_dir():
            directory.mkdir()
            _sync_directory(self._directory)
        name = f"part-{self._node}-{rows[0]['seq']}-{rows[-1]['seq']}"
        content = b"".join(lines)
        manifest = {
            "file": f"{name}.jsonl",
            "messages": len(rows),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        part = directory / f"{name}.jsonl"
        _replace(part, content)
        _replace(directory / f"_{name}.json", msgspec.json.encode(manifest))
        _sync_directory(directory)
        return part


def _line(message: Row, jobs: Sequence[Row]) -> bytes:
    payload, encoding = payload_fields(message["payload"])
    document: dict[str, Any] = {
        "seq": message["seq"],
        "channel": message["channel_id"],
        "message": message["message_id"],
        "producer": message["producer_id"],
        "received_at": rfc3339(message["received_us"]),
        "dispatched_at": _time(message["dispatched_us"]),
        "scheduled_at": _time(message["scheduled_us"]),
        "priority": message["priority"],
        "ordering_key": message["ordering_key"],
        "content_type": message["content_type"],
        "headers": msgspec.Raw(message["headers"].encode()),
        "payload": payload,
        "encoding": encoding,
        "jobs": [
            {
                "consumer": job["consumer_id"],
                "state": state_name(job["state"]),
                "retries": job["retries"],
                "claims": job["claims"],
                "finished_at": rfc3339(job["changed_us"]),
                "last_error": job["last_error"],
            }
            for job in jobs
        ],
    }
    return msgspec.json.encode(document) + b"\n"


def _time(us: int | None) -> str | None:
    return None if us is None else rfc3339(us)


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
