"""Many stored messages at once, straight from a stream: no consumer is made, nothing is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ...api import names
from ...api.base import encode
from ...api.errors import Errors
from ...api.messages import DirectGetRequest
from ...api.streams import StreamInfo
from ...errors import (
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.headers import Headers, parse_headers, status_of
from ..net.leaders import is_unanswered, patiently
from .stored_message import StreamMessage, from_direct

if TYPE_CHECKING:
    from .calls import Api


BATCH_BYTES: Final = 8 * 1024 * 1024
"""They come without flow control, so no more than this (and one message) is asked for at a time."""

SCAN_MESSAGES: Final = 10_000
LAST_MESSAGES: Final = 1000
_NO_MESSAGE: Final = 404
_END: Final = 204


@dataclass(frozen=True, slots=True)
class DirectBatch:
    """Stored messages read at once.

    Attributes:
        messages: in the order of the stream; possibly none.
        pending: how many more matched and were not sent.
        last_sequence: of the last message, or 0; the next batch begins after it.
        up_to_sequence: of ``get_last_messages``: where its snapshot ends.
    """

    messages: list[StreamMessage]
    pending: int = 0
    last_sequence: int = 0
    up_to_sequence: int = 0


async def get_batch(api: Api, stream: str, request: DirectGetRequest) -> DirectBatch:
    """One request and all its answers. Raises as ``Stream.get_batch``."""

    async def attempt() -> DirectBatch:
        return await _DirectRead(api, stream, request).collect()

    async def awaited(error: HeadraceError) -> str:
        lost = is_unanswered(api.session, error)
        if not lost and api.session.info.cluster and isinstance(error, NoRespondersError):
            lost = await _answers_directly(api, stream)
        return f"stream {stream!r}" if lost else ""

    return await patiently(api.session, api.delivery_timeout, attempt, awaited)


async def _answers_directly(api: Api, stream: str) -> bool:
    """Whether a stream would answer, if one of its servers were there."""
    try:
        info = await api.call(StreamInfo, ("STREAM", "INFO", stream), repeatable=True)
    except JetStreamApiError:
        return False
    return info.config.allow_direct


async def scan(
    api: Api, stream: str, subject: str, first: int, last: int
) -> AsyncIterator[list[StreamMessage]]:
    """The messages of a stream from ``first`` to ``last``, as ``Stream.scan``, in lists."""
    while not last or first <= last:
        count = min(SCAN_MESSAGES, last - first + 1) if last else SCAN_MESSAGES
        request = DirectGetRequest(
            seq=first, next_by_subj=subject, batch=count, max_bytes=BATCH_BYTES
        )
        batch = await get_batch(api, stream, request)
        if not batch.messages:
            return
        if last and batch.last_sequence > last:
            yield [message for message in batch.messages if message.sequence <= last]
            return
        yield batch.messages
        if not batch.pending:
            return
        first = batch.last_sequence + 1


async def get_last(
    api: Api, stream: str, subjects: Sequence[str], up_to_sequence: int, up_to_time: str | None
) -> list[StreamMessage]:
    """The newest message of each subject, as ``Stream.get_last_messages``; in pieces of one snapshot."""
    request = DirectGetRequest(
        multi_last=tuple(subjects),
        batch=LAST_MESSAGES,
        max_bytes=BATCH_BYTES,
        up_to_seq=up_to_sequence,
        up_to_time=up_to_time,
    )
    messages: list[StreamMessage] = []
    while True:
        batch = await get_batch(api, stream, request)
        messages += batch.messages
        if not batch.pending or not batch.messages:
            return messages
        request = msgspec.structs.replace(
            request, seq=batch.last_sequence + 1, up_to_seq=batch.up_to_sequence, up_to_time=None
        )


class _DirectRead:
    """One request whose answers come one after the other, to an inbox of its own."""

    def __init__(self, api: Api, stream: str, request: DirectGetRequest) -> None:
        self._api = api
        self._session = api.session
        self._stream = stream
        self._request = request
        self._frames: list[Frame] = []
        self._end: asyncio.Future[Frame] = self._session.loop.create_future()
        self._heard = self._session.loop.time()

    async def collect(self) -> DirectBatch:
        session = self._session
        session.raise_if_unusable()
        inbox = session.new_inbox().encode()
        route = session.open_route(inbox, self._receive)
        session.observers[self] = None
        self._monitor = session.loop.call_later(self._api.timeout, self._check)
        try:
            subject = self._api.subject("DIRECT", "GET", self._stream).encode()
            slip = session.send_once(pub(subject, inbox, b"", encode(self._request)))
            try:
                end = await self._end
            finally:
                session.outbox.withdraw(slip)
        finally:
            self._monitor.cancel()
            session.observers.pop(self, None)
            session.close_route(route)
        return self._batch(parse_headers(end[4]))

    def _batch(self, end: Headers) -> DirectBatch:
        if end.status == 503:
            raise NoRespondersError(
                f"no direct answers from stream {self._stream!r}: it does not exist, or has not "
                "allow_direct"
            )
        if end.status == _NO_MESSAGE:
            return DirectBatch([])
        if end.status != _END:
            raise JetStreamApiError(end.status or 500, Errors.BAD_REQUEST.err_code, end.description)
        messages = [from_direct(frame[4], frame[5]) for frame in self._frames]
        return DirectBatch(
            messages,
            int(end.get(names.NUM_PENDING) or 0),
            messages[-1].sequence if messages else 0,
            int(end.get(names.UP_TO_SEQUENCE) or 0),
        )

    def _receive(self, frames: list[Frame]) -> None:
        self._heard = self._session.loop.time()
        for frame in frames:
            if frame[4] and status_of(frame[4]) is not None:
                if not self._end.done():
                    self._end.set_result(frame)
                return
            self._frames.append(frame)

    def _check(self) -> None:
        """The time allowed begins anew with each message."""
        left = self._heard + self._api.timeout - self._session.loop.time()
        if left > 0:
            self._monitor = self._session.loop.call_later(left, self._check)
        else:
            self._session.doubt.begin()
            self._fail(
                RequestTimeoutError(
                    f"stream {self._stream!r} was silent for {self._api.timeout} s, "
                    f"after {len(self._frames)} messages"
                )
            )

    def connection_lost(self) -> None:
        """The rest of the answers is lost."""
        self._fail(DisconnectedError("the connection was lost before all messages had come"))

    def connection_restored(self) -> None:
        """Do nothing: the waiting read has failed already."""

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good: who waits for messages is told."""
        self._fail(ConnectionClosedError(str(reason)))

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)
