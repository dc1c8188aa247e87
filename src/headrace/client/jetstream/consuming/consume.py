"""A running consume: its user's end. What comes, and the pulls for it, are the ``Feed``'s."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, Self

from ....api.base import DocumentError
from ....api.envelope import decode_response
from ....api.messages import PubAck
from ....errors import ConfigurationError, HandlerFailedError, ProtocolError
from ....handling.callbacks import check_callback, check_plain, tell
from ....handling.calls import Again, Calls
from ....handling.dead_letter_headers import CONSUMER
from ....handling.failing import Failing
from ....handling.failure_policy import DeadLetter, OnFailure, Retry, Stop, pause
from ...health import WELL, ConsumptionStats, Health, unwell
from ...message import header_block
from ..calls import place_of_call, warn_of_left
from ..message import DeliveredMessage, JetStreamMessage, place_of
from ..pull import ConsumeLimits, Pin, PriorityOptions
from .concurrent import ConcurrentCallbacks, Key
from .feed import Feed, FeedSettings, State

if TYPE_CHECKING:
    from ....api.consumers import ConsumerConfig
    from ...net.session import Session


RENEWED_EVERY_S: Final = 10.0  # where it is not known how long the server waits
RENEWALS: Final = 3  # in that time
_MSG_ID: Final = "Nats-Msg-Id"

Report = Callable[[JetStreamMessage, Exception], None]


def check_policy(policy: object, callback: object, config: ConsumerConfig | None) -> None:
    """Raises ConfigurationError: the policy cannot be kept."""
    if policy is None:
        return
    if not isinstance(policy, Stop | Retry | DeadLetter):
        raise ConfigurationError(
            f"on_failure is {policy!r}; accepted: Stop(), Retry(…), DeadLetter(subject, …)"
        )
    if callback is None:
        raise ConfigurationError(
            "on_failure is for a callback; whoever iterates sees what it raises"
        )
    if config is None:
        return
    if config.ack_policy != "explicit":
        raise ConfigurationError(
            f"on_failure needs ack_policy 'explicit'; the consumer has {config.ack_policy!r}"
        )
    calls = policy.after if isinstance(policy, DeadLetter) else 0
    if isinstance(policy, Retry):
        calls = policy.attempts or 0
    if config.max_deliver > 0 and (
        config.max_deliver < calls or (isinstance(policy, Retry) and not calls)
    ):
        raise ConfigurationError(
            f"the consumer has max_deliver={config.max_deliver}, and the server delivers no message more "
            f"often, so {policy!r} cannot be kept; give it no max_deliver, or a policy that ends by then"
        )


class ConsumeFailing(Failing[JetStreamMessage]):
    """Keeps the policy of a consume.

    Args:
        keeps_order: whether a message waits here for its next call, and its key with it; else the server
            delivers it again.
        ack_wait, max_deliver: the consumer's; 0 if unknown, or without limit.
        report: told of each failure.
    """

    def __init__(
        self,
        session: Session,
        feed: Feed,
        policy: OnFailure,
        report: Report,
        *,
        keeps_order: bool,
        ack_wait: float,
        max_deliver: int,
    ) -> None:
        super().__init__(policy, session.random.random)
        self._session = session
        self._feed = feed
        self._tell = report
        self._keeps_order = keeps_order
        self._max_deliver = max_deliver
        self._renew_s = (ack_wait or RENEWED_EVERY_S) / RENEWALS

    def pause(self, delivered: int) -> float:
        """How long a message that is sent back waits after so many deliveries."""
        if isinstance(self._policy, Stop):
            return 0.0
        return pause(self._policy, delivered, self._random())

    async def failed(self, message: JetStreamMessage, error: Exception, again: Again) -> None:
        """The callback raised ``error``. Returns when the message is answered, or will be delivered again."""
        await self.follow(message, error, again, message.metadata.delivered)

    def _takes(self, message: JetStreamMessage, error: Exception, verdict: object) -> bool:
        self._tell(message, error)
        return not (message.is_answered or self._session.is_closed)

    async def _waits(self, message: JetStreamMessage, seconds: float) -> bool:
        if self._session.is_closed:
            return False
        is_last = 0 < self._max_deliver <= message.metadata.delivered
        if self._keeps_order or is_last:
            left = await self._wait(message, seconds)
            if left <= 0:
                return True
            seconds = left
        message.nak(seconds)
        return False

    async def _wait(self, message: JetStreamMessage, seconds: float) -> float:
        """Keep the message for this long; returns what is left of it where the consume ended meanwhile."""
        loop, ended = self._session.loop, self._feed.ended
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            if ended.done():
                return left
            await asyncio.wait([ended], timeout=min(left, self._renew_s))
            if not self._session.is_closed:
                message.in_progress()
        return 0.0

    def _end(self, message: JetStreamMessage, error: Exception, failures: int) -> None:
        times = f"{failures} time{'s' * (failures > 1)}"
        ended = HandlerFailedError(
            f"the callback of consumer {self._feed.consumer} failed {times} for {place_of(message)}: "
            f"{error!r}; the message is not acknowledged"
        )
        ended.__cause__ = error
        self._feed.fail_now(ended)

    # Dead letters

    def _by(self, message: JetStreamMessage) -> tuple[str, str, str]:
        consumer = message.metadata.consumer
        return CONSUMER, consumer, consumer

    def _keep(self, message: JetStreamMessage) -> None:
        message.in_progress()

    def _report(self, message: JetStreamMessage, error: Exception) -> None:
        self._tell(message, error)

    async def _store(
        self, message: JetStreamMessage, subject: str, headers: dict[str, list[str]], msg_id: str
    ) -> None:
        block = header_block({**headers, _MSG_ID: [msg_id]})
        session = self._session
        answer = await session.requests.ask(
            subject, block, message.payload, session.options.request_timeout
        )
        try:
            stored = decode_response(answer[5], PubAck)
        except DocumentError as misread:
            raise ProtocolError(
                f"the answer to the dead letter on {subject!r} is not understood: {misread}"
            ) from misread
        if not stored.stream:
            raise ProtocolError(f"who answered on {subject!r} is no stream: {answer[5][:80]!r}")


LEAVE_BY: Final = "leave it by `async with`, in headrace.sync by `with`, or stop() it"

MessageCallback = Callable[[JetStreamMessage], object]


class Consumption:
    """Messages of a consumer as they come. Made by ``Consumer.consume``.

    Iterate it (``async with consumer.consume() as messages: async for message in messages``), iterate
    its ``batches()``, or give ``consume`` a callback and ``await consumption.wait()``.

    It goes on through lost connections, missed heartbeats and refused pulls; those are reported, to
    ``on_error`` or else as connection events. It ends by ``stop``, by ``drain``, or with an error: when
    the consumer was deleted, is gone (see ``if_gone``) or push based, and when the connection is closed.
    The former is a ConsumptionEnded event, too, and logged where there is a callback. Without a callback it
    ends, too, when nobody holds it any more, as after ``async for …: return``; that is a
    ResourceWarning. Whatever ends it, messages in the buffer go back.
    """

    _is_owned = False  # whether it is part of something that ends it
    _failures = 0

    def __init__(
        self,
        session: Session,
        subject: bytes,
        consumer: str,
        limits: ConsumeLimits,
        priority: PriorityOptions,
        pin: Pin,
        callback: MessageCallback | None,
        on_error: Callable[[Exception], object] | None,
        feed_settings: FeedSettings,
        concurrency: int | None = None,
        order_by: Key | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        session.raise_if_unusable()
        check_callback("callback", callback)
        self._session = session
        self._on_error = check_plain("on_error", on_error)
        self._place = place_of_call()
        me = weakref.ref(self)

        def report(error: Exception) -> None:
            owner = me()
            tell(None if owner is None else owner._on_error, session.report, error)

        self._feed = Feed(session, subject, consumer, limits, priority, pin, report, feed_settings)
        self._frames = self._feed.frames
        self._failing: ConsumeFailing | None = None
        if on_failure is not None:
            self._failing = ConsumeFailing(
                session,
                self._feed,
                on_failure,
                self._failed,
                keeps_order=order_by is not None,
                ack_wait=feed_settings.ack_wait,
                max_deliver=feed_settings.max_deliver,
            )
        if callback is not None:
            if session.spans is not None:
                callback = session.spans.traced(callback)
            failed = self._fail if self._failing is None else self._failing.failed
            if concurrency is None:
                work = self._work(Calls(callback, failed, dropped=self._send_back))
            else:
                pause = None if self._failing is None else self._failing.pause
                self._feed.abreast = ConcurrentCallbacks(
                    session,
                    self._feed,
                    callback,
                    concurrency,
                    order_by,
                    failed,
                    self._send_back,
                    pause,
                )
                work = self._feed.abreast.run()
            self._feed.worker = session.loop.create_task(work, name=f"consume {consumer}")

    def __repr__(self) -> str:
        feed = self._feed
        return f"<Consumption of {feed.consumer} buffered={self.buffered} {feed.state}>"

    def __del__(self) -> None:
        if self._is_owned or not hasattr(self, "_feed"):  # … or refused by its arguments
            return
        feed, session = self._feed, self._session
        if (
            (feed.is_over and not feed.buffered)
            or session.is_closed
            or not session.loop.is_running()
        ):
            return
        if not feed.is_over:
            warn_of_left(self, self._place, LEAVE_BY)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            session.loop.call_soon_threadsafe(feed.left)

    @property
    def _last_heard(self) -> float:
        """When something came last, in the loop's time."""
        return self._feed.last_heard

    # Taking messages

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return self._feed.buffered

    @property
    def state(self) -> State:
        """``running``, ``draining``, ``ended``, or ``failed``: by ``error``."""
        return self._feed.state

    @property
    def error(self) -> Exception | None:
        """Why it ended, if nobody asked for the end: what ``wait`` and iterating raise."""
        return self._feed.error

    def health(self) -> Health:
        """Whether messages can come now; if not, why: it has ended, there is no connection, or the server has
        said nothing about the consumer for longer than it promised."""
        feed, session = self._feed, self._session
        if feed.error is not None:
            return unwell(f"consume of {feed.consumer} failed: {feed.error}")
        if feed.is_over:
            return unwell(f"consume of {feed.consumer} has ended")
        if session.link is None:
            return unwell("disconnected" if session.outage is None else str(session.outage))
        if feed.is_silent:
            return unwell(f"nothing is heard of consumer {feed.consumer}, which is pulled from")
        return WELL

    def stats(self) -> ConsumptionStats:
        """What it has done, and what it holds."""
        failing = self._failing
        return ConsumptionStats(
            buffered=self.buffered,
            in_hand=self._feed.count_in_hand(),
            failures=self._failures,
            retries=0 if failing is None else failing.retried,
            dead_letters=0 if failing is None else failing.dead_letters,
        )

    def __aiter__(self) -> AsyncIterator[JetStreamMessage]:
        spans = self._session.spans
        return self if spans is None or self._feed.worker is not None else spans.one_by_one(self)

    async def __anext__(self) -> JetStreamMessage:
        feed, frames = self._feed, self._frames
        if not frames or feed.clock() >= feed.breathe_at:
            await self._turn()
        frame = frames.popleft()
        feed.taken += 1
        if feed.taken >= feed.tell_at:
            feed.tell(frame)
        feed.last = message = JetStreamMessage(self._session, frame)
        return message

    async def batches(self, max_messages: int = 0) -> AsyncIterator[list[JetStreamMessage]]:
        """What has come, as lists of at least one message, and of at most ``max_messages`` if given."""
        while messages := await self.next_batch(max_messages):
            yield messages

    async def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """The next of ``batches()``; empty at the end. Raises the error it ended with, if any."""
        frames, session, feed = self._frames, self._session, self._feed
        if not frames or feed.clock() >= feed.breathe_at:
            try:
                await self._turn()
            except StopAsyncIteration:
                return []
        count = min(max_messages or len(frames), len(frames))
        taken = [frames.popleft() for _ in range(count)]
        feed.taken += count
        if feed.taken >= feed.tell_at:
            feed.tell(*taken)
        messages = list(map(JetStreamMessage, repeat(session), taken))
        feed.last = messages[-1]
        return messages

    async def _turn(self) -> None:
        """Let the loop turn where it is time, and wait until a message is there. Raises StopAsyncIteration or
        the error at the end."""
        feed = self._feed
        if self._frames:
            await asyncio.sleep(0)
            feed.breathed()
            if self._frames:
                return
        feed.begin_wait()
        while not self._frames:
            if feed.is_over:
                if feed.error is not None:
                    raise feed.error
                raise StopAsyncIteration
            if feed.waiter.is_awaited:
                raise ConfigurationError("a consume is iterated by one task at a time")
            if type(feed.reader) is not int:
                task = asyncio.current_task()
                feed.reader = None if task is None else weakref.ref(task)
            await feed.waiter
        feed.end_wait()

    async def _work(self, calls: Calls[JetStreamMessage]) -> None:
        """Call back for each message where it is read, until the end."""
        feed = self._feed
        try:
            await calls.work(InTurn(self, None if self._failing is None else self._failing.pause))
        except Exception as error:
            if error is not feed.error:
                raise
            # the end, and its reason: `wait` raises it
        finally:
            feed.stop_now()  # where the task was cancelled; else it is over

    async def _fail(self, message: JetStreamMessage, error: Exception, again: Again) -> None:
        """The callback raised, and no policy says what follows."""
        self._failed(message, error)

    def _failed(self, message: DeliveredMessage, error: Exception) -> None:
        """The callback raised for this message."""
        self._failures += 1
        what = f"the callback of consumer {self._feed.consumer}, {place_of(message)}"
        tell(self._on_error, partial(self._session.report, about=what), error)

    def _send_back(self, message: JetStreamMessage) -> None:
        """The callback was cancelled: whoever is next may begin at once."""
        if not message.is_answered and not self._session.is_closed:
            self._session.send_back([message._frame[3]])

    # Ending

    async def wait(self) -> None:
        """Until it has ended. Raises the error it ended with, if any."""
        feed = self._feed
        if feed.worker is not None:
            if feed.is_taken_by(asyncio.current_task()):
                raise ConfigurationError(
                    "a consume cannot be waited for inside its own callback; stop() or drain() end it"
                )
            await asyncio.wait([feed.worker])
        await asyncio.shield(feed.ended)
        if feed.error is not None:
            raise feed.error

    async def stop(self) -> None:
        """End now. Messages in the buffer are sent back (NAK), so that they are delivered again soon.

        Waits until the callbacks that run have ended, but for that which calls.
        """
        await self._stop(asyncio.current_task())

    async def _stop(self, caller: object) -> None:
        feed = self._feed
        feed.stop_now()
        feed.came_back()
        if feed.abreast is not None and feed.abreast.is_one(caller):
            if others := feed.abreast.others(caller):
                await asyncio.wait(others)
        elif feed.worker is not None and feed.worker is not caller:
            await asyncio.wait([feed.worker])

    async def drain(self) -> None:
        """End, but first receive what is under way and wait until all of it has been handled: until who
        iterates has come back for more, or the callback has ended.

        Called by whoever takes the messages, also by the callback, it does not wait for that.
        """
        await self._feed.drain_for(asyncio.current_task())

    def _abandon(self) -> None:
        """End without a word to anybody; what is in the buffer can still be taken."""
        self._feed.abandon()

    def _give_back(self, taken: list[JetStreamMessage]) -> None:
        """End: these go back, what is in the buffer, and what is on its way."""
        self._feed.stop_now(taken=[message._frame for message in taken])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


class InTurn:
    """The messages of a consume for callbacks that run one at a time, where they are read: see ``Source``.

    Args:
        pause: how long one that is sent back waits; None: not at all.
    """

    def __init__(self, consumption: Consumption, pause: Callable[[int], float] | None) -> None:
        self._consumption = consumption
        self._feed = consumption._feed
        self._pause = pause

    async def more(self) -> bool:
        """See ``Source``. Raises the error it ended with, if any."""
        feed = self._feed
        if not feed.frames or feed.clock() >= feed.breathe_at:
            try:
                await self._consumption._turn()
            except StopAsyncIteration:
                return False
        return True

    def turn(self) -> Generator[JetStreamMessage, None, None]:
        """See ``Source``."""
        feed, session, pause = self._feed, self._consumption._session, self._pause
        frames, clock = feed.frames, feed.clock
        while frames and clock() < feed.breathe_at:
            frame = frames.popleft()
            feed.taken += 1
            if feed.taken >= feed.tell_at:
                feed.tell(frame)
            feed.last = message = JetStreamMessage(session, frame, _pause=pause)
            yield message

    def came_back(self) -> None:
        """See ``Source``: it has no threads."""

    def turned(self) -> None:
        """See ``Source``."""
