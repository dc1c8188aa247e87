"""The JetStream context: streams, consumers, publishing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..api.base import DocumentError
from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.envelope import decode_pub_ack
from ..api.messages import AccountInfo, PubAck, SuccessResponse
from ..api.names import API_PREFIX
from ..api.streams import (
    StreamConfig,
    StreamInfo,
    StreamListResponse,
    StreamNamesRequest,
    StreamNamesResponse,
)
from ..errors import (
    ConfigurationError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    ProtocolError,
    TimeoutError_,
)
from ..subjects import is_valid_subject
from .buckets import Buckets
from .jetstream.calls import Api, check_name, config_from
from .jetstream.consumer import Consumer
from .jetstream.consumers import Consumers
from .jetstream.ordered import OrderedConsumer
from .jetstream.sources import with_external_domains
from .jetstream.stream import Stream
from .message import HeadersLike, payload_bytes
from .net.leaders import PublishAgain, delivery_seconds, patiently
from .publish.fast_publisher import FastPublisher
from .publish.headers import PublishOptions, with_options
from .publish.publisher import Publisher, PublishFailure
from .publishing import Publishing

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["JetStream"]

_STREAM_EXISTS: Final = 10058

_decode_ack = msgspec.json.Decoder(PubAck).decode


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
        self._batches_at = ""  # the server known to understand batches, whatever its API level
        session = connection._session
        seconds = session.options.request_timeout if timeout is None else timeout
        self._api = Api(session, prefix, seconds, delivery_seconds(session, delivery_timeout))

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
        options: PublishOptions = {}
        if msg_id:
            options["msg_id"] = msg_id
        if expected_stream:
            options["expected_stream"] = expected_stream
        if expected_last_sequence is not None:
            options["expected_last_sequence"] = expected_last_sequence
        if expected_last_subject_sequence is not None:
            options["expected_last_subject_sequence"] = expected_last_subject_sequence
        if expected_last_subject_sequence_subject:
            options["expected_last_subject_sequence_subject"] = (
                expected_last_subject_sequence_subject
            )
        if expected_last_msg_id:
            options["expected_last_msg_id"] = expected_last_msg_id
        if ttl:
            options["ttl"] = ttl
        connection = self._connection
        connection._check_subject(subject)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = with_options(headers, options)
        if (trace := connection._session.trace) is not None:
            block = trace(block)
        connection._check_size(len(block) + len(payload))
        seconds = self._api.timeout if timeout is None else timeout
        session = connection._session
        try:
            answer = await session.requests.ask(subject, block, payload, seconds)
            return _pub_ack(subject, answer.payload)
        except (NoRespondersError, JetStreamApiError, TimeoutError_, DisconnectedError) as error:
            failed: HeadraceError = error
        limit = delivery_seconds(session, delivery_timeout, self._api.delivery_timeout)
        expected = max(expected_last_sequence or 0, expected_last_subject_sequence or 0)
        again = PublishAgain(
            self._api, subject, retries, deduplicated=bool(msg_id), expected=expected
        )

        async def attempt() -> PubAck:
            answer = await session.requests.ask(subject, block, payload, seconds)
            return _pub_ack(subject, answer.payload)

        return await patiently(session, limit, attempt, again.awaited, failed)

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
            on_failure: called for each message that failed; without it ``flush`` raises PublishError.
        """
        kind = FastPublisher if fast else self._connection._session.publisher_type
        return kind(
            self._connection,
            self._api,
            delivery_timeout=delivery_seconds(
                self._connection._session, delivery_timeout, self._api.delivery_timeout
            ),
            window=window,
            window_bytes=window_bytes,
            ack_timeout=ack_timeout,
            retries=retries,
            deduplicate=deduplicate,
            on_failure=on_failure,
        )

    # Streams

    async def create_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """Create a stream: from a configuration, from its fields as keywords, or both.

        An identical stream is simply returned. Raises JetStreamApiError (10058) if one of this name has
        another configuration.
        """
        return await self._put_stream("CREATE", config_from(StreamConfig, config, values))

    async def update_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """Give a stream this whole configuration. (``stream.update`` changes single fields.)"""
        return await self._put_stream("UPDATE", config_from(StreamConfig, config, values))

    async def create_or_update_stream(
        self, config: StreamConfig | None = None, /, **values: Any
    ) -> Stream:
        """Make sure that a stream exists with this configuration."""
        complete = config_from(StreamConfig, config, values)
        try:
            return await self._put_stream("CREATE", complete)
        except JetStreamApiError as error:
            if error.err_code != _STREAM_EXISTS:
                raise
        return await self._put_stream("UPDATE", complete)

    async def _put_stream(self, verb: str, config: StreamConfig) -> Stream:
        tokens = ("STREAM", verb, check_name("stream", config.name))
        # Of two creations, or updates, of the same stream the second finds what it wants.
        complete = with_external_domains(config)
        info = await self._api.call(StreamInfo, tokens, complete, repeatable=True)
        return Stream(self._api, config.name, info)

    async def stream(self, name: str) -> Stream:
        """An existing stream. Raises JetStreamApiError (10059) if there is none of this name."""
        stream = Stream(self._api, check_name("stream", name))
        await stream.info()
        return stream

    async def delete_stream(self, name: str) -> None:
        """Delete a stream. Raises JetStreamApiError (10059) if there is none of this name.

        A lost answer is not repeated: the stream may have been made anew since. After TimeoutError or
        DisconnectedError it may be gone or not.
        """
        tokens = ("STREAM", "DELETE", check_name("stream", name))
        await self._api.call(SuccessResponse, tokens)

    def streams(self, *, subject: str = "") -> AsyncIterator[StreamInfo]:
        """What the server says of each stream, or of those that have ``subject``."""
        return self._api.pages(
            StreamListResponse,
            ("STREAM", "LIST"),
            lambda offset: StreamNamesRequest(offset=offset, subject=subject),
            lambda page: page.streams,
            lambda page: page.total,
        )

    def stream_names(self, *, subject: str = "") -> AsyncIterator[str]:
        """The name of each stream, or of those that have ``subject``."""
        return self._api.pages(
            StreamNamesResponse,
            ("STREAM", "NAMES"),
            lambda offset: StreamNamesRequest(offset=offset, subject=subject),
            lambda page: page.streams,
            lambda page: page.total,
        )

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


def _pub_ack(subject: str, data: bytes) -> PubAck:
    """Read a publish acknowledgement; the short way when it is plainly one.

    Raises JetStreamApiError: the stream refused; ProtocolError: no stream said this.
    """
    try:
        ack = _decode_ack(data) if data.startswith(b'{"stream"') else decode_pub_ack(data)
        if ack.stream and ack.seq >= 0:
            return ack
    except (DocumentError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # it is said below what came
    raise ProtocolError(
        f"the answer to a publish on {subject!r} is no stream's but {data[:64]!r}: somebody else answers "
        "there too, so it is not known to be stored"
    )
