"""Writing a backup anew in the form that nats-server before 2.15 reads."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from ...client import read_backup
from ...snapshots.packing import FilesPacker
from ...snapshots.unpacking import Unpacker

_CHUNK: Final = 1 << 20


def as_older(directory: Path) -> None:
    """Replace the backup in a directory. Raises SnapshotFormatError, OSError; it is as it was then."""
    backup = read_backup(directory)
    path = directory / "stream.tar.s2"
    part = directory / "stream.tar.s2.part"
    unpacker = Unpacker(backup.config.name)
    packer = FilesPacker(backup.about["config"], time.time_ns())
    try:
        with path.open("rb") as source, part.open("wb") as target:
            while chunk := source.read(_CHUNK):
                unpacker.feed(chunk)
                while (found := unpacker.step()) is not None:
                    for content in found:
                        target.writelines(packer.add(content))
            unpacker.finish()
            target.flush()
            os.fsync(target.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
