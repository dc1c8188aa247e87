"""Files as a whole: written beside, synced, renamed; and readable by their owner alone where they hold
payloads or secrets.

Whoever reads one finds it whole or as it was before, also after a kill or a power cut. (Files of
the broker's store grow, and so are of another kind: ``broker.store.io``.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

__all__ = [
    "PRIVATE",
    "SHARED",
    "opened",
    "replacing",
    "sync",
    "sync_directory",
    "write_whole",
    "writing",
]

PRIVATE: Final = 0o600
"""Nobody but the owner: payloads, keys, passwords, logs."""

SHARED: Final = 0o666
"""As the umask says: what tells nothing that is private."""


def opened(path: Path, mode: str, access: int = PRIVATE) -> IO[Any]:
    """Open a file to write (``w``, ``x`` or ``a``, with ``b``); one that is made gets ``access``.

    Raises OSError. Text is UTF-8.
    """
    text = {} if "b" in mode else {"encoding": "utf-8"}
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, access), **text)  # type: ignore[call-overload,no-any-return]


@contextmanager
def writing(path: Path, mode: str = "wb", access: int = PRIVATE) -> Iterator[IO[Any]]:
    """Write a file in the place of ``path``: it is there when the block has ended, all of it or nothing.

    What fails in the block, or after it, leaves ``path`` as it was and nothing beside it. Another process
    that writes the same file at the same time writes one of its own.
    """
    with replacing(path) as partial, opened(partial, mode.replace("w", "x"), access) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Have a file written in the place of ``path`` by whoever knows how: it writes to what this gives.

    All else is as with ``writing``.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.unlink(missing_ok=True)
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_whole(path: Path, content: bytes | str, access: int = PRIVATE) -> None:
    """Put ``content`` in the place of a file. Raises OSError; then it is as before."""
    with writing(path, "wb", access) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync(file: IO[Any]) -> None:
    """Have what was written to a file on disk. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Sync a directory, so that names given in it outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
