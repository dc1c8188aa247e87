"""After a crash: what the commit log holds is written to its places, before anything else is read.

That changes nothing where it is there already. What has gone since, as a segment that was removed, is passed
over: streams are only taken away when nothing of the log speaks of them. A batch that ends the log and is
not whole was never acknowledged. One that is damaged further inside costs nothing where the files have
its data; where they have not, the watermark it leaves makes the recovery of the stream tell what is lost.

The directory says which log it has. Another one, as of an older copy of the store, is put aside unread. Where
a file of its own is gone or was emptied, or a block of it holds zeros, nobody knows what was in it: that is
told, and the streams' sequences go on behind all that may have been there.
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
from ..format.version import FIRST_FORMAT, Format
from ..format.watermark import WATERMARK_BYTES, decode_watermark
from ..io.files import FileSystem, Handles, read_around, read_start, write_all
from ..io.findings import Finding, Quarantine, damage
from ..io.syncing import Syncing
from ..meta.journal_file import MAGIC, read_all

_HANDLES: Final = 256
_BLOCK: Final = 4096
Report = Callable[[Finding], None]


class Replayed(NamedTuple):
    """What was found: whether a log was in use, and whether acknowledged batches may be missing of it."""

    was_in_use: bool
    is_short: bool


class _LogFile(NamedTuple):
    path: str
    header: LogHeader | None  # None: it was not made to the end, or it cannot be read
    is_blank: bool  # without one, and never written to
    found: list[FoundBatch]
    lacks_block: bool  # zeros where its batches end


def replay(
    fs: FileSystem,
    root: str,
    quarantine: Quarantine,
    report: Report,
    said: Format,
    settled: Callable[[], None],
    *,
    at_once: bool = False,
    anchor: int | None = None,
) -> Replayed:
    """Write what the log of the store in ``root`` holds to its places, synced, and take the log away.

    ``said`` is what the directory says of it; ``settled`` is called when nothing of it is needed any more,
    unless something is missing of it. A damaged log is put aside. Raises StoreFormatError, OSError; then
    all is as it was, or done again by the next try.
    """
    directory = f"{root}/{LOG_DIRECTORY}"
    is_said = said.number > FIRST_FORMAT
    files = _files(fs, directory, report)
    own: list[_LogFile] = []
    aside: list[_LogFile] = []
    for file in files:
        header = file.header
        if header is None:
            if not file.is_blank or is_said:
                aside.append(file)
                report(damage(file.path, 0, "the header of the commit log is damaged"))
        elif header.log != said.log and (said.log or said.number == FIRST_FORMAT):
            if header.first:  # or else it was not yet in use
                aside.append(file)
                what = "the commit log of another store, or an older one"
                report(Finding(file.path, 0, f"{what}; put aside unread"))
        elif said.number != FIRST_FORMAT:  # or else all of it is where it belongs
            own.append(file)
    own.sort(key=lambda file: file.header.first if file.header is not None else 0)
    kept, damaged, is_short = _kept(own, report)
    is_short = is_short or (is_said and len(own) < len(LOG_FILES))
    is_short = is_short or (not said.number and any(file.header is None for file in aside))
    writing = _Writing(fs, root, report, at_once=at_once, anchor=anchor)
    try:
        writing.write(kept)
    finally:
        writing.close()
    if is_short:
        what = "part of the commit log is not there: what was acknowledged last may be lost, of any stream"
        report(damage(directory, 0, f"{what}. The next messages get sequences far behind it"))
    else:
        settled()
    for file in files:
        if file in aside or (file in own and (damaged or is_short or writing.is_short)):
            quarantine.take(file.path, root)
        else:
            fs.unlink(file.path)
    if files:
        fs.fsync_dir(directory)
    return Replayed(bool(own) or is_short, is_short)


def _files(fs: FileSystem, directory: str, report: Report) -> list[_LogFile]:
    """What there is, read."""
    if fs.kind(directory) != "directory":
        return []
    for name in fs.listdir(directory):
        if name not in LOG_FILES:
            report(Finding(f"{directory}/{name}", 0, "not a file of the store; left alone"))
    paths = [f"{directory}/{name}" for name in LOG_FILES]
    return [_read(fs, path) for path in paths if fs.kind(path) == "file"]


def _read(fs: FileSystem, path: str) -> _LogFile:
    data = read_all(fs, path)
    header = decode_log_header(data[:HEADER_BYTES], path)
    if header is None:
        is_blank = not data[HEADER_BYTES:].strip(b"\0\xff")  # as it is made
        return _LogFile(path, None, is_blank, [], False)
    found = list(batches(data, header))
    end = found[-1].end if found else HEADER_BYTES
    block = data[-(-end // _BLOCK) * _BLOCK :][:_BLOCK]
    return _LogFile(path, header, False, found, bool(block) and not block.strip(b"\0"))


def _kept(files: Sequence[_LogFile], report: Report) -> tuple[list[FoundBatch], bool, bool]:
    """The batches that may not be in place, in order; whether some that were acknowledged are damaged, and
    whether there may be others of which nothing is left."""
    found = sorted(
        (batch for file in files for batch in file.found), key=lambda batch: batch.number
    )
    settled = max((batch.settled for batch in found), default=0)
    kept = [batch for batch in found if batch.number > settled]
    if kept and not kept[-1].whole:
        kept.pop()  # torn: nobody was ever told of it
    whole = {batch.number for batch in kept if batch.whole}
    known = {batch.number for batch in kept}
    last = kept[-1].number if kept else 0
    is_damaged = is_short = False
    used = [(file, file.header.first) for file in files if file.header and file.header.first]
    for number, (file, first) in enumerate(used):
        end = used[number + 1][1] if number + 1 < len(used) else last + 1
        numbers = range(max(first, settled + 1), end)
        damaged = sum(number not in whole for number in numbers)
        if damaged:
            is_damaged = True
            what = f"{damaged} of the commit log's batches are damaged; it was put aside"
            report(damage(file.path, 0, what))
        is_short = is_short or any(number not in known for number in numbers)
    if used and used[-1][0].lacks_block:
        is_short = True
        report(damage(used[-1][0].path, 0, "a block of the commit log holds nothing but zeros"))
    return kept, is_damaged, is_short


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
        shares: dict[str, list[tuple[Share, bool]]] = {}
        for batch in kept:
            for share in batch.shares:
                shares.setdefault(share.path, []).append((share, batch.whole))
        written: list[str] = []
        marks: dict[str, bytes] = {}
        for place, each in shares.items():
            path = f"{self._root}/{place}"
            is_there = self._fs.kind(path) == "file"  # or else it was removed since
            salt = self._salt_of(path) if is_there else None
            if is_there and salt is None:
                self.is_short = True
                what = "the file has no readable header; the commit log was put aside"
                self._report(damage(path, 0, what))
            own = [(share, whole) for share, whole in each if salt in (None, share.salt)]
            for share, _ in own:  # not where another one is in its place
                if share.mark:
                    marks[path.rpartition("/")[0]] = share.mark
            whole_ones = [share for share, whole in own if whole]
            if salt is not None and whole_ones:
                self._write(path, whole_ones)
                written.append(path)
        failed = self._syncing.sync(written)
        if failed is not None:
            raise failed[1]
        for directory, mark in marks.items():
            self._advance(directory, mark)

    def _write(self, path: str, shares: list[Share]) -> None:
        """Write all that a file gets."""
        fs, handle = self._fs, self._handles.get(path)
        begin = end = shares[0].offset
        pieces: list[bytes] = []
        for share in shares:
            if share.offset != end:
                write_all(fs, handle, b"".join(pieces), begin)
                pieces, begin = [], share.offset
            pieces.append(share.data)
            end = share.offset + len(share.data)
        write_all(fs, handle, b"".join(pieces), begin)

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
