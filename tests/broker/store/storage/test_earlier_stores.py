"""Stores that earlier versions have written, each killed at its work, are opened, read and written.

``stores/<commit>.tar.xz`` was made by a broker of that commit: ``ORDERS`` keeps 40 of 60 messages, of which
four were deleted, and its consumer has acknowledged 7; of the work queue 20 of 60 are done.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from headrace.broker.store import FileStorage
from headrace.broker.store.format.version import STORE_FORMAT, decode_format
from jetstream_world import World

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.xz"))
DELETED = {25, 30, 31, 50}


def open_store(directory: Path) -> FileStorage:
    return FileStorage(directory, threaded=False)


def check(world: World, more: int) -> None:
    """All is as it was left, with so many messages more in ``ORDERS``."""
    client = world.client()
    state = client.api("STREAM.INFO.ORDERS")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (36 + more, 21, 60 + more)
    for sequence in range(1, 61):
        answer = client.api("STREAM.MSG.GET.ORDERS", {"seq": sequence})
        assert ("message" in answer) == (sequence > 20 and sequence not in DELETED), sequence
    state = client.api("STREAM.INFO.WORK")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (40, 21, 60)
    for stream, name, pending, floor in (("ORDERS", "o", 29 + more, 28), ("WORK", "w", 40, 20)):
        consumer = client.api(f"CONSUMER.INFO.{stream}.{name}")
        assert consumer["num_pending"] == pending
        assert (consumer["num_ack_pending"], consumer["ack_floor"]["stream_seq"]) == (0, floor)


@pytest.mark.parametrize("packed", STORES, ids=[path.name.partition(".")[0] for path in STORES])
def test_a_store_of_an_earlier_version_is_read_written_and_read_again(
    packed: Path, tmp_path: Path
) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    storage = open_store(tmp_path)
    world = World(storage)
    check(world, 0)
    assert storage.report == []
    assert decode_format((tmp_path / "format").read_bytes()) == (STORE_FORMAT, False)
    client = world.client()
    assert client.api("STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    for number in range(3):
        assert client.put(b"orders.new", b"%d" % number)["seq"] == 61 + number
    world.restart(lambda: open_store(tmp_path))
    check(world, 3)
    world.storage.close()
