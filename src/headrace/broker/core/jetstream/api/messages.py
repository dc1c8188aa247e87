"""The STREAM.MSG endpoints: reading and deleting one stored message.

Requests for neighbouring messages that came in one chunk are answered together (``MessageRuns``). Who
reads a range of a stream that allows neither consumers nor direct gets asks for every message by its
sequence, hundreds at a time: one read of the store answers all of them. Each answer is, byte for byte, the
one ``MessagesApi`` would give; what is out of the ordinary is left to that.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from .....api.base import Document
from .....api.envelope import encode_error
from .....api.errors import Errors
from .....api.messages import (
    GetMessageRequest,
    GetMessageResponse,
    MessageDeleteRequest,
    StoredMessageDocument,
    SuccessResponse,
)
from .....api.names import RESPONSE_TYPE_PREFIX
from .....api.times import format_time, parse_time
from .....errors import StoreError
from .....message import StoredMessage, StoredRow
from .....subjects import SubjectFilter, is_valid_pattern, is_valid_subject
from .....wire.frames import Frame
from ...ports import Origin
from ..config.options import Refused
from ..context import Context
from ..stream.stream import Stream, StreamMarks
from .dispatcher import ApiDispatcher, Assets, Call, stream_of

_ANY_BYTES = 1 << 40
_EXPIRED_MAX = 512  # so many that have expired are removed to get at one that has not
RUN_MIN: Final = 8  # fewer are not worth it
RUN_BYTES: Final = 1024 * 1024  # of one run; what is beyond is answered one by one, in turns
_SUBJECT: Final = b"$JS.API.STREAM.MSG.GET."
_KIND: Final = "stream_msg_get_response"
_ASKED: Final = re.compile(rb'\{"seq": ?([1-9]\d{0,17})\}')
_BEGIN: Final = f'{{"type":"{RESPONSE_TYPE_PREFIX}{_KIND}","message":'.encode()
_MISSING: Final = encode_error(_KIND, Errors.NO_MESSAGE_FOUND)


def find_message(stream: Stream, request: GetMessageRequest) -> StoredMessage | None:
    """The one message a request without ``batch`` asks for.

    Raises DocumentError for a malformed time; a malformed subject matches nothing.
    """
    stream.expire()
    return find_unexpired(stream, request)


def find_unexpired(stream: Stream, request: GetMessageRequest) -> StoredMessage | None:
    """Find the message; call it after ``expire``."""
    message = _look_up(stream, request)
    for _ in range(_EXPIRED_MAX):
        if message is None or not stream.take_out_expired([message]):
            return message
        message = _look_up(stream, request)
    return None


def _look_up(stream: Stream, request: GetMessageRequest) -> StoredMessage | None:
    store = stream.store
    if request.last_by_subj:
        raw = request.last_by_subj.encode()
        if is_valid_subject(raw):
            state = store.subject(raw)
            return None if state is None else store.get(state.last_seq)
        scope = _scope(request.last_by_subj)
        return store.get(store.last_matching(scope)) if scope is not None else None
    start = request.seq
    if request.start_time is not None:
        start = store.sequence_at(parse_time(request.start_time))
    if request.next_by_subj:
        scope = _scope(request.next_by_subj)
        if scope is None:
            return None
        found = store.read(max(start, 1), scope, 1, _ANY_BYTES, store.last_seq)
    elif request.start_time is not None:
        found = store.read(start, None, 1, _ANY_BYTES, store.last_seq)
    else:
        return store.get(start)
    return found[0] if found else None


def _scope(pattern: str) -> SubjectFilter | None:
    raw = pattern.encode()
    return SubjectFilter([raw]) if is_valid_pattern(raw) else None


class MessagesApi:
    """Endpoints over an account's streams."""

    def __init__(self, assets: Assets, api: ApiDispatcher) -> None:
        self._assets = assets
        api.add("STREAM.MSG.GET", "stream_msg_get_response", self.get)
        api.add("STREAM.MSG.DELETE", "stream_msg_delete_response", self.delete, changes=True)

    def get(self, call: Call) -> Document:
        if not call.payload.strip():
            raise Refused(Errors.BAD_REQUEST)
        request = call.read(GetMessageRequest)
        stream = stream_of(self._assets, call.names[0])
        chosen = bool(request.seq or request.last_by_subj or request.next_by_subj)
        conflicting = (
            (request.last_by_subj and (request.seq or request.next_by_subj or request.start_time))
            or (request.start_time and request.seq)
            or request.batch
            or request.max_bytes
            or request.multi_last
        )
        if conflicting or not (chosen or request.start_time):
            raise Refused(Errors.BAD_REQUEST)
        message = find_message(stream, request)
        if message is None:
            raise Refused(Errors.NO_MESSAGE_FOUND)
        call.wait = message.sequence > stream.store.durable_seq
        return GetMessageResponse(
            message=StoredMessageDocument(
                subject=message.subject.decode(errors="replace"),
                seq=message.sequence,
                hdrs="" if request.no_hdr else b64encode(message.headers).decode(),
                data=b64encode(message.payload).decode(),
                time=format_time(message.timestamp_ns),
            )
        )

    def delete(self, call: Call) -> Document:
        if not call.payload.strip():
            raise Refused(Errors.BAD_REQUEST)
        request = call.read(MessageDeleteRequest)
        stream = stream_of(self._assets, call.names[0])
        stream.check_not_sealed()
        if stream.config.deny_delete:
            raise Refused(Errors.STREAM_MSG_DELETE_FAILED, err="message delete not permitted")
        if stream.config.storage == "file":  # nats-server's file store has words of its own
            if request.seq > stream.store.last_seq:
                raise Refused(Errors.STREAM_MSG_DELETE_FAILED, err="stream store EOF")
            if request.seq < stream.store.first_seq:
                raise Refused(Errors.STREAM_MSG_DELETE_FAILED, err="no message found")
        if not stream.remove([request.seq]):
            raise Refused(Errors.SEQUENCE_NOT_FOUND, seq=request.seq)
        return SuccessResponse()


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
