"""Where things lie in a store's directory.

::

    <directory>/
      lock                       who uses it
      meta/journal-00000001      metadata (meta.py)
      streams/<name>/…           one directory per stream (segment.py, watermark.py)
      trash/                     deleted streams on their way out
      quarantine/                what recovery put aside; never removed
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

from .files import FileSystem, is_full, read_around
from .findings import Finding, Quarantine, damage
from .segment import HEADER_BYTES, Header, decode_header
from .writer import Writer

__all__ = ["Layout", "directory_name"]

_DIRNAME_MAX: Final = 200
_HASHED: Final = "%%"
_HASH: Final = re.compile("%%[0-9a-f]{64}")


def directory_name(name: str) -> str:
    """A stream's directory: its name, with what file systems may not like percent-encoded.

    Names too long for that become a hash; the segments in the directory know the name.
    """
    plain = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(plain) <= _DIRNAME_MAX:
        return plain
    return _HASHED + sha256(name.encode()).hexdigest()


class Layout:
    """The directories of one store."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self.root = root
        self.meta = root + "/meta"
        self._streams = root + "/streams"
        self._trash = root + "/trash"
        self._trash_number = 0

    def prepare(self) -> None:
        """Make the directories that are missing, durably."""
        fs = self._fs
        missing = []
        path = self.root
        while not fs.exists(path):
            missing.append(path)
            path = path.rpartition("/")[0]
        for path in reversed(missing):
            fs.mkdir(path)
            fs.fsync_dir(path.rpartition("/")[0] or "/")
        for path in (self.meta, self._streams, self._trash):
            if not fs.exists(path):
                fs.mkdir(path)
        fs.fsync_dir(self.root)

    def stream(self, name: str) -> str:
        """The directory of a stream."""
        return f"{self._streams}/{directory_name(name)}"

    def streams(self, quarantine: Quarantine, report: Callable[[Finding], None]) -> dict[str, str]:
        """The directories of the streams there are, by name; what is none is put aside.

        A directory whose name is a hash, with nothing readable in it that says of what, stays where it
        is: ``unnamed`` finds it for who knows the stream.
        """
        found: dict[str, str] = {}
        for entry in self._fs.listdir(self._streams):
            path = f"{self._streams}/{entry}"
            name = self._name_of(entry, path)
            if name is None and _HASH.fullmatch(entry) and self._is_directory(path):
                report(damage(path, 0, "no file in it says which stream it is of"))
            elif name is None:
                report(damage(path, 0, "not the directory of a stream; put aside"))
                quarantine.take(path, self.root)
            else:
                found[name] = path
        return found

    def unnamed(self, name: str) -> str | None:
        """The directory of a stream with a long name, if there is one; its files need not say so."""
        entry = directory_name(name)
        path = f"{self._streams}/{entry}"
        return path if _HASH.fullmatch(entry) and self._fs.exists(path) else None

    def _is_directory(self, path: str) -> bool:
        try:
            self._fs.listdir(path)
        except NotADirectoryError:
            return False
        return True

    def _name_of(self, entry: str, path: str) -> str | None:
        try:
            files = self._fs.listdir(path)
        except NotADirectoryError:
            return None
        if not entry.startswith(_HASHED):
            name = unquote(entry)
            return name if directory_name(name) == entry else None
        for file in files:
            if file.endswith(".seg"):
                header = self._header_of(f"{path}/{file}")
                if header is not None and directory_name(header.name) == entry:
                    return header.name
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
        if not self._trash_number:
            taken = [int(name) for name in self._fs.listdir(self._trash) if name.isdecimal()]
            self._trash_number = max(taken, default=0)
        self._trash_number += 1
        return f"{self._trash}/{self._trash_number:08d}"

    def has_trash(self) -> bool:
        return bool(self._fs.listdir(self._trash))

    def empty_trash(self, writer: Writer) -> None:
        """A chore: remove what deleted streams have left."""
        fs = writer.fs
        for entry in fs.listdir(self._trash):
            directory = f"{self._trash}/{entry}"
            for name in fs.listdir(directory):
                fs.unlink(f"{directory}/{name}")
            fs.rmdir(directory)
