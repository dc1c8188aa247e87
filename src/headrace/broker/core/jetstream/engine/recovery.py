"""Bringing streams and consumers back from the journal, whatever is missing from it.

What the journal lacks, the storage has filled in from its second copies as far as it could. What is left
to decide here: what to make of a stream without a directory, a directory without a stream, a consumer
without its state. Nothing is skipped, nothing comes back in part, and whatever is amiss is noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .....api.base import from_wire
from .....api.consumers import ConsumerConfig
from .....api.streams import StreamConfig
from .....documents import read_json
from .....errors import StoreError, StoreFormatError, StoreFullError
from ..publish.duplicate_window import LEFT_IDS
from ..sourcing.positions import POSITIONS
from .lost import CONSUMER, RESTORING, STATE, STREAM, keys_of

if TYPE_CHECKING:
    from ..context import Context
    from ..stream.stream import Stream
    from .registry import Registry

_WAYS: Final = "STREAM.UPDATE with a configuration brings it back, STREAM.DELETE removes it"

Journal = Mapping[str, tuple[bytes, list[bytes]]]


class Recovery:
    """One recovery of an engine's streams and consumers."""

    def __init__(self, context: Context, registry: Registry) -> None:
        self._context = context
        self._storage = context.storage
        self._registry = registry
        self._journal: Journal = {}

    def run(self) -> Journal:
        """Open everything; returns what the journal held. Raises StoreError if the storage fails."""
        self._half_restored()
        self._journal = dict(self._storage.meta.load())
        for name, what in self._storage.barred().items():
            self._lose(name, f"{what}; put its directory back and start again, or STREAM.DELETE it")
        for key, (value, _) in self._journal.items():
            if key.startswith(STREAM):
                self._stream(key.removeprefix(STREAM), value)
        for key in self._journal:
            if key.startswith(CONSUMER):
                self._consumer(key)
        self._directories()
        self._leftovers()
        if self._storage.meta.staged:  # if only copies that were missing
            self._context.barrier.want_soon()
        return self._journal

    def consumers_of(self, stream: Stream) -> None:
        """Open the consumers of a stream that has come back."""
        self._journal = dict(self._storage.meta.load())
        for key in self._journal:
            if key.startswith(f"{CONSUMER}{stream.name}/"):
                self._consumer(key)

    # -- streams

    def _half_restored(self) -> None:
        """A restore was cut off: nobody was told that there is such a stream."""
        storage = self._storage
        for key in [key for key in storage.meta.load() if key.startswith(RESTORING)]:
            name = key.removeprefix(RESTORING)
            self._forget(name)
            if name in storage.streams():
                storage.delete_stream(name)
            storage.meta.delete(key)
            storage.note("a restore was cut off: nothing of it is kept", name)

    def _stream(self, name: str, value: bytes) -> None:
        if name in self._registry.lost.reasons:
            return
        entry = read_json(value)
        config = from_wire(entry["config"], StreamConfig)
        try:
            self._registry.open_stream(config, entry["created_ns"])
        except (StoreFormatError, StoreFullError):
            raise
        except StoreError as error:
            if name in self._storage.streams():
                self._lose(
                    name, f"its directory {self._storage.location(name)} is unreadable: {error}"
                )
            else:
                # Its directory leaves before a deletion is answered: the record of that is what is lost.
                self._storage.note("there is no directory: the stream was deleted", name)
                self._forget(name)

    def _directories(self) -> None:
        """Look at what the storage has and the journal does not."""
        storage, lost = self._storage, self._registry.lost
        for name in storage.streams():
            if name in self._registry.streams or name in lost.reasons:
                continue
            if storage.meta.was_deleted(STREAM + name):
                self._forget(name)  # the deletion was cut off when it was decided
                storage.delete_stream(name)
            elif storage.is_unfinished(name) or self._is_empty(name):
                lost.add_remnant(name)
            else:
                where = storage.location(name)
                self._lose(name, f"its messages are in {where}, its configuration is lost; {_WAYS}")

    def _is_empty(self, name: str) -> bool:
        """Whether there never was a message in it."""
        try:
            return not self._storage.open_stream(name).last_seq
        except (StoreFormatError, StoreFullError):
            raise
        except StoreError:
            return False

    def _lose(self, name: str, why: str) -> None:
        self._registry.lost.add(name, why)
        self._storage.note(f"the stream is not served: {why}", name)

    def _forget(self, name: str) -> None:
        for key in keys_of(name, self._storage.meta.load()):
            self._storage.meta.delete(key)

    # -- consumers

    def _consumer(self, key: str) -> None:
        key = key.removeprefix(CONSUMER)
        stream_name, _, name = key.partition("/")
        stream = self._registry.streams.get(stream_name)
        if stream is None:
            return  # see ``_leftovers``
        meta = self._storage.meta
        state = self._journal.get(STATE + key)
        entry = read_json(self._journal[CONSUMER + key][0])
        loose = meta.loose(STATE + key)
        if entry.get("stream_ns", stream.created_ns) != stream.created_ns:
            self._drop(
                stream_name, key, f"consumer {name!r} was one of a deleted stream of this name"
            )
            return
        if state is None and not loose and meta.was_deleted(STATE + key):
            self._drop(stream_name, key, f"the deletion of consumer {name!r} was completed")
            return
        if state is None or loose:
            what = f"part of the state of consumer {name!r} is lost: it goes on from an older one, "
            self._storage.note(what + "so that messages may be delivered again", stream_name)
        config = from_wire(entry["config"], ConsumerConfig)
        self._registry.open_consumer(stream, name, config, entry["created_ns"], state)

    def _drop(self, stream: str, key: str, what: str) -> None:
        self._storage.note(what, stream)
        self._storage.meta.delete(CONSUMER + key)
        self._storage.meta.delete(STATE + key)

    def _leftovers(self) -> None:
        """Forget what belongs to nothing, so that it does not come back with the next of its name."""
        meta, lost = self._storage.meta, self._registry.lost.reasons
        left = dict(meta.load())
        for key in left:
            for kind in (CONSUMER, STATE, POSITIONS, LEFT_IDS):
                if not key.startswith(kind):
                    continue
                whose = key.removeprefix(kind)
                name = whose.partition("/")[0]
                gone = name not in self._registry.streams
                if name not in lost and (gone or (kind == STATE and CONSUMER + whose not in left)):
                    meta.delete(key)
