"""The store without a disk: streams and values that live as long as the process.

It obeys the same rules as the file store, so whatever runs on one runs on the other: nothing counts as
durable before the flush that carries it completes. Here that is before ``flush`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ....errors import StoreError
from ..commit.writer import Work
from ..io.findings import Finding
from ..log.appends import ExpiryOf
from ..log.log import StreamLog
from ..log.memory_log import MemoryLog


class MemoryMeta:
    """Values by key, in memory; see ``MetaJournal`` in ``core/ports/storage.py``."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, list[bytes]]] = {}

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        return self._values

    def put(self, key: str, value: bytes, *, ahead: bool = False) -> None:
        self._values[key] = (value, [])

    def append(self, key: str, delta: bytes, *, ahead: bool = False) -> None:
        self._values.setdefault(key, (b"", []))[1].append(delta)

    def delete(self, key: str) -> None:
        self._values.pop(key, None)

    staged: Final = False

    def keep_beside(self, key: str, stream: str) -> None:
        """Do nothing: memory is not kept."""

    def loose(self, key: str) -> list[bytes]:
        """None: no delta is ever without its value."""
        return []

    def was_deleted(self, key: str) -> bool:
        """Never: it begins empty."""
        return False


class MemoryStorage:
    """A store of streams in memory; see ``Storage`` in ``core/ports/storage.py``."""

    sync: Final = "memory"
    failed: Final[Exception | None] = None
    pending_bytes: Final = 0

    def __init__(self) -> None:
        self.meta = MemoryMeta()
        self.report: list[Finding] = []
        self.full = None
        self._streams: dict[str, MemoryLog] = {}
        self._dirty: dict[MemoryLog, None] = {}

    def streams(self) -> list[str]:
        return sorted(self._streams)

    def create_stream(self, name: str, *, memory: bool = True) -> MemoryLog:
        if name in self._streams:
            raise StoreError(f"stream {name!r} exists already")
        log = self._streams[name] = MemoryLog(name, self._mark_dirty)
        return log

    def open_stream(self, name: str, expiry_of: ExpiryOf | None = None) -> MemoryLog:
        log = self._streams.get(name)
        if log is None:
            raise StoreError(f"no stream {name!r} in the store")
        return log

    def delete_stream(self, name: str) -> None:
        log = self.open_stream(name)
        del self._streams[name]
        self._dirty.pop(log, None)
        log.discard()

    def holds(self, name: str, store: object) -> bool:
        """Whether this is what it keeps under the name."""
        return self._streams.get(name) is store

    def barred(self) -> dict[str, str]:
        """None: no name is barred."""
        return {}

    def location(self, name: str) -> str:
        return "memory"

    def is_unfinished(self, name: str) -> bool:
        """Never: a flush is not cut off."""
        return False

    def note(self, what: str, stream: str = "") -> None:
        self.report.append(Finding(self.location(stream), 0, what, stream))

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        """Make everything staged so far count as durable; ``done(None)`` is called before it returns."""
        dirty, self._dirty, work = self._dirty, {}, Work()
        for log in dirty:
            log.complete(log.stage(work))
        done(None)

    def complete(self) -> None:
        """Do nothing: flushes complete at once."""

    def close(self) -> None:
        """Do nothing: there is nothing to keep."""

    def _mark_dirty(self, log: StreamLog) -> None:
        known = self._streams.get(log.name)
        if known is None or known is not log:
            raise StoreError(f"stream {log.name!r} was deleted")
        self._dirty[known] = None
