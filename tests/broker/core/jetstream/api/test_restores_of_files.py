"""Restores of the older form, a tar of files: its checksums and its deletions are work for many turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from hashlib import sha256

import pytest

from headrace.broker.core.jetstream.api.receiving import Receiving
from headrace.broker.core.ports import StreamStore
from headrace.snapshots import tar
from headrace.snapshots.framing import IDENTIFIER, frame
from headrace.snapshots.records import HighwayHash, block_hash, encode_record
from jetstream_world import World
from machine import pieces

from .test_restores import CONFIG, THEN, announce, finish, making, send

TURN_MAX = 24  # pieces of work; it is about one, and all in one turn were 36 and more
MARK = 1 << 62


def in_files(*blocks: bytes) -> bytes:
    document = b'{"name":"S"}'
    digest = HighwayHash(sha256(b"S").digest()).digest(document).hex().encode()
    named = {"meta.inf": document, "meta.sum": digest}
    named |= {f"msgs/{number}.blk": block for number, block in enumerate(blocks, 1)}
    parts = [
        tar.header(name, len(body), 0) + body + bytes(tar.padding(len(body)))
        for name, body in named.items()
    ]
    data = b"".join([*parts, tar.END])
    size = 1 << 20
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return IDENTIFIER + b"".join(map(frame, pieces))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, int]]]:
    """Of each turn: its processor time, and how many messages it has removed."""
    found: list[tuple[float, int]] = []
    turn = Receiving.turn

    def timed(self: Receiving) -> None:
        before, start = removed(self.store), time.thread_time()
        turn(self)
        found.append((time.thread_time() - start, removed(self.store) - before))

    monkeypatch.setattr(Receiving, "turn", timed)
    gc.disable()  # a pass through the objects of all tests is not what is measured
    yield found
    gc.enable()


def removed(store: StreamStore | None) -> int:
    assert store is not None
    return store.last_seq - store.state.messages


def test_a_large_message_is_checked_in_many_turns(turns: list[tuple[float, int]]) -> None:
    client = World().client()
    payload = bytes(range(256)) * 4_096
    block = encode_record(block_hash("S", 1), 1, b"s.1", b"", payload, THEN)
    deliver = announce(client, CONFIG)["deliver_subject"]
    assert send(client, deliver, in_files(block), 128 << 10) == []
    assert "error" not in finish(client, deliver)
    assert pieces(max(seconds for seconds, _ in turns)) < TURN_MAX
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_what_was_deleted_behind_the_messages_goes_in_turns(
    turns: list[tuple[float, int]],
) -> None:
    client = World().client()
    one, two = block_hash("S", 1), block_hash("S", 2)
    kept = [encode_record(one, number, b"s.1", b"", b"x", THEN) for number in range(1, 5_001)]
    gone = [encode_record(two, number | MARK, b"", b"", b"", THEN) for number in range(2, 4_500)]
    deliver = announce(client, CONFIG)["deliver_subject"]
    assert making(client.world) is not None
    assert send(client, deliver, in_files(b"".join(kept), b"".join(gone)), 128 << 10) == []
    assert "error" not in finish(client, deliver)
    assert sum(count for _, count in turns) == 4_498
    assert max(count for _, count in turns) <= 8 * 500
    assert pieces(max(seconds for seconds, _ in turns)) < TURN_MAX
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (502, 1, 5_000)
