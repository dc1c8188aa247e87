"""The protocol: parsers never raise, keep little, and read the same however input is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator

from deliveries import msg
from headrace.wire import BAD, Frame, Parser, encode
from mutation import Target

PAYLOAD_MAX = 256
LINE_MAX = 64
FRAME_MAX = PAYLOAD_MAX + LINE_MAX + len(b"CONNECT \r\n\r\n")
BYTEWISE_MAX = 600
BYTEWISE = 0.2  # cutting at random has pieces of one byte, too

BLOCK = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
CORPUS = [
    encode.connect(b'{"verbose":false}') + encode.ping(),
    encode.pub(b"orders.eu", b"_INBOX.a.1", b"", b"x" * 100) * 3,
    encode.pub(b"orders.eu", b"", BLOCK, b"hello") + encode.pub(b"a", b"r", BLOCK, b""),
    encode.sub(b"a.>", b"", b"1") + encode.sub(b"a.*", b"q", b"2") + encode.unsub(b"1", 5),
    encode.info(b'{"max_payload":1024}') + encode.ok() + encode.err("Stale Connection"),
    msg(b"orders.eu", b"1", b"$JS.ACK.S.C.1.2.3.4.5", b"", b"x" * 30) * 2,
    msg(b"a", b"1", b"", BLOCK, b"hi") + encode.pong(),
    b"pub\ta   5 \r\nhello\r\nPUB a 5\nhello\r\nPiNg\n",
]
TOKENS = [
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"0", b"5", b"256", b"257", b"999999999", b"-1"),
    *(b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT ", b"MSG ", b"HMSG ", b"+OK", b"-ERR "),
    *(b"PING\r\n", b"INFO {}\r\n", b"x" * LINE_MAX, b"y" * PAYLOAD_MAX, BLOCK),
]


def outcome(frames: list[Frame]) -> list[tuple[object, ...]]:
    """What a caller can tell apart: everything but the sentence of an error."""
    return [(BAD, type(f[1]), f[1].wire_text) if f[0] == BAD else f for f in frames]


def read(parser: Parser, chunks: Iterator[bytes]) -> list[tuple[object, ...]]:
    frames: list[tuple[object, ...]] = []
    feed = parser.feed
    for chunk in chunks:
        if found := feed(chunk):
            frames += outcome(found)
        assert parser.held_bytes <= FRAME_MAX, f"{parser.held_bytes} bytes kept"
    for frame in frames[:-1]:
        assert frame[0] != BAD, "frames after BAD"
    if frames and frames[-1][0] == BAD:
        assert not parser.feed(b"PING\r\n"), "frames after BAD"
    return frames


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        step = rng.choice((1, 2, 3, 7, 30, 200))
        yield data[at : at + step]
        at += step


def check(data: bytes, rng: random.Random) -> None:
    """Raise if the parsers do not do what they promise with ``data``."""
    for make in (Parser.for_server, Parser.for_client):
        whole, chunked, bytewise = (
            make(max_payload=PAYLOAD_MAX, max_control_line=LINE_MAX) for _ in range(3)
        )
        expected = read(whole, iter([data]))
        assert read(chunked, cut(data, rng)) == expected, "chunked differs from whole"
        if len(data) <= BYTEWISE_MAX and rng.random() < BYTEWISE:
            bits = (data[at : at + 1] for at in range(len(data)))
            assert read(bytewise, bits) == expected, "byte by byte differs from whole"


TARGET = Target("protocol", CORPUS, TOKENS, check)
