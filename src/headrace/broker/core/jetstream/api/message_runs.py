"""Requests for neighbouring messages that came in one chunk, answered together.

Who reads a range of a stream that allows neither consumers nor direct gets asks for every message by its
sequence, hundreds at a time. One read of the store answers all of them. Each answer is, byte for byte, the
one ``messages`` would give; what is out of the ordinary is left to that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from .....api.envelope import encode_error
from .....api.errors import Errors
from .....api.names import RESPONSE_TYPE_PREFIX
from .....api.times import format_time
from .....errors import StoreError
from .....message import StoredRow
from .....wire.frames import Frame
from ...ports.bus import Origin
from ..context import Context
from ..stream.stream import Stream, StreamMarks
from .dispatcher import ApiDispatcher
from .ports import Assets

RUN_MIN: Final = 8  # fewer are not worth it
RUN_BYTES: Final = 1024 * 1024  # of one run; what is beyond is answered one by one, in turns
_SUBJECT: Final = b"$JS.API.STREAM.MSG.GET."
_KIND: Final = "stream_msg_get_response"
_ASKED: Final = re.compile(rb'\{"seq": ?([1-9]\d{0,17})\}')
_BEGIN: Final = f'{{"type":"{RESPONSE_TYPE_PREFIX}{_KIND}","message":'.encode()
_MISSING: Final = encode_error(_KIND, Errors.NO_MESSAGE_FOUND)


class _Shown(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """``StoredMessageDocument`` with bytes, which msgspec writes as base64."""

    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""
    time: str


class MessageRuns:
    """Takes publishes to the API of one account; those it does not answer it gives back.

    Attributes:
        answered: how many requests it has answered.
    """

    def __init__(
        self, context: Context, assets: Assets, api: ApiDispatcher, streams: StreamMarks
    ) -> None:
        self._context = context
        self._assets = assets
        self._api = api
        self._streams = streams
        self._encode = msgspec.json.Encoder().encode
        self.answered = 0

    def take(self, publishes: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Answer the requests for a run of messages at the front; returns what is left."""
        subject = publishes[0][1]
        if (
            origin is None
            or not subject.startswith(_SUBJECT)
            or self._context.advisories.audits  # each request is told of by itself
        ):
            return publishes
        stream = self._assets.streams.get(subject[len(_SUBJECT) :].decode(errors="replace"))
        if stream is None:
            return publishes
        first, count = _run(publishes)
        if count < RUN_MIN:
            return publishes
        try:
            self._streams.enforce_limits()
            stream.expire()
            if stream.removing.is_behind:
                return publishes  # some may have to leave before they are read
            bodies = self._bodies(stream, first, count)
        except StoreError:
            return publishes
        if not bodies:
            return publishes
        answered = len(bodies)
        replies = [publish[2] for publish in publishes[:answered]]
        self.answered += answered
        self._api.total += answered
        self._api.errors += bodies.count(_MISSING)
        self._context.bus.publish_many(list(zip(replies, bodies, strict=True)))
        return publishes[answered:]

    def _bodies(self, stream: Stream, first: int, count: int) -> list[bytes]:
        """The answers for so many sequences, as far as one read goes and the disk has them."""
        store = stream.store
        last = min(first + count - 1, store.durable_seq)
        rows = store.rows(first, None, count, RUN_BYTES, last)
        bodies: list[bytes] = []
        expected = first
        for row in rows:
            sequence = row[0]
            if sequence != expected:
                bodies += [_MISSING] * (sequence - expected)
            bodies.append(self._body(row))
            expected = sequence + 1
        # A read ends early when it has read enough. What is missing behind its end nobody has looked for.
        for sequence in range(expected, last + 1):
            if store.holds(sequence):
                break
            bodies.append(_MISSING)
        return bodies

    def _body(self, row: StoredRow) -> bytes:
        sequence, subject, headers, payload, timestamp_ns = row
        shown = _Shown(
            subject=subject.decode(errors="replace"),
            seq=sequence,
            hdrs=headers,
            data=payload,
            time=format_time(timestamp_ns),
        )
        return _BEGIN + self._encode(shown) + b"}"


def _run(publishes: Sequence[Frame]) -> tuple[int, int]:
    """The first sequence and the length of the run of plain requests at the front."""
    subject = publishes[0][1]
    first = count = 0
    for _op, to, reply, headers, payload in publishes:
        asked = _ASKED.fullmatch(payload)
        if asked is None or headers or not reply or to != subject:
            break
        sequence = int(asked[1])
        if not count:
            first = sequence
        elif sequence != first + count:
            break
        count += 1
    return first, count
