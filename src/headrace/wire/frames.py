"""The frames a parser yields: plain tuples whose first element is the kind of frame.

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
Frames are tuples with one byte to compare, instead of classes, because they are created and unpacked
once per message. ``op`` determines the shape, so the static type is only ``tuple[Any, ...]``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Frame: TypeAlias = tuple[Any, ...]

# The first letter of the verb of message frames, which the parser's expressions find (see ``repeats``).
PUB: Final = b"P"
MSG: Final = b"M"
SUB: Final = b"S"
UNSUB: Final = b"U"
PING: Final = b"?"
PONG: Final = b"!"
CONNECT: Final = b"C"
INFO: Final = b"I"
OK: Final = b"+"
ERR: Final = b"-"
BAD: Final = b"#"
