"""What recovery and reading found wrong, and where such files are put aside."""

from __future__ import annotations

from typing import NamedTuple

from .files import FileSystem, is_full, write_all


class Finding(NamedTuple):
    """One thing found wrong on disk.

    ``lost`` is the first and last sequence (inclusive) of messages that can no longer be read, or
    None. A torn write that no one was told about is a finding with nothing lost.
    """

    path: str
    offset: int
    what: str
    stream: str = ""
    lost: tuple[int, int] | None = None


def damage(
    path: str, offset: int, what: str, stream: str = "", lost: tuple[int, int] | None = None
) -> Finding:
    """A finding; its text names what is lost."""
    if lost is not None:
        low, high = lost
        which = f"message {low}" if low == high else f"messages {low} to {high}"
        what = f"{what}: {which} lost"
    return Finding(path, offset, what, stream, lost)


class Quarantine:
    """A directory for files that do not belong and for damaged bytes. Nothing in it is ever removed."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory

    def _ready(self) -> None:
        if not self._fs.exists(self._directory):
            self._fs.mkdir(self._directory)
            self._fs.fsync_dir(self._directory.rpartition("/")[0])

    def take(self, path: str, root: str) -> str:
        """Move a file or directory below ``root`` here; returns its new path."""
        self._ready()
        stem = path.removeprefix(root + "/").replace("/", "~")
        target = f"{self._directory}/{stem}"
        number = 0
        while self._fs.exists(target):
            number += 1
            target = f"{self._directory}/{stem}.{number}"
        self._fs.rename(path, target)
        self._fs.fsync_dir(self._directory)
        self._fs.fsync_dir(path.rpartition("/")[0])
        return target

    def keep(self, path: str, root: str, offset: int, data: bytes) -> None:
        """Keep a copy of damaged bytes, once. On a full disk they stay only where they are."""
        stem = path.removeprefix(root + "/").replace("/", "~")
        target = f"{self._directory}/{stem}@{offset}"
        if self._fs.exists(target):
            return
        try:
            self._ready()
            handle = self._fs.open(target, create=True)
            try:
                write_all(self._fs, handle, data, 0)
            finally:
                self._fs.close(handle)
        except OSError as error:
            if not is_full(error):
                raise
