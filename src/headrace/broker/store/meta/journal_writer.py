"""Writing the metadata journal: the commit thread's side of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....errors import StoreFailedError
from ..format.entries import (
    KeyChange,
    MetaChange,
    encode_commit,
    encode_entry,
    encode_file_header,
    split_stamp,
)
from ..format.watermark import Watermark
from ..io.files import FileSystem, is_full, write_all
from .journal_file import MAGIC, Journal, journal_path

_MARGIN: Final = 256 * 1024  # preallocated ahead, so that acks can be recorded on a full disk


class JournalWriter:
    """Appends, syncs and rewrites the file."""

    def __init__(
        self, fs: FileSystem, directory: str, opened: Journal, new_salt: Callable[[], int]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._new_salt = new_salt
        self._serial = opened.serial
        self._salt = opened.salt
        self._number = opened.number
        self._changes = opened.changes
        self._end = opened.end
        self._dirty = opened.dirty
        self._path = journal_path(directory, opened.serial)
        self._handle = fs.open(self._path)
        self._allocated = fs.size(self._handle)
        self._mark = -1
        self._before: tuple[int, int] | None = None  # end and number, of what was written ahead
        self.has_unsynced = False

    def write_ahead(self, changes: list[MetaChange]) -> None:
        """Append what of these changes may be there before anything else of their commit; ``write`` follows.

        Or ``take_back`` does. ENOSPC leaves nothing behind. May raise OSError.
        """
        if any(change.image is not None for change in changes):
            return
        ahead, _ = _split([entry for change in changes for entry in change.entries])
        if ahead:
            before = self._end, self._number
            self._append(ahead, self._end)
            self._before = before
            self.has_unsynced = True

    def take_back(self) -> None:
        """Have the next write replace what was written ahead: the rest of its commit did not fit."""
        if self._before is not None:
            (self._end, self._number), self._before = self._before, None
            self._dirty = True

    def write(self, changes: list[MetaChange], sync: bool) -> None:
        """Append changes, or rewrite the journal if one brings an image.

        With ``sync``, return once they are on disk. ENOSPC leaves nothing behind, but for what was written
        ahead. May raise OSError.
        """
        changes = [change for change in changes if change.entries or change.image is not None]
        if not changes:
            return
        image: list[KeyChange] | None = None
        entries: list[KeyChange] = []
        for change in changes:
            if change.image is not None:
                image, entries = change.image, []
            else:
                entries = entries + change.entries
        if image is None or not self._rewrite(image + entries):
            left = [entry for change in changes for entry in change.entries]
            durable_end = self._end
            if self._before is not None:
                left, durable_end = _split(left)[1], self._before[0]
            if left:
                self._append(left, durable_end)
            self._before = None
            self.has_unsynced = True
            if sync:
                self._sync_file()
        self._check_in_place()
        if not self.has_unsynced:
            self._write_mark()

    def sync(self) -> None:
        """Sync what was written. Raises StoreFailedError."""
        if self.has_unsynced:
            self._sync_file()
            self._write_mark()

    def close(self) -> None:
        self._fs.close(self._handle)
        if self._mark >= 0:
            self._fs.close(self._mark)

    def _check_in_place(self) -> None:
        """Raise StoreFailedError if somebody has taken the file away.

        What was written is there by now, so where that cannot be told for lack of memory, the next one looks.
        """
        try:
            is_gone = not self._fs.is_at(self._handle, self._path)
        except OSError as error:
            if not is_full(error):
                raise
            return
        if is_gone:
            raise StoreFailedError(f"{self._path} was removed while in use")

    def _sync_file(self) -> None:
        try:
            self._fs.fdatasync(self._handle)
        except OSError as error:
            raise StoreFailedError(
                f"syncing the metadata journal: {error.strerror or error}"
            ) from error
        self.has_unsynced = False

    def _append(self, entries: list[KeyChange], durable_end: int) -> None:
        data = self._encode(entries, durable_end)
        end = self._end + len(data)
        try:
            if self._dirty:
                self._fs.truncate(self._handle, self._end)
                self._allocated, self._dirty = self._end, False
            if end > self._allocated:
                self._reserve(end)
            write_all(self._fs, self._handle, data, self._end)
        except OSError as error:
            if is_full(error):
                self._fs.truncate(self._handle, self._end)
                self._allocated = self._end
            raise
        self._written(entries, end)
        self._allocated = max(self._allocated, end)

    def _reserve(self, end: int) -> None:
        try:
            if self._fs.allocate(self._handle, self._allocated, end + _MARGIN - self._allocated):
                self._allocated = end + _MARGIN
        except OSError as error:
            if not is_full(error):
                raise  # without room for the margin, the write itself may still fit

    def _encode(self, entries: list[KeyChange], at: int) -> bytes:
        salt = self._salt
        parts = [encode_commit(self._number, self._changes, at, salt)]
        parts += [encode_entry(entry, n, salt) for n, entry in enumerate(entries, self._number + 1)]
        return b"".join(parts)

    def _written(self, entries: list[KeyChange], end: int) -> None:
        self._number += len(entries)
        self._end = end
        changes = max([split_stamp(entry.stamp)[0] for entry in entries], default=0)
        self._changes = max(self._changes, changes)

    def _rewrite(self, entries: list[KeyChange]) -> bool:
        """Write everything to a new file that takes the old one's place; False if it does not fit."""
        old, salt = self._path, self._salt
        self._salt = self._new_salt()
        data = encode_file_header(MAGIC, self._salt, self._serial + 1)
        data += self._encode(entries, len(data))
        path = journal_path(self._directory, self._serial + 1)
        handle = self._fs.open(path + ".tmp", create=True)
        try:
            write_all(self._fs, handle, data, 0)
        except OSError as error:
            self._fs.close(handle)
            self._fs.unlink(path + ".tmp")
            self._salt = salt
            if not is_full(error):
                raise
            return False
        try:
            self._fs.fdatasync(handle)
            self._fs.rename(path + ".tmp", path)
            self._fs.fsync_dir(self._directory)
        except OSError as error:
            raise StoreFailedError(
                f"rewriting the metadata journal: {error.strerror or error}"
            ) from error
        self._fs.close(self._handle)
        self._handle, self._path = handle, path
        self._serial += 1
        self._written(entries, len(data))
        self._allocated = len(data)
        self._dirty = self.has_unsynced = False
        try:
            if self._fs.exists(old):
                self._fs.unlink(old)
        except OSError as error:
            if not is_full(error):  # the new one is in place: nothing may be taken back
                raise
        return True

    def _write_mark(self) -> None:
        path = self._directory + "/watermark"
        try:
            if self._mark < 0:
                self._mark = self._fs.open(path, create=not self._fs.exists(path))
            mark = Watermark(self._number, self._serial, self._end).encode()
            write_all(self._fs, self._mark, mark, 0)
        except OSError as error:
            if not is_full(error):  # the entries are on disk; only a hint is missing
                raise


def _split(entries: list[KeyChange]) -> tuple[list[KeyChange], list[KeyChange]]:
    """Those that may be written ahead, and the others: what is said of one key stays in its order."""
    ahead: list[KeyChange] = []
    others: list[KeyChange] = []
    behind: set[bytes] = set()
    for entry in entries:
        if entry.ahead and entry.key not in behind:
            ahead.append(entry)
        else:
            behind.add(entry.key)
            others.append(entry)
    return ahead, others
