"""The STREAM.MSG endpoints: reading and deleting one stored message."""

from __future__ import annotations

from base64 import b64encode

from .....api.base import Document
from .....api.errors import Errors
from .....api.messages import (
    GetMessageRequest,
    GetMessageResponse,
    MessageDeleteRequest,
    StoredMessageDocument,
    SuccessResponse,
)
from .....api.times import format_time, parse_time
from .....message import StoredMessage
from .....subjects import SubjectFilter, is_valid_pattern, is_valid_subject
from ..config.refused import Refused
from ..stream.stream import Stream
from .dispatcher import ApiDispatcher, Call
from .ports import Assets, stream_of

_ANY_BYTES = 1 << 40
_EXPIRED_MAX = 512  # so many that have expired are removed to get at one that has not


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
