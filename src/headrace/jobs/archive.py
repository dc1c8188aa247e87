"""The archive: JSON lines by day, complete on disk before anything is deleted.

``<directory>/date=2026-01-31/part-<node>-<first>-<last>.jsonl``: one message per line, with the outcome of
its jobs, their attempts and reasons; beside it ``_part-….json`` with the number of lines and a SHA-256
(Spark ignores names that begin with an underscore, and reads ``date`` as a column). A file is written under
an ignored name, synced and renamed, and its directory is synced. After a crash before the deletion the same
messages are archived again; ``seq`` identifies them. The archive contains no tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..documents import read_typed
from ..errors import ConfigurationError
from ..files import sync_directory, write_whole
from . import ids
from .models import payload_fields, rfc3339, state_name
from .service.retention import Window, folder_of
from .store import Row

__all__ = ["Archive", "read_archive"]


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
            by_date.setdefault(folder_of(row), []).append(row)
        return [
            self._write_part(folder, rows, [_line(row, window) for row in rows])
            for folder, rows in sorted(by_date.items())
        ]

    def _write_part(self, folder: str, rows: Sequence[Row], lines: Iterable[bytes]) -> Path:
        directory = self._directory / folder
        if not directory.is_dir():
            directory.mkdir()
            sync_directory(self._directory)
        name = f"part-{self._node}-{rows[0]['seq']}-{rows[-1]['seq']}"
        content = b"".join(lines)
        manifest = {
            "file": f"{name}.jsonl",
            "messages": len(rows),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        part = directory / f"{name}.jsonl"
        write_whole(part, content)
        write_whole(directory / f"_{name}.json", msgspec.json.encode(manifest))
        return part


def read_archive(
    directory: Path,
    *,
    channel: str | None = None,
    message: str | None = None,
    job: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The archived messages with this id, or this job, in order of their folders; each of them once.

    Raises ConfigurationError if there is no such directory, or a line in it is no message.
    """
    if not directory.is_dir():
        raise ConfigurationError(f"the archive directory does not exist: {directory}")
    # A line without these bytes need not be decoded.
    needles = [msgspec.json.encode(word) for word in (channel, message, job) if word is not None]
    seen: set[tuple[str, str, int]] = set()
    for part in sorted(directory.glob("date=*/part-*.jsonl")):
        with part.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if any(needle not in line for needle in needles):
                    continue
                found = _decoded(line, f"{part}, line {number}")
                names = found["channel"], found["message"]
                jobs = [one.get("job") for one in found["jobs"]]
                wanted = channel in (None, names[0]) and message in (None, names[1])
                if wanted and (job is None or job in jobs) and (*names, found["seq"]) not in seen:
                    seen.add((*names, found["seq"]))
                    yield found


def _decoded(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = read_typed(line, dict[str, Any])
        if not {"channel", "message", "seq", "jobs"} <= found.keys():
            raise ValueError("fields are missing")
    except ValueError as error:
        raise ConfigurationError(f"{where}: not a message of an archive: {error}") from None
    return found


def _line(message: Row, window: Window) -> bytes:
    payload, encoding = payload_fields(message["payload"])
    document: dict[str, Any] = {
        "seq": message["seq"],
        "channel": message["channel_id"],
        "message": message["message_id"],
        "producer": ids.shown_id(message["producer_id"]) or None,
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
                "job": str(job["seq"]),
                "consumer": job["consumer_id"],
                "state": state_name(job["state"]),
                "retries": job["retries"],
                "claims": job["claims"],
                "finished_at": rfc3339(job["changed_us"]),
                "last_error": job["last_error"],
                "attempts": [_attempt(row) for row in window.attempts.get(job["seq"], [])],
            }
            for job in window.jobs.get(message["seq"], [])
        ],
    }
    return msgspec.json.encode(document) + b"\n"


def _attempt(row: Row) -> dict[str, Any]:
    return {
        "number": row["number"],
        "kind": row["kind"],
        "started_at": rfc3339(row["started_us"]),
        "duration_seconds": row["duration_us"] / 1e6,
        "status": row["status"],
        "error": row["error"],
        "excerpt": row["excerpt"],
    }


def _time(us: int | None) -> str | None:
    return None if us is None else rfc3339(us)
