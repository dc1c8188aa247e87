"""The older form: a tar of files. What is damaged or foreign is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.snapshots import tar
from headrace.snapshots.archive import Unpacker
from headrace.snapshots.consumer_state import decode_state, encode_state
from headrace.snapshots.contents import (
    Began,
    ConsumerContent,
    ConsumerState,
    Content,
    Delivery,
    Ended,
    MessageContent,
    SnapshotFormatError,
)
from headrace.snapshots.framing import IDENTIFIER, frame
from headrace.snapshots.packing import FilesPacker
from headrace.snapshots.records import HighwayHash, block_hash, encode_erased, encode_record

NS = 1_000_000_000
NOW = 1_700_000_000 * NS
CONFIG = {"name": "S", "subjects": ["s.>"]}


def read(data: bytes, size: int = 1000, stream: str = "S") -> list[Content]:
    unpacker = Unpacker(stream)
    found: list[Content] = []
    for at in range(0, len(data), size):
        unpacker.feed(data[at : at + size])
        while (contents := unpacker.step()) is not None:
            found += contents
    unpacker.finish()
    return found


def packed(*contents: Content) -> bytes:
    packer = FilesPacker(CONFIG, NOW)
    return b"".join(part for content in contents for part in packer.add(content))


def messages(*sequences: int) -> Iterator[MessageContent]:
    for sequence in sequences:
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if sequence % 2 else b""
        yield MessageContent(sequence, b"s.%d" % sequence, headers, b"p" * sequence, NOW + sequence)


STATE = ConsumerState((9, 8), (4, 3), {5: Delivery(6, NOW), 8: Delivery(9, NOW - NS)}, {5: 2})


@pytest.mark.parametrize("size", [1, 511, 100_000])
def test_what_is_written_is_read(size: int) -> None:
    consumer = ConsumerContent("C", {"durable_name": "C", "name": "C"}, STATE)
    held = [*messages(3, 4, 9)]
    found = read(packed(Began(3, 12), consumer, *held, Ended(12, 3)), size)
    assert found[0] == Began(created="0001-01-01T00:00:00Z")
    assert found[1:4] == held
    assert isinstance(found[4], ConsumerContent)
    assert (found[4].name, found[4].state) == ("C", STATE)
    assert isinstance(found[5], Ended)
    assert found[5].last_seq == 12


def test_a_stream_that_is_empty_and_was_not_always() -> None:
    (_, ended) = read(packed(Began(50, 49), Ended(49, 50)))
    assert isinstance(ended, Ended)
    assert ended.last_seq == 49


def test_many_files_and_long_names() -> None:
    name = "c" * 200
    consumer = ConsumerContent(name, {"name": name}, ConsumerState())
    held = [MessageContent(n, b"s", b"", bytes(1 << 20), NOW) for n in range(1, 7)]
    found = read(packed(Began(1, 6), consumer, *held, Ended(6, 1)), 1 << 20)
    assert found[1:7] == held
    assert isinstance(found[7], ConsumerContent)
    assert found[7].name == name


def tarred(files: dict[str, bytes]) -> bytes:
    data = b"".join(
        tar.header(name, len(body), 0) + body + bytes(tar.padding(len(body)))
        for name, body in files.items()
    )
    return IDENTIFIER + frame(data + tar.END)


def described(folder: str = "", key: str = "S", **config: object) -> dict[str, bytes]:
    body = json.dumps({"name": "S", **config}).encode()
    digest = HighwayHash(sha256(key.encode()).digest()).digest(body)
    return {f"{folder}meta.inf": body, f"{folder}meta.sum": digest.hex().encode()}


HASHES = block_hash("S", 1)
FIVE = b"".join(encode_record(HASHES, *message) for message in messages(1, 2, 3, 4, 5))


def test_what_was_deleted_later_is_told_at_the_end() -> None:
    second = block_hash("S", 2)
    tombstones = encode_record(second, 2 | 1 << 62, b"", b"", b"", NOW)
    erased = encode_erased(second, 6, NOW)
    files = {**described(), "msgs/1.blk": FIVE, "msgs/2.blk": tombstones + erased}
    *_, ended = read(tarred({**files, "msgs/index.db": b"whatever"}))
    assert isinstance(ended, Ended)
    assert (ended.last_seq, list(ended.removed)) == (6, [2])


CONSUMER = described("obs/C/", "S/C", Name="C")
DAMAGED = {
    "another stream's": tarred(described(name="T")),
    "a wrong sum": tarred({**described(), "meta.sum": b"00" * 8}),
    "no configuration": tarred({"msgs/1.blk": FIVE}),
    "a record's checksum": tarred({**described(), "msgs/1.blk": FIVE[:-1] + b"\0"}),
    "another file's records": tarred({**described(), "msgs/2.blk": FIVE}),
    "half a record": tarred({**described(), "msgs/1.blk": FIVE[:-4]}),
    "a record of nothing": tarred({**described(), "msgs/1.blk": bytes(40)}),
    "a foreign file": tarred({**described(), "../../etc/passwd": b"x"}),
    "an error of the server's": tarred({**described(), "errors.txt": b"no"}),
    "a consumer without a sum": tarred({**described(), "obs/C/meta.inf": b"{}"}),
    "a consumer's state": tarred({**described(), **CONSUMER, "obs/C/o.dat": b"\x16\x02\x01"}),
    "another consumer's name": tarred({**described(), **described("obs/D/", "S/D", Name="C")}),
    "a header": IDENTIFIER + frame(b"x" * 512),
    "no end": tarred(described())[:-600],
    "a long header": IDENTIFIER + frame(tar._header(b"x", 1 << 20, 0, "x")),
    "a large document": IDENTIFIER + frame(tar.header("meta.inf", 9 << 20, 0)),
    "a directory": IDENTIFIER + frame(tar._header(b"d", 0, 0, "5") + tar.END),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged(what: str) -> None:
    with pytest.raises(SnapshotFormatError):
        read(DAMAGED[what])


SEQUENCES = st.integers(1, 1 << 40)


@given(
    floor=st.tuples(SEQUENCES, SEQUENCES),
    pending=st.dictionaries(SEQUENCES, st.tuples(SEQUENCES, st.integers(1, NOW // NS)), max_size=9),
    counts=st.dictionaries(SEQUENCES, SEQUENCES, max_size=5),
)
def test_consumer_states(
    floor: tuple[int, int], pending: dict[int, tuple[int, int]], counts: dict[int, int]
) -> None:
    state = ConsumerState(
        (floor[0] + 5, floor[1] + 5),
        floor,
        {floor[1] + s: Delivery(floor[0] + c, when * NS) for s, (c, when) in pending.items()},
        {floor[1] + s: count for s, count in counts.items()},
    )
    assert decode_state(encode_state(state, NOW)) == state


def test_a_state_of_the_first_version() -> None:
    data = bytes((22, 1, 3, 10, 2, 5, 1)) + b"\x80\x01" + bytes((2, 4, 1, 2, 3))
    state = decode_state(data)
    assert state == ConsumerState((4, 14), (3, 10), {12: Delivery(0, 66 * NS)}, {12: 3})
