"""Header blocks: read or refused, written again as they were read, and all readers agree."""

from __future__ import annotations

import random

from headrace.broker.core.jetstream import headers as publish_headers
from headrace.errors import ProtocolError
from headrace.wire import encode_headers, headers, parse_headers
from mutation import Target

NAMES = (b"Nats-Msg-Id", b"Nats-TTL", b"A", b"Nats-Rollup", b"Nats-Expected-Stream")

CORPUS = [
    b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n",
    b"NATS/1.0\r\nA: b\r\nA: c\r\nNats-TTL: 5s\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 5\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup:sub\r\nNats-Expected-Stream:  S \r\n\r\n",
    b"NATS/1.0\r\n\r\n",
]
TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b": ",
    b" ",
    b"\t",
    b"\0",
    *NAMES,
    b"nats-msg-id",
    b"NATS/1.0",
]


def check(data: bytes, rng: random.Random) -> None:
    """Raise if the readers of a block disagree, or one raises what it must not."""
    found = publish_headers.read_headers(data)
    sole = publish_headers.sole_message_ids([data])
    if sole is not None:
        named = publish_headers.message_id(data)
        assert sole == ([named] if named else []), "two readings of a message id"
    for name in NAMES:
        value = publish_headers.header_value(data, name)
        assert b"\r\n" not in value, "a value over two lines"
        headers.header_value(data, name)
    try:
        parsed = parse_headers(data)
    except ProtocolError:
        return  # the documented answer to a malformed block
    assert len(found) <= max(len(parsed), 1) or b"\n" in data.replace(b"\r\n", b"")
    pairs = list(parsed.items())
    try:
        block = encode_headers(pairs)
    except (ValueError, ProtocolError):
        return  # a value that may be read, but not written
    assert list(parse_headers(block).items()) == pairs, "written headers read differently"


TARGET = Target("headers", CORPUS, TOKENS, check, joined_max=1)
