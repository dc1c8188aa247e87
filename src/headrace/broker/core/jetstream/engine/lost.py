"""Streams that are on the disk and cannot be served: their names are reserved, and say why.

Either nothing tells their configuration any more, or their directory cannot be used. STREAM.UPDATE gives a
configuration back to one that has none, STREAM.DELETE removes what there is, and nobody else touches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .....documents import read_json
from .....errors import StoreError
from ..context import Context
from ..publish.duplicate_window import LEFT_IDS
from ..sourcing.positions import POSITIONS

STREAM: Final = "stream/"
CONSUMER: Final = "consumer/"
STATE: Final = "state/"
RESTORING: Final = "restoring/"
"""A stream that was being restored: what there is of it goes with the next start."""


class LostStreams:
    """The names that are taken by what cannot be served, and why."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.reasons: dict[str, str] = {}
        self._remnants: set[str] = set()

    @property
    def names(self) -> set[str]:
        """All of them, remnants included."""
        return {*self.reasons, *self._remnants}

    def add(self, name: str, why: str) -> None:
        """A stream that cannot be served, until it is removed or found."""
        self.reasons[name] = why

    def add_remnant(self, name: str) -> None:
        """What is left of a creation that was cut off: nobody was told of it, it makes room if need be."""
        self._remnants.add(name)

    def found(self, name: str) -> None:
        """It is served again."""
        self.reasons.pop(name, None)

    def check(self, name: str) -> None:
        """Make room for a new stream of this name. Raises StoreError if one is lost."""
        why = self.reasons.get(name)
        if why is not None:
            raise StoreError(f"the name {name!r} is taken: {why}")
        if name in self._remnants:
            self._context.storage.delete_stream(name)
            self._remnants.discard(name)

    def remove(self, name: str) -> None:
        """Remove what there is of a lost stream. Raises StoreError."""
        storage = self._context.storage
        for key in keys_of(name, storage.meta.load()):
            storage.meta.delete(key)
        if name in storage.barred() or name in storage.streams():
            storage.delete_stream(name)
        del self.reasons[name]
        self._context.barrier.want()

    def created_ns(self, name: str) -> int:
        """When a lost stream was made, as its consumers remember; 0 if they do not."""
        for key, (value, _) in self._context.storage.meta.load().items():
            if key.startswith(f"{CONSUMER}{name}/"):
                created_ns = read_json(value).get("stream_ns", 0)
                if created_ns:
                    return int(created_ns)
        return 0


def keys_of(name: str, journal: Iterable[str]) -> list[str]:
    """The keys of a stream, its own first."""
    own = (POSITIONS + name, LEFT_IDS + name)
    parts = (f"{CONSUMER}{name}/", f"{STATE}{name}/")
    return [STREAM + name, *(k for k in journal if k in own or k.startswith(parts))]
