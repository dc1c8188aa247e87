"""A stream: its state, its messages, its consumers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

import msgspec

from ...api.base import encode
from ...api.consumers import ConsumerConfig, ConsumerInfo
from ...api.messages import (
    DirectGetRequest,
    GetMessageRequest,
    GetMessageResponse,
    MessageDeleteRequest,
    SuccessResponse,
)
from ...api.snapshots import CHUNK_BYTES_DEFAULT
from ...api.streams import PurgeRequest, PurgeResponse, StreamConfig, StreamInfo, StreamInfoRequest
from ...errors import ConfigurationError, NoRespondersError
from ...limits import SUBJECTS_PER_PAGE
from ..calling import TransferProgress
from .backup import Backup, backup_stream
from .calls import Api
from .configuration import config_from, merged, moment, with_external_domains
from .consumer import Consumer, Consumers
from .direct_get import BATCH_BYTES, DirectBatch, get_batch, get_last, scan
from .ordered import OrderedConsumer
from .stored_message import StreamMessage, counter_value, from_direct, from_document, if_found

if TYPE_CHECKING:
    from ...api.keywords import ConsumerFields, OrderedConsumerFields, StreamFields


class Stream:
    """One stream. Made by ``js.stream(name)`` and ``js.create_stream(…)``.

    Attributes:
        name: its name.
        cached_info: what the server said last; None if it was never asked.
        changes: what ``create_or_update_stream`` has changed of the stream that was there: each setting, with
            its values before and after.
    """

    def __init__(self, api: Api, name: str, info: StreamInfo | None = None) -> None:
        self._api = api
        self.name = name
        self.cached_info = info
        self.changes: Mapping[str, tuple[object, object]] = {}
        self._consumers = Consumers(api, name)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    # The stream itself

    async def info(self, *, subjects: str = "", deleted: bool = False) -> StreamInfo:
        """Configuration and state. Raises StreamNotFoundError if the stream is gone.

        Args:
            subjects: a pattern; the state then counts messages per matching subject.
            deleted: whether to list the sequences deleted between first and last.
        """
        tokens = ("STREAM", "INFO", self.name)
        if not subjects and not deleted:
            self.cached_info = await self._api.call(StreamInfo, tokens, repeatable=True)
            return self.cached_info
        counts: dict[str, int] = {}
        while True:
            request = StreamInfoRequest(
                subjects_filter=subjects, deleted_details=deleted, offset=len(counts)
            )
            info = await self._api.call(StreamInfo, tokens, request, repeatable=True)
            found = info.state.subjects
            counts.update(found)
            if len(found) < SUBJECTS_PER_PAGE:
                break
        state = msgspec.structs.replace(info.state, subjects=counts)
        return msgspec.structs.replace(info, state=state)

    async def update(
        self, config: StreamConfig | None = None, /, **values: Unpack[StreamFields]
    ) -> StreamInfo:
        """Change the configuration: a whole one, or single fields of the present one."""
        if config is None:
            config = (await self.info()).config
            config = merged(config, None, values)
        else:
            config = config_from(StreamConfig, config, {**values, "name": self.name})
        config = with_external_domains(config)
        tokens = ("STREAM", "UPDATE", self.name)
        self.cached_info = await self._api.call(StreamInfo, tokens, config, repeatable=True)
        return self.cached_info

    async def delete(self) -> None:
        """Delete the stream with everything in it. A lost answer is not repeated, as what was made anew
        since would go as well."""
        await self._api.call(SuccessResponse, ("STREAM", "DELETE", self.name))

    async def backup(
        self,
        directory: str | os.PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        chunk_bytes: int = CHUNK_BYTES_DEFAULT,
        progress: Callable[[TransferProgress], object] | None = None,
    ) -> Backup:
        """Back it up into a directory: what it holds now, with sequences and times.

        The directory is one of the ``nats`` tool, which can restore it, as this can restore its own. A
        backup there before is replaced, once the new one is whole. Nothing is ever half written.

        Args:
            consumers: whether consumers go with it, and where they are.
            check: have the server check every message first; ours checks each as it is read.
            chunk_bytes: the size of the messages it comes in, 1 KiB to 1 MiB.
            progress: called now and then, on the connection's thread, which it must not block.

        Raises:
            JetStreamApiError: there is no such stream (10059), or the server can not do it (10064).
            BackupError: it was begun and did not come to its end.
            OSError: the directory cannot be written.
        """
        return await backup_stream(
            self._api,
            self.name,
            directory,
            consumers=consumers,
            check=check,
            chunk_bytes=chunk_bytes,
            progress=progress,
        )

    async def purge(self, *, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove messages, and return how many.

        Args:
            subject: only those whose subject matches; "" means all.
            below: only those with a sequence below this one; 0 means all.
            keep: leave this many of the newest; not together with ``below``.

        A lost answer is not repeated, as what came since would go as well, except with ``below``.
        """
        if below and keep:
            raise ConfigurationError("give purge either below or keep, not both")
        request = PurgeRequest(filter=subject, seq=below, keep=keep)
        tokens = ("STREAM", "PURGE", self.name)
        answer = await self._api.call(PurgeResponse, tokens, request, repeatable=bool(below))
        return answer.purged

    # Messages

    async def get_message(self, sequence: int) -> StreamMessage:
        """The message with this sequence. Raises JetStreamApiError (10037) if there is none."""
        if not isinstance(sequence, int) or sequence < 1:
            raise ConfigurationError(f"sequence is {sequence!r}; accepted: 1 or more")
        return await self._get(GetMessageRequest(seq=sequence))

    async def get_last_message(self, subject: str) -> StreamMessage:
        """The newest message of ``subject``, which may have wildcards. Raises as ``get_message``."""
        return await self._get(GetMessageRequest(last_by_subj=subject))

    async def get_next_message(
        self, subject: str, sequence: int = 1, *, start_time: datetime | None = None
    ) -> StreamMessage:
        """The first message at or after ``sequence``, or stored at or after ``start_time``, whose subject
        matches. Raises as ``get_message``."""
        return await self._get(
            GetMessageRequest(
                next_by_subj=subject,
                seq=0 if start_time is not None else sequence,
                start_time=moment(start_time),
            )
        )

    async def get_batch(
        self,
        max_messages: int = 100,
        *,
        subject: str = "",
        sequence: int = 1,
        start_time: datetime | None = None,
        max_bytes: int = BATCH_BYTES,
    ) -> DirectBatch:
        """Up to ``max_messages`` messages at once, without a consumer. The stream must have
        ``allow_direct``.

        Args:
            subject: only those whose subject matches; "" means all.
            sequence, start_time: begin there; the first message is at or after it.
            max_bytes: stop after this many bytes; at least one message comes.

        Raises:
            NoRespondersError: the stream is gone, or has not ``allow_direct``.
            JetStreamApiError: the request is not accepted.
            RequestTimeoutError, DisconnectedError: not all answers came.
        """
        if max_messages < 1 or max_bytes < 1:
            raise ConfigurationError(
                f"max_messages is {max_messages}, max_bytes {max_bytes}; accepted: 1 or more"
            )
        request = DirectGetRequest(
            seq=0 if start_time is not None else max(1, sequence),
            start_time=moment(start_time),
            next_by_subj=subject,
            batch=max_messages,
            max_bytes=max_bytes,
        )
        return await get_batch(self._api, self.name, request)

    async def scan(
        self, *, subject: str = "", first: int = 1, last: int = 0
    ) -> AsyncIterator[StreamMessage]:
        """Read the stream from sequence ``first`` to ``last``, or to its end, without a consumer.

        ``async for message in stream.scan(subject="orders.>")``; ``subject`` as for ``get_batch``, which
        see for the errors. Up to 10,000 messages or 8 MiB are asked for at a time.
        """
        async for messages in scan(self._api, self.name, subject, max(1, first), last):
            for message in messages:
                yield message

    async def get_last_messages(
        self, *subjects: str, up_to_sequence: int = 0, up_to_time: datetime | None = None
    ) -> list[StreamMessage]:
        """The newest message of every subject that matches one of ``subjects``, in stream order.

        All are of one moment: of now, or as it was at a sequence or at a time (give one). The stream must
        have ``allow_direct``. Raises JetStreamApiError (413) where more than 1024 subjects match, and as
        ``get_batch``.
        """
        if not subjects:
            raise ConfigurationError("get_last_messages needs a subject; '>' means all")
        return await get_last(self._api, self.name, subjects, up_to_sequence, moment(up_to_time))

    async def counter(self, subject: str) -> int:
        """The value of a counter; 0 if nothing was ever added. See ``JetStream.increment``.

        Raises ConfigurationError: the newest message of ``subject`` is not a counter's.
        """
        message = await if_found(self.get_last_message(subject))
        return counter_value(message.payload) if message is not None else 0

    async def delete_message(self, sequence: int, *, erase: bool = True) -> None:
        """Delete one message; with ``erase`` its bytes are overwritten too. A lost answer is not
        repeated: a second call would find nothing and say so."""
        request = MessageDeleteRequest(seq=sequence, no_erase=not erase)
        await self._api.call(SuccessResponse, ("STREAM", "MSG", "DELETE", self.name), request)

    async def _get(self, request: GetMessageRequest) -> StreamMessage:
        """Directly where the stream allows it, else through the leader."""
        if self.cached_info is not None and self.cached_info.config.allow_direct:
            try:
                return await self._api.read(
                    f"stream {self.name!r}", lambda: self._get_direct(request)
                )
            except NoRespondersError:
                pass  # not any more: the configuration was changed
        answer = await self._api.call(
            GetMessageResponse, ("STREAM", "MSG", "GET", self.name), request, repeatable=True
        )
        return from_document(answer.message)

    async def _get_direct(self, request: GetMessageRequest) -> StreamMessage:
        api = self._api
        direct = DirectGetRequest(
            seq=request.seq,
            last_by_subj=request.last_by_subj,
            next_by_subj=request.next_by_subj,
            start_time=request.start_time,
        )
        subject = api.subject("DIRECT", "GET", self.name)
        answer = await api.session.requests.ask(subject, b"", encode(direct), api.timeout)
        return from_direct(answer[4], answer[5])

    # Consumers

    async def create_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """Create a consumer: from a configuration, from its fields as keywords, or both.

        Without ``durable_name`` and ``name`` the server names it and removes it when it is not used.
        Raises JetStreamApiError (10148) if one exists with this name and another configuration.
        """
        return await self._consumers.create(config, values, "create")

    async def update_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """Give a consumer this whole configuration: what is not named gets its default. To change a field,
        begin with the ``config`` of its ``info``.

        Raises JetStreamApiError (10149) if it does not exist, (10012) if it cannot be changed so.
        """
        return await self._consumers.create(config, values, "update")

    async def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """Make sure that a consumer exists with these settings: what is named, and nothing else.

        Of one that is there the other settings stay as they are. Named is every keyword, and what ``config``
        has other than the defaults. What that changes is in ``changes`` of the result, and an event
        ``SettingsChanged``. Raises JetStreamApiError (10012) if it cannot be changed so.
        """
        return await self._consumers.create_or_update(config, values)

    async def consumer(self, name: str) -> Consumer:
        """An existing consumer. Raises ConsumerNotFoundError if there is none of this name."""
        return await self._consumers.get(name)

    async def ordered_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Unpack[OrderedConsumerFields]
    ) -> OrderedConsumer:
        """A consumer that reads in order, each message once, without acks; see ``OrderedConsumer``.

        Of the configuration the filters, where to start, ``headers_only``, ``replay_policy`` and
        ``inactive_threshold`` (default 300 s) count.
        """
        ordered = OrderedConsumer(self._api, self.name, config_from(ConsumerConfig, config, values))
        await ordered._current()
        return ordered

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError if there is none of this name."""
        await self._consumers.delete(name)

    def consumers(self) -> AsyncIterator[ConsumerInfo]:
        """What the server says of each consumer."""
        return self._consumers.infos()

    def consumer_names(self) -> AsyncIterator[str]:
        """The name of each consumer."""
        return self._consumers.names()
