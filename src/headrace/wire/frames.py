"""What a parser yields: plain tuples whose first element says which frame it is.

======================================================  =======  ================================
frame                                                   sent by  elements
======================================================  =======  ================================
``(PUB, subject, reply, headers, payload)``             client   PUB and HPUB; all ``bytes``
``(SUB, subject, queue, sid)``                          client   all ``bytes``
``(UNSUB, sid, max_msgs)``                              client   ``bytes``, ``int`` (0: now)
``(CONNECT, json)``                                     client   ``bytes``
``(MSG, subject, sid, reply, headers, payload)``        server   MSG and HMSG; all ``bytes``
``(INFO, json)``                                        server   ``bytes``
``(OK,)``                                               server
``(ERR, text)``                                         server   ``str``, without the quotes
``(PING,)`` and ``(PONG,)``                             both
``(BAD, error)``                                        –        ``ProtocolError``; the last frame
======================================================  =======  ================================

An absent reply, queue or header block is ``b""``. A header block is raw: ``NATS/1.0…\\r\\n\\r\\n``.
Tuples, and a number to compare instead of a class to look up, because this is made and taken apart
once per message; ``op`` tells the shape, so the static type is only ``tuple[Any, ...]``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

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
]

Frame: TypeAlias = tuple[Any, ...]

PUB: Final = 1
MSG: Final = 2
SUB: Final = 3
UNSUB: Final = 4
PING: Final = 5
PONG: Final = 6
CONNECT: Final = 7
INFO: Final = 8
OK: Final = 9
ERR: Final = 10
BAD: Final = 11
