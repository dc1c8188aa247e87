"""Content that may belong to no object: what a put left behind that could not clean up after itself.

A connection remembers it, by bucket, and the next put removes it, unless an object has it. Where a
description is on its way that would make it somebody's, it is removed only once that can no longer come:
another put of the same name was stored, or time has passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from ..net.session import Session

SETTLED_S: Final = 60.0  # a description that a server has not stored by then, it will not store
LEFTOVERS_MAX: Final = 1000  # more are forgotten here; ``ObjectStore.remove_leftovers`` finds them


class Leftovers:
    """Of one bucket."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[
            str, tuple[str, float]
        ] = {}  # nuid → the name it may yet have, since when

    def __len__(self) -> int:
        return len(self._found)

    def note(self, nuid: str, name: str = "") -> None:
        """This content may belong to no object. ``name``: a description of this name may be on its way."""
        self._found[nuid] = (name, time.monotonic())
        if len(self._found) > LEFTOVERS_MAX:
            del self._found[next(iter(self._found))]

    def forget(self, nuid: str) -> None:
        """It is removed, or somebody's."""
        self._found.pop(nuid, None)

    def due(self, name: str) -> list[str]:
        """What may be removed unless an object has it, now that one of this name was stored."""
        limit = time.monotonic() - SETTLED_S
        return [
            nuid
            for nuid, (coming, since) in self._found.items()
            if coming in ("", name) or since <= limit
        ]


_of: WeakKeyDictionary[Session, dict[str, Leftovers]] = WeakKeyDictionary()


def leftovers_of(session: Session, bucket: str) -> Leftovers:
    """What this connection knows of a bucket."""
    return _of.setdefault(session, {}).setdefault(bucket, Leftovers())
