"""The metadata journal: small values by key, with deltas, in one append-only file of records.

The records are those of ``record.py`` with kinds of their own: the key in place of the subject, the
value in place of the payload, a running number in place of the sequence. Each write begins with a
COMMIT record, which tells recovery what was durable before it. When much of the file is superseded, it
is rewritten: a new file, synced, renamed, the old one unlinked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from zlib import crc32

from ...errors import StoreError, StoreFailedError, StoreFormatError
from .files import FileSystem, is_full, read_around, write_all
from .findings import Finding, Quarantine, damage
from .record import (
    COMMIT,
    CRC_BYTES,
    HEAD,
    HEAD_BYTES,
    MARK,
    OVERHEAD,
    U32,
    U64,
    Found,
    scan,
)
from .watermark import Watermark, read_watermark
from .writer import MetaChange

__all__ = ["JournalWriter", "Meta", "open_journal"]

PUT: Final = 1
APPEND: Final = 2
DELETE: Final = 3

_VERSION: Final = 1
_MAGIC: Final = b"HRMETAJR"
_HEADER: Final = struct.Struct("<8sIIQ")
_COPY_BYTES: Final = 64
_HEADER_BYTES: Final = 2 * _COPY_BYTES
_MARGIN: Final = 256 * 1024  # preallocated ahead, so that acks can be recorded on a full disk
_REWRITE_MIN: Final = 1024 * 1024
_REWRITE_RATIO: Final = 4

Entry = tuple[int, bytes, bytes]
Values = dict[str, tuple[bytes, list[bytes]]]


class Meta:
    """The owner's side: the values, and what of them is not yet handed over.

    See ``MetaJournal`` in ``core/ports.py``. Unlike messages, changes made here are never taken back:
    if a batch fails, its changes go with the next one.
    """

    def __init__(self, values: Values, journal_bytes: int, check: Callable[[], None]) -> None:
        self._values = values
        self._check = check
        self._staged: list[Entry] = []
        self._inflight: list[MetaChange] = []
        self._live_bytes = sum(map(_weight, values.items()))
        self._journal_bytes = journal_bytes
        self._rewrite_at = _REWRITE_MIN

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        """Every key with its value and the deltas since that value was put."""
        return self._values

    def put(self, key: str, value: bytes) -> None:
        """Set a key's value and drop its deltas. Raises StoreError if nothing may change any more."""
        self._stage(PUT, key, value)
        self._live_bytes -= _weight((key, self._values.get(key)))
        self._values[key] = (value, [])
        self._live_bytes += _weight((key, self._values[key]))

    def append(self, key: str, delta: bytes) -> None:
        """Add a delta to a key; one that was never put has the value ``b""``."""
        self._stage(APPEND, key, delta)
        self._values.setdefault(key, (b"", []))[1].append(delta)
        self._live_bytes += OVERHEAD + len(key) + len(delta)

    def delete(self, key: str) -> None:
        """Forget a key; one that is not there is none the worse."""
        self._stage(DELETE, key, b"")
        self._live_bytes -= _weight((key, self._values.pop(key, None)))

    def _stage(self, kind: int, key: str, value: bytes) -> None:
        self._check()
        name = key.encode()
        if len(name) > 0xFFFF:
            raise StoreError(f"a key may have 65535 bytes; this one has {len(name)}")
        self._staged.append((kind, name, value))

    def take(self) -> MetaChange | None:
        """What was staged, for the next batch."""
        if not self._staged:
            return None
        entries, self._staged = self._staged, []
        self._journal_bytes += sum(OVERHEAD + len(key) + len(value) for _, key, value in entries)
        image = None
        if self._journal_bytes > max(self._rewrite_at, _REWRITE_RATIO * self._live_bytes):
            image = _image(self._values)
            self._journal_bytes = self._live_bytes
            self._rewrite_at = max(_REWRITE_MIN, 2 * self._live_bytes)
        change = MetaChange(entries, image)
        self._inflight.append(change)
        return change

    def complete(self, change: MetaChange) -> None:
        """A change is durable; they complete in order."""
        assert self._inflight.pop(0) is change

    def fail(self) -> None:
        """Nothing in flight will become durable: it goes with the next batch."""
        entries = [entry for change in self._inflight for entry in change.entries]
        self._inflight.clear()
        self._staged = entries + self._staged

    @property
    def staged(self) -> bool:
        return bool(self._staged)


def _weight(item: tuple[str, tuple[bytes, list[bytes]] | None]) -> int:
    key, entry = item
    if entry is None:
        return 0
    value, deltas = entry
    each = OVERHEAD + len(key)
    return each + len(value) + sum(each + len(delta) for delta in deltas)


def _image(values: Values) -> list[Entry]:
    image: list[Entry] = []
    for key, (value, deltas) in values.items():
        name = key.encode()
        image.append((PUT, name, value))
        image.extend((APPEND, name, delta) for delta in deltas)
    return image


class Opened(NamedTuple):
    """What recovery read from a journal."""

    values: Values
    serial: int
    salt: int
    number: int  # of the last entry
    end: int
    dirty: bool  # whether there are bytes beyond ``end`` that must go before the next write


class JournalWriter:
    """The commit thread's side: appends, syncs and rewrites the file."""

    def __init__(
        self, fs: FileSystem, directory: str, opened: Opened, new_salt: Callable[[], int]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._new_salt = new_salt
        self._serial = opened.serial
        self._salt = opened.salt
        self._number = opened.number
        self._end = opened.end
        self._dirty = opened.dirty
        self._handle = fs.open(journal_path(directory, opened.serial))
        self._allocated = fs.size(self._handle)
        self._mark = -1
        self.has_unsynced = False

    def write(self, changes: list[MetaChange], sync: bool) -> None:
        """Append changes, or rewrite the journal if one brings an image; see ``MetaWriter``."""
        if not changes:
            return
        image: list[Entry] | None = None
        entries: list[Entry] = []
        for change in changes:
            if change.image is not None:
                image, entries = change.image, []
            else:
                entries = entries + change.entries
        if image is not None and self._rewrite(image + entries):
            self._write_mark()
            return
        self._append([entry for change in changes for entry in change.entries])
        self.has_unsynced = True
        if sync:
            self.sync()

    def sync(self) -> None:
        """Sync what was written. Raises StoreFailedError."""
        if self.has_unsynced:
            try:
                self._fs.fdatasync(self._handle)
            except OSError as error:
                raise StoreFailedError(
                    f"syncing the metadata journal: {error.strerror or error}"
                ) from error
            self.has_unsynced = False
            self._write_mark()

    def close(self) -> None:
        self._fs.close(self._handle)
        if self._mark >= 0:
            self._fs.close(self._mark)

    def _append(self, entries: list[Entry]) -> None:
        data = self._encode(entries, self._end)
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
        self._number += len(entries)
        self._end = end
        self._allocated = max(self._allocated, end)

    def _reserve(self, end: int) -> None:
        try:
            if self._fs.allocate(self._handle, self._allocated, end + _MARGIN - self._allocated):
                self._allocated = end + _MARGIN
        except OSError as error:
            if not is_full(error):
                raise  # without room for the margin, the write itself may still fit

    def _encode(self, entries: list[Entry], at: int) -> bytes:
        commit = HEAD.pack(OVERHEAD + 8, MARK, COMMIT, 0, self._number, 0, 0) + U64.pack(at)
        parts = [commit, U32.pack(crc32(commit, self._salt))]
        for number, (kind, key, value) in enumerate(entries, self._number + 1):
            size = OVERHEAD + len(key) + len(value)
            body = HEAD.pack(size, MARK, kind, 0, number, 0, len(key)) + key + value
            parts += (body, U32.pack(crc32(body, self._salt)))
        return b"".join(parts)

    def _rewrite(self, entries: list[Entry]) -> bool:
        """Write everything to a new file that takes the old one's place; False if it does not fit."""
        old = journal_path(self._directory, self._serial)
        salt = self._salt
        self._salt = self._new_salt()
        data = _encode_header(self._serial + 1, self._salt)
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
        self._handle = handle
        self._serial += 1
        self._number += len(entries)
        self._end = self._allocated = len(data)
        self._dirty = self.has_unsynced = False
        self._fs.unlink(old)
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


def journal_path(directory: str, serial: int) -> str:
    return f"{directory}/journal-{serial:08d}"


def _encode_header(serial: int, salt: int) -> bytes:
    body = _HEADER.pack(_MAGIC, _VERSION, salt, serial)
    return (body + U32.pack(crc32(body))).ljust(_COPY_BYTES, b"\0") * 2


def _decode_header(data: bytes, path: str) -> tuple[int, int] | None:
    """Serial and salt, or None if neither copy is whole."""
    versions = []
    for at in (0, _COPY_BYTES):
        copy = data[at : at + _COPY_BYTES]
        if len(copy) < _COPY_BYTES or copy[:8] != _MAGIC:
            continue
        _, version, salt, serial = _HEADER.unpack_from(copy)
        if version != _VERSION:
            versions.append(version)
        elif U32.unpack_from(copy, _HEADER.size)[0] == crc32(copy[: _HEADER.size]):
            return serial, salt
    if len(versions) == 2 and versions[0] == versions[1]:
        raise StoreFormatError(
            f"{path} has format version {versions[0]}; this version of Headrace reads "
            f"version {_VERSION}"
        )
    return None


def open_journal(
    fs: FileSystem,
    directory: str,
    root: str,
    quarantine: Quarantine,
    report: Callable[[Finding], None],
    new_salt: Callable[[], int],
) -> Opened:
    """Read the newest journal, making one if there is none.

    Nothing is deleted: leftovers of an interrupted rewrite and unreadable journals go to quarantine.
    """
    chosen: tuple[str, bytes, int, int] | None = None
    for name in reversed(fs.listdir(directory)):
        path = f"{directory}/{name}"
        if name == "watermark":
            continue
        data = _read(fs, path)
        header = None if name.endswith(".tmp") else _decode_header(data, path)
        if header is None or chosen is not None:
            if data.strip(b"\0") and header is None and not name.endswith(".tmp"):
                report(damage(path, 0, "the metadata journal has no readable header"))
            quarantine.take(path, root)
            continue
        chosen = (path, data, *header)
    if chosen is None:
        return _create(fs, directory, new_salt())
    path, data, serial, salt = chosen
    return _replay(fs, directory, root, path, data, serial, salt, quarantine, report)


def _read(fs: FileSystem, path: str) -> bytes:
    handle = fs.open(path)
    try:
        return read_around(fs, handle, fs.size(handle), 0)
    finally:
        fs.close(handle)


def _create(fs: FileSystem, directory: str, salt: int) -> Opened:
    path = journal_path(directory, 1)
    handle = fs.open(path + ".tmp", create=True)
    try:
        write_all(fs, handle, _encode_header(1, salt), 0)
        fs.fdatasync(handle)
    finally:
        fs.close(handle)
    fs.rename(path + ".tmp", path)
    fs.fsync_dir(directory)
    return Opened({}, 1, salt, 0, _HEADER_BYTES, False)


def _replay(
    fs: FileSystem,
    directory: str,
    root: str,
    path: str,
    data: bytes,
    serial: int,
    salt: int,
    quarantine: Quarantine,
    report: Callable[[Finding], None],
) -> Opened:
    mark, bad_mark = read_watermark(fs, directory + "/watermark")
    if bad_mark:
        report(damage(directory + "/watermark", 0, "the watermark is damaged and was ignored"))
    found = list(scan(data, _HEADER_BYTES, len(data), salt))
    durable = mark.end if mark.serial == serial else 0
    for item in found:
        if item.kind == COMMIT:
            durable = max(durable, U64.unpack_from(data, item.offset + HEAD_BYTES)[0])
    values: Values = {}
    number, end = 0, _HEADER_BYTES
    for item in found:
        if item.kind == 0:
            if item.offset >= durable:
                report(damage(path, item.offset, "a torn write at the end was ignored"))
                return Opened(values, serial, salt, number, end, True)
            raw = data[item.offset : item.offset + item.size]
            quarantine.keep(path, root, item.offset, raw)
            report(damage(path, item.offset, f"{item.size} damaged bytes of metadata were skipped"))
        elif item.kind == COMMIT:
            number = max(number, item.sequence)
        else:
            _apply(values, data, item)
            number = item.sequence
        end = item.offset + item.size
    if end < durable:
        report(damage(path, end, f"metadata ends at {end}, but {durable} bytes were durable"))
    return Opened(values, serial, salt, max(number, mark.sequence), end, False)


def _apply(values: Values, data: bytes, item: Found) -> None:
    at = item.offset + HEAD_BYTES
    key = data[at : at + item.subject_len].decode()
    value = data[at + item.subject_len : item.offset + item.size - CRC_BYTES]
    if item.kind == PUT:
        values[key] = (value, [])
    elif item.kind == APPEND:
        values.setdefault(key, (b"", []))[1].append(value)
    else:
        values.pop(key, None)
