"""An ordered consumer: everything once, in order, without acks; made anew whenever that breaks.

Before one is made anew it is asked whether the stream still has the message that was handed out last. One
that lost its end, was put back from an older copy or made again gives sequences anew: of it comes what was
stored later than that message.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from ...api.consumers import ConsumerConfig, ConsumerInfo
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.streams import StreamInfo
from ...api.times import format_time, parse_time
from ...errors import (
    ConnectionClosedError,
    DisconnectedError,
    HeartbeatMissedError,
    JetStreamApiError,
    NoRespondersError,
    PullError,
    RequestTimeoutError,
    ServerError,
)
from ...handling.callbacks import tell
from ...identity import MessageIdentity, Sameness, compare
from .calls import place_of_call, warn_of_left
from .consumer import Consumers
from .consuming.consume import LEAVE_BY, Consumption
from .consuming.feed import unheard
from .fetch import REMAINING_MIN_S
from .message import Batch, JetStreamMessage

if TYPE_CHECKING:
    from ...api.acks import AckTokens
    from ..net.session import Session
    from .calls import Api
    from .consumer import Consumer

RETRY_FIRST_S: Final = 1.0  # doubling …
RETRY_MAX_S: Final = 10.0  # … up to here
INACTIVE_S: Final = 300.0
EXPIRES_S: Final = 10.0  # so that silence is noticed after 10 seconds
ATTEMPTS: Final = 2  # of a fetch, while messages were missed or the consumer is gone
T = TypeVar("T")

_UNREACHABLE: Final = (NoRespondersError, RequestTimeoutError, DisconnectedError)

_Pull = Callable[["Consumer", float, float | None], Awaitable[Batch]]  # wait, heartbeat: seconds


class OrderedConsumer:
    """Reads a stream in order, each message once. Made by ``Stream.ordered_consumer``.

    There is nothing to acknowledge. Behind it stands an ephemeral consumer in the server's memory, which
    is replaced by one that starts after the last message seen, when messages were missed, the server
    went silent, the connection was lost, or the consumer is gone. Of a stream that has not that message any
    more, as one that was made again, come those that were stored later. One reader at a time.

    Attributes:
        stream_name: the stream it reads.
        last_sequence: the stream sequence of the last message handed out, or 0.
        resets: how often the consumer behind it was replaced.
    """

    def __init__(self, api: Api, stream_name: str, config: ConsumerConfig) -> None:
        self._api = api
        self._consumers = Consumers(api, stream_name)
        self._prefix = api.session.nuid.next()
        self._serial = 0
        self._config = msgspec.structs.replace(
            config,
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=config.inactive_threshold or INACTIVE_S,
        )
        self._consumer: Consumer | None = None
        self._is_doubtful = False  # whether that may have delivered what nobody received
        self._consumer_seq = 0  # of the consumer behind: the last one seen
        self._first_sequence = 0  # where "new" or "last" was when we began, if that is needed
        self._last: AckTokens | None = None  # of the message handed out last
        self.stream_name = stream_name
        self.last_sequence = 0
        self.resets = -1

    def __repr__(self) -> str:
        return f"<OrderedConsumer of {self.stream_name!r} after {self.last_sequence}>"

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last of the consumer that stands behind it now, if there is one."""
        return self._consumer.cached_info if self._consumer is not None else None

    async def info(self) -> ConsumerInfo:
        """What the server says of the consumer that stands behind it now."""
        return await (self._consumer or await self._current()).info()

    async def fetch(
        self,
        max_messages: int = 100,
        *,
        max_wait: float = 5.0,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = True,
    ) -> Batch:
        """The next messages, up to ``max_messages``, waiting up to ``max_wait`` seconds for the first.

        Arguments and errors are those of ``Consumer.fetch``, except that a missing consumer is replaced.
        """
        return await self._fetch(
            lambda consumer, wait, beat: consumer.fetch(
                max_messages, max_wait=wait, heartbeat=beat, no_wait=no_wait, eager=eager
            ),
            max_wait,
            heartbeat,
        )

    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        max_wait: float = 5.0,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = True,
    ) -> Batch:
        """As ``fetch``, up to ``max_bytes``; see ``Consumer.fetch_bytes``."""
        return await self._fetch(
            lambda consumer, wait, beat: consumer.fetch_bytes(
                max_bytes, max_wait=wait, heartbeat=beat, no_wait=no_wait, eager=eager
            ),
            max_wait,
            heartbeat,
        )

    async def _fetch(self, pull: _Pull, max_wait: float, heartbeat: float | None) -> Batch:
        """Pull, and once more where something was missed; as often as need be where a link was lost."""
        session, attempts = self._api.session, 0
        begun, wait = session.loop.time(), max_wait
        while True:
            consumer = await self._current()
            reconnects = session.reconnects
            self._is_doubtful = True  # until it is known that whatever it delivers has come
            try:
                batch = await pull(consumer, wait, heartbeat)
            except (NoRespondersError, PullError, HeartbeatMissedError):
                attempts += 1
                self._consumer = None
                if attempts == ATTEMPTS:
                    raise
                continue
            good = list(itertools.takewhile(self._is_next, batch))
            if len(good) < len(batch):  # something before the next one was missed: start anew there
                attempts += 1
                if good:
                    return Batch.of(session, good)
                if attempts == ATTEMPTS:
                    raise PullError(409, "messages were missed twice in a row")
                continue
            is_same_link = session.link is not None and session.reconnects == reconnects
            self._is_doubtful = not is_same_link or batch.error is not None
            left = max_wait - (session.loop.time() - begun)
            if batch or is_same_link or left < REMAINING_MIN_S:
                return batch
            wait, heartbeat = left, heartbeat and min(heartbeat, left / 2)

    async def next(self, max_wait: float = 5.0) -> JetStreamMessage:
        """The next message. Raises RequestTimeoutError if none came in ``max_wait`` seconds."""
        batch = await self.fetch(1, max_wait=max_wait)
        if not batch:
            raise RequestTimeoutError(
                f"no message in stream {self.stream_name!r} after {self.last_sequence} "
                f"within {max_wait} s"
            )
        return batch[0]

    def consume(
        self,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        on_error: Callable[[Exception], object] | None = None,
    ) -> OrderedConsumption:
        """Messages as they come: ``async with ordered.consume() as messages: async for …``."""
        return OrderedConsumption(
            self, {"max_messages": max_messages, "max_bytes": max_bytes}, on_error
        )

    async def delete(self) -> None:
        """Delete the consumer behind it now, instead of leaving it to the server."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _delete(consumer)

    # The consumer behind it

    def _is_next(self, message: JetStreamMessage) -> bool:
        """Take note of a message; False if one before it was missed."""
        metadata = message.metadata
        if metadata.consumer_seq != self._consumer_seq + 1:
            return False
        self._consumer_seq += 1
        self.last_sequence = metadata.stream_seq
        self._last = metadata
        return True

    async def _current(self) -> Consumer:
        """The consumer behind it; another one if this one may have delivered what nobody received."""
        if self._consumer is not None and self._is_doubtful:
            await self.delete()
        if self._consumer is None:
            self._consumer = await self._create()
            self._consumer._resumes = False
            self._consumer._on_failed = unheard
            self._is_doubtful = False
        return self._consumer

    async def _create(self) -> Consumer:
        self._serial += 1
        config = msgspec.structs.replace(self._config, name=f"{self._prefix}_{self._serial}")
        start = self.last_sequence + 1 if self.last_sequence else self._first_sequence
        last = self._last
        if last is not None and await self._sameness(last) is Sameness.OTHER:
            config = msgspec.structs.replace(
                config,
                deliver_policy="by_start_time",
                opt_start_seq=0,
                opt_start_time=format_time(last.timestamp_ns + 1),
            )
        elif start:
            config = msgspec.structs.replace(
                config, deliver_policy="by_start_sequence", opt_start_seq=start, opt_start_time=None
            )
        consumer = await self._consumers.create(config, {}, "create")
        info = consumer.cached_info
        if config.deliver_policy in ("new", "last") and info is not None:
            self._first_sequence = info.delivered.stream_seq + 1  # the next one begins here, too
        self._consumer_seq = 0
        self.resets += 1
        return consumer

    async def _sameness(self, last: AckTokens) -> Sameness:
        """Whether the stream still has the message handed out last; GONE where nobody may ask."""
        name, sequence = self.stream_name, last.stream_seq
        request = GetMessageRequest(next_by_subj=">", seq=sequence)
        found, last_seq = None, sequence
        try:
            try:
                where = ("STREAM", "MSG", "GET", name)
                answer = await self._api.call(GetMessageResponse, where, request, repeatable=True)
                message = answer.message
                found = MessageIdentity(name, message.seq, parse_time(message.time))
            except JetStreamApiError as error:
                if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
                    raise
                info = await self._api.call(StreamInfo, ("STREAM", "INFO", name), repeatable=True)
                last_seq = info.state.last_seq
        except (JetStreamApiError, ServerError):
            return Sameness.GONE  # making the consumer tells what is wrong
        remembered = MessageIdentity(name, sequence, last.timestamp_ns)
        return compare(remembered, found, MessageIdentity(name, last_seq, 0))

    async def _replace(self, report: Callable[[Exception], object]) -> Consumer:
        """A consumer that goes on where we are; waits for a server that cannot be reached."""
        old, self._consumer = self._consumer, None
        if old is not None:
            await _delete(old)
        return await until_reachable(self._current, report)


async def until_reachable(
    ask: Callable[[], Awaitable[T]], report: Callable[[Exception], object]
) -> T:
    """Ask again, after pauses, while the server cannot be reached; each failure is reported."""
    pause = RETRY_FIRST_S
    while True:
        try:
            return await ask()
        except _UNREACHABLE as error:
            report(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, RETRY_MAX_S)


async def _delete(consumer: Consumer) -> None:
    """Delete a consumer nobody needs; if that fails it goes by itself, being unused."""
    try:
        await consumer.delete()
    except (JetStreamApiError, ConnectionClosedError, *_UNREACHABLE):
        return


class _Link:
    """What the session tells an ordered consumption, without holding it."""

    __slots__ = ("_consumption",)

    def __init__(self, consumption: OrderedConsumption) -> None:
        self._consumption = weakref.ref(consumption)

    def trouble(self, error: Exception) -> None:
        """Of the consume behind it."""
        if (consumption := self._consumption()) is not None:
            consumption._trouble(error)

    def connection_lost(self) -> None:
        """What was under way will not come again; see ``connection_restored``."""

    def connection_restored(self) -> None:
        if (consumption := self._consumption()) is not None:
            consumption._restart()

    def connection_closed(self, reason: Exception) -> None:
        """The consume behind it raises that."""


_deletions: set[asyncio.Task[None]] = set()


def _left(
    session: Session, link: _Link, inner: Consumption | None, consumer: Consumer | None
) -> None:
    """Nobody holds the ordered consumption any more."""
    session.observers.pop(link, None)
    if inner is not None:
        inner._abandon()
    if consumer is not None and not session.is_closed:
        task = session.loop.create_task(_delete(consumer), name=f"delete {consumer.name}")
        _deletions.add(task)
        task.add_done_callback(_deletions.discard)


class OrderedConsumption:
    """Messages of an ordered consumer as they come, each once and in order.

    Iterating raises JetStreamApiError when the stream is gone, ConnectionClosedError when closed. It ends by
    ``stop``, and when nobody holds it any more, which is a ResourceWarning.
    """

    def __init__(
        self,
        ordered: OrderedConsumer,
        limits: dict[str, Any],
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._ordered = ordered
        self._session = ordered._api.session
        self._limits = limits
        self._on_error = on_error
        self._inner: Consumption | None = None
        self._over = False
        # What was made for us and nobody has read from is used as it is; once.
        self._is_fresh = (
            ordered.resets == 0 and ordered._consumer_seq == 0 and ordered._consumer is not None
        )
        self._futile = 0  # how often it began since a message came
        self._begun_at = 0.0
        self._place = place_of_call()
        self._link = _Link(self)
        self._session.observers[self._link] = None

    def __repr__(self) -> str:
        return f"<OrderedConsumption of {self._ordered!r}>"

    def __del__(self) -> None:
        session = self._session
        if self._over or session.is_closed or not session.loop.is_running():
            return
        warn_of_left(self, self._place, LEAVE_BY)
        consumer = self._ordered._consumer
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            session.loop.call_soon_threadsafe(_left, session, self._link, self._inner, consumer)

    def __aiter__(self) -> AsyncIterator[JetStreamMessage]:
        return self

    async def __anext__(self) -> JetStreamMessage:
        while not self._over:
            if self._inner is None:
                self._inner = await self._begin()
            try:
                message = await anext(self._inner)
            except StopAsyncIteration:  # we stopped it ourselves
                self._inner = None
                continue
            except PullError as error:
                self._report(error)
                self._inner = None
                continue
            if self._ordered._is_next(message):
                self._futile = 0
                return message
            self._restart()
            self._inner = None
        raise StopAsyncIteration

    async def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """What has come, at least one message, and at most ``max_messages`` if given; empty at the end."""
        while not self._over:
            if self._inner is None:
                self._inner = await self._begin()
            try:
                taken = await self._inner.next_batch(max_messages)
            except PullError as error:
                self._report(error)
                taken = []
            good = list(itertools.takewhile(self._ordered._is_next, taken))
            if len(good) < len(taken):
                self._restart()
            if len(good) < len(taken) or not taken:  # something was missed, or it is over
                self._inner = None
            if good:
                self._futile = 0
                return good
        return []

    async def stop(self) -> None:
        """End now, and delete the consumer behind it."""
        if self._over:
            return
        self._over = True
        self._session.observers.pop(self._link, None)
        if self._inner is not None:
            self._inner._abandon()
        if not self._session.is_closed:
            await self._ordered.delete()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _begin(self) -> Consumption:
        ordered, loop = self._ordered, self._session.loop
        if self._futile > 1 and loop.time() - self._begun_at < RETRY_FIRST_S:
            await asyncio.sleep(RETRY_FIRST_S)  # whatever ends it at once, again and again
        self._futile += 1
        self._begun_at = loop.time()
        fresh, self._is_fresh = self._is_fresh and ordered._consumer is not None, False
        consumer = await (ordered._current() if fresh else ordered._replace(self._report))
        inner = consumer.consume(expires=EXPIRES_S, on_error=self._link.trouble, **self._limits)
        inner._is_owned = True
        return inner

    def _trouble(self, error: Exception) -> None:
        """Silence, or a missing consumer: what is buffered is still good, then begin anew."""
        self._report(error)
        if isinstance(error, (HeartbeatMissedError, NoRespondersError)):
            self._restart()

    def _restart(self) -> None:
        if self._inner is not None:
            self._inner._abandon()

    def _report(self, error: Exception) -> None:
        tell(self._on_error, self._session.report, error)
