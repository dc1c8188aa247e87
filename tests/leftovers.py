"""What is left in a server's store of streams that were deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Set
from pathlib import Path

import peers
from waiting import until_here


def clear(server: peers.ServerProcess, names: Set[str]) -> None:
    """Return when no directory with one of these names is there: a new stream might find what is in it.

    nats-server removes the files of a deleted stream later; and when it writes to one meanwhile, the
    directory stays. Nobody uses it, so it is removed here.
    """

    def left() -> list[Path]:
        found = os.walk(server.store_dir)
        return [Path(root) / name for root, folders, _ in found for name in names & {*folders}]

    try:
        until_here(lambda: not left(), "the files of an earlier test stay", within=3)
    except AssertionError:
        if server.name != "nats-server":
            raise
        for each in left():
            shutil.rmtree(each, ignore_errors=True)
        until_here(lambda: not left(), "the files of an earlier test stay")


def obstruct(store_dir: Path, stream: str) -> Path:
    """Have a nats-server keep the files of a stream that is deleted, until the returned folder is removed: it
    renames them, to this, and cannot while those of an earlier one are there."""
    (streams,) = store_dir.rglob("streams")
    obstacle = streams / f".{stream}"
    (obstacle / "kept").mkdir(parents=True)
    return obstacle
