"""A consumer's state in binary, as nats-server's store has it in ``o.dat``.

``22`` u8 · version u8 · floor and delivered, each consumer sequence and stream sequence, uvarints ·
pending: n uvarint, then if n: time in seconds varint, n × (stream, consumer sequence uvarint, both from
the floor; age in seconds varint) · redelivered: n uvarint, n × (stream sequence from the floor, count
uvarint). Version 1 has no consumer sequence with pending messages, and counts from other places.

Integers have a variable length, seven bits a byte, as protocol buffers and Go write them.
"""

from __future__ import annotations

from typing import Final

from .contents import ConsumerState, Delivery, SnapshotFormatError

_BYTES_MAX: Final = 10
_SMALL: Final = tuple(bytes((value,)) for value in range(128))
_MAGIC: Final = 22
_NS: Final = 1_000_000_000


def uvarint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A number that may be negative."""
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)


def read_uvarint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at this place, and where the next one begins.

    Raises IndexError where the data ends within it, SnapshotFormatError where it is too long.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, first = byte & 0x7F, 7, at
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if at - first >= _BYTES_MAX:
            raise SnapshotFormatError("a number is too long")


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """As ``read_uvarint``, for one that may be negative."""
    value, at = read_uvarint(data, at)
    return (~(value >> 1) if value & 1 else value >> 1), at


def decode_state(data: bytes) -> ConsumerState:
    """Read a state. Raises SnapshotFormatError."""
    if len(data) < 2 or data[0] != _MAGIC or data[1] not in (1, 2):
        raise SnapshotFormatError("a consumer's state is of an unknown version")
    try:
        return _decode(data, data[1])
    except IndexError:
        raise SnapshotFormatError("a consumer's state is cut off") from None


def _decode(data: bytes, version: int) -> ConsumerState:
    floor_consumer, at = read_uvarint(data, 2)
    floor_stream, at = read_uvarint(data, at)
    delivered_consumer, at = read_uvarint(data, at)
    delivered_stream, at = read_uvarint(data, at)
    if version == 1:  # there it was counted from the floor, and meant the next one
        delivered_consumer += max(floor_consumer - 1, 0)
        delivered_stream += max(floor_stream - 1, 0)
    count, at = read_uvarint(data, at)
    pending: dict[int, Delivery] = {}
    if count:
        base_s, at = read_varint(data, at)
        for _ in range(count):
            sequence, at = read_uvarint(data, at)
            consumer_seq = 0
            if version == 2:
                consumer_seq, at = read_uvarint(data, at)
                consumer_seq += floor_consumer
            age_s, at = read_varint(data, at)
            when_s = base_s + age_s if version == 1 else base_s - age_s
            pending[sequence + floor_stream] = Delivery(consumer_seq, when_s * _NS)
    count, at = read_uvarint(data, at)
    redelivered: dict[int, int] = {}
    for _ in range(count):
        sequence, at = read_uvarint(data, at)
        times, at = read_uvarint(data, at)
        redelivered[sequence + floor_stream] = times
    delivered = delivered_consumer, delivered_stream
    return ConsumerState(delivered, (floor_consumer, floor_stream), pending, redelivered)


def encode_state(state: ConsumerState, now_ns: int) -> bytes:
    """Write a state."""
    floor_consumer, floor_stream = state.ack_floor
    now_s = now_ns // _NS
    parts = [bytes((_MAGIC, 2)), uvarint(floor_consumer), uvarint(floor_stream)]
    parts += map(uvarint, state.delivered)
    parts.append(uvarint(len(state.pending)))
    if state.pending:
        parts.append(varint(now_s))
    for sequence, place in state.pending.items():
        parts.append(uvarint(sequence - floor_stream))
        parts.append(uvarint(max(place.consumer_seq - floor_consumer, 0)))
        parts.append(varint(now_s - place.delivered_ns // _NS))
    parts.append(uvarint(len(state.redelivered)))
    for sequence, count in state.redelivered.items():
        parts += (uvarint(sequence - floor_stream), uvarint(count))
    return b"".join(parts)
