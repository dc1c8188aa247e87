"""A stream: its state, its messages, its consumers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..api import names
from ..api.base import encode
from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.errors import Errors
from ..api.messages import (
    DirectGetRequest,
    GetMessageRequest,
    GetMessageResponse,
    MessageDeleteRequest,
    StoredMessageDocument,
    SuccessResponse,
)
from ..api.streams import (
    PurgeRequest,
    PurgeResponse,
    StreamConfig,
    StreamInfo,
    StreamInfoRequest,
)
from ..api.times import parse_time
from ..errors import JetStreamApiError, NoRespondersError
from ..limits import SUBJECTS_PER_PAGE
from ..wire.headers import Headers, parse_headers
from .apicalls import Api, config_from
from .consumer import Consumer
from .consumers import Consumers
from .ordered import OrderedConsumer
from .publishing import counter_value

__all__ = ["Stream", "StreamMessage"]


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message read out of a stream by ``get_message`` and its like.

    ``timestamp_ns``: when it was stored, in nanoseconds since the Unix epoch.
    """

    subject: str
    sequence: int
    payload: bytes
    headers: Headers = field(default_factory=Headers)
    timestamp_ns: int = 0


class Stream:
    """One stream. Made by ``js.stream(name)`` and ``js.create_stream(…)``.

    Attributes:
        name: its name.
        cached_info: what the server said last; None if it was never asked.
    """

    def __init__(self, api: Api, name: str, info: StreamInfo | None = None) -> None:
        self._api = api
        self.name = name
        self.cached_info = info
        self._consumers = Consumers(api, name)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    # The stream itself

    async def info(self, *, subjects: str = "", deleted: bool = False) -> StreamInfo:
        """Configuration and state. Raises JetStreamApiError (10059) if the stream is gone.

        Args:
            subjects: a pattern; the state then counts messages per matching subject.
            deleted: whether to list the sequences deleted between first and last.
        """
        tokens = ("STREAM", "INFO", self.name)
        if not subjects and not deleted:
            self.cached_info = await self._api.call(StreamInfo, tokens)
            return self.cached_info
        counts: dict[str, int] = {}
        while True:
            request = StreamInfoRequest(
                subjects_filter=subjects, deleted_details=deleted, offset=len(counts)
            )
            info = await self._api.call(StreamInfo, tokens, request)
            found = info.state.subjects
            counts.update(found)
            if len(found) < SUBJECTS_PER_PAGE:
                break
        state = msgspec.structs.replace(info.state, subjects=counts)
        return msgspec.structs.replace(info, state=state)

    async def update(self, config: StreamConfig | None = None, /, **values: Any) -> StreamInfo:
        """Change the configuration: a whole one, or single fields of the present one."""
        if config is None:
            config = (await self.info()).config
        config = config_from(StreamConfig, config, {**values, "name": self.name})
        tokens = ("STREAM", "UPDATE", self.name)
        self.cached_info = await self._api.call(StreamInfo, tokens, config)
        return self.cached_info

    async def delete(self) -> None:
        """Delete the stream with everything in it."""
        await self._api.call(SuccessResponse, ("STREAM", "DELETE", self.name))

    async def purge(self, *, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove messages, and return how many.

        Args:
            subject: only those whose subject matches; "" means all.
            below: only those with a sequence below this one; 0 means all.
            keep: leave so many of the newest; not together with ``below``.
        """
        request = PurgeRequest(filter=subject, seq=below, keep=keep)
        answer = await self._api.call(PurgeResponse, ("STREAM", "PURGE", self.name), request)
        return answer.purged

    # Messages

    async def get_message(self, sequence: int) -> StreamMessage:
        """The message with this sequence. Raises JetStreamApiError (10037) if there is none."""
        return await self._get(GetMessageRequest(seq=sequence))

    async def get_last_message(self, subject: str) -> StreamMessage:
        """The newest message of ``subject``, which may have wildcards. Raises as ``get_message``."""
        return await self._get(GetMessageRequest(last_by_subj=subject))

    async def get_next_message(self, subject: str, sequence: int = 1) -> StreamMessage:
        """The first message at or after ``sequence`` whose subject matches. Raises as ``get_message``."""
        return await self._get(GetMessageRequest(next_by_subj=subject, seq=sequence))

    async def counter(self, subject: str) -> int:
        """The value of a counter; 0 if nothing was ever added. See ``JetStream.increment``.

        Raises ConfigurationError: the newest message of ``subject`` is not a counter's.
        """
        try:
            message = await self.get_last_message(subject)
        except JetStreamApiError as error:
            if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
                raise
            return 0
        return counter_value(message.payload)

    async def delete_message(self, sequence: int, *, erase: bool = True) -> None:
        """Delete one message; with ``erase`` its bytes are overwritten too."""
        request = MessageDeleteRequest(seq=sequence, no_erase=not erase)
        await self._api.call(SuccessResponse, ("STREAM", "MSG", "DELETE", self.name), request)

    async def _get(self, request: GetMessageRequest) -> StreamMessage:
        """Directly where the stream allows it, else through the leader."""
        if self.cached_info is not None and self.cached_info.config.allow_direct:
            try:
                return await self._get_direct(request)
            except NoRespondersError:
                pass  # not any more: the configuration was changed
        answer = await self._api.call(
            GetMessageResponse, ("STREAM", "MSG", "GET", self.name), request
        )
        return from_document(answer.message)

    async def _get_direct(self, request: GetMessageRequest) -> StreamMessage:
        api = self._api
        direct = DirectGetRequest(
            seq=request.seq, last_by_subj=request.last_by_subj, next_by_subj=request.next_by_subj
        )
        subject = api.subject("DIRECT", "GET", self.name)
        answer = await api.session.requests.ask(subject, b"", encode(direct), api.timeout)
        return from_direct(answer.raw_headers, answer.payload)

    # Consumers

    async def create_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """Create a consumer: from a configuration, from its fields as keywords, or both.

        Without ``durable_name`` and ``name`` the server names it and removes it when it is not used.
        Raises JetStreamApiError (10148) if one exists with this name and another configuration.
        """
        return await self._consumers.create(config, values, "create")

    async def update_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """Change a consumer. Raises JetStreamApiError (10149) if it does not exist."""
        return await self._consumers.create(config, values, "update")

    async def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """Make sure that a consumer exists with this configuration."""
        return await self._consumers.create(config, values, "")

    async def consumer(self, name: str) -> Consumer:
        """An existing consumer. Raises JetStreamApiError (10014) if there is none of this name."""
        return await self._consumers.get(name)

    async def ordered_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> OrderedConsumer:
        """A consumer that reads in order, each message once, without acks; see ``OrderedConsumer``.

        Of the configuration the filters, where to start, ``headers_only``, ``replay_policy`` and
        ``inactive_threshold`` (default 300 s) count.
        """
        ordered = OrderedConsumer(self._api, self.name, config_from(ConsumerConfig, config, values))
        await ordered._current()
        return ordered

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer. Raises JetStreamApiError (10014) if there is none of this name."""
        await self._consumers.delete(name)

    def consumers(self) -> AsyncIterator[ConsumerInfo]:
        """What the server says of each consumer."""
        return self._consumers.infos()

    def consumer_names(self) -> AsyncIterator[str]:
        """The name of each consumer."""
        return self._consumers.names()


def from_document(document: StoredMessageDocument) -> StreamMessage:
    """A stored message out of the JSON answer of MSG.GET."""
    return StreamMessage(
        subject=document.subject,
        sequence=document.seq,
        payload=base64.b64decode(document.data),
        headers=parse_headers(base64.b64decode(document.hdrs)),
        timestamp_ns=parse_time(document.time),
    )


def from_direct(headers: bytes, payload: bytes) -> StreamMessage:
    """A stored message out of a direct answer, whose headers say what it is.

    Raises JetStreamApiError: the answer is a status, such as 404.
    """
    parsed = parse_headers(headers)
    if parsed.status == 404:
        raise Errors.NO_MESSAGE_FOUND.as_exception()
    if parsed.status is not None:
        raise JetStreamApiError(parsed.status, Errors.BAD_REQUEST.err_code, parsed.description)
    own = [(name, value) for name, value in parsed.items() if name not in _ADDED]
    return StreamMessage(
        subject=parsed[names.SUBJECT],
        sequence=int(parsed[names.SEQUENCE]),
        payload=payload,
        headers=Headers(own),
        timestamp_ns=parse_time(parsed[names.TIME_STAMP]),
    )


_ADDED = frozenset(
    {
        names.STREAM,
        names.SUBJECT,
        names.SEQUENCE,
        names.TIME_STAMP,
        names.NUM_PENDING,
        names.LAST_SEQUENCE,
    }
)
