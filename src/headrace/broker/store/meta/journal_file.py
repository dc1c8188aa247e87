"""Reading the metadata journal: small values by key, with deltas, in one append-only file of entries.

Each write begins with a COMMIT record, which tells recovery what was durable before it. When much of the
file is superseded, it is rewritten: a new file, synced, renamed, the old one unlinked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ..format.entries import (
    APPEND,
    FILE_HEADER_BYTES,
    PUT,
    Values,
    decode_file_header,
    encode_file_header,
    key_and_value,
    split_stamp,
)
from ..format.record import COMMIT, HEAD_BYTES, U64, ScannedRecord, scan
from ..format.watermark import WATERMARK_BYTES, Watermark, decode_watermark
from ..io.files import FileSystem, read_around, read_start, write_all
from ..io.findings import Finding, Quarantine, damage

MAGIC: Final = b"HRMETAJR"
_NAME: Final = re.compile(r"journal-(\d{8})(\.tmp)?")
Report = Callable[[Finding], None]


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


def journal_path(directory: str, serial: int) -> str:
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
            if name != "watermark":
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
    path = journal_path(directory, serial)
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
