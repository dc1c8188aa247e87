"""Header blocks and reply subjects of JetStream's messages, read and written: pure.

Header names are compared as the public server compares its own: exactly. The first of repeated headers
counts.

``Nats-TTL`` says how long a message lives by its own wish: whole seconds, at least one; ``never`` outlives
``max_age``. A marker says that a subject's last message is gone.

``Nats-Stream-Source`` says where a copied message comes from: ``<origin> <sequence> <filters>
<destinations> <subject> <identity>``, enough to go on after a restart at the message after it. Several
filters or destinations are separated by form feeds. The identity is that of one life of the origin: a
stream deleted and made anew has another one.

The reply subject of a fast batch's message is
``<prefix>.<batch>.<flow>.<gap>.<sequence>.<operation>.$FI``: the batch's name, every how many messages the
publisher wants an acknowledgement at most, ``ok`` or ``fail`` for messages that were lost on the way, the
message's place in the batch from 1, and what to do with it.

The ack policy ``flow_control`` acknowledges by answers to flow control alone: everything delivered up to
there is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ....quantities import GO_UNITS, duration_ns, go_duration_text
from .config.sizes import read_number
from .config.sources import short_hash

MARK: Final = b"\r\nNats-"
"""What a header of the server's own begins with, in a block."""
_MSG_ID: Final = b"\r\nNats-Msg-Id:"
_VERSION: Final = b"NATS/1.0"
_BEGIN, _END = b"NATS/1.0\r\nNats-Msg-Id: ", b"\r\n\r\n"  # of a block that has nothing else
_BETWEEN: Final = b"\0"
_EXPECTED: Final = (
    rb"NATS/1\.0(?:\r\n(?!Nats-)[^\r]*)*\r\nNats-Expected-Last-%bSequence: ([0-9]{1,18})\r\n"
)
_expectation: Final = re.compile(_EXPECTED % b"Subject-").match
_expected_place: Final = re.compile(_EXPECTED % b"").match
_LEVEL: Final = b"Nats-Required-Api-Level"
NEVER: Final = -1
"""The TTL of a message that no age limit removes."""
NEVER_NS: Final = (1 << 63) - 1
"""The time at which such a message expires."""
NOTED_NS: Final = NEVER_NS - 1
"""The time of one that does not expire by itself, and is only to be found again after a restart."""
_NS: Final = 1_000_000_000
_TTL: Final = b"Nats-TTL"
_KV_OPERATION: Final = b"KV-Operation"
_EMPTY: Final = b"NATS/1.0\r\n"
_NAME: Final = b"Nats-Stream-Source: "
_FIND: Final = b"\r\nNats-Stream-Source:"
_FIELDS: Final = 5  # the identity came later than the others
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_LAST_CONSUMER: Final = b"Nats-Last-Consumer"
_LAST_STREAM: Final = b"Nats-Last-Stream"
_REACHED_DIGITS_MAX: Final = 19
FAST: Final = b".$FI"
"""What the reply of every message of a fast batch ends with, and no other."""
START: Final = 0
APPEND: Final = 1
COMMIT: Final = 2
"""Store the message, and end the batch."""
END: Final = 3
"""End the batch; the message is none of it."""
PING: Final = 4
"""Say once more how far the batch has come; the message is none of it."""
_SEQUENCE_MAX: Final = 2**64 - 2
_FLOW_DEFAULT: Final = 10
_FLOW_MAX: Final = 2**16 - 1
_FAST_DIGITS_MAX: Final = 20
_TOKENS: Final = 7
_GAPS: Final = (b"fail", b"ok")


def is_block(headers: bytes) -> bool:
    """Whether it is a header block: the version in front, an empty line at the end."""
    return headers.startswith(_VERSION) and headers.endswith(_END)


def read_headers(block: bytes) -> dict[bytes, bytes]:
    """The ``Nats-…`` headers of a raw header block; values without the spaces in front, as from the public
    server: what else is around them belongs to them."""
    if MARK not in block:
        return {}
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n"):
        if line.startswith(b"Nats-"):
            name, colon, value = line.partition(b":")
            if colon and name not in found:
                found[name] = value.lstrip(b" ")
    return found


def message_id(block: bytes) -> bytes:
    """The value of ``Nats-Msg-Id``, or ``b""``."""
    start = block.find(_MSG_ID)
    if start < 0:
        return b""
    return _line(block, start + len(_MSG_ID))


def sole_message_ids(blocks: Sequence[bytes]) -> list[bytes] | None:
    """The ``Nats-Msg-Id`` of each block: all have one, or none has, and the list is empty.

    None if one has anything else of the server's own, or what is not usual enough to be told from it at a
    glance.
    """
    # A mark cannot stand across a border of two blocks.
    text = _BETWEEN.join(blocks)
    if text.startswith(_BEGIN) and text.endswith(_END):
        found = text[len(_BEGIN) : -len(_END)].split(_END + _BETWEEN + _BEGIN)
        names = _BETWEEN.join(found)
        if (
            len(found)
            == len(blocks)
            == names.count(_BETWEEN) + 1  # the borders are the blocks' own
            and names.split() == [names]
            and b"" not in found
        ):
            return found
    marks = text.count(MARK)
    if not marks:
        return []
    if not marks == text.count(_MSG_ID) == len(blocks):
        return None
    found = list(map(message_id, blocks))
    return None if b"" in found else found


def sole_expectations(blocks: Sequence[bytes]) -> list[int] | None:
    """The last sequence of its subject that each of these expects; None if one says anything else.

    "Anything else" is of the server's own, or not usual enough to be told from it at a glance.
    """
    return _sole_numbers(blocks, _expectation)


def sole_places(blocks: Sequence[bytes]) -> list[int] | None:
    """The last sequence of the stream that each of these expects; otherwise as ``sole_expectations``."""
    return _sole_numbers(blocks, _expected_place)


def _sole_numbers(
    blocks: Sequence[bytes], number_of: Callable[[bytes], re.Match[bytes] | None]
) -> list[int] | None:
    if number_of(blocks[0]) is None:
        return None
    # A mark cannot stand across a border of two blocks. Each has one: so it has no other.
    if _BETWEEN.join(blocks).count(MARK) != len(blocks):
        return None
    found = list(map(number_of, blocks))
    return None if None in found else [int(each[1]) for each in found if each]


def header_value(block: bytes, name: bytes) -> bytes:
    """The value of the first header of this name, or ``b""``."""
    start = block.find(b"\r\n%b:" % name)
    if start < 0:
        return b""
    return _line(block, start + len(name) + 3)


def _line(block: bytes, start: int) -> bytes:
    """The rest of a line, without the spaces in front; of the last one if its end is missing."""
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")


def required_level_too_high(headers: bytes, level: int) -> bool:
    """Whether a request demands a higher level than ours."""
    if _LEVEL not in headers:
        return False
    wanted = read_number(read_headers(headers).get(_LEVEL, b""))
    return wanted is None or wanted > level


def read_ttl(value: bytes) -> int | None:
    """Seconds, or NEVER; None for what is no TTL. A fraction of a second is cut off."""
    text = value.decode(errors="replace")
    if text.lower() == "never":
        return NEVER
    ttl_ns = duration_ns(text, GO_UNITS)
    if ttl_ns is not None:
        return ttl_ns // _NS if ttl_ns >= _NS else None
    return read_number(value)


def expires_at(headers: bytes, timestamp_ns: int) -> int:
    """When a message stored with these headers at this time expires; 0 if it does not."""
    value = header_value(headers, _TTL)
    ttl = read_ttl(value) if value else None
    if not ttl:
        return NOTED_NS if header_value(headers, b"Nats-Schedule") else 0
    return NEVER_NS if ttl == NEVER else min(timestamp_ns + ttl * _NS, NOTED_NS - 1)


def with_ttl(headers: bytes, seconds: int) -> bytes:
    """The block with another TTL, at its end."""
    return without_header(headers, _TTL)[:-2] + b"Nats-TTL: %d\r\n\r\n" % seconds


def without_header(headers: bytes, name: bytes) -> bytes:
    """The block without the lines of one header."""
    start = name + b":"
    lines = [line for line in headers.split(b"\r\n") if line and not line.startswith(start)]
    return b"\r\n".join([*lines, b"", b""])


def marker_headers(ttl_ns: int) -> bytes:
    """The headers of the message that says: the last one of this subject is gone, by its age."""
    lines = (
        b"NATS/1.0",
        b"Nats-Marker-Reason: MaxAge",
        b"Nats-TTL: " + go_duration_text(ttl_ns // _NS * _NS).encode(),
        b"Nats-Rollup: sub",
    )
    return b"\r\n".join([*lines, b"", b""])


def is_marker(headers: bytes) -> bool:
    """Whether a message only says that others are gone, so that its own end needs no marker."""
    if header_value(headers, b"Nats-Marker-Reason"):
        return True
    return header_value(headers, _KV_OPERATION) == b"PURGE"


class Origination(NamedTuple):
    """What a stored header says: the source it came through, and the message it was there."""

    source: str
    sequence: int
    identity: str
    subject: bytes


def identity_of(created_ns: int) -> str:
    """A short name for one life of a stream."""
    return short_hash(str(created_ns))


class SourceStamp:
    """Makes the header block of copied messages, for one source and one life of its origin."""

    __slots__ = ("_alone", "_line")

    def __init__(self, index: str, identity: str) -> None:
        name, filters, destinations = (part.encode() for part in index.split(" "))
        line = b"%b%b \0 %b %b \0 %b\r\n\r\n" % (
            _NAME,
            name,
            filters,
            destinations,
            identity.encode(),
        )
        # The two places to fill in are marked by a byte no subject has; all else is taken literally.
        before, between, after = line.replace(b"%", b"%%").split(b"\0")
        self._line = before + b"%d" + between + b"%b" + after
        self._alone = _EMPTY + self._line

    def put(self, headers: bytes, sequence: int, subject: bytes) -> bytes:
        """The header block to store with a message; ``headers`` is what it had."""
        if not headers:
            return self._alone % (sequence, subject)
        kept = without_expectations(headers, source=True) if MARK in headers else headers
        if not kept:
            return self._alone % (sequence, subject)
        return kept[:-2] + self._line % (sequence, subject)


def without_expectations(headers: bytes, *, source: bool = False) -> bytes:
    """A block without what was meant for the stream it was published to; ``b""`` if nothing is left.

    ``source`` takes away the mark of an earlier copy, too.
    """
    drop = (b"Nats-Expected-", b"Nats-Batch-", *((b"Nats-Stream-Source:",) if source else ()))
    lines = headers.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(drop)]
    if len(kept) == len(lines):
        return headers
    if not any(kept[1:]) and kept[0] == b"NATS/1.0":
        return b""
    return b"\r\n".join(kept)


def read_origination(headers: bytes) -> Origination | None:
    """What a stored block says about where the message comes from; None if it was published here."""
    start = headers.find(_FIND)
    if start < 0:
        return None
    start += len(_FIND)
    line = headers[start : headers.index(b"\r\n", start)].strip(b" ")
    fields = line.decode(errors="replace").split(" ")
    if len(fields) < _FIELDS or not fields[1].isdecimal():
        return None
    name, sequence, filters, destinations = fields[:4]
    identity = fields[_FIELDS] if len(fields) > _FIELDS else ""
    subject = line.split(b" ")[_FIELDS - 1]
    return Origination(f"{name} {filters} {destinations}", int(sequence), identity, subject)


def with_headers(block: bytes, added: bytes) -> bytes:
    """A message's header block with further ``Name: value\\r\\n`` lines at its end."""
    return (block[:-2] if block else _FIRST_LINE) + added + b"\r\n"


class Reached(NamedTuple):
    """How far a client has come: the sequence of its last delivery, and of the message in it."""

    consumer_seq: int
    stream_seq: int


def reached(headers: bytes) -> Reached | None:
    """What an answer, or a heartbeat, says; None if it speaks of no message."""
    stream_seq = _reached_number(headers, _LAST_STREAM)
    if not stream_seq:
        return None
    return Reached(_reached_number(headers, _LAST_CONSUMER), stream_seq)


def position_block(consumer_seq: int, stream_seq: int) -> bytes:
    """The headers of an answer that says this."""
    return b"NATS/1.0\r\n%b: %d\r\n%b: %d\r\n\r\n" % (
        _LAST_CONSUMER,
        consumer_seq,
        _LAST_STREAM,
        stream_seq,
    )


def _reached_number(headers: bytes, name: bytes) -> int:
    text = header_value(headers, name)
    return int(text) if text.isdigit() and len(text) <= _REACHED_DIGITS_MAX else 0


class FastReply(NamedTuple):
    """``flow`` is at least 1, what is no number counting as 10."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    sequence: int
    operation: int


def read_fast_reply(reply: bytes) -> FastReply | None:
    """What a reply that ends with ``FAST`` says, or None for one that is not of the form above."""
    tokens = reply.rsplit(b".", _TOKENS - 1)
    if len(tokens) < _TOKENS:
        return None
    _, batch_id, flow_token, gap, sequence_token, operation_token, _ = tokens
    operation, sequence = _fast_number(operation_token), _fast_number(sequence_token)
    if not START <= operation <= PING or not 0 < sequence <= _SEQUENCE_MAX or gap not in _GAPS:
        return None
    if (operation == START) != (sequence == 1) and operation <= APPEND:
        return None
    if operation == END and sequence == 1:
        return None
    flow = _fast_number(flow_token)
    flow = min(flow, _FLOW_MAX) if flow > 0 else _FLOW_DEFAULT
    return FastReply(batch_id, flow, gap == b"ok", sequence, operation)


def _fast_number(token: bytes) -> int:
    """A decimal number without sign, or -1."""
    return int(token) if token.isdigit() and len(token) <= _FAST_DIGITS_MAX else -1
