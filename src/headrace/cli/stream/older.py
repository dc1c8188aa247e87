"""Writing a backup anew in the form that nats-server before 2.15 reads."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from ...client import read_backup
from ...files import writing
from ...snapshots.archive import Unpacker
from ...snapshots.packing import FilesPacker

_CHUNK: Final = 1 << 20


def as_older(directory: Path) -> None:
    """Replace the backup in a directory. Raises SnapshotFormatError, OSError; it is as it was then."""
    backup = read_backup(directory)
    path = directory / "stream.tar.s2"
    unpacker = Unpacker(backup.config.name)
    packer = FilesPacker(backup.about["config"], time.time_ns())
    with path.open("rb") as source, writing(path) as target:
        while chunk := source.read(_CHUNK):
            unpacker.feed(chunk)
            while (found := unpacker.step()) is not None:
                for content in found:
                    target.writelines(packer.add(content))
        unpacker.finish()
