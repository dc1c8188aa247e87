"""One file of a store is damaged, by much or little: what was removed stays so, and counts are true.

``HEADRACE_DAMAGES`` sets how many files are damaged (60), ``HEADRACE_DAMAGE_SEED`` which and where.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from crash.test_store_damage import Known, everything, made, open_store
from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.record import MESSAGE, scan
from headrace.broker.store.format.segment import HEADER_BYTES, decode_header
from jetstream_world import World

DAMAGES = int(os.environ.get("HEADRACE_DAMAGES", "60"))
CAUGHT = (365, 1097, 1574)  # the removal behind a damaged message told how far there had been some
SEED = int(os.environ.get("HEADRACE_DAMAGE_SEED", "1"))
BLOCK = 4096
SEGMENTS = (8_192, 16_384, 1 << 20)


@pytest.fixture(scope="module")
def stores() -> list[tuple[int, Known]]:
    return [
        (nbytes, made(300, clean=clean, segment_bytes=nbytes))
        for nbytes in SEGMENTS
        for clean in (True, False)
    ]


def damage(fs: FaultFS, rng: random.Random) -> str:
    """Do something to one file of the stream; what, and to which."""
    paths = [path for path in fs.files() if "/streams/" in path and fs.content(path)]
    path = rng.choice(paths)
    content = fs.content(path)
    used = len(content.rstrip(b"\0"))
    what = rng.choice(["flip", "cut", "zeros", "blocks", "remove"])
    if what == "flip":
        fs.flip_bit(path, rng.randrange(8 * used))
    elif what == "cut":
        fs.overwrite(path, content[: rng.randrange(used)])
    elif what == "remove":
        fs.unlink(path)
    else:
        start = rng.randrange(used)
        stop = start + rng.randrange(1, 3 * BLOCK)
        if what == "blocks":
            start -= start % BLOCK
            stop = start + BLOCK * rng.randrange(1, 4)
        stop = min(stop, len(content))
        fs.overwrite(path, content[:start] + bytes(stop - start) + content[stop:])
    return f"{what} {path}"


def lost_of(storage: FileStorage) -> set[int]:
    ranges = storage.open_stream("S").lost.ranges
    return {sequence for low, high in ranges for sequence in range(low, high + 1)}


def check(storage: FileStorage, known: Known, what: str) -> dict[int, Any]:
    """Nothing is back or changed, what cannot be read is said to be lost, and the counts are true."""
    store = storage.open_stream("S")
    shown = everything(storage)
    back = set(shown) - set(known.messages)
    assert not back, (what, back)
    assert all(known.messages[sequence] == message for sequence, message in shown.items())
    gone = set(known.messages) - set(shown)
    assert gone <= lost_of(storage), (what, gone)
    assert not lost_of(storage) & (known.removed | set(shown)), what
    assert store.messages == len(shown), what
    assert store.state.first_seq == min(shown, default=store.last_seq + 1)
    assert store.last_seq == known.last, what
    return shown


def test_the_info_of_a_stream_lists_what_damage_has_taken_of_it() -> None:
    fs = FaultFS()
    world = World(open_store(fs))
    client = world.client()
    client.stream("S")
    for number in range(40):
        assert client.put(b"s.1", b"%d" % number * 100)["seq"] == number + 1
    assert "lost" not in client.api("STREAM.INFO.S")["state"]
    damaged = fs.kill()
    (path,) = [path for path in damaged.files() if path.endswith(".seg")]
    content = damaged.content(path)
    header, _ = decode_header(content, path)
    assert header is not None
    records = [
        r for r in scan(content, HEADER_BYTES, len(content), header.salt) if r.kind == MESSAGE
    ]
    damaged.flip_bit(path, 8 * (records[9].offset + 40))
    again = World(open_store(damaged))
    state = again.client().api("STREAM.INFO.S")["state"]
    assert state["messages"] == 39
    assert state["lost"]["msgs"] == [10]
    assert again.client().api("STREAM.LIST")["streams"][0]["state"]["lost"]["msgs"] == [10]
    again.client().api("STREAM.PURGE.S")
    again.tick()
    assert "lost" not in again.client().api("STREAM.INFO.S")["state"]


def test_nothing_removed_comes_back_from_a_damaged_file_and_what_is_lost_is_said(
    stores: list[tuple[int, Known]],
) -> None:
    seeds = [1_000_000 + number for number in CAUGHT]
    seeds += [SEED * 1_000_000 + number for number in range(DAMAGES)]
    for number in seeds:
        rng = random.Random(number)
        segment_bytes, known = rng.choice(stores)
        fs = known.copy()
        what = f"{number}: {damage(fs, rng)}"
        storage = open_store(fs, segment_bytes)
        shown = check(storage, known, what)
        lost = lost_of(storage)
        store = storage.open_stream("S")
        if rng.random() < 0.3 and shown:  # it goes on, with removals of its own
            gone = rng.choice(list(shown))
            store.remove([gone])
            assert store.append(b"next", b"", b"", 1) == known.last + 1
            storage.flush(lambda error: None)
            again = open_store(disk_of(storage).kill(), segment_bytes)
            kept = everything(again)
            assert set(kept) == set(shown) - {gone} | {known.last + 1}, what
            assert lost_of(again) <= lost, what  # a segment that begins anew says it no more
