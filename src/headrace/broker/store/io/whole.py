"""Syncing a whole file system: one call puts on disk whatever was written, in however many files.

Python lacks the system call. It is used only where its answer can be relied on: on a 64-bit Linux that tells
whoever asks of every write that failed (5.17), and on file systems of which it is known that the call
returns when the disk has all.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

_KERNEL: Final = (5, 17)  # from then on a file system's own failures are told, too
_KINDS: Final = frozenset({0xEF53, 0x58465342, 0x9123683E})  # ext4, XFS, btrfs: of linux/magic.h
_STATFS_BYTES: Final = 512  # more than it has anywhere
_DIRTY: Final = b"Dirty:"


@cache
def _calls() -> tuple[Callable[[int], int], Callable[..., int], Callable[[], int]] | None:
    """The system's ``syncfs`` and ``fstatfs``, and what tells their errors; None where they are not."""
    if sys.platform != "linux" or struct.calcsize("l") != 8 or _kernel() < _KERNEL:
        return None
    import ctypes  # a start needs it not

    library = ctypes.CDLL(None, use_errno=True)
    syncfs, fstatfs = getattr(library, "syncfs", None), getattr(library, "fstatfs", None)
    if syncfs is None or fstatfs is None:
        return None
    syncfs.argtypes = (ctypes.c_int,)
    return syncfs, fstatfs, ctypes.get_errno


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _is_known(handle: int) -> bool:
    """Whether the file lies on one of the file systems on which the call does what is wanted."""
    calls = _calls()
    if calls is None:
        return False
    import ctypes

    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if calls[1](handle, answer) != 0:
        return False
    kind: int = struct.unpack_from("l", answer.raw)[0]
    return kind in _KINDS


def dirty_bytes() -> int | None:
    """How much the machine has yet to write to its disks; None where it does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(_DIRTY):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None  # a system without it, or one that hides it: then it is not known
    return None


class WholeSync:
    """Syncs the file system that one file lies on. ``handle`` is kept open by whoever hands it in: the
    system tells it of every failure since it was opened.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._is_known = _is_known(handle)
        self.device: Final = os.fstat(handle).st_dev
        """Where the file lies."""

    def sync(self, paths: Sequence[str], most_dirty: int) -> bool:
        """See ``FileSystem.sync_whole``."""
        calls = _calls()
        if not self._is_known or calls is None:
            return False
        device = self.device
        for path in paths:
            if os.stat(path).st_dev != device:  # noqa: PTH116
                return False  # a disk of its own below the store's directory: not synced with it
        waiting = dirty_bytes()
        if waiting is None or waiting > most_dirty:
            return False
        if calls[0](self._handle) != 0:
            number = calls[2]()
            raise OSError(number, os.strerror(number))
        return True
