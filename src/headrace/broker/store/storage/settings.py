"""What a storage is opened with: when things have to be on the disk, and in what sizes they go there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ....clock import Clock
from ....errors import ConfigurationError

_SEGMENT_BYTES_MIN: Final = 8 * 1024
_SEGMENT_BYTES_MAX: Final = 1 << 31
HANDLES: Final = 4_352
RESERVED: Final = 512
"""Of these, as many as a broker takes at its start; reserving all would take milliseconds."""
_HANDLES_OTHER: Final = 8  # of them: the lock, the journal and its successor, a directory or two
_HANDLES_MIN: Final = 4


class Salts(Protocol):
    """Where segment salts come from; ``random.Random`` matches."""

    def getrandbits(self, k: int, /) -> int: ...


class Opening(NamedTuple):
    """What a store in a directory is opened with; see ``FileStorage``."""

    clock: Clock
    sync: bool  # before a flush is done
    interval_ns: int | None
    segment_bytes: int
    cache_bytes: int
    notify: Callable[[], None]
    threaded: bool


def opening(
    clock: Clock,
    sync: str,
    segment_bytes: int,
    cache_bytes: int,
    notify: Callable[[], None],
    threaded: bool,
) -> Opening:
    """What a store is asked for. Raises ConfigurationError."""
    sync_first, interval_ns = parse_sync(sync)
    check_segment_bytes(segment_bytes)
    return Opening(clock, sync_first, interval_ns, segment_bytes, cache_bytes, notify, threaded)


def parse_sync(sync: str) -> tuple[bool, int | None]:
    """A sync mode as (sync before done, interval in ns). Raises ConfigurationError.

    ``always``: on disk before ``done``. ``interval:<seconds>``: written before ``done``, on disk at
    most so much later. ``os``: written before ``done``, on disk when the system likes.
    """
    mode, _, rest = sync.partition(":")
    if mode == "always" and not rest:
        return True, None
    if mode == "os" and not rest:
        return False, None
    if mode == "interval":
        with contextlib.suppress(ValueError):
            seconds = float(rest.removesuffix("s"))
            if 0 < seconds < 86_400:
                return False, round(seconds * 1e9)
    raise ConfigurationError(
        f"sync is {sync!r}; accepted are 'always', 'interval:<seconds>' and 'os'"
    )


def check_segment_bytes(segment_bytes: int) -> None:
    """Raise ConfigurationError if a segment cannot have this size."""
    if not _SEGMENT_BYTES_MIN <= segment_bytes <= _SEGMENT_BYTES_MAX:
        raise ConfigurationError(
            f"segment_bytes is {segment_bytes}; accepted are {_SEGMENT_BYTES_MIN} to "
            f"{_SEGMENT_BYTES_MAX}"
        )


def each_ones_handles(handles: int) -> int:
    """How many files the owner, and as many the commit thread, may keep open of ``handles`` in all."""
    return max(handles - _HANDLES_OTHER, _HANDLES_MIN) // 2
