"""A consumer: fetch, next, consume, and what can be done to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Unpack, cast, get_args

from ...api.base import Document
from ...api.consumers import (
    ConsumerConfig,
    ConsumerInfo,
    ConsumerListResponse,
    ConsumerNamesResponse,
    CreateConsumerRequest,
    PauseRequest,
    PauseResponse,
    PullRequest,
    ResetRequest,
    UnpinRequest,
)
from ...api.errors import Errors
from ...api.messages import SuccessResponse
from ...errors import ConfigurationError, JetStreamApiError, RequestTimeoutError
from ...handling.callbacks import Queued, check_plain
from ...subjects import check_pattern
from ..events import SettingsChanged
from ..subscription import PENDING_BYTES_DEFAULT, PENDING_MESSAGES_DEFAULT
from .calls import Api, D, check_name
from .configuration import config_from, differences, merged, time_text
from .consuming.concurrent import check_concurrency
from .consuming.consume import Consumption, MessageCallback, check_policy
from .consuming.feed import Failed, FeedSettings, IfGone, MissingConsumer
from .fetch import Fetch, FetchPlan
from .message import Batch, JetStreamMessage
from .pull import (
    BATCH_FOR_BYTES,
    EXPIRES_DEFAULT_S,
    EXPIRES_MIN_S,
    HEARTBEAT_MAX_S,
    ConsumeLimits,
    Pin,
    PriorityOptions,
    check_options,
    encode_request,
)
from .push import PushSubscription

if TYPE_CHECKING:
    from ...api.keywords import ConsumerFields
    from ...handling.failure_policy import OnFailure
    from ..message import Message
    from ..net.session import Session


_EXISTS: Final = Errors.CONSUMER_ALREADY_EXISTS.err_code


class Consumers:
    """The consumers of one stream, for ``Stream`` and for the context."""

    __slots__ = ("_api", "_stream")

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = check_name("stream", stream)

    async def create(
        self, config: ConsumerConfig | None, values: Mapping[str, object], action: str
    ) -> Consumer:
        """``action``: "create" or "update"."""
        info = await self.create_info(config, values, action)
        return Consumer(self._api, self._stream, info.name, info)

    async def create_or_update(
        self, config: ConsumerConfig | None, values: Mapping[str, object]
    ) -> Consumer:
        """Create, or change what is named if it exists with another configuration; and say what that has
        changed."""
        try:
            return await self.create(config, values, "create")
        except JetStreamApiError as error:
            if error.err_code != _EXISTS:
                raise
        asked = config_from(ConsumerConfig, config, values)
        consumer = await self.get(asked.name or asked.durable_name)
        assert consumer.cached_info is not None
        there = consumer.cached_info.config
        wanted = merged(there, config, values)
        if wanted != there:
            consumer = await self.create(wanted, {}, "update")
            assert consumer.cached_info is not None
            consumer.changes = differences(there, consumer.cached_info.config)
        if consumer.changes:
            of = f"consumer {consumer.name!r} of stream {self._stream!r}"
            self._api.session.hub.emit(SettingsChanged(of, consumer.changes))
        return consumer

    async def create_info(
        self, config: ConsumerConfig | None, values: Mapping[str, object], action: str
    ) -> ConsumerInfo:
        """As ``create``, and returns what the server says of it."""
        config = config_from(ConsumerConfig, config, values)
        name = config.name or config.durable_name
        tokens: tuple[str, ...] = ("CONSUMER", "CREATE", self._stream)
        if name:
            tokens += (check_name("consumer", name),)
            if config.filter_subject:
                check_pattern(config.filter_subject.encode())  # a part of the call's subject
                tokens += (config.filter_subject,)
        request = CreateConsumerRequest(stream_name=self._stream, config=config, action=action)
        # The second creation of one that has a name finds what it wants; without a name it makes another.
        return await self._api.call(ConsumerInfo, tokens, request, repeatable=bool(name))

    async def get(self, name: str) -> Consumer:
        consumer = Consumer(self._api, self._stream, check_name("consumer", name))
        await consumer.info()
        return consumer

    async def delete(self, name: str) -> None:
        tokens = ("CONSUMER", "DELETE", self._stream, check_name("consumer", name))
        await self._api.call(SuccessResponse, tokens)

    def infos(self) -> AsyncIterator[ConsumerInfo]:
        tokens = ("CONSUMER", "LIST", self._stream)
        return self._api.pages(ConsumerListResponse, tokens, lambda page: page.consumers)

    def names(self) -> AsyncIterator[str]:
        tokens = ("CONSUMER", "NAMES", self._stream)
        return self._api.pages(ConsumerNamesResponse, tokens, lambda page: page.consumers)


MAX_WAIT_DEFAULT_S = 5.0
ACK_WAIT_DEFAULT_S = 30.0
PLANS_KEPT_MAX: Final = 64
HEARTBEAT_ABOVE_S = 30.0  # longer fetches ask for heartbeats unless told otherwise


class Consumer:
    """One pull consumer of one stream. Made by ``stream.consumer(…)`` and its like.

    Attributes:
        stream_name: the stream it reads.
        name: its name.
        cached_info: what the server said last; None if it was never asked.
        changes: what ``create_or_update_consumer`` has changed of the consumer that was there: each setting,
            with its values before and after.
    """

    def __init__(
        self, api: Api, stream_name: str, name: str, info: ConsumerInfo | None = None
    ) -> None:
        self._api = api
        self._session: Session = api.session
        self.stream_name = stream_name
        self.name = name
        self.cached_info = info
        self.changes: Mapping[str, tuple[object, object]] = {}
        self._plans: dict[object, FetchPlan] = {}
        self._planned_for = info
        self._resumes = True  # whether a fetch pulls again when a lost link is back
        self._on_failed: Failed | None = None  # set by whoever sees to the end of its consumes
        self._pin = Pin(api.session.report)
        self._next_subject = api.subject("CONSUMER", "MSG", "NEXT", stream_name, name).encode()

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self.stream_name!r}>"

    # Taking messages

    async def fetch(
        self,
        max_messages: int = 100,
        *,
        max_wait: float = MAX_WAIT_DEFAULT_S,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = True,
        **priority: Unpack[PriorityOptions],
    ) -> Batch:
        """What is there, up to ``max_messages`` messages, waiting up to ``max_wait`` seconds for the first.

        Nothing to deliver is an empty batch, not an error. No more than the consumer's ``max_ack_pending``
        can be there before one is acknowledged.

        Args:
            heartbeat: fail when the server is silent for twice as long; None: on for waits of more
                than 30 seconds, 0: off.
            no_wait: only what is there now.
            eager: False waits up to ``max_wait`` for all of ``max_messages``, as ``Fetch`` of nats.go.
            priority: ``group``, ``min_pending``, ``min_ack_pending``, ``priority`` of a consumer with
                priority groups.

        Raises:
            NoRespondersError: the consumer does not exist.
            PullError: the server refused the pull.
            HeartbeatMissedError: it went silent.

            Once messages have come, they are returned, and the error is the batch's ``error``.
            A call that is cancelled or interrupted sends messages under way back, so they are delivered again
            at once.
        """
        if not isinstance(max_messages, int) or max_messages < 1:
            raise ConfigurationError(f"max_messages is {max_messages!r}; accepted: 1 or more")
        plan = self._plan(max_messages, 0, max_wait, heartbeat, no_wait, eager, priority)
        fetch = Fetch(self._session, plan)
        return Batch(self._session, await fetch, fetch.status, fetch.error)

    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        max_wait: float = MAX_WAIT_DEFAULT_S,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = True,
        **priority: Unpack[PriorityOptions],
    ) -> Batch:
        """As ``fetch``, up to ``max_bytes``: subject, ack subject, headers and payload count.

        A next message larger than that gives an empty batch whose ``status`` says so.
        """
        if not isinstance(max_bytes, int) or max_bytes < 1:
            raise ConfigurationError(f"max_bytes is {max_bytes!r}; accepted: 1 or more")
        plan = self._plan(BATCH_FOR_BYTES, max_bytes, max_wait, heartbeat, no_wait, eager, priority)
        fetch = Fetch(self._session, plan)
        return Batch(self._session, await fetch, fetch.status, fetch.error)

    async def next(
        self,
        max_wait: float = MAX_WAIT_DEFAULT_S,
        *,
        heartbeat: float | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> JetStreamMessage:
        """The next message.

        Raises:
            RequestTimeoutError: none came within ``max_wait`` seconds. And as ``fetch``.
        """
        plan = self._plan(1, 0, max_wait, heartbeat, False, True, priority)
        frames = await Fetch(self._session, plan)
        if not frames:
            raise RequestTimeoutError(f"no message from consumer {self._label} within {max_wait} s")
        return JetStreamMessage(self._session, frames[0])

    def consume(
        self,
        callback: MessageCallback | None = None,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        expires: float = EXPIRES_DEFAULT_S,
        heartbeat: float | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        on_error: Callable[[Exception], object] | None = None,
        if_gone: IfGone = "end",
        concurrency: int | None = None,
        order_by: Callable[[JetStreamMessage], Hashable] | None = None,
        on_failure: OnFailure | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> Consumption:
        """Messages as they come, from a buffer that is kept filled; see ``Consumption`` and, for the
        limits, ``ConsumeLimits``.

        Args:
            callback: called for each message in turn, a plain or a coroutine function; without it,
                iterate the result.
            on_error: called for what does not end the consume; without it, those are connection events.
            if_gone: what is done where the server has no such consumer any more, as after a restart that it
                did not outlive. ``end``: ends with ConsumerNotFoundError, or StreamNotFoundError. ``wait``:
                pulls until there is one again. ``create``: it is made again as it was last known to be, also
                where somebody deleted it, and delivers from where its configuration says.
            concurrency: how many callbacks run at once, 1 to 1,000: coroutine functions on the event loop,
                plain functions on as many threads. None: one after the other, on the event loop.
            order_by: the key of a message, a function of it. Of one key one message at a time is handled, in
                the order of arrival; a slow one holds up its own key alone. A message without a key that can
                be had is not handled, as if the callback had raised. None: in no order.
            on_failure: what follows when the callback raises: ``Retry`` calls it again, ``DeadLetter`` puts
                the message elsewhere after some attempts, ``Stop`` ends the consume. None: it is reported,
                and comes again after ``ack_wait``. Attempts are deliveries. The callback acknowledges; a
                ``nak()`` without a delay has that of the policy, and is no failure.
            expires: the default is shorter where a pin is lost without a pull in ``priority_timeout``:
                half of that, at least 1 second.
        """
        limits = ConsumeLimits(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=self._expires(expires),
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
        )
        self._check_priority(priority)
        check_concurrency(concurrency, order_by, callback)
        check_policy(
            on_failure, callback, None if self.cached_info is None else self.cached_info.config
        )
        if if_gone not in get_args(IfGone):
            raise ConfigurationError(
                f"if_gone is {if_gone!r}; accepted: {', '.join(get_args(IfGone))}"
            )
        return Consumption(
            self._session,
            self._next_subject,
            self._label,
            limits,
            priority,
            self._pin,
            callback,
            on_error,
            self._feed_settings(if_gone),
            concurrency,
            order_by,
            on_failure,
        )

    async def listen(
        self,
        callback: MessageCallback | None = None,
        *,
        on_error: Callable[[Exception], object] | None = None,
        pending_messages: int = PENDING_MESSAGES_DEFAULT,
        pending_bytes: int = PENDING_BYTES_DEFAULT,
    ) -> PushSubscription:
        """Messages of a push consumer, which the server sends to ``deliver_subject`` unasked.

        For those who have one. What is pulled keeps to what the reader can take; here what comes beyond
        ``pending_messages`` and ``pending_bytes`` is dropped, unless the consumer has flow control.

        Args:
            callback: called for each message in turn, a plain or a coroutine function; without it, iterate
                the result.
            on_error: called for silence and for missing messages; without it, those are connection events.
            pending_messages, pending_bytes: how much may wait to be taken; see ``Subscription``.

        Raises:
            ConfigurationError: the consumer is pulled from.
        """
        config = (self.cached_info or await self.info()).config
        if not config.deliver_subject:
            raise ConfigurationError(
                f"consumer {self._label} pushes nothing, as it has no deliver_subject; "
                "use fetch, next or consume"
            )
        self._session.raise_if_unusable()
        subscription = PushSubscription(
            self._session,
            self._label,
            config,
            on_error=on_error,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
        )
        if callback is not None:
            subscription.start(cast("Callable[[Message], object]", callback))
        return subscription

    def ack_all(self, messages: Iterable[JetStreamMessage]) -> Queued:
        """Acknowledge many messages in one write; those answered before are left alone."""
        if isinstance(messages, Batch):
            return messages.ack()
        return Batch.of(self._session, list(messages)).ack()

    # The pin of a priority group

    @property
    def pin_id(self) -> str:
        """Our id while we are the pinned client of our group, as far as we know; else ""."""
        return self._pin.id

    def on_pinned(self, callback: Callable[[str], object] | None) -> None:
        """Call ``callback(id)``, on the connection's thread, when we become the pinned client."""
        self._pin.on_pinned = check_plain("on_pinned", callback)

    def on_unpinned(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback()``, on the connection's thread, when we are told that another client is pinned."""
        self._pin.on_unpinned = check_plain("on_unpinned", callback)

    # The consumer itself

    async def info(self) -> ConsumerInfo:
        """What the server says of it now. Raises ConsumerNotFoundError if it is gone."""
        self.cached_info = await self._call(ConsumerInfo, "INFO", repeatable=True)
        return self.cached_info

    async def update(
        self, config: ConsumerConfig | None = None, /, **values: Unpack[ConsumerFields]
    ) -> ConsumerInfo:
        """Change the configuration: a whole one, or single fields of the present one.

        Raises JetStreamApiError: it is gone (10149), or cannot be changed so.
        """

        if config is None:
            config = merged((await self.info()).config, None, values)
        consumers = Consumers(self._api, self.stream_name)
        changes = {**values, "name": self.name}
        self.cached_info = await consumers.create_info(config, changes, "update")
        return self.cached_info

    async def delete(self) -> None:
        """Delete it. Raises ConsumerNotFoundError if it is gone. A lost answer is not repeated: it
        may have been made anew since."""
        await self._call(SuccessResponse, "DELETE")

    async def pause(self, until: datetime | timedelta | float) -> PauseResponse:
        """Deliver nothing until a time, or for a duration (seconds or a timedelta)."""
        if isinstance(until, timedelta):
            until = until.total_seconds()
        if not isinstance(until, datetime | int | float):
            raise ConfigurationError(
                f"until is {until!r}; accepted are a datetime, a timedelta, and seconds"
            )
        if not isinstance(until, datetime):
            until = datetime.now().astimezone() + timedelta(seconds=until)
        request = PauseRequest(pause_until=time_text(until))
        return await self._call(PauseResponse, "PAUSE", request, repeatable=True)

    async def resume(self) -> PauseResponse:
        """Deliver again."""
        return await self._call(PauseResponse, "PAUSE", PauseRequest(), repeatable=True)

    async def reset(self, sequence: int = 0) -> ConsumerInfo:
        """Deliver from stream sequence ``sequence`` on again; 0: from the first unacknowledged one. A lost
        answer is not repeated: what was acknowledged since would come again.

        Needs nats-server 2.14 or our broker. Raises JetStreamApiError (10204) where the deliver policy
        does not allow it.
        """
        if not isinstance(sequence, int) or sequence < 0:
            raise ConfigurationError(f"sequence is {sequence!r}; accepted: 0 or more")
        self.cached_info = await self._call(ConsumerInfo, "RESET", ResetRequest(seq=sequence))
        return self.cached_info

    async def unpin(self, group: str) -> None:
        """Let go of the group's pinned client, whoever it is; the next pull is pinned instead. A lost
        answer is not repeated: it would let go of the next one, too."""
        await self._call(SuccessResponse, "UNPIN", UnpinRequest(group=group))

    async def _call(
        self, kind: type[D], verb: str, request: Document | None = None, *, repeatable: bool = False
    ) -> D:
        tokens = ("CONSUMER", verb, self.stream_name, self.name)
        return await self._api.call(kind, tokens, request, repeatable=repeatable)

    # Requests

    @property
    def _label(self) -> str:
        return f"{self.name!r} of stream {self.stream_name!r}"

    def _request(
        self,
        batch: int,
        max_bytes: int,
        max_wait: float,
        heartbeat: float | None,
        no_wait: bool,
        eager: bool,
        priority: PriorityOptions,
    ) -> PullRequest:
        if not isinstance(max_wait, int | float) or max_wait <= 0:
            raise ConfigurationError(f"max_wait is {max_wait} s; accepted: more than 0")
        if heartbeat is None:
            long = max_wait > HEARTBEAT_ABOVE_S and not no_wait
            heartbeat = min(max_wait / 2, HEARTBEAT_MAX_S) if long else 0.0
        if heartbeat < 0 or 2 * heartbeat > max_wait:
            raise ConfigurationError(
                f"heartbeat is {heartbeat} s; accepted: 0 to half of max_wait ({max_wait} s)"
            )
        self._check_priority(priority)
        return PullRequest(
            batch=batch,
            max_bytes=max_bytes,
            expires=0.0 if no_wait else max_wait,
            no_wait=no_wait or (eager and batch > 1),
            idle_heartbeat=0.0 if no_wait else heartbeat,
            **priority,
        )

    def _at_once(self, max_messages: int) -> int:
        """How many of so many messages there can be before one is acknowledged, as far as we know: who asks
        for more waits for what cannot come."""
        config = None if self.cached_info is None else self.cached_info.config
        if config is None or config.max_ack_pending <= 0 or config.ack_policy == "none":
            return max_messages
        return min(max_messages, config.max_ack_pending)

    def _expires(self, expires: float) -> float:
        config = None if self.cached_info is None else self.cached_info.config
        if config is None or config.priority_policy != "pinned_client":
            return expires
        if expires != EXPIRES_DEFAULT_S or not config.priority_timeout:
            return expires
        return min(expires, max(EXPIRES_MIN_S, config.priority_timeout / 2))

    def _gone(self, creates: bool) -> MissingConsumer:
        return MissingConsumer(self._label, self.info, self._make_again if creates else None)

    async def _make_again(self) -> bool:
        """Make it as it was when the server last told of it. Whether the server ever did."""

        if self.cached_info is None:
            return False
        consumers = Consumers(self._api, self.stream_name)
        self.cached_info = await consumers.create_info(self.cached_info.config, {}, "")
        return True

    def _feed_settings(self, if_gone: IfGone) -> FeedSettings:
        if self._on_failed is not None:
            return FeedSettings(on_failed=self._on_failed)
        gone = None if if_gone == "wait" else self._gone(if_gone == "create")
        config = None if self.cached_info is None else self.cached_info.config
        if config is None or config.ack_policy == "none":
            return FeedSettings(gone=gone)
        return FeedSettings(_ack_wait_of(config), config.max_deliver, gone, self._ask_ack_wait)

    async def _ask_ack_wait(self) -> float:
        config = (await self.info()).config
        return 0.0 if config.ack_policy == "none" else _ack_wait_of(config)

    def _plan(
        self,
        batch: int,
        max_bytes: int,
        max_wait: float,
        heartbeat: float | None,
        no_wait: bool,
        eager: bool,
        priority: PriorityOptions,
    ) -> FetchPlan:
        """What a fetch with these arguments pulls; the same few are asked for again and again."""
        if self._planned_for is not self.cached_info or len(self._plans) >= PLANS_KEPT_MAX:
            self._plans.clear()
            self._planned_for = self.cached_info
        key = (batch, max_bytes, max_wait, heartbeat, no_wait, eager, *priority.items())
        try:
            found = self._plans.get(key)
        except TypeError:  # what is no number is refused below
            found = None
        if found is not None:
            return found
        if eager and not no_wait and not max_bytes:
            batch = self._at_once(batch)
        request = self._request(batch, max_bytes, max_wait, heartbeat, no_wait, eager, priority)
        plan = self._plans[key] = FetchPlan(
            subject=self._next_subject,
            request=request,
            body=encode_request(request),
            max_messages=request.batch,
            max_bytes=request.max_bytes,
            max_wait=max_wait,
            consumer=self._label,
            pin=self._pin,
            resumes=self._resumes,
        )
        return plan

    def _check_priority(self, priority: PriorityOptions) -> None:
        """Refuse now what the server would refuse with every pull, if we know the configuration."""
        check_options(priority)
        group = priority.get("group", "")
        if self.cached_info is None:
            return
        config = self.cached_info.config
        if config.deliver_subject:
            raise ConfigurationError(
                f"consumer {self._label} pushes to {config.deliver_subject!r} and cannot be pulled from; "
                "listen() to it, or use a consumer without deliver_subject"
            )
        groups = ", ".join(config.priority_groups)
        if config.priority_policy == "none":
            if group:
                raise ConfigurationError(
                    f"group {group!r} was given, and consumer {self._label} has no priority groups"
                )
        elif not group:
            raise ConfigurationError(
                f"consumer {self._label} needs group=…; its priority groups: {groups}"
            )
        elif group not in config.priority_groups:
            raise ConfigurationError(
                f"consumer {self._label} has no priority group {group!r}; it has: {groups}"
            )


def _ack_wait_of(config: ConsumerConfig) -> float:
    """Seconds after which a message is delivered again, at the earliest."""
    return min([config.ack_wait or ACK_WAIT_DEFAULT_S, *config.backoff])
