"""Fault injection between a store and its disk: any call of the file system may fail, once.

``FaultyFiles`` wraps any file system (``FaultFS``, the machine's own) and carries out a plan: at the
n-th call of a kind it raises an error, writes half, only pretends to sync, or returns a wrong byte.
``every_fault`` lists all possible faults of the calls of a run without faults.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["FaultPoint", "FaultyFiles", "every_fault"]

_TROUBLE: Final = {
    "open": ("EIO", "EMFILE"),
    "pread": ("EIO", "rot"),
    "size": ("EIO",),
    "listdir": ("EIO", "EMFILE"),
    "create": ("EIO", "ENOSPC", "EMFILE"),
    "pwrite": ("EIO", "ENOSPC", "short", "torn"),
    "allocate": ("EIO", "ENOSPC"),
    "truncate": ("EIO", "EIO after"),
    "punch": ("EIO", "ENOSPC", "EIO after"),
    "mkdir": ("EIO", "ENOSPC"),
    "rename": ("EIO", "ENOSPC", "EIO after"),
    "unlink": ("EIO", "EIO after"),
    "rmdir": ("EIO",),
    "fdatasync": ("EIO", "ENOSPC", "lie"),
    "sync_whole": ("EIO", "ENOSPC", "EIO after"),
    "fsync_dir": ("EIO", "lie"),
}


class FaultPoint(NamedTuple):
    """A fault: the ``number``-th call (from 1) of a ``kind``.

    ``kind`` is a method of ``FileSystem``, or ``create`` for an ``open`` that creates. ``what`` is the
    name of an errno, raised instead of the call; with `` after``, raised after the call. Or ``short``:
    a write stores half; ``torn``: it stores half and fails with EIO; ``lie``: a sync returns without an
    effect; ``rot``: this read returns one wrong bit.
    """

    kind: str
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.number}: {self.what}"


class FaultyFiles:
    """A file system with a plan of faults; everything else is that of ``inner``.

    ``calls`` counts calls by kind, ``hit`` has the faults that occurred.
    """

    def __init__(self, inner: Any, plan: Iterable[FaultPoint] = ()) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.hit: list[FaultPoint] = []
        self._plan = {(point.kind, point.number): point for point in plan}

    def heal(self) -> None:
        """Cancel all remaining faults."""
        self._plan.clear()

    def power_cut(self, rng: Any) -> FaultyFiles:
        """As ``FaultFS``; the disk that is found has no faults but continues to count."""
        return self._after(self.inner.power_cut(rng))

    def kill(self) -> FaultyFiles:
        """As ``FaultFS``; see ``power_cut``."""
        return self._after(self.inner.kill())

    def _after(self, inner: Any) -> FaultyFiles:
        survivor = FaultyFiles(inner, self._plan.values())
        survivor.calls, survivor.hit = self.calls, self.hit
        return survivor

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in _TROUBLE:
            return found

        def call(*args: Any, **named: Any) -> Any:
            return self._call(name, found, args, named)

        return call

    def open(self, path: str, *, create: bool = False) -> int:
        """See ``FileSystem``."""
        kind = "create" if create else "open"
        handle: int = self._call(kind, self.inner.open, (path,), {"create": create})
        return handle

    def _call(
        self, kind: str, method: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        self.calls[kind] += 1
        point = self._plan.get((kind, self.calls[kind]))
        if point is None:
            return method(*args, **named)
        self.hit.append(point)
        what = point.what
        if what == "rot":
            return _rotten(method(*args, **named))
        if what in ("short", "torn"):
            handle, data, offset = args
            taken = method(handle, bytes(data)[: max(1, len(data) // 2)], offset)
            if what == "short":
                return taken
            what = "EIO"
        elif what == "lie":
            return None
        elif what.endswith(" after"):
            method(*args, **named)
            what = what.removesuffix(" after")
        elif kind == "sync_whole":
            lose = getattr(self.inner, "lose_unsynced", None)
            if lose is not None:
                lose()
        elif kind == "fdatasync":
            # The system marks the pages clean nevertheless: a second sync succeeds, and they are lost.
            forget = getattr(self.inner, "forget_unsynced", None)
            if forget is not None:
                forget(*args)
        number = getattr(errno, what)
        raise OSError(number, os.strerror(number), f"{kind} by plan")


def every_fault(calls: Mapping[str, int], kinds: Iterable[str] = ()) -> Iterator[FaultPoint]:
    """Each fault of each of these calls, by kind and number; of some ``kinds`` only, if given."""
    for kind in tuple(kinds) or tuple(_TROUBLE):
        for number in range(1, calls.get(kind, 0) + 1):
            for what in _TROUBLE[kind]:
                yield FaultPoint(kind, number, what)


def _rotten(data: bytes) -> bytes:
    if not data:
        return data
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]
