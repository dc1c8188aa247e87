"""The JetStream context: streams, consumers, publishing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.messages import AccountInfo, PubAck
from ..api.names import API_PREFIX
from ..api.streams import StreamConfig, StreamInfo
from ..errors import ConfigurationError
from ..subjects import is_valid_subject
from .buckets import Buckets
from .jetstream.calls import Api, check_name
from .jetstream.consumer import Consumer
from .jetstream.consumers import Consumers
from .jetstream.ordered import OrderedConsumer
from .jetstream.stream import Stream
from .jetstream.streams import Streams
from .message import HeadersLike
from .net.leaders import delivery_seconds
from .publish.awaited import publish_awaited
from .publish.headers import PublishOptions
from .publish.make import make_publisher
from .publish.publisher import Publisher, PublisherSettings, PublishFailure
from .publishing import Publishing

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["JetStream"]


class JetStream(Buckets, Publishing):
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
        payload: bytes = b"",
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
            TimeoutError, DisconnectedError: no answer came; the message may be stored or not.
            ProtocolError: somebody answered who is no stream; the message may be stored or not.
        """
        options: PublishOptions = {
            "msg_id": msg_id,
            "expected_stream": expected_stream,
            "expected_last_sequence": expected_last_sequence,
            "expected_last_subject_sequence": expected_last_subject_sequence,
            "expected_last_subject_sequence_subject": expected_last_subject_sequence_subject,
            "expected_last_msg_id": expected_last_msg_id,
            "ttl": ttl,
        }
        return await publish_awaited(
            self._api,
            subject,
            payload,
            headers,
            options,
            timeout=timeout,
            delivery_timeout=delivery_timeout,
            retries=retries,
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
        """A publisher that keeps many messages in flight; a context manager, which flushes at its end.

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
            on_failure: called for each message that failed, on the event loop's thread, which it must not
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

    # Streams

    async def create_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """Create a stream: from a configuration, from its fields as keywords, or both.

        An identical stream is simply returned. Raises JetStreamApiError (10058) if one of this name has
        another configuration.
        """
        return await self._streams.put("CREATE", config, values)

    async def update_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """Give a stream this whole configuration. (``stream.update`` changes single fields.)"""
        return await self._streams.put("UPDATE", config, values)

    async def create_or_update_stream(
        self, config: StreamConfig | None = None, /, **values: Any
    ) -> Stream:
        """Make sure that a stream exists with this configuration."""
        return await self._streams.put_either(config, values)

    async def stream(self, name: str) -> Stream:
        """An existing stream. Raises JetStreamApiError (10059) if there is none of this name."""
        return await self._streams.get(name)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream. Raises JetStreamApiError (10059) if there is none of this name.

        A lost answer is not repeated: the stream may have been made anew since. After TimeoutError or
        DisconnectedError it may be gone or not.
        """
        await self._streams.delete(name)

    def streams(self, *, subject: str = "") -> AsyncIterator[StreamInfo]:
        """What the server says of each stream, or of those that have ``subject``."""
        return self._streams.infos(subject=subject)

    def stream_names(self, *, subject: str = "") -> AsyncIterator[str]:
        """The name of each stream, or of those that have ``subject``."""
        return self._streams.names(subject=subject)

    # Consumers, without asking for the stream first

    async def consumer(self, stream: str, name: str) -> Consumer:
        """An existing consumer. Raises JetStreamApiError (10014, 10059) if there is none."""
        return await Consumers(self._api, stream).get(name)

    async def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.create_consumer``."""
        return await Consumers(self._api, stream).create(config, values, "create")

    async def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.update_consumer``."""
        return await Consumers(self._api, stream).create(config, values, "update")

    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.create_or_update_consumer``."""
        return await Consumers(self._api, stream).create(config, values, "")

    async def ordered_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
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
