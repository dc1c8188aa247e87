"""Where things lie in a store's directory.

::

    <directory>/
      lock                       who uses it
      format                     the number of its format (record.py)
      meta/journal-00000001      metadata (meta.py)
      meta/spare                 second copies, of streams without a directory (spare.py)
      streams/<name>/…           one directory per stream that ever held something (segment.py, record.py)
      trash/                     deleted streams on their way out
      quarantine/                what recovery put aside; never removed

``Opening`` is what a storage is opened with: when things have to be on the disk, and in what sizes they go
there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

from ....clock import Clock
from ....errors import ConfigurationError, StoreError
from ..commit.writer import Writer
from ..format.segment import HEADER_BYTES, Header, decode_header
from ..format.version import (
    FIRST_FORMAT,
    FORMAT_BYTES_MAX,
    LOGGED_FORMAT,
    STORE_FORMAT,
    decode_format,
    encode_format,
    refused,
    refused_log,
)
from ..io.files import FileSystem, is_full, read_around, read_start, write_all
from ..io.findings import Finding
from ..meta.spare import SPARE, Spare, read_spare

_SEGMENT_BYTES_MIN: Final = 8 * 1024
_SEGMENT_BYTES_MAX: Final = 1 << 31
HANDLES: Final = 4_352
RESERVED: Final = 512
"""Of these, as many as a broker takes at its start; reserving all would take milliseconds."""
_HANDLES_OTHER: Final = 8  # of them: the lock, the journal and its successor, a directory or two
_HANDLES_MIN: Final = 4
_DIRNAME_MAX: Final = 200
_HASHED: Final = "%%"
_RETIRED: Final = re.compile(r"\d{8,}")


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


def directory_name(name: str) -> str:
    """A stream's directory: its name, with what file systems may not like percent-encoded.

    Names too long for that become a hash; the segments in the directory know the name.
    """
    plain = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(plain) <= _DIRNAME_MAX:
        return plain
    return _HASHED + sha256(name.encode()).hexdigest()


class Directories:
    """What there is of streams on the disk, by name."""

    def __init__(self) -> None:
        self.streams: dict[str, str] = {}
        self.spares: dict[str, Spare] = {}
        self.barred: dict[str, str] = {}  # names that cannot be used, and why
        self.nameless: set[str] = set()  # directories whose name is a hash of a name we do not know

    def identify(self, name: str, directory: str) -> None:
        """Somebody knows the name of a stream: the directory it would have is its own."""
        if directory in self.nameless:
            self.nameless.discard(directory)
            self.streams[name] = directory


class Layout:
    """The directories of one store."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self.root = root
        self.meta = root + "/meta"
        self.quarantine = root + "/quarantine"
        self._streams = root + "/streams"
        self._trash = root + "/trash"
        self._trash_number = 0
        self._named: set[str] = set()  # what was found in the trash and reported

    def prepare(self, report: Callable[[Finding], None]) -> None:
        """Make the directories that are missing, durably.

        Raises StoreFormatError, before anything is written, if a newer version has written there.
        """
        number = self._read_format(report)
        fs = self._fs
        missing = []
        path = self.root
        while not fs.exists(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        for path in reversed(missing):
            fs.mkdir(path)
            fs.fsync_dir(path.rpartition("/")[0] or "/")
        for path in (self.meta, self._streams, self._trash, self.quarantine):
            kind = fs.kind(path)
            if kind not in ("", "directory"):
                what = "a symbolic link" if kind == "link" else "not a directory"
                raise StoreError(f"{path} is {what}; the store needs a directory of its own there")
            if not kind and path != self.quarantine:
                fs.mkdir(path)
        if number != STORE_FORMAT:
            self._write_format()
        fs.fsync_dir(self.root)
        taken = [int(name) for name in fs.listdir(self._trash) if name.isdecimal()]
        self._trash_number = max(taken, default=0)

    def _read_format(self, report: Callable[[Finding], None]) -> int:
        """The number of what is there, 0 where it is not known. Raises StoreFormatError."""
        path = f"{self.root}/format"
        number, damaged = decode_format(read_start(self._fs, path, FORMAT_BYTES_MAX))
        logs = [f"{self.root}/commit-log/{name}" for name in ("0.log", "1.log")]
        if number == LOGGED_FORMAT or (not number and any(map(self._fs.exists, logs))):
            raise refused_log(self.root)
        if number > STORE_FORMAT:
            raise refused(path, number)
        if damaged:
            report(Finding(path, 0, "the number of the store's format is damaged; written anew"))
        return 0 if damaged else number

    def _write_format(self) -> None:
        fs, path = self._fs, f"{self.root}/format"
        draft = path + ".tmp"
        try:
            if fs.exists(draft):
                fs.unlink(draft)
            handle = fs.open(draft, create=True)
            try:
                write_all(fs, handle, encode_format(STORE_FORMAT), 0)
                fs.fdatasync(handle)
            finally:
                fs.close(handle)
            fs.rename(draft, path)
        except OSError as error:
            if not is_full(error) or STORE_FORMAT > FIRST_FORMAT:
                raise  # without it an older version would not notice

    def stream(self, name: str) -> str:
        return f"{self._streams}/{directory_name(name)}"

    def is_unfinished(self, directory: str) -> bool:
        """Whether the first flush of the stream in it was cut off."""
        return not any(self._fs.exists(f"{directory}/{file}") for file in ("watermark", SPARE))

    def streams(self, report: Callable[[Finding], None]) -> Directories:
        """What there is in the place of streams. What is none of ours is named and left alone."""
        found = Directories()
        for entry in self._fs.listdir(self._streams):
            path = f"{self._streams}/{entry}"
            kind = self._fs.kind(path)
            name = _plain_name(entry)
            if kind != "directory":
                what = "a symbolic link" if kind == "link" else "not a directory"
                report(Finding(path, 0, f"{what}; left alone", name or ""))
                if name is not None:
                    found.barred[name] = f"{path} is {what}"
            elif not entry.startswith(_HASHED):
                if name is None:
                    report(Finding(path, 0, "not the directory of a stream; left alone"))
                else:
                    self._add(found, name, path)
            elif (name := self._name_in(entry, path)) is not None:
                self._add(found, name, path)
            else:
                report(Finding(path, 0, "the files in it do not tell whose directory it is"))
                found.nameless.add(path)
        return found

    def _add(self, found: Directories, name: str, path: str) -> None:
        found.streams[name] = path
        spare = read_spare(self._fs, path, name)
        if spare is not None:
            found.spares[name] = spare

    def _name_in(self, entry: str, path: str) -> str | None:
        """Whose directory this is, by the segments or the copy of metadata in it."""
        for file in self._fs.listdir(path):
            if file.endswith(".seg") and self._fs.kind(f"{path}/{file}") == "file":
                header = self._header_of(f"{path}/{file}")
                if header is not None and directory_name(header.name) == entry:
                    return header.name
        spare = read_spare(self._fs, path, None)
        if spare is not None and directory_name(spare.name) == entry:
            return spare.name
        return None

    def _header_of(self, path: str) -> Header | None:
        try:
            handle = self._fs.open(path)
        except OSError as error:
            if is_full(error):
                raise
            return None  # the next file may say it
        try:
            return decode_header(read_around(self._fs, handle, HEADER_BYTES, 0), path)[0]
        finally:
            self._fs.close(handle)

    def trash(self) -> str:
        """A fresh place for a deleted stream."""
        self._trash_number += 1
        return f"{self._trash}/{self._trash_number:08d}"

    def has_trash(self) -> bool:
        return bool(self._fs.listdir(self._trash))

    def empty_trash(self, report: Callable[[Finding], None]) -> Callable[[Writer], bool]:
        """A chore: remove what deleted streams have left, one of them each time it is called.

        Only directories that were put here, and the files in them; links are not followed. What cannot
        be removed is named and stays: that is no reason to accept no more messages.
        """

        left: list[str] = []

        def chore(writer: Writer) -> bool:
            fs = writer.fs
            if not left:
                left.extend(fs.listdir(self._trash) if fs.exists(self._trash) else ())
                left.reverse()
            if not left:
                return False
            entry = left.pop()
            path = f"{self._trash}/{entry}"
            try:
                why = self._remove_retired(fs, entry, path)
            except OSError as error:
                why = f"can not be removed: {error.strerror or error}"
            if why and path not in self._named:
                self._named.add(path)
                report(Finding(path, 0, f"{why}; left alone"))
            return bool(left)

        return chore

    def _remove_retired(self, fs: FileSystem, entry: str, path: str) -> str:
        """Remove a deleted stream; or why it stays."""
        if not _RETIRED.fullmatch(entry) or fs.kind(path) != "directory":
            return "not a deleted stream"
        left = 0
        for name in fs.listdir(path):
            if fs.kind(f"{path}/{name}") == "directory":
                left += 1
            else:
                fs.unlink(f"{path}/{name}")
        if left:
            return "a deleted stream with directories in it"
        fs.rmdir(path)
        return ""


def _plain_name(entry: str) -> str | None:
    """The name of a stream in the name of its directory."""
    name = unquote(entry)
    return name if not entry.startswith(_HASHED) and directory_name(name) == entry else None
