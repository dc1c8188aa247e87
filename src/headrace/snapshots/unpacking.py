"""Reading a backup: chunks in, what it says out, whichever of the two containers it is."""

from __future__ import annotations

from typing import Final, Protocol

from .archive import MAGIC, ArchiveReader
from .contents import Content, SnapshotFormatError
from .framing import FrameReader
from .store_files import FilesReader

_LOOK: Final = len(MAGIC)


class _Container(Protocol):
    @property
    def at_end(self) -> bool: ...
    def feed(self, data: bytes) -> None: ...
    def step(self) -> list[Content] | None: ...


class Unpacker:
    """Reads one backup, a bounded piece of work at a time.

    ``feed`` chunks as they come, ``step`` until it returns None, and ``finish`` after the last one.
    """

    def __init__(self, stream: str) -> None:
        """``stream`` is the name of the stream in it: its records' checksums depend on that."""
        self._stream = stream
        self._frames = FrameReader()
        self._container: _Container | None = None
        self._head = b""

    @property
    def buffered(self) -> int:
        """How many bytes wait for ``step``."""
        return self._frames.buffered

    def feed(self, chunk: bytes) -> None:
        self._frames.feed(chunk)

    def step(self) -> list[Content] | None:
        """Some of what it says, perhaps nothing yet; None when it needs more.

        Raises SnapshotFormatError.
        """
        container = self._container
        if container is not None and (found := container.step()) is not None:
            return found
        data = self._frames.step()
        if data is None:
            return None
        if container is not None:
            container.feed(data)
        elif data:
            self._begin(data)
        return []

    def finish(self) -> None:
        """There is nothing more: raises SnapshotFormatError if it was not whole."""
        whole = self._container is not None and self._container.at_end
        if not whole or not self._frames.at_end:
            raise SnapshotFormatError("the backup is cut off")

    def _begin(self, data: bytes) -> None:
        self._head += data
        if len(self._head) >= _LOOK:
            archive = self._head.startswith(MAGIC)
            self._container = ArchiveReader() if archive else FilesReader(self._stream)
            self._container.feed(self._head)
            self._head = b""
