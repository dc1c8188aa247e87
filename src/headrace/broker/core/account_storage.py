"""An account's part of the storage: names of its own, so that two accounts may use the same ones.

The default account's names stand as they are, which is how stores without accounts were written. Those of
any other have ``<account>/`` before them; the name of a stream cannot contain a slash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from .ports import MetaJournal, Storage, StreamStore

__all__ = ["AccountStorage"]

_META: Final = "account/"


class AccountStorage:
    """Implements ``Storage`` for one account; ``account`` is empty for the default one.

    ``flush`` commits what every account has staged: see ``jetstream.commits``.
    """

    def __init__(self, storage: Storage, account: str = "") -> None:
        self._storage = storage
        self._prefix = f"{quote(account, safe='')}/" if account else ""
        self._meta = _AccountMeta(storage.meta, _META + self._prefix) if account else storage.meta

    @property
    def meta(self) -> MetaJournal:
        return self._meta

    @property
    def failed(self) -> Exception | None:
        return self._storage.failed

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

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        self._storage.flush(done)


class _AccountMeta:
    """The journal's keys of one account."""

    def __init__(self, meta: MetaJournal, prefix: str) -> None:
        self._meta = meta
        self._prefix = prefix

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        prefix = self._prefix
        return {
            key.removeprefix(prefix): value
            for key, value in self._meta.load().items()
            if key.startswith(prefix)
        }

    def put(self, key: str, value: bytes) -> None:
        self._meta.put(self._prefix + key, value)

    def append(self, key: str, delta: bytes) -> None:
        self._meta.append(self._prefix + key, delta)

    def delete(self, key: str) -> None:
        self._meta.delete(self._prefix + key)
