"""A store opened without a broker, and what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ...broker.core.accounts.storage import AccountStorage
from ...broker.core.jetstream.consumer import journal
from ...broker.core.jetstream.consumer.delivery_state import DeliveryState
from ...broker.core.jetstream.consumer.journal import backup_of
from ...broker.core.jetstream.engine.registry import CONSUMER, RESTORING, STATE, STREAM
from ...broker.core.jetstream.headers import expires_at
from ...broker.core.ports import StreamStore
from ...broker.store import FileStorage, FileSystem, LocalFiles
from ...broker.store.io.files import ReadOnlyFiles
from ...documents import read_json
from ...message import StoredRow
from ...snapshots.contents import ConsumerContent
from ..shared.errors import Failure

_BATCH: Final = 1000
_BATCH_BYTES: Final = 4 << 20


@contextmanager
def opened(directory: str, *, looking: bool) -> Iterator[tuple[FileStorage, FileSystem]]:
    """The store in a directory; ``looking`` leaves it as it is. Raises Failure if there is none."""
    place = Path(directory)
    if not (place / "streams").is_dir() or not (place / "meta").is_dir():
        raise Failure(
            f"{directory} is not the store of a broker",
            "give the directory of headrace serve -sd DIR",
        )
    files: ReadOnlyFiles | LocalFiles = ReadOnlyFiles() if looking else LocalFiles()
    storage = FileStorage(os.fspath(place), fs=files, threaded=False)
    try:
        yield storage, files
    finally:
        storage.close()


@dataclass
class Held:
    """A stream in a store.

    Attributes:
        account: whose it is; "" for the default account.
        name: its name there.
        full_name: its name in the store.
        entry: what the journal says of it: ``config`` and ``created_ns``; empty if that is lost.
        store: its messages.
        unreadable: sequences that should be there and cannot be read, once ``rows`` is through.
    """

    account: str
    name: str
    full_name: str
    entry: dict[str, Any]
    store: StreamStore
    consumers: list[ConsumerContent]
    unreadable: list[int] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """A name for files about it."""
        return self.label.replace("/", "~")

    @property
    def label(self) -> str:
        """Its name, with its account's."""
        return f"{self.account}/{self.name}" if self.account else self.name

    def rows(self) -> Iterator[StoredRow]:
        """Every message that can be read, in order."""
        store, self.unreadable = self.store, []
        sequence, last = store.first_seq, store.last_seq
        while sequence <= last:
            found = store.rows(sequence, None, _BATCH, _BATCH_BYTES, last)
            upto = found[-1][0] if found else last
            missing = store.count(None, sequence) - store.count(None, upto + 1) - len(found)
            if missing:
                read = {row[0] for row in found}
                there = store.present(range(sequence, upto + 1))
                self.unreadable += [each for each in there if each not in read]
            yield from found
            sequence = upto + 1


def streams_in(storage: FileStorage) -> Iterator[Held]:
    """Every stream of every account. Raises StoreError for one that cannot be opened."""
    for full_name in storage.streams():  # a list: it may change meanwhile
        prefix, _, name = full_name.rpartition("/")
        account = unquote(prefix)
        part = AccountStorage(storage, account)
        saved = dict(part.meta.load())
        if RESTORING + name in saved:
            continue  # a restore was cut off: the next start removes what there is of it
        known = saved.get(STREAM + name)
        entry: dict[str, Any] = read_json(known[0]) if known is not None else {}
        store = storage.open_stream(full_name, expires_at)
        consumers = [
            _consumer(key, saved)
            for key in saved
            if key.startswith(f"{CONSUMER}{name}/") and STATE + key[len(CONSUMER) :] in saved
        ]
        yield Held(account, name, full_name, entry, store, consumers)


def _consumer(key: str, saved: dict[str, tuple[bytes, list[bytes]]]) -> ConsumerContent:
    own = key.removeprefix(CONSUMER)
    config: dict[str, Any] = read_json(saved[key][0])["config"]
    name = own.partition("/")[2]
    backoff = tuple(config.get("backoff") or ())
    state = DeliveryState(
        start_seq=1,
        tracks=config.get("ack_policy") != "none",
        ack_wait_ns=int(config.get("ack_wait", 0)),
        backoff_ns=backoff,
    )
    snapshot, deltas = saved[STATE + own]
    journal.restore(state, snapshot, deltas, 0)
    return ConsumerContent(name, {**config, "name": name}, backup_of(state, 0, (1 << 63) - 1))
