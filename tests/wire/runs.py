"""Frames as bytes, for tests of runs: what is read quickly equals what is read byte by byte."""

from __future__ import annotations

from typing import Any

from deliveries import msg
from headrace.wire import Parser, encode
from headrace.wire.frames import BAD, MSG, PUB, Frame

__all__ = ["byte_by_byte", "check_damaged", "encoded", "told"]


def encoded(frames: list[Frame]) -> bytes:
    encoders: dict[bytes, Any] = {PUB: encode.pub, MSG: msg}
    return b"".join(encoders[frame[0]](*frame[1:]) for frame in frames)


def byte_by_byte(parser: Parser, data: bytes) -> list[Frame]:
    """No run is ever read this way: there is at most one message at a time."""
    return [f for at in range(len(data)) for f in parser.feed(data[at : at + 1])]


def told(frames: list[Frame]) -> list[object]:
    return [(BAD, frame[1].wire_text) if frame[0] == BAD else frame for frame in frames]


def check_damaged(frames: list[Frame], at: int, damage: bytes) -> None:
    """With a byte of it replaced, a run is read and refused as without runs."""
    data = encoded(frames)
    at %= len(data)
    data = data[:at] + damage + data[at + 1 :]
    whole = told(Parser.for_server(max_payload=16, max_control_line=64).feed(data))
    single = byte_by_byte(Parser.for_server(max_payload=16, max_control_line=64), data)
    assert whole == told(single)
