"""What is left in a server's store of streams that were deleted."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import peers
from waiting import until_here

WRITTEN_WITHIN_NS = 600_000_000


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


@contextmanager
def consumers_place(server: peers.ServerProcess, stream: str, name: str) -> Iterator[None]:
    """Delete the consumer inside of this: its place is there again afterwards, where nats-server leaves it if
    another of the name is made at that very moment. Another server has nothing of the kind."""
    places = [*server.store_dir.glob(f"jetstream/*/streams/{stream}/obs/{name}/o.dat")]
    assert len(places) == (server.name == "nats-server")
    kept = {place: _when_written(place) for place in places}
    yield
    for place, content in kept.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _when_written(place: Path) -> bytes:
    """The file of a consumer's place, which is written soon after it has changed: when it has been left alone
    for as long as a server waits at most."""
    asked_ns = time.time_ns()

    def is_quiet() -> bool:
        there = place.stat()
        last_ns = max(asked_ns, there.st_mtime_ns)
        return there.st_size > 0 and time.time_ns() - last_ns > WRITTEN_WITHIN_NS

    until_here(is_quiet, "the place of a consumer is written over and over")
    return place.read_bytes()
