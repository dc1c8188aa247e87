"""Metadata: small values by key, with deltas; the owner's side of the journal.

Among them, for nobody else to see, is a note of each stream that has no directory yet: without one, a
stream of which there is no directory was deleted.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Final

from ....errors import StoreError
from ..format.entries import (
    APPEND,
    DELETE,
    PUT,
    KeyChange,
    MetaChange,
    Values,
    delta_stamp,
    put_stamp,
)
from ..format.record import OVERHEAD
from .journal import Journal
from .spare import UNSETTLED, Spares

_REWRITE_MIN: Final = 1024 * 1024
_REWRITE_RATIO: Final = 4


class Meta:
    """The values, and what of them is not yet handed over.

    See ``MetaJournal`` in ``core/ports/storage.py``. Unlike messages, changes made here are never taken back:
    if a batch fails, its changes go with the next one.
    """

    def __init__(self, journal: Journal, spares: Spares, check: Callable[[], None]) -> None:
        self._values = journal.values
        notes = [key for key in self._values if key.startswith(UNSETTLED)]
        self._unsettled = {key: self._values.pop(key) for key in notes}
        self._all = ChainMap(self._values, self._unsettled)
        self._versions = journal.versions
        self._deleted = set(journal.deleted)
        self._loose = {key: [delta for _, delta in ds] for key, ds in journal.loose.items()}
        self._changes = journal.changes
        self._spares = spares
        self._check = check
        self._staged: list[KeyChange] = []
        self._inflight: list[MetaChange] = []
        self._live_bytes = sum(map(_weight, self._all.items()))
        self._journal_bytes = journal.end
        self._rewrite_at = _REWRITE_MIN
        # After damage, and when what is there has no stamps yet, the whole is written anew at once.
        self._must_rewrite = journal.damaged or journal.unstamped
        for key, version in self._versions.items():
            if not version:
                self._versions[key] = self._next()

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        """Every key with its value and the deltas since that value was put."""
        return self._values

    def loose(self, key: str) -> list[bytes]:
        """Deltas found in the journal behind something of this key that is lost; not in ``load``."""
        return self._loose.get(key, [])

    def was_deleted(self, key: str) -> bool:
        """Whether the journal, when it was opened, ended with this key's deletion."""
        return key in self._deleted

    def keep_beside(self, key: str, stream: str) -> None:
        """From here on keep a second copy of this key's value in the directory of that stream."""
        self._spares.keep(key, stream, self._versions.get(key))

    def unsettled(self) -> Iterator[str]:
        """The streams that have no directory."""
        return map(str.removeprefix, list(self._unsettled), repeat(UNSETTLED))

    def is_unsettled(self, stream: str) -> bool:
        """Whether a stream has no directory."""
        return UNSETTLED + stream in self._unsettled

    def unsettle(self, stream: str) -> None:
        """Note that there is this stream, though it has no directory. Raises StoreError as ``put`` does."""
        self._check()
        key = UNSETTLED + stream
        self._unsettled[key] = (b"", [])
        self._spares.unsettle(stream)
        self.keep_beside(key, stream)
        self._stage(PUT, key, b"")
        self._live_bytes += OVERHEAD + len(key)

    def settle(self, stream: str) -> bool:
        """A stream has a directory, or is no more; whether that is new. Raises StoreError as ``put`` does."""
        key = UNSETTLED + stream
        if key not in self._unsettled:
            return False
        self._stage(DELETE, key, b"")
        del self._unsettled[key], self._versions[key]
        self._live_bytes -= OVERHEAD + len(key)
        self._spares.settle(stream)
        return True

    def put(self, key: str, value: bytes, *, ahead: bool = False) -> None:
        """Set a key's value and drop its deltas. Raises StoreError if nothing may change any more.

        ``ahead``: the process may be killed after this is written and before what is committed with it is.
        """
        self._stage(PUT, key, value, ahead=ahead)
        self._live_bytes -= _weight((key, self._values.get(key)))
        self._values[key] = (value, [])
        self._live_bytes += _weight((key, self._values[key]))

    def append(self, key: str, delta: bytes, *, ahead: bool = False) -> None:
        """Add a delta to a key; one that was never put has the value ``b""``. ``ahead`` as for ``put``."""
        if key not in self._values:
            self.put(key, b"", ahead=ahead)
        self._check()
        deltas = self._values[key][1]
        stamp = delta_stamp(self._versions[key], len(deltas) + 1)
        self._staged.append(KeyChange(APPEND, key.encode(), delta, stamp, ahead))
        deltas.append(delta)
        self._live_bytes += OVERHEAD + len(key) + len(delta)

    def delete(self, key: str) -> None:
        """Forget a key; one that is not there is none the worse."""
        self._stage(DELETE, key, b"")
        self._live_bytes -= _weight((key, self._values.pop(key, None)))
        del self._versions[key]

    def _stage(self, kind: int, key: str, value: bytes, *, ahead: bool = False) -> None:
        self._check()
        name = key.encode()
        if len(name) > 0xFFFF:
            raise StoreError(f"a key may have 65535 bytes; this one has {len(name)}")
        self._versions[key] = change = self._next()
        entry = KeyChange(kind, name, value, put_stamp(change), ahead)
        self._staged.append(entry)
        self._spares.changed(entry, key)
        self._loose.pop(key, None)
        self._deleted.discard(key)

    def _next(self) -> int:
        self._changes += 1
        return self._changes

    def take(self) -> MetaChange | None:
        """What was staged, for the next batch."""
        if not self.staged:
            return None
        entries, self._staged = self._staged, []
        self._journal_bytes += sum([OVERHEAD + len(e.key) + len(e.value) for e in entries])
        image = None
        most = max(self._rewrite_at, _REWRITE_RATIO * self._live_bytes)
        if self._must_rewrite or self._journal_bytes > most:
            # A deletion of this very batch is in it: its directory is there until after the rewrite.
            image = [entry for entry in entries if entry.kind == DELETE]
            image += _image(self._all, self._versions)
            self._must_rewrite = False
            self._journal_bytes = self._live_bytes
            self._rewrite_at = max(_REWRITE_MIN, 2 * self._live_bytes)
        change = MetaChange(
            entries, image, self._spares.take(self._all, self._versions, self._changes)
        )
        self._inflight.append(change)
        return change

    def complete(self, change: MetaChange) -> None:
        """A change is durable, and so is every one before it."""
        while self._inflight:
            oldest = self._inflight.pop(0)
            self._spares.complete()
            if oldest is change:
                return

    def fail(self) -> None:
        """Have what is in flight go with the next batch: it will not become durable."""
        entries = [entry for change in self._inflight for entry in change.entries]
        if any(change.image is not None for change in self._inflight):
            self._must_rewrite = True
        self._inflight.clear()
        self._staged = entries + self._staged
        self._spares.fail()

    @property
    def staged(self) -> bool:
        """Whether the next flush has something to write."""
        return bool(self._staged) or self._spares.staged or self._must_rewrite


def _weight(item: tuple[str, tuple[bytes, list[bytes]] | None]) -> int:
    key, entry = item
    if entry is None:
        return 0
    value, deltas = entry
    each = OVERHEAD + len(key)
    return each + len(value) + sum([each + len(delta) for delta in deltas])


def _image(values: Values, versions: Mapping[str, int]) -> list[KeyChange]:
    image: list[KeyChange] = []
    for key, (value, deltas) in values.items():
        name, change = key.encode(), versions[key]
        image.append(KeyChange(PUT, name, value, put_stamp(change)))
        image += [
            KeyChange(APPEND, name, delta, delta_stamp(change, number))
            for number, delta in enumerate(deltas, 1)
        ]
    return image
