"""The NATS client protocol without I/O: bytes to frames, frames to bytes, header blocks.

Client and server use it. ``Parser`` reads one direction of a connection, the functions of
``wire.encode`` write frames, the functions of ``wire.headers`` read and write header blocks. ``frames``
lists the shapes.
"""

from __future__ import annotations

from . import encode, frames
from .frames import BAD, CONNECT, ERR, INFO, MSG, OK, PING, PONG, PUB, SUB, UNSUB, Frame
from .headers import (
    Headers,
    add_header,
    encode_headers,
    header_value,
    parse_headers,
    remove_header,
    status_block,
    status_of,
)
from .parser import Parser
from .payloads import PayloadReader

__all__ = [
    "BAD",
    "CONNECT",
    "ERR",
    "INFO",
    "MSG",
    "OK",
    "PING",
    "PONG",
    "PUB",
    "SUB",
    "UNSUB",
    "Frame",
    "Headers",
    "Parser",
    "PayloadReader",
    "add_header",
    "encode",
    "encode_headers",
    "frames",
    "header_value",
    "parse_headers",
    "remove_header",
    "status_block",
    "status_of",
]
