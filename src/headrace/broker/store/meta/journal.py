"""The metadata journal: small values by key, with deltas, in one append-only file of entries.

Each write begins with a COMMIT record, which tells recovery what was durable before it. When much of the
file is superseded, it is rewritten: a new file, synced, renamed, the old one unlinked.

``Journal`` is what a start reads, ``JournalWriter`` the commit thread's side of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ....errors import StoreFailedError
from ..format.entries import (
    APPEND,
    FILE_HEADER_BYTES,
    PUT,
    KeyChange,
    MetaChange,
    Values,
    decode_file_header,
    encode_commit,
    encode_entry,
    encode_file_header,
    key_and_value,
    split_stamp,
)
from ..format.record import (
    COMMIT,
    HEAD_BYTES,
    U64,
    WATERMARK_BYTES,
    ScannedRecord,
    Watermark,
    decode_watermark,
    scan,
)
from ..io.files import FileSystem, is_full, read_around, read_start, write_all
from ..io.findings import Finding, Quarantine, damage

MAGIC: Final = b"HRMETAJR"
_NAME: Final = re.compile(r"journal-(\d{8})(\.tmp)?")
Report = Callable[[Finding], None]
_BESIDE: Final = frozenset({"watermark", "spare", "spare.tmp"})
_MARGIN: Final = 256 * 1024  # preallocated ahead, so that acks can be recorded on a full disk


class Journal(msgspec.Struct, eq=False):
    """What a journal says, and where to go on writing it."""

    path: str
    serial: int
    salt: int
    number: int = 0  # of the last entry
    end: int = FILE_HEADER_BYTES
    dirty: bool = False  # there are bytes beyond ``end`` that must go before the next write
    values: Values = msgspec.field(default_factory=dict)
    versions: dict[str, int] = msgspec.field(default_factory=dict)
    """By key: the change that set it, 0 if it has no stamp."""
    deleted: dict[str, int] = msgspec.field(default_factory=dict)
    """Keys whose last word was their deletion, by which change."""
    loose: dict[str, list[tuple[int, bytes]]] = msgspec.field(default_factory=dict)
    """Deltas, with their stamps, that do not follow what is there: something in between is lost."""
    changes: int = 0  # the highest number of a change
    damaged: bool = False  # some of it cannot be read
    missing: bool = False  # there was none
    unstamped: bool = False  # it has entries from before there were stamps

    def play(self, found: ScannedRecord, data: bytes) -> None:
        key, value = key_and_value(data, found.offset, found.size, found.subject_len)
        version, number = split_stamp(found.timestamp_ns)
        self.changes = max(self.changes, version)
        self.unstamped = self.unstamped or not version
        if found.kind == APPEND:
            self._append(key, value, version, number, found.timestamp_ns)
            return
        self.loose.pop(key, None)
        if found.kind == PUT:
            self.values[key] = (value, [])
            self.versions[key] = version
            self.deleted.pop(key, None)
        else:
            self.values.pop(key, None)
            self.versions.pop(key, None)
            self.deleted[key] = version

    def _append(self, key: str, delta: bytes, version: int, number: int, stamp: int) -> None:
        have = self.values.get(key)
        if not version:
            # Without stamps, nobody knows whether what was damaged so far belonged to this key.
            fits = not self.damaged
            if have is None and fits:
                have = self.values[key] = (b"", [])
                self.versions[key] = 0
        elif have is not None:
            fits = number == len(have[1]) + 1 and self.versions[key] in (0, version)
        else:
            fits = False
        if have is not None and fits and key not in self.loose:
            have[1].append(delta)
            self.versions[key] = version
        else:
            self.loose.setdefault(key, []).append((stamp, delta))


def _journal_path(directory: str, serial: int) -> str:
    return f"{directory}/journal-{serial:08d}"


def read_all(fs: FileSystem, path: str) -> bytes:
    """A whole file, with zeros for what the disk cannot read."""
    handle = fs.open(path)
    try:
        return read_around(fs, handle, fs.size(handle), 0)
    finally:
        fs.close(handle)


def open_journal(
    fs: FileSystem,
    directory: str,
    root: str,
    quarantine: Quarantine,
    report: Report,
    new_salt: Callable[[], int],
) -> Journal:
    """Read the newest journal, making one if there is none.

    Nothing is deleted: leftovers of an interrupted rewrite and unreadable journals go to quarantine, and
    files that are none of ours are named and left alone.
    """
    chosen: tuple[Journal, bytes] | None = None
    last, spoilt = 0, False
    for name in reversed(fs.listdir(directory)):
        path = f"{directory}/{name}"
        match = _NAME.fullmatch(name)
        last = max(last, int(match[1])) if match is not None else last
        if match is None or fs.kind(path) != "file":
            if name not in _BESIDE:
                report(Finding(path, 0, "not a file of the store; left alone"))
            continue
        data = b"" if match[2] else read_all(fs, path)
        header = decode_file_header(MAGIC, data, path)
        if header is not None and header[0] == int(match[1]) and chosen is None:
            chosen = Journal(path, *header), data
            continue
        target = quarantine.take(path, root)
        if not match[2] and chosen is None:
            spoilt = True
            what = "has no readable header" if data.strip(b"\0") else "is empty"
            report(damage(path, 0, f"the metadata journal {what}; put aside as {target}"))
    if chosen is None:
        mark, _ = _read_watermark(fs, directory)
        journal = _create(fs, directory, max(last, mark.serial) + 1, new_salt())
        journal.missing, journal.damaged = True, spoilt or mark.serial > 0
        return journal
    journal, data = chosen
    journal.damaged = spoilt
    _replay(fs, directory, root, journal, data, quarantine, report)
    return journal


def _read_watermark(fs: FileSystem, directory: str) -> tuple[Watermark, bool]:
    return decode_watermark(read_start(fs, directory + "/watermark", WATERMARK_BYTES))


def _create(fs: FileSystem, directory: str, serial: int, salt: int) -> Journal:
    path = _journal_path(directory, serial)
    handle = fs.open(path + ".tmp", create=True)
    try:
        write_all(fs, handle, encode_file_header(MAGIC, salt, serial), 0)
        fs.fdatasync(handle)
    finally:
        fs.close(handle)
    fs.rename(path + ".tmp", path)
    fs.fsync_dir(directory)
    return Journal(path, serial, salt)


def _replay(
    fs: FileSystem,
    directory: str,
    root: str,
    journal: Journal,
    data: bytes,
    quarantine: Quarantine,
    report: Report,
) -> None:
    mark, bad_mark = _read_watermark(fs, directory)
    if bad_mark:
        report(damage(directory + "/watermark", 0, "the watermark is damaged and was ignored"))
    path = journal.path
    found = list(scan(data, FILE_HEADER_BYTES, len(data), journal.salt))
    durable = mark.end if mark.serial == journal.serial else 0
    for item in found:
        if item.kind == COMMIT:
            durable = max(durable, U64.unpack_from(data, item.offset + HEAD_BYTES)[0])
    for item in found:
        if item.kind == 0:
            if item.offset >= durable:
                report(damage(path, item.offset, "a torn write at the end was ignored"))
                journal.dirty = True
                break
            raw = data[item.offset : item.offset + item.size]
            quarantine.keep(path, root, item.offset, raw)
            report(damage(path, item.offset, f"{item.size} damaged bytes of metadata were skipped"))
            journal.damaged = True
        elif item.kind == COMMIT:
            journal.number = max(journal.number, item.sequence)
            journal.changes = max(journal.changes, item.timestamp_ns)
        else:
            journal.play(item, data)
            journal.number = item.sequence
        journal.end = item.offset + item.size
    if journal.end < durable:
        what = f"metadata ends at {journal.end}, but {durable} bytes were durable"
        report(damage(path, journal.end, what))
        journal.damaged = True
    journal.number = max(journal.number, mark.sequence)
    _make_durable(fs, directory, journal, data, mark)


def _make_durable(
    fs: FileSystem, directory: str, journal: Journal, data: bytes, mark: Watermark
) -> None:
    """Put on disk what was found beyond the watermark, before anybody relies on it.

    Whoever wrote it may have ended before it was synced, or after a sync that failed.
    """
    start = mark.end if journal.serial == mark.serial else 0
    if journal.serial < mark.serial or journal.end <= start:
        return
    handle = fs.open(journal.path)
    try:
        write_all(fs, handle, data[start : journal.end], start)
        fs.fdatasync(handle)
    finally:
        fs.close(handle)
    fs.fsync_dir(directory)


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
        self._path = _journal_path(directory, opened.serial)
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
        path = _journal_path(self._directory, self._serial + 1)
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
