"""After a crash: what the commit log holds is written to its places, before anything else is read.

That changes nothing where it is there already. What has gone since, as a segment that was removed, is passed
over: streams are only taken away when nothing of the log speaks of them. A batch that ends the log and is
not whole was never acknowledged. One that is damaged further inside costs nothing where the files have
its data; where they have not, the watermark it leaves makes the recovery of the stream tell what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ..commit.commit_log import LOG_DIRECTORY, LOG_FILES
from ..format.batch import (
    HEADER_BYTES,
    FoundBatch,
    LogHeader,
    Share,
    batches,
    decode_log_header,
)
from ..format.entries import FILE_HEADER_BYTES, decode_file_header
from ..format.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from ..format.segment import decode_header
from ..format.watermark import WATERMARK_BYTES, decode_watermark
from ..io.files import FileSystem, Handles, read_around, read_start, write_all
from ..io.findings import Finding, Quarantine, damage
from ..io.syncing import Syncing
from ..meta.journal_file import MAGIC, read_all

_HANDLES: Final = 256
Report = Callable[[Finding], None]


class _LogFile(NamedTuple):
    path: str
    header: LogHeader | None  # None: it was never written to, or it cannot be read
    is_damaged: bool
    found: list[FoundBatch]


def replay(
    fs: FileSystem,
    root: str,
    quarantine: Quarantine,
    report: Report,
    *,
    at_once: bool = False,
    anchor: int | None = None,
) -> bool:
    """Write what the log of the store in ``root`` holds to its places, synced, and take the log away.

    A damaged log is put aside. Returns whether a log was in use. Raises StoreFormatError, OSError; then
    all is as it was, or done again by the next try.
    """
    directory = f"{root}/{LOG_DIRECTORY}"
    if fs.kind(directory) != "directory":
        return False
    for name in fs.listdir(directory):
        if name not in LOG_FILES:
            report(Finding(f"{directory}/{name}", 0, "not a file of the store; left alone"))
    paths = [
        f"{directory}/{name}" for name in LOG_FILES if fs.kind(f"{directory}/{name}") == "file"
    ]
    if not paths:
        return False
    files = [_read(fs, path) for path in paths]
    files.sort(key=lambda file: file.header.first if file.header is not None else 0)
    kept, is_damaged = _kept(files, report)
    writing = _Writing(fs, root, report, at_once=at_once, anchor=anchor)
    try:
        writing.write(kept)
    finally:
        writing.close()
    for file in files:  # the older one first: without it, the other one is whole by itself
        if is_damaged or writing.is_short:
            quarantine.take(file.path, root)
        else:
            fs.unlink(file.path)
    fs.fsync_dir(directory)
    return True


def _read(fs: FileSystem, path: str) -> _LogFile:
    data = read_all(fs, path)
    header = decode_log_header(data[:HEADER_BYTES], path)
    if header is None:
        # Its first batch, with which the header is written, may not have come to the disk.
        return _LogFile(path, None, bool(data[:HEADER_BYTES].strip(b"\0")), [])
    return _LogFile(path, header, False, list(batches(data, header)))


def _kept(files: Sequence[_LogFile], report: Report) -> tuple[list[FoundBatch], bool]:
    """The batches that may not be in place, in order; and whether some that were acknowledged are damaged."""
    found = sorted(
        (batch for file in files for batch in file.found), key=lambda batch: batch.number
    )
    settled = max((batch.settled for batch in found), default=0)
    kept = [batch for batch in found if batch.number > settled]
    if kept and not kept[-1].whole:
        kept.pop()  # torn: nobody was ever told of it
    whole = {batch.number for batch in kept if batch.whole}
    last = kept[-1].number if kept else 0
    is_damaged = False
    for file, after in zip(files, [*files[1:], None], strict=True):
        if file.is_damaged:
            is_damaged = True
            report(
                damage(file.path, 0, "the header of the commit log is damaged; it was put aside")
            )
        if file.header is None:
            continue
        begin = max(file.header.first, settled + 1)
        end = last + 1 if after is None or after.header is None else after.header.first
        damaged = sum(number not in whole for number in range(begin, end))
        if damaged:
            is_damaged = True
            what = f"{damaged} of the commit log's batches are damaged; it was put aside"
            report(damage(file.path, 0, what))
    return kept, is_damaged


class _Writing:
    """The shares of the batches, file by file. ``is_short``: some found no readable file."""

    def __init__(
        self, fs: FileSystem, root: str, report: Report, *, at_once: bool, anchor: int | None
    ) -> None:
        self.is_short = False
        self._fs = fs
        self._root = root
        self._report = report
        self._handles = Handles(fs, _HANDLES)
        self._syncing = Syncing(fs, self._handles, at_once=at_once, anchor=anchor)

    def close(self) -> None:
        self._syncing.close()
        self._handles.close()

    def write(self, kept: Iterable[FoundBatch]) -> None:
        shares: dict[str, list[Share]] = {}
        marks: dict[str, bytes] = {}
        for batch in kept:
            for share in batch.shares:
                if batch.whole:
                    shares.setdefault(share.path, []).append(share)
                if share.mark:
                    marks[f"{self._root}/{share.path.rpartition('/')[0]}"] = share.mark
        written = [path for path, each in shares.items() if self._write(path, each)]
        failed = self._syncing.sync([f"{self._root}/{path}" for path in written])
        if failed is not None:
            raise failed[1]
        for directory, mark in marks.items():
            self._advance(directory, mark)

    def _write(self, place: str, shares: list[Share]) -> bool:
        """Write all that a file gets; whether it is there."""
        fs, path = self._fs, f"{self._root}/{place}"
        if fs.kind(path) != "file":
            return False  # it was removed since
        salt = self._salt_of(path)
        if salt is None:
            self.is_short = True
            self._report(
                damage(path, 0, "the file has no readable header; the commit log was put aside")
            )
            return False
        if salt != shares[0].salt:
            return False  # another one in its place
        handle = self._handles.get(path)
        begin = end = shares[0].offset
        pieces: list[bytes] = []
        for share in shares:
            if share.offset != end:
                write_all(fs, handle, b"".join(pieces), begin)
                pieces, begin = [], share.offset
            pieces.append(share.data)
            end = share.offset + len(share.data)
        write_all(fs, handle, b"".join(pieces), begin)
        return True

    def _salt_of(self, path: str) -> int | None:
        """The salt in the header of a segment or a journal, None if it cannot be read."""
        handle = self._handles.get(path)
        if path.endswith(".seg"):
            header, _ = decode_header(read_around(self._fs, handle, SEGMENT_HEADER_BYTES, 0), path)
            return header.salt if header is not None else None
        found = decode_file_header(MAGIC, read_around(self._fs, handle, FILE_HEADER_BYTES, 0), path)
        return found[1] if found is not None else None

    def _advance(self, directory: str, mark: bytes) -> None:
        """Write a watermark, where the one that is there says less."""
        fs, path = self._fs, f"{directory}/watermark"
        if fs.kind(directory) != "directory":
            return  # the stream was deleted since
        known, _ = decode_watermark(read_start(fs, path, WATERMARK_BYTES))
        new, damaged = decode_watermark(mark)
        if damaged or (known.serial, known.end) >= (new.serial, new.end):
            return
        handle = fs.open(path, create=not fs.exists(path))
        try:
            write_all(fs, handle, mark, 0)
        finally:
            fs.close(handle)
