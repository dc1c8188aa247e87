"""Direct get: stored messages as raw messages, one or a batch, without JSON around them.

Statuses and headers are those of the public server; a stream without ``allow_direct`` looks as if nobody
were there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....api import names
from ....api.base import DocumentError, decode
from ....api.messages import DirectGetRequest
from ....api.times import format_time, parse_time
from ....message import StoredMessage
from ....subjects import SubjectFilter, is_valid_pattern
from ..ports import Origin
from .api import ApiDispatcher, required_level_too_high
from .context import Context
from .messages_api import find_message
from .ranges import check_ranges
from .statuses import status, with_headers

if TYPE_CHECKING:
    from .registry import Registry
    from .stream import Stream

__all__ = ["DirectGet"]

_BATCH_BYTES: Final = (
    64 * 1024 * 1024
)  # what one batch may bring when the request sets no max_bytes
_READ: Final = 256
_NOT_FOUND: Final = status(names.MESSAGE_NOT_FOUND)
_BAD: Final = status(names.BAD_DIRECT_REQUEST)
_EOB: Final = status(names.EOB)


class DirectGet:
    """Serves ``$JS.API.DIRECT.GET.<stream>[.<subject>]``."""

    def __init__(self, context: Context, registry: Registry, api: ApiDispatcher) -> None:
        self._context = context
        self._registry = registry
        api.add_raw("DIRECT.GET", self.sink)

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Answer one request; False when there is no such stream to ask directly."""
        tokens = subject.decode(errors="replace").split(".", 5)[4:]
        stream = self._registry.streams.get(tokens[0]) if tokens else None
        if stream is None or not stream.config.allow_direct:
            return False
        if reply:
            if required_level_too_high(headers, self._context.options.api_level):
                self._status(reply, status(names.REQUIRED_LEVEL))
            else:
                self._answer(stream, tokens[1] if len(tokens) > 1 else "", reply, payload)
        return True

    def _answer(self, stream: Stream, subject: str, reply: bytes, payload: bytes) -> None:
        if not payload.strip() and not subject:
            self._status(reply, status(names.EMPTY_REQUEST))
            return
        try:
            request = (
                check_ranges(decode(payload, DirectGetRequest))
                if payload.strip()
                else DirectGetRequest()
            )
            if subject:
                if request != DirectGetRequest(no_hdr=request.no_hdr):
                    self._status(reply, _BAD)
                    return
                request = DirectGetRequest(last_by_subj=subject, no_hdr=request.no_hdr)
            refusal = _check(request)
            if refusal is not None:
                self._status(reply, refusal)
            elif request.batch > 0:
                self._send_batch(stream, request, reply)
            else:
                self._send_one(stream, request, reply)
        except DocumentError:
            self._status(reply, status(names.MALFORMED_REQUEST))

    def _send_one(self, stream: Stream, request: DirectGetRequest, reply: bytes) -> None:
        message = find_message(stream, request)
        if message is None:
            self._status(reply, _NOT_FOUND)
            return
        headers = b"" if request.no_hdr else _headers(stream, message)
        if message.sequence > stream.store.durable_seq:
            self._context.gate.reply(reply, message.payload, headers=headers)
        else:
            self._context.bus.publish(reply, b"", headers, message.payload)

    def _send_batch(self, stream: Stream, request: DirectGetRequest, reply: bytes) -> None:
        target = self._context.bus.resolve(reply)
        if target is None:
            return
        store = stream.store
        stream.expire()
        position = max(request.seq, 1)
        if request.start_time is not None:
            position = store.sequence_at(parse_time(request.start_time))
        scope = None
        if request.next_by_subj not in ("", ">"):
            raw = request.next_by_subj.encode()
            if not is_valid_pattern(raw):
                self._status(reply, _BAD)
                return
            scope = SubjectFilter([raw])
        pending = store.count(scope, position)
        left, left_bytes, last_sent = request.batch, request.max_bytes or _BATCH_BYTES, 0
        while left > 0 and left_bytes > 0:
            messages = store.read(position, scope, min(left, _READ), left_bytes, store.durable_seq)
            if not messages:
                break
            for message in messages:
                pending -= 1
                headers = b"" if request.no_hdr else _headers(stream, message, pending, last_sent)
                target.send(reply, b"", headers, message.payload)
                last_sent = message.sequence
                left -= 1
                left_bytes -= len(message.subject) + len(message.headers) + len(message.payload)
                if left_bytes <= 0:
                    break
            position = last_sent + 1
        if not last_sent:
            target.send(reply, b"", _NOT_FOUND, b"")
            return
        end = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_sent)
        target.send(reply, b"", with_headers(_EOB, end), b"")

    def _status(self, reply: bytes, block: bytes) -> None:
        self._context.bus.publish(reply, b"", block, b"")


def _check(request: DirectGetRequest) -> bytes | None:
    """The status that refuses a request, or None when it can be answered."""
    conflicting = (
        (request.last_by_subj and (request.seq or request.next_by_subj or request.batch))
        or (request.start_time and (request.seq or request.last_by_subj))
        or (request.multi_last and (request.last_by_subj or request.next_by_subj))
        or (request.up_to_seq and request.up_to_time)
        or request.batch < 0
        # Several subjects in one request are not served yet; the client is told at once.
        or request.multi_last
    )
    if conflicting:
        return _BAD
    if not (request.seq or request.last_by_subj or request.next_by_subj or request.start_time):
        return status(names.EMPTY_REQUEST)
    return None


def _headers(
    stream: Stream, message: StoredMessage, pending: int | None = None, last_sent: int = 0
) -> bytes:
    added = (
        b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n"
        % (
            stream.name.encode(),
            message.subject,
            message.sequence,
            format_time(message.timestamp_ns).encode(),
        )
    )
    if pending is not None:
        added += b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_sent)
    return with_headers(message.headers, added)
