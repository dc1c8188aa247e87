"""Backups that somebody has written to do harm: refused with a sentence, and nothing of them stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

from headrace.snapshots import tar
from headrace.snapshots.archive import END, MAGIC, Unpacker, message_entry, state_entry
from headrace.snapshots.consumer_state import encode_state, uvarint, varint
from headrace.snapshots.contents import (
    ConsumerContent,
    ConsumerState,
    Delivery,
    SnapshotFormatError,
)
from headrace.snapshots.framing import FRAME_BYTES_MAX, IDENTIFIER, crc32c, frame, masked
from headrace.snapshots.records import HighwayHash, block_hash, encode_record
from jetstream_world import World

from .test_restores import nothing_stays, restore

THEN = 1_700_000_000_000_000_000
DEEP = b'{"a":' * 5_000
NUMBERS = (b"1e400", b"true", b"9" * 4000, b"-1")
ONE = message_entry(1, b"s.1", b"", b"m", THEN)


def framed(data: bytes) -> bytes:
    parts = (data[at : at + FRAME_BYTES_MAX] for at in range(0, len(data), FRAME_BYTES_MAX))
    return IDENTIFIER + b"".join(map(frame, parts))


def with_state(body: bytes) -> bytes:
    return framed(MAGIC + message_entry(0, b"state.json", b"", body, THEN) + ONE + END)


def with_consumer(body: bytes) -> bytes:
    state = state_entry({"first_seq": 1, "last_seq": 1, "consumer_count": 1}, THEN)
    return framed(MAGIC + state + message_entry(0, b"consumers/C", b"", body, THEN) + ONE + END)


def of_consumer(**state: bytes) -> bytes:
    """A consumer whose state has these numbers, in JSON."""
    numbers = {
        "delivered": b"1",
        "floor": b"0",
        "pending": b"1",
        "placed": b"1",
        "stamp": b"5",
    } | state
    return with_consumer(
        b'{"config":{"name":"C","ack_policy":"explicit"},"state":{'
        b'"delivered":{"consumer_seq":%(delivered)b,"stream_seq":%(delivered)b},'
        b'"ack_floor":{"consumer_seq":%(floor)b,"stream_seq":%(floor)b},'
        b'"pending":{"%(pending)b":{"Sequence":%(placed)b,"Timestamp":%(stamp)b}},'
        b'"redelivered":{"1":%(count)b}}}'
        % {key.encode(): value for key, value in ({"count": b"1"} | numbers).items()}
    )


def file(name: str, body: bytes) -> bytes:
    return tar.header(name, len(body), 0) + body + bytes(tar.padding(len(body)))


def described(folder: str, key: str, body: bytes) -> bytes:
    digest = HighwayHash(sha256(key.encode()).digest()).digest(body).hex().encode()
    return file(f"{folder}meta.inf", body) + file(f"{folder}meta.sum", digest)


def in_files(*parts: bytes, meta: bytes = b'{"name":"S"}') -> bytes:
    return framed(described("", "S", meta) + b"".join(parts) + tar.END)


def extended(field: bytes) -> bytes:
    """A file whose size and name an extended header tells."""
    fields = b"%d %b\n" % (len(field) + len(str(len(field))) + 2, field)
    fields = (
        fields if len(fields) == int(fields.split()[0]) else b"%d %b\n" % (len(fields) + 1, field)
    )
    head = tar.header("x", len(fields), 0)
    block = bytearray(head[:512])
    block[156] = ord(tar.EXTENDED)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + fields + bytes(tar.padding(len(fields))) + file("msgs/1.blk", b"")


def with_message(
    subject: bytes = b"s.1", headers: bytes = b"", payload: bytes = b"m", sequence: int = 1
) -> bytes:
    state = state_entry({"first_seq": 1, "last_seq": sequence}, THEN)
    entry = message_entry(sequence, subject, headers, payload, THEN)
    return framed(MAGIC + state + entry + END)


def named(name: bytes) -> bytes:
    """An archive with one consumer of this name."""
    state = state_entry({"first_seq": 1, "last_seq": 1, "consumer_count": 1}, THEN)
    zero = b'{"consumer_seq":0,"stream_seq":0}'
    body = b'{"config":{"ack_policy":"explicit"},"state":{"delivered":%b,"ack_floor":%b}}' % (
        zero,
        zero,
    )
    entry = message_entry(0, b"consumers/" + name, b"", body, THEN)
    return framed(MAGIC + state + entry + ONE + END)


def bomb(size: int) -> bytes:
    """A frame of some 20 bytes that decodes to so many spaces, up to 4 MiB."""
    block = uvarint(size) + b"\x00 \x05\x01"  # a space, and five more of it
    left = size - 6
    while left:
        some = min(left, 1 << 20)
        block += b"\x1d\x00" + (some - (1 << 16) - 4).to_bytes(3, "little")  # so many again
        left -= some
    body = masked(crc32c(b" " * size)).to_bytes(4, "little") + block
    return b"\x00" + len(body).to_bytes(3, "little") + body


INJECTED = b"s.x\r\nINFO {}\r\nMSG s.1 1 1\r\nx"


def pipe(name: str) -> bytes:
    """A named pipe, as tar has them."""
    block = bytearray(tar.header(name, 0, 0))
    block[156] = ord("6")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


OBS = "obs/C/"
HOSTILE = {
    "a state nested without end": with_state(DEEP),
    **{
        f"first {number[:9]!r}": with_state(b'{"first_seq":%b,"last_seq":1}' % number)
        for number in NUMBERS
    },
    **{
        f"last {number[:9]!r}": with_state(b'{"first_seq":1,"last_seq":%b}' % number)
        for number in NUMBERS
    },
    **{
        f"consumers {number[:9]!r}": with_state(
            b'{"first_seq":1,"last_seq":1,"consumer_count":%b}' % number
        )
        for number in NUMBERS
    },
    "a consumer nested without end": with_consumer(DEEP),
    "a consumer of another kind": with_consumer(b'{"config":{"name":"C"},"state":[]}'),
    "a configuration of another kind": with_consumer(b'{"config":[],"state":{}}'),
    "a consumer without a state": with_consumer(b'{"config":{"name":"C"},"state":{}}'),
    **{
        f"{field} {number[:9]!r}": of_consumer(**{field: number})
        for field in ("delivered", "floor", "pending", "placed", "stamp", "count")
        for number in NUMBERS
    },
    "a stream's document nested without end": in_files(meta=DEEP),
    "a time that is none": in_files(meta=b'{"name":"S","Created":"yesterday"}'),
    "a year that is none": in_files(meta=b'{"name":"S","Created":"0000-00-00T00:00:00Z"}'),
    "a time of another kind": in_files(meta=b'{"name":"S","Created":{}}'),
    "a consumer's time that is none": in_files(described(OBS, "S/C", b'{"Created":"yesterday"}')),
    "a consumer's document nested without end": in_files(described(OBS, "S/C", DEEP)),
    "a size in digits that are none": in_files(extended("size=²".encode())),
    "a size of 5,000 digits": in_files(extended(b"size=" + b"9" * 5000)),
    "a number of 5,000 digits": in_files(extended(b"path=msgs/" + b"9" * 5000 + b".blk")),
    "a length of 5,000 digits": in_files(
        extended(b"a=b")[:512] + b"9" * 5000 + bytes(tar.padding(5000))
    ),
    "a state far away": in_files(
        described(OBS, "S/C", b"{}"),
        file(OBS + "o.dat", encode_state(ConsumerState((1 << 63, 1 << 63), (0, 0)), THEN)),
    ),
    "a subject that is more than one line": with_message(INJECTED),
    "a subject with a line's end": with_message(b"s.x\n"),
    "a subject with a space": with_message(b"s. x"),
    "a subject with a tab": with_message(b"s.\tx"),
    "a subject with an empty token": with_message(b"s..x"),
    "a subject with a wildcard": with_message(b"s.*"),
    "a subject with all below it": with_message(b"s.>"),
    "no subject": with_message(b""),
    "headers that are none": with_message(headers=b"MSG s.1 1 1\r\nx\r\n\r\n"),
    "headers without their end": with_message(headers=b"NATS/1.0\r\nA: b\r\n"),
    "headers of 128 KiB": with_message(headers=b"NATS/1.0\r\nA: %b\r\n\r\n" % bytes(128 << 10)),
    "a consumer whose name is two lines": named(b"C\r\nINFO"),
    "a consumer whose name has a space": named(b"C D"),
    "a consumer in another directory": named(b"../C"),
    "a consumer that delivers to two lines": with_consumer(
        b'{"config":{"name":"C","deliver_subject":"a\\r\\nINFO {}","ack_policy":"none"},"state":{'
        b'"delivered":{"consumer_seq":0,"stream_seq":0},'
        b'"ack_floor":{"consumer_seq":0,"stream_seq":0}}}'
    ),
    "a pipe": framed(described("", "S", b'{"name":"S"}') + pipe("obs/C/meta.inf")),
    "a message file's subject that is more than one line": in_files(
        file("msgs/1.blk", encode_record(block_hash("S", 1), 1, INJECTED, b"", b"m", THEN))
    ),
    "a time far away": in_files(
        described(OBS, "S/C", b"{}"),
        file(
            OBS + "o.dat",
            encode_state(ConsumerState((1, 1), (0, 0), {1: Delivery(1, -THEN)}), THEN),
        ),
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_it_is_refused_and_nothing_stays(data: bytes) -> None:
    client = World().client()
    answer = restore(client, data)
    assert answer.get("error"), json.dumps(answer)[:200]
    nothing_stays(client)


def entry_head(name: bytes, size: int) -> bytes:
    """The front of an entry of an archive whose body has ``size`` bytes."""
    return b"".join((uvarint(len(name)), varint(THEN), uvarint(0), uvarint(0), uvarint(size), name))


def many_documents(count: int, size: int) -> Iterator[bytes]:
    """The frames of an archive of consumers, as large as they may be, of spaces that say nothing."""
    state = state_entry({"first_seq": 1, "last_seq": 0, "consumer_count": count}, THEN)
    yield IDENTIFIER + frame(MAGIC + state)
    zero = b'{"consumer_seq":0,"stream_seq":0}'
    body = b'{"config":{},"state":{"delivered":%b,"ack_floor":%b}}' % (zero, zero)
    spaces = bomb(size)
    for number in range(count):
        head = entry_head(b"consumers/c%d" % number, len(body) + size)
        yield frame(head + body) + spaces


def test_what_blows_up_into_documents_is_refused_before_it_fills_the_memory() -> None:
    unpacker, sent, kept = Unpacker("S"), 0, 0
    with pytest.raises(SnapshotFormatError, match="more than 67108864 bytes"):
        for chunk in many_documents(40, FRAME_BYTES_MAX):
            sent += len(chunk)
            unpacker.feed(chunk)
            while (found := unpacker.step()) is not None:
                kept += sum(isinstance(each, ConsumerContent) for each in found)
    assert (sent < 10_000, kept) == (True, 15)
