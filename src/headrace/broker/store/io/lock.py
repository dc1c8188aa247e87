"""One process per directory: an advisory lock that ends with the process, however it ends."""

from __future__ import annotations

import os
import socket

from ....errors import StoreLockedError
from .files import FileSystem, is_full, write_all

_TEXT_MAX = 512


class DirectoryLock:
    """Holds ``<directory>/lock``. Raises StoreLockedError naming the process that has it."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        path = self._path = directory + "/lock"
        self._handle = fs.open(path, create=not fs.exists(path))
        if not fs.lock(self._handle):
            holder = fs.pread(self._handle, _TEXT_MAX, 0).decode(errors="replace").strip()
            fs.close(self._handle)
            raise StoreLockedError(
                f"{directory} is in use by {holder or 'another process'}; "
                f"stop it, or choose another directory"
            )
        text = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        try:
            write_all(fs, self._handle, text, 0)
            fs.truncate(self._handle, len(text))
        except OSError as error:
            if not is_full(error):  # a store on a full disk opens all the same: it may be emptied
                raise

    @property
    def handle(self) -> int:
        """The open file: older than all that is written to the store while it is held."""
        return self._handle

    def in_place(self) -> bool:
        """Whether the lock still lies in the directory: if not, that was removed, or is another one."""
        return self._fs.is_at(self._handle, self._path)

    def release(self) -> None:
        """Let others in."""
        self._fs.close(self._handle)
