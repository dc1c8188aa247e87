"""Backups of streams: the documents of STREAM.SNAPSHOT and STREAM.RESTORE."""

from __future__ import annotations

from .base import Document
from .streams import StreamConfig, StreamStateInfo

CHUNK_BYTES_DEFAULT = 128 * 1024
CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 1024, 1024 * 1024
WINDOW_BYTES_DEFAULT = 8 * 1024 * 1024
WINDOW_BYTES_MAX = 32 * 1024 * 1024


class SnapshotRequest(Document, frozen=True, kw_only=True):
    """Asks for a backup, in chunks to ``deliver_subject``, so many bytes of them unanswered at a time."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False


class SnapshotResponse(Document, frozen=True, kw_only=True):
    """What the backup is of."""

    always = ("config", "state")

    config: StreamConfig = StreamConfig()
    state: StreamStateInfo = StreamStateInfo()


class RestoreRequest(Document, frozen=True, kw_only=True):
    """Announces a backup of a stream, and how the stream is to be configured."""

    config: StreamConfig = StreamConfig()
    state: StreamStateInfo = StreamStateInfo()


class RestoreResponse(Document, frozen=True, kw_only=True):
    """Where the chunks of the backup go; each is a request."""

    always = ("deliver_subject",)

    deliver_subject: str = ""
