"""Reading sealed segments again while nobody asks for them, to find what the disk has lost meanwhile.

A message that is not read for months can rot unseen, together with the copies one would restore it from.
The scrub reads files that are no longer written, at a rate that leaves the disk to others, and tells what
does not match its checksum. It changes nothing: what is damaged is found again, and passed over, by whoever
reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from ..format.record import HEAD_BYTES, OVERHEAD, U32, resync, try_decode
from ..format.segment import HEADER_BYTES
from ..io.files import FileSystem
from ..io.findings import Finding
from ..log.file_log import FileLog
from ..log.memory_log import MemoryLog

PIECE_BYTES: Final = 128 * 1024


_VERIFY_BYTES: Final = 1 << 24


class SealedFile(NamedTuple):
    """A segment that is no longer written: its records end at ``end``."""

    stream: str
    path: str
    salt: int
    end: int


class ScrubState(msgspec.Struct):
    """What monitoring shows. Times are nanoseconds since 1970, 0 for never."""

    passes: int = 0
    """How many were completed."""
    begun_ns: int = 0
    """When the last one began."""
    ended_ns: int = 0
    """When the last completed one ended."""
    files: int = 0
    nbytes: int = 0
    """Read by the last pass so far."""
    damaged: int = 0
    """Damaged places found since the start."""


def sealed_files(logs: Iterable[FileLog]) -> list[SealedFile]:
    """The files of these streams that are no longer written. To be asked in the owner's thread."""
    return [
        SealedFile(log.name, segment.path, segment.salt, segment.data_end)
        for log in logs
        for segment in log.sealed_segments()
    ]


def read_everything(logs: Iterable[FileLog | MemoryLog], step: int) -> Iterator[int]:
    """Read every message, ``step`` at a time; yields how many were read after each step."""
    read = 0
    for log in logs:
        start = log.first_seq
        while messages := log.read(start, None, step, _VERIFY_BYTES, log.durable_seq):
            start = messages[-1].sequence + 1
            read += len(messages)
            yield read


def scrub(
    fs: FileSystem, files: Iterable[SealedFile], state: ScrubState, found: Callable[[Finding], None]
) -> Iterator[int]:
    """Read all of ``files``; yields after each piece how many bytes were read, so that one may wait.

    A file that is gone was compacted or removed meanwhile, and is no longer of interest.
    """
    known: set[tuple[str, int]] = set()
    for file in files:
        try:
            handle = fs.open(file.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found(Finding(file.path, 0, f"scrub: cannot be read: {error.strerror}", file.stream))
            state.damaged += 1
            continue
        state.files += 1
        try:
            for nbytes, damage in _records(fs, handle, file):
                state.nbytes += nbytes
                if damage is not None and (file.path, damage.offset) not in known:
                    known.add((file.path, damage.offset))
                    if _is_at(fs, handle, file):
                        state.damaged += 1
                        found(damage)
                if nbytes:
                    yield nbytes
        finally:
            fs.close(handle)


def _is_at(fs: FileSystem, handle: int, file: SealedFile) -> bool:
    """Whether the file is still the stream's, and not one that was removed while it was read."""
    try:
        return fs.is_at(handle, file.path)
    except OSError:
        return True  # then it is told


def _records(fs: FileSystem, handle: int, file: SealedFile) -> Iterator[tuple[int, Finding | None]]:
    """Bytes read, and damage where some was found."""
    offset, data = HEADER_BYTES, b""
    while offset + len(data) < file.end:
        at = offset + len(data)
        try:
            piece = fs.pread(handle, min(PIECE_BYTES, file.end - at), at)
        except OSError as error:
            piece, why = b"", f"cannot be read: {error.strerror}"
        else:
            why = "the file ends too early"
        if not piece:
            yield 0, Finding(file.path, at, f"scrub: {why}", file.stream)
            return
        data += piece
        used, damaged = _check(data, file.salt, is_last=at + len(piece) >= file.end)
        for start, size in damaged:
            what = f"scrub: {size} damaged bytes"
            yield 0, Finding(file.path, offset + start, what, file.stream)
        offset, data = offset + used, data[used:]
        yield len(piece), None


def _check(data: bytes, salt: int, *, is_last: bool) -> tuple[int, list[tuple[int, int]]]:
    """How many bytes are done with, and which stretches of them are damaged."""
    at, end = 0, len(data)
    damaged: list[tuple[int, int]] = []
    while at < end:
        record = try_decode(data, at, end, salt)
        if record is not None:
            at += record.size
            continue
        if not is_last and _may_go_on(data, at):
            break
        resumed = resync(data, at, end, salt)
        if resumed is None:
            if not is_last:
                break  # where the damage ends is in the next piece
            resumed = end
        damaged.append((at, resumed - at))
        at = resumed
    return at, damaged


def _may_go_on(data: bytes, at: int) -> bool:
    """Whether this looks like the beginning of a record that is not all here yet."""
    if len(data) - at < HEAD_BYTES:
        return True
    size: int = U32.unpack_from(data, at)[0]
    return size >= OVERHEAD and at + size > len(data)
