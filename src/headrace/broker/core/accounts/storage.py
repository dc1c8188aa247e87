"""An account's part of the storage. Two accounts may use the same stream names.

Names of the default account are stored as they are, as in stores without accounts. Names of any other account
start with ``<account>/``; the name of a stream cannot contain a slash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from ..ports import MetaJournal, Storage, StreamStore

_META: Final = "account/"


class AccountStorage:
    """Implements ``Storage`` for one account; ``account`` is empty for the default one.

    ``flush`` commits what every account has staged: see ``jetstream/tick/flush_barrier``.
    """

    def __init__(self, storage: Storage, account: str = "") -> None:
        self._storage = storage
        self._prefix = f"{quote(account, safe='')}/" if account else ""
        self.meta: MetaJournal = storage.meta
        if account:
            self.meta = _AccountMeta(storage.meta, self._prefix)
        self.report = storage.report

    @property
    def failed(self) -> Exception | None:
        return self._storage.failed

    @property
    def full(self) -> Exception | None:
        return self._storage.full

    @property
    def pending_bytes(self) -> int:
        return self._storage.pending_bytes

    def streams(self) -> list[str]:
        prefix = self._prefix
        names = self._storage.streams()
        if not prefix:
            return [name for name in names if "/" not in name]
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def create_stream(self, name: str, *, memory: bool = False) -> StreamStore:
        return self._storage.create_stream(self._prefix + name, memory=memory)

    def open_stream(self, name: str, *more: Any) -> StreamStore:
        return self._storage.open_stream(self._prefix + name, *more)

    def delete_stream(self, name: str) -> None:
        self._storage.delete_stream(self._prefix + name)

    def holds(self, name: str, store: StreamStore) -> bool:
        return self._storage.holds(self._prefix + name, store)

    def barred(self) -> Mapping[str, str]:
        prefix = self._prefix
        found = self._storage.barred().items()
        if not prefix:
            return {name: what for name, what in found if "/" not in name}
        return {name.removeprefix(prefix): what for name, what in found if name.startswith(prefix)}

    def location(self, name: str) -> str:
        return self._storage.location(self._prefix + name)

    def is_unfinished(self, name: str) -> bool:
        return self._storage.is_unfinished(self._prefix + name)

    def note(self, what: str, stream: str = "") -> None:
        self._storage.note(what, self._prefix + stream if stream else "")

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        self._storage.flush(done)


class _AccountMeta:
    """The journal's keys of one account; ``streams`` is what its streams have before their names."""

    def __init__(self, meta: MetaJournal, streams: str) -> None:
        self._meta = meta
        self._streams = streams
        self._prefix = _META + streams

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        prefix = self._prefix
        return {
            key.removeprefix(prefix): value
            for key, value in self._meta.load().items()
            if key.startswith(prefix)
        }

    def put(self, key: str, value: bytes, *, ahead: bool = False) -> None:
        self._meta.put(self._prefix + key, value, ahead=ahead)

    def append(self, key: str, delta: bytes, *, ahead: bool = False) -> None:
        self._meta.append(self._prefix + key, delta, ahead=ahead)

    def delete(self, key: str) -> None:
        self._meta.delete(self._prefix + key)

    @property
    def staged(self) -> bool:
        return self._meta.staged

    def keep_beside(self, key: str, stream: str) -> None:
        self._meta.keep_beside(self._prefix + key, self._streams + stream)

    def loose(self, key: str) -> Sequence[bytes]:
        return self._meta.loose(self._prefix + key)

    def was_deleted(self, key: str) -> bool:
        return self._meta.was_deleted(self._prefix + key)
