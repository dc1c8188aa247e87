"""The JetStream context: streams, consumers, publishing, buckets."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from ..api import names
from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.messages import AccountInfo, PubAck
from ..api.names import API_PREFIX
from ..api.streams import StreamConfig, StreamInfo
from ..cron import PRESETS, with_seconds
from ..errors import ConfigurationError
from ..subjects import is_valid_subject
from .calling import TransferProgress
from .jetstream.backup import restore_stream
from .jetstream.calls import Api, check_name
from .jetstream.configuration import known_bucket, seconds, time_text
from .jetstream.consumer import Consumer, Consumers
from .jetstream.ordered import OrderedConsumer
from .jetstream.stream import Stream
from .jetstream.streams import Streams
from .kv import (
    KeyValue,
    KeyValueOptions,
    KeyValueStatus,
    create_bucket,
    create_or_update_bucket,
    stream_name_of,
    update_bucket,
)
from .message import HeadersLike, Payload
from .net.leaders import delivery_seconds
from .objects.info import (
    ObjectStoreOptions,
    ObjectStoreStatus,
    object_bucket_config,
    object_stream_name,
)
from .objects.store import ObjectStore, create_or_update_store, update_store
from .publish.atomic_batch import AtomicBatch
from .publish.awaited import publish_awaited
from .publish.headers import PublishOptions, duration_text, with_pairs
from .publish.publisher import Publisher, PublisherSettings, PublishFailure
from .publish.transports import make_publisher

if TYPE_CHECKING:
    from ..api.keywords import ConsumerFields, OrderedConsumerFields, StreamFields
    from .connection import Connection


class JetStream:
    """Streams and consumers over one connection. Made by ``connection.jetstream()``.

    Args:
        domain: the JetStream domain to speak to; "" is the server's own.
        prefix: where the API's subjects begin, when an account imports them elsewhere; not together
            with ``domain``.
        timeout: seconds to wait for an answer; None is the connection's ``request_timeout``.
        delivery_timeout: seconds in which what waits for a leader, in a cluster, is sent again before it
            fails; None is the connection's ``delivery_timeout``, two minutes.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str = "",
        prefix: str = "",
        timeout: float | None = None,
        delivery_timeout: float | None = None,
    ) -> None:
        if domain and prefix:
            raise ConfigurationError("give jetstream() a domain or a prefix, not both")
        if domain:
            prefix = f"$JS.{check_name('domain', domain)}.API"
        elif not prefix:
            prefix = API_PREFIX
        if not is_valid_subject(prefix.encode()):
            raise ConfigurationError(f"prefix {prefix!r} is not a subject without wildcards")
        self._connection = connection
        session = connection._session
        seconds = session.options.request_timeout if timeout is None else timeout
        self._api = Api(session, prefix, seconds, delivery_seconds(session, delivery_timeout))
        self._streams = Streams(self._api)

    def __repr__(self) -> str:
        return f"<JetStream over {self._connection!r}>"

    @property
    def connection(self) -> Connection:
        """The connection this context speaks over."""
        return self._connection

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return await self._api.call(AccountInfo, ("INFO",), repeatable=True)

    # Publishing

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike = None,
        msg_id: str = "",
        expected_stream: str = "",
        expected_last_sequence: int | None = None,
        expected_last_subject_sequence: int | None = None,
        expected_last_subject_sequence_subject: str = "",
        expected_last_msg_id: str = "",
        ttl: float | timedelta | str = 0,
        timeout: float | None = None,
        delivery_timeout: float | None = None,
        retries: int = 2,
    ) -> PubAck:
        """Publish, and return once the stream has the message.

        Args:
            msg_id: the stream drops another message with this id within its duplicate window.
            expected_stream, expected_last_…: the publish fails unless it finds the stream so; a
                sequence of 0 means "none yet".
            ttl: seconds after which the message is removed, or "never"; the stream must allow it.
            timeout: seconds to wait for each attempt; None is the context's.
            delivery_timeout: seconds in which it is sent again, in a cluster, while its stream has no
                leader; None is the context's. Without an answer it may be stored, so then it is sent
                again only with a ``msg_id``.
            retries: further attempts, when nobody listens and we cannot ask who has the subject; 0: no
                further attempts for any reason.

        Raises:
            JetStreamApiError: the stream refused.
            NoRespondersError: no stream has this subject, or its stream had no leader for all that time;
                it is not stored.
            OutcomeUnknownError: it was sent and no answer came, or two leaders refused an expected sequence
                that one of them may have stored; the message may be stored or not. It is a
                RequestTimeoutError or a DisconnectedError, too.
            RequestTimeoutError, DisconnectedError: it was not sent, and will not be.
            ProtocolError: somebody answered who is no stream; the message may be stored or not.
        """
        options: PublishOptions = {}
        if (
            msg_id
            or ttl
            or expected_stream
            or expected_last_sequence is not None
            or expected_last_subject_sequence is not None
            or expected_last_subject_sequence_subject
            or expected_last_msg_id
        ):
            options = {
                "msg_id": msg_id,
                "expected_stream": expected_stream,
                "expected_last_sequence": expected_last_sequence,
                "expected_last_subject_sequence": expected_last_subject_sequence,
                "expected_last_subject_sequence_subject": expected_last_subject_sequence_subject,
                "expected_last_msg_id": expected_last_msg_id,
                "ttl": ttl,
            }
        return await publish_awaited(
            self._api, subject, payload, headers, options, timeout, delivery_timeout, retries
        )

    def publisher(
        self,
        window: int = 16_000,
        *,
        window_bytes: int = 64 * 1024 * 1024,
        ack_timeout: float = 10.0,
        delivery_timeout: float | None = None,
        retries: int = 3,
        deduplicate: bool = False,
        fast: bool = False,
        on_failure: Callable[[PublishFailure], object] | None = None,
    ) -> Publisher:
        """A publisher that keeps many messages in flight: ``async with js.publisher() as publisher``.

        Args:
            window, window_bytes: how many unacknowledged messages, and bytes of them, there may be.
            ack_timeout: seconds after which a message without an answer is sent again.
            delivery_timeout: seconds in which a message is sent again before it is reported as failed,
                while its stream has no leader, and with ``deduplicate`` whenever it has no answer; None
                is the context's. The window stalls meanwhile.
            retries: without ``deduplicate``, how often a message that may be stored already is sent again,
                after a timeout or a lost connection, before it is reported as failed; 0: nothing is
                sent again for any reason.
            deduplicate: give each message an id, so that what is sent again is stored once.
            fast: send in fast batches, acknowledged hundreds at a time; all messages go to one stream,
                which must have ``allow_batched`` (nats-server 2.14). It sets how many are under way,
                up to ``window``. Without such a stream ``send`` and ``flush`` raise ConfigurationError.
            on_failure: called for each message that failed, on the connection's thread, which it must not
                block; without it ``flush`` raises PublishError.
        """
        api = self._api
        limit = delivery_seconds(api.session, delivery_timeout, api.delivery_timeout)
        settings = PublisherSettings(
            window=window,
            window_bytes=window_bytes,
            ack_timeout=ack_timeout,
            delivery_timeout=limit,
            retries=retries,
            deduplicate=deduplicate,
            on_failure=on_failure,
        )
        return make_publisher(api, settings, fast=fast)

    def batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Messages stored together or not at all: ``async with js.batch() as batch``.

        Args:
            timeout: seconds to wait for the answer to the whole batch; None is the context's.
        """
        return AtomicBatch(self._api, self._api.timeout if timeout is None else timeout)

    async def increment(self, subject: str, by: int = 1, *, headers: HeadersLike = None) -> int:
        """Add ``by``, which may be negative, to the counter ``subject``, and return its new value.

        The stream must have ``allow_msg_counter`` (nats-server 2.12). A lost answer is not repeated: after
        RequestTimeoutError or DisconnectedError the counter may have been changed or not. The value is read
        by ``stream.counter(subject)``. Raises as ``publish``.
        """
        given = with_pairs(headers, (names.INCREMENT, f"{by:+d}"))
        ack = await publish_awaited(self._api, subject, b"", given, {})
        if not ack.val:
            raise ConfigurationError(
                f"the stream {ack.stream!r} of {subject!r} has no counters: it stored an ordinary message"
            )
        return int(ack.val)

    async def schedule(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        target: str,
        at: datetime | None = None,
        every: timedelta | float = 0.0,
        cron: str = "",
        time_zone: str = "",
        source: str = "",
        ttl: float | str = 0,
        headers: HeadersLike = None,
    ) -> PubAck:
        """Have the stream publish ``payload`` on ``target``, later or again and again.

        The stream must have ``allow_msg_schedules`` (nats-server 2.12), and both subjects. ``subject`` is
        the schedule's own: another one there replaces it, and ``stream.purge(subject=…)`` ends it.

        Args:
            at: once, at this time; without a zone it is local time.
            every: again and again, in seconds or as a timedelta, at least 1 second.
            cron: again and again, by five fields (``0 6 * * mon-fri``), six (seconds first) or ``@hourly``,
                ``@daily`` and so on. Of these three exactly one must be given.
            time_zone: that ``cron`` means, as ``Europe/Berlin``; UTC without.
            source: a subject whose newest message is published instead of ``payload``.
            ttl: seconds after which each published message is removed, or "never".

        Raises as ``publish``.
        """
        period = seconds(every)
        if (at is not None) + bool(period) + bool(cron) != 1:
            raise ConfigurationError("a schedule needs one of at=…, every=… and cron=…")
        when = cron if cron in PRESETS else with_seconds(cron)  # NATS has seconds, too
        if at is not None:
            when = f"@at {time_text(at)}"
        elif period:
            when = f"@every {duration_text(period)}"
        given = with_pairs(
            headers,
            (names.SCHEDULE, when),
            (names.SCHEDULE_TARGET, target),
            (names.SCHEDULE_TIME_ZONE, time_zone),
            (names.SCHEDULE_SOURCE, source),
            (names.SCHEDULE_TTL, ttl if isinstance(ttl, str) else duration_text(ttl)),
        )
        return await publish_awaited(self._api, subject, payload, given, {})

    # Streams

    async def create_stream(
        self, config: StreamConfig | None = None, /, **values: Unpack[StreamFields]
    ) -> Stream:
        """Create a stream: from a configuration, from its fields as keywords, or both.

        An identical stream is simply returned. Raises StreamExistsError (10058) if one of this name has
        other settings, which it names. Messages that the server has left of a deleted one in it are an
        event, with a StreamLeftoversError.
        """
        return await self._streams.create(config, values)

    async def update_stream(
        self, config: StreamConfig | None = None, /, **values: Unpack[StreamFields]
    ) -> Stream:
        """Give a stream this whole configuration. (``stream.update`` changes single fields.)"""
        return await self._streams.put("UPDATE", config, values)

    async def create_or_update_stream(
        self, config: StreamConfig | None = None, /, **values: Unpack[StreamFields]
    ) -> Stream:
        """Make sure that a stream exists with these settings: what is named, and nothing else.

        Of one that is there the other settings stay as they are, so that a program may call this whenever it
        starts. Named is every keyword, and what ``config`` has other than the defaults. What that changes is
        in ``changes`` of the result, and an event ``SettingsChanged``; lower limits remove messages.
        """
        return await self._streams.put_either(config, values)

    async def stream(self, name: str) -> Stream:
        """An existing stream. Raises StreamNotFoundError if there is none of this name."""
        return await self._streams.get(name)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream. Raises StreamNotFoundError if there is none of this name.

        A lost answer is not repeated: the stream may have been made anew since. After RequestTimeoutError or
        DisconnectedError it may be gone or not.
        """
        await self._streams.delete(name)

    # Backups

    async def restore_stream(
        self,
        directory: str | os.PathLike[str],
        *,
        config: StreamConfig | None = None,
        timeout: float = 3600.0,
        progress: Callable[[TransferProgress], object] | None = None,
    ) -> Stream:
        """Make a stream of a backup in a directory, ours or one of the ``nats`` tool.

        All of it is restored, or nothing: messages with their sequences and times, and the consumers
        that are in it.

        Args:
            config: how the stream is to be configured, in place of what the backup says, as with other
                subjects or more replicas. Another name works if the backup is of nats-server 2.15 or ours.
            timeout: seconds the server may take after the last part was sent.
            progress: called now and then, on the connection's thread, which it must not block.

        Raises:
            ConfigurationError: there is no backup in the directory.
            JetStreamApiError: there is a stream of this name (10130), its subjects are another's
                (10065), or the backup is damaged (10062).
        """
        info = await restore_stream(self._api, directory, config, timeout, progress)
        self._streams.restored.add(info.config.name)
        return Stream(self._api, info.config.name, info)

    def streams(self, *, subject: str = "") -> AsyncIterator[StreamInfo]:
        """What the server says of each stream, or of those that have ``subject``."""
        return self._streams.infos(subject=subject)

    def stream_names(self, *, subject: str = "") -> AsyncIterator[str]:
        """The name of each stream, or of those that have ``subject``."""
        return self._streams.names(subject=subject)

    # Consumers, without asking for the stream first

    async def consumer(self, stream: str, name: str) -> Consumer:
        """An existing consumer. Raises ConsumerNotFoundError, or StreamNotFoundError."""
        return await Consumers(self._api, stream).get(name)

    async def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """As ``Stream.create_consumer``."""
        return await Consumers(self._api, stream).create(config, values, "create")

    async def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """As ``Stream.update_consumer``."""
        return await Consumers(self._api, stream).create(config, values, "update")

    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> Consumer:
        """As ``Stream.create_or_update_consumer``."""
        return await Consumers(self._api, stream).create_or_update(config, values)

    async def ordered_consumer(
        self,
        stream: str,
        config: ConsumerConfig | None = None,
        /,
        **values: Unpack[OrderedConsumerFields],
    ) -> OrderedConsumer:
        """As ``Stream.ordered_consumer``."""
        return await Stream(self._api, stream).ordered_consumer(config, **values)

    def consumers(self, stream: str) -> AsyncIterator[ConsumerInfo]:
        """As ``Stream.consumers``."""
        return Consumers(self._api, stream).infos()

    def consumer_names(self, stream: str) -> AsyncIterator[str]:
        """As ``Stream.consumer_names``."""
        return Consumers(self._api, stream).names()

    async def delete_consumer(self, stream: str, name: str) -> None:
        """As ``Stream.delete_consumer``."""
        await Consumers(self._api, stream).delete(name)

    # Key-values

    async def key_value(self, bucket: str) -> KeyValue:
        """An existing bucket. Raises BucketNotFoundError if there is none of this name."""
        with known_bucket(bucket):
            stream = await self._streams.get(stream_name_of(bucket))
        return KeyValue(self._api, stream, bucket)

    async def create_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Create a bucket, or return the one there is if it is the same.

        What ``options`` are there is said in ``KeyValueOptions``: ``history``, ``ttl``, ``marker_ttl``, …
        ``direct`` and ``message_ttl``, in which clients differ, may be other in the one there is where
        they are not named. Raises JetStreamApiError (10058) if it has other settings.
        """
        return KeyValue(self._api, await create_bucket(self._streams, bucket, options), bucket)

    async def update_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Change these settings of a bucket; what is not named stays as it is.

        Values that a smaller ``history`` or a shorter ``ttl`` leaves no room for are removed at once; a
        smaller ``max_bytes`` removes nothing, and refuses new values until there is room. Raises
        BucketNotFoundError; JetStreamApiError if it cannot be changed so.
        """
        return KeyValue(self._api, await update_bucket(self._streams, bucket, options), bucket)

    async def create_or_update_key_value(
        self, bucket: str, **options: Unpack[KeyValueOptions]
    ) -> KeyValue:
        """Make sure that a bucket exists with these settings, whichever client made it; as
        ``create_key_value`` and ``update_key_value``: one that exists keeps what is not named."""
        stream = await create_or_update_bucket(self._streams, bucket, options)
        return KeyValue(self._api, stream, bucket)

    async def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with everything in it. Raises BucketNotFoundError."""
        with known_bucket(bucket):
            await self._streams.delete(stream_name_of(bucket))

    async def key_values(self) -> AsyncIterator[str]:
        """The name of each bucket."""
        async for name in self._streams.names(subject="$KV.*.>"):
            if name.startswith("KV_"):
                yield name.removeprefix("KV_")

    async def key_value_statuses(self) -> AsyncIterator[KeyValueStatus]:
        """The settings and the extent of each bucket."""
        async for info in self._streams.infos(subject="$KV.*.>"):
            if info.config.name.startswith("KV_"):
                yield KeyValueStatus.of(info)

    # Objects

    async def object_store(self, bucket: str) -> ObjectStore:
        """An existing bucket of objects. Raises BucketNotFoundError if there is none."""
        with known_bucket(bucket):
            stream = await self._streams.get(object_stream_name(bucket))
        return ObjectStore(self._api, stream, bucket)

    async def create_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Create a bucket of objects, or return the one there is if it is the same.

        What ``options`` are there is said in ``ObjectStoreOptions``: ``ttl``, ``max_bytes``, …
        Raises JetStreamApiError (10058) if there is one with other settings.
        """
        config = object_bucket_config(bucket, options)
        return ObjectStore(self._api, await self._streams.put("CREATE", config), bucket)

    async def update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Change these settings of a bucket of objects; what is not named stays as it is.

        A smaller ``max_bytes`` removes nothing, and refuses new objects until there is room. Raises
        BucketNotFoundError; JetStreamApiError if it cannot be changed so.
        """
        return ObjectStore(self._api, await update_store(self._streams, bucket, options), bucket)

    async def create_or_update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Make sure that a bucket of objects exists with these settings; one that exists keeps what is
        not named."""
        stream = await create_or_update_store(self._streams, bucket, options)
        return ObjectStore(self._api, stream, bucket)

    async def delete_object_store(self, bucket: str) -> None:
        """Delete a bucket with every object in it. Raises BucketNotFoundError."""
        with known_bucket(bucket):
            await self._streams.delete(object_stream_name(bucket))

    async def object_stores(self) -> AsyncIterator[str]:
        """The name of each bucket of objects."""
        async for name in self._streams.names(subject="$O.*.M.>"):
            if name.startswith("OBJ_"):
                yield name.removeprefix("OBJ_")

    async def object_store_statuses(self) -> AsyncIterator[ObjectStoreStatus]:
        """The settings and the extent of each bucket of objects."""
        async for info in self._streams.infos(subject="$O.*.M.>"):
            if info.config.name.startswith("OBJ_"):
                yield ObjectStoreStatus.of(info.config.name.removeprefix("OBJ_"), info)
