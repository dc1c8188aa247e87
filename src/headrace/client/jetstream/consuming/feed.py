"""What comes from a consumer by itself: a subscription, a buffer, and the pulls that keep it filled.

The session holds a feed. Its user holds a ``Consumption``, and that the feed; from here to there is no strong
reference, so who lets go of a consumption ends its feed.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ....api.names import CONSUMER_DELETED
from ....errors import (
    ConnectionClosedError,
    ConsumerNotFoundError,
    HeadraceError,
    HeartbeatMissedError,
    NoRespondersError,
    ProtocolError,
    PullError,
    StreamNotFoundError,
)
from ....handling.waiting import Waiting
from ....wire.encode import pub, unsub
from ....wire.frames import Frame
from ...events import ConsumptionEnded
from ...net.waiting import Waiter
from ..message import DeliveredMessage, JetStreamMessage
from ..pull import (
    ConsumeLimits,
    Meaning,
    Pin,
    PriorityOptions,
    PullAccount,
    Status,
    encode_request,
    message_size,
    read_status,
)
from .prefetch import Pace
from .redelivered import Held
from .renewing import BREATH_S, Ask, Keeper, clock_of

if TYPE_CHECKING:
    from ....api.consumers import PullRequest
    from ...net.session import Session
    from .concurrent import ConcurrentCallbacks


IfGone = Literal["end", "wait", "create"]


class MissingConsumer:
    """Asks the server about a consumer that did not answer.

    Args:
        name: what the log calls it.
        ask: asks the server about it; raises as ``Consumer.info``.
        make_again: makes it again where it is gone, or returns False: nobody knows how it was made. None: it
            stays gone.
    """

    __slots__ = ("_ask", "_make_again", "_name", "creates")

    def __init__(
        self,
        name: str,
        ask: Callable[[], Awaitable[object]],
        make_again: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._name = name
        self._ask = ask
        self._make_again = make_again
        self.creates = make_again is not None

    async def look(self) -> tuple[bool, Exception | None]:
        """Whether it was gone and made again; and else the error that it is gone with, if it is. Who
        cannot say, such as a cluster without a leader, says neither."""
        try:
            await self._ask()
        except StreamNotFoundError as error:
            return False, error
        except ConsumerNotFoundError as error:
            missing = error
        except HeadraceError:
            return False, None
        else:
            return False, None
        try:
            is_made = self._make_again is not None and await self._make_again()
        except HeadraceError as error:
            _log.warning("consumer %s is gone and cannot be made again: %s", self._name, error)
            return False, None  # asked again with the next pull that is refused
        if not is_made:
            return False, missing
        _log.warning("consumer %s was gone and is made again", self._name)
        return True, None


Failed = Callable[[Exception], object]


def unheard(error: Exception) -> None:
    """Whoever sees to the end of a feed hears of it where it takes what came."""


class FeedSettings(NamedTuple):
    """How the messages of a feed are looked after.

    Attributes:
        ack_wait: seconds after which what is held is delivered again; 0: never.
        max_deliver: how often in all; 0 or less: without limit.
        gone: sees to a consumer that is not there; None: it is waited for.
        ask: asks the server for ``ack_wait``, which may be changed meanwhile.
        on_failed: hears of an end that nobody asked for, where somebody sees to that; None: its user is.
    """

    ack_wait: float = 0.0
    max_deliver: int = 0
    gone: MissingConsumer | None = None
    ask: Ask | None = None
    on_failed: Failed | None = None


class Takers:
    """Who takes the messages of a feed.

    Attributes:
        last: the message handed over last; None once its taker has come back for more.
        reader: the task that iterates, weakly, or the number of the thread.
        worker: done when the callback is not called any more.
        abreast: calls several callbacks at once, if there are several.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last: DeliveredMessage | None = None
        self.reader: weakref.ref[asyncio.Task[Any]] | int | None = None
        self.worker: asyncio.Future[None] | None = None
        self.abreast: ConcurrentCallbacks | None = None
        self._loop = loop
        self._returned: asyncio.Future[None] | None = None  # whoever took the last has come back

    def came_back(self) -> None:
        """Whoever took the last message wants another one, or will never take one: it is handled."""
        self.last = None
        if self._returned is not None and not self._returned.done():
            self._returned.set_result(None)

    def is_taken_by(self, caller: object) -> bool:
        """Whether ``caller``, a task or the number of a thread, takes the messages."""
        reader = self.reader() if isinstance(self.reader, weakref.ref) else self.reader
        if self.abreast is not None and self.abreast.is_one(caller):
            return True
        return caller is not None and caller in (self.worker, reader)

    def in_hand(self, caller: object) -> list[asyncio.Future[Any]]:
        """What is to be waited for, until one of it is done, until the message in hand is handled; nothing
        if none is, as far as is known, or if it is ``caller`` who has it."""
        if self.is_taken_by(caller):
            return []
        if self.worker is not None:
            return [] if self.worker.done() else [self.worker]
        if self.last is None or self.last.is_answered:
            return []
        waits: list[asyncio.Future[Any]] = []
        if isinstance(self.reader, weakref.ref):
            task = self.reader()
            if task is None or task.done():
                return []
            waits.append(task)
        if self._returned is None or self._returned.done():
            self._returned = self._loop.create_future()
        return [*waits, self._returned]

    def count_in_hand(self) -> int:
        """How many messages are being handled, as far as is known."""
        if self.abreast is not None:
            return self.abreast.running
        return int(self.last is not None and not self.last.is_answered)

    def hands(self, caller: object) -> list[list[asyncio.Future[Any]]]:
        """For each message in hand, ``in_hand``."""
        if self.abreast is None:
            return [self.in_hand(caller)]
        return [[lane] for lane in self.abreast.others(caller)]


PULLS_AT_ONCE_MAX: Final = 16  # when the consumer allows only small batches

_log = logging.getLogger("headrace.client")

State = Literal["running", "draining", "ended", "failed"]


class Feed(Takers):
    """The messages of one consumption, as far as they have come. Attributes are for this package only.

    Args:
        report: told of what does not end it.

    Attributes:
        frames: what came and was not taken.
        with_thread: what was taken many at a time, for a thread, and not handed out yet.
        taken, tell_at: handed over since ``tell``, and how many may be before a pull could be due.
        by_key: what waits for one of several callbacks, where there are several.
        error: why it ended, if nobody asked for the end.
        on_failed: told of such an end at once.
    """

    def __init__(
        self,
        session: Session,
        subject: bytes,
        consumer: str,
        limits: ConsumeLimits,
        priority: PriorityOptions,
        pin: Pin,
        report: Callable[[Exception], None],
        feed_settings: FeedSettings,
    ) -> None:
        self.session = session
        self.consumer = consumer
        self.frames: deque[Frame] = deque()
        self.with_thread: deque[Any] = deque()
        self.held = Held(self.frames, self.with_thread, self._forget)
        self.taken = 0
        self.tell_at = 1
        super().__init__(session.loop)
        self.waiter = Waiter(session.loop, at_once=session.may_run_readers)
        self.by_key: Waiting[JetStreamMessage] | None = None
        self.error: Exception | None = None
        self.is_over = False
        self.ended: asyncio.Future[None] = session.loop.create_future()
        self.report = report
        self._subject = subject
        self._gone = feed_settings.gone
        self.on_failed: Callable[[Exception], object] = feed_settings.on_failed or self._say_so
        self._asking: asyncio.Task[None] | None = None
        self._pin = pin
        self._grouped = bool(priority.get("group"))
        self._account = PullAccount(limits, priority)
        self._keeper: Keeper | None = None
        self._pace: Pace | None = None
        if feed_settings.ack_wait:
            if limits.are_defaults:
                self._pace = Pace(feed_settings.ack_wait, limits.messages)
                self._account.limit(1)
            self._keeper = Keeper(
                session,
                self.frames,
                self.with_thread,
                label=consumer,
                ack_wait=feed_settings.ack_wait,
                max_deliver=feed_settings.max_deliver,
                forget=self._forget,
                ask=feed_settings.ask,
                pace=self._pace,
            )
        self.clock = clock_of(session.loop)
        self.breathe_at = self._since = self.clock()
        self._handed = self._open = 0  # since then, and in hand then
        self._drained: asyncio.Future[None] | None = None  # all has come; made when draining
        self._pulling = True
        self._pause: asyncio.TimerHandle | None = None
        self.last_heard = self._last_pull = session.loop.time()
        self._silent_at: float | None = None  # ``last_heard``, where silence was found then
        self._inbox = session.new_inbox().encode()
        self.route = session.open_route(self._inbox, self._receive)
        session.observers[self] = None
        session.on_confirmed[self] = self._drop_copies
        self._monitor = session.loop.call_later(2 * self._account.heartbeat, self._check)
        self._refill()

    @property
    def state(self) -> State:
        """What its user is told."""
        if self.is_over:
            return "ended" if self.error is None else "failed"
        return "running" if self._pulling else "draining"

    @property
    def is_silent(self) -> bool:
        """Whether a heartbeat was missed, and nothing came since."""
        return self.last_heard == self._silent_at

    def wait_by_key(self) -> Waiting[JetStreamMessage]:
        """Where what comes is put from here on, for several callbacks at once."""
        self.by_key = self.held.by_key = Waiting(notes_begun=True)
        if self._keeper is not None:
            self._keeper.keep_by_key(self.by_key)
        return self.by_key

    @property
    def buffered(self) -> int:
        """Messages that came and were not taken yet."""
        return len(self.frames) + (0 if self.by_key is None else len(self.by_key))

    # Ending

    def stop_now(self, error: Exception | None = None, taken: Iterable[Frame] = ()) -> None:
        """End at once: what nobody took goes back, also if it had ended before, behind ``taken``."""
        session = self.session
        frames = [*taken, *self.held.take_back(), *self.frames]
        self.frames.clear()
        if self.is_over:
            session.refuse(frames)
            self._all_taken()
        else:
            session.refuse_rest(self.route, frames)
            self.end(error)

    def abandon(self) -> None:
        """End without a word to anybody; what is in the buffer can still be taken."""
        self.session.close_route(self.route)
        self.end(None)
        self._leave_session()
        if self._keeper is not None:
            self._keeper.stop()

    def left(self) -> None:
        """Nobody holds the user's end any more."""
        self.stop_now()
        self.came_back()

    def pull_no_more(self) -> None:
        """Send no further pull; what the last one brings is received, until somebody drains it or stops."""
        if self._pulling:
            self._pulling_ends()

    def begin_drain(self) -> asyncio.Future[None]:
        """Pull no more, and end when everything that was under way has come, or the link is lost."""
        if self._drained is None:
            self._drained = self.session.loop.create_future()
            self.session.send_control(unsub(self.route.sid))
            self.session.keepalive.call_when_read(self._end_drain)
            self._pulling_ends()
        return self._drained

    def _end_drain(self) -> None:
        self.session.routes.remove(self.route)
        self.end(None)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, error: Exception | None) -> None:
        """End: no more comes. What is in the buffer can still be taken, then ``error`` is raised."""
        if self.is_over:
            return
        self.is_over = True
        self.error = error
        self._pulling_ends()
        if not self.buffered:
            self._all_taken()
        self.waiter.wake()

    def _fail(self, error: Exception) -> None:
        """It ends although nobody wants that."""
        self.session.close_route(self.route)
        self.end(error)
        self.on_failed(error)

    def fail_now(self, error: Exception) -> None:
        """As ``stop_now``, although nobody wants that."""
        if not self.is_over:
            self.stop_now(error)
            self.on_failed(error)

    def _say_so(self, error: Exception) -> None:
        self.session.hub.emit(ConsumptionEnded(self.consumer, error))
        if self.worker is not None:
            _log.error("consumer %s: the callback is called no more: %s", self.consumer, error)

    def _ask_whether_gone(self) -> None:
        if self._gone is not None and self._asking is None and self._pulling:
            self._asking = self.session.loop.create_task(
                self._look_whether_gone(self._gone), name=f"look at consumer {self.consumer}"
            )

    async def _look_whether_gone(self, gone: MissingConsumer) -> None:
        try:
            is_made_again, error = await gone.look()
        finally:
            self._asking = None
        if error is not None and self._pulling:
            self._fail(error)
        elif is_made_again and self._pulling:
            came = list(self.frames)  # comes again from the other one
            self.frames.clear()
            self.held.take_back()
            self._account_for_taken()
            self._forget(came)
            self._account.restart()
            self._refill()

    def _pulling_ends(self) -> None:
        self._pulling = False
        if self._asking is not None:
            self._asking.cancel()
        self.tell_at = 1
        self._monitor.cancel()
        if self._pause is not None:
            self._pause.cancel()

    def _leave_session(self) -> None:
        self.session.observers.pop(self, None)
        self.session.on_confirmed.pop(self, None)

    def _all_taken(self) -> None:
        if self._keeper is not None:
            self._keeper.stop()
        self._leave_session()
        if not self.ended.done():
            self.ended.set_result(None)

    # Draining

    async def drain_for(self, caller: object) -> None:
        """Drain, without waiting for ``caller``, or whoever takes, to handle the messages."""
        if not self.is_over:
            await asyncio.shield(self.begin_drain())
        if self.is_taken_by(caller):
            return
        if self.worker is None and (self.frames or self.with_thread):
            await asyncio.shield(self.ended)
        if waits := self.in_hand(caller):
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

    # Messages and statuses: handled as they arrive, however slow the taker is

    def _receive(self, frames: list[Frame]) -> None:
        self.last_heard = self.session.loop.time()
        account = self._account
        messages = came = [frame for frame in frames if frame[3]]
        if came:
            size = sum(map(message_size, came)) if account.counts_bytes else 0
            account.arrived(len(came), size)
            if self.held.is_mixed:
                messages = self.held.renew(came)
            self.frames.extend(messages)
            if self._keeper is not None:
                self._keeper.arrived(len(messages))
            if self._grouped:
                self._pin.learn(came[-1][4])
        if len(came) != len(frames):  # only statuses can make a pull due
            self._account_for_taken()
            for frame in frames:
                if not frame[3]:
                    self._handle_status(frame[4])
            self._refill()
        if messages:
            self.waiter.wake_now()  # last: whoever takes them may do anything, such as end this

    def _handle_status(self, headers: bytes) -> None:
        try:
            status = read_status(headers)
        except ProtocolError as error:
            self.report(error)
            return
        meaning = self._account.status(status)
        if meaning in (Meaning.WARNING, Meaning.ERROR):
            self.report(self._error_for(status))
            if status.code == 503:
                self._ask_whether_gone()
        elif meaning is Meaning.UNPINNED:
            self._pin.lost()
        elif status.key == CONSUMER_DELETED and self._gone is not None and self._gone.creates:
            self._account.restart()
            self._ask_whether_gone()
        elif meaning is Meaning.TERMINAL:
            self._fail(PullError(status.code, f"{status.description}: {self.consumer}"))

    def _error_for(self, status: Status) -> Exception:
        if status.code == 503:
            return NoRespondersError(
                f"no consumer {self.consumer}: it does not exist (any more), or its stream is not "
                "available; trying on"
            )
        return PullError(status.code, status.description)

    # Taking

    def breathed(self) -> None:
        """The loop has turned, which whoever handles messages may have kept it from."""
        now = self.clock()
        if self._keeper is not None:
            self._keeper.turned(now)
        self.breathe_at = now + BREATH_S

    def began(self, message: DeliveredMessage) -> None:
        """One of several callbacks was called with it."""
        if self._account.counts_bytes:
            self._account.processed(1, message_size(message._frame))
        else:
            self.taken += 1

    def balance(self, running: int, idle: int) -> None:
        """Of several callbacks so many are running, and so many more could: pull for these, and ahead."""
        if self._pace is not None:
            self._measure(running)
            self._account.limit(max(idle, self._pace.room))
        self._account_for_taken()
        self._refill()

    def begin_wait(self) -> None:
        """Whoever takes has handled everything, and waits."""
        self.came_back()
        if self._pace is not None:
            self._measure(0)
            self._account_for_taken()
            self._account.limit(max(1, self._pace.room))
            self._refill()

    def end_wait(self) -> None:
        """A message is there, or the end."""
        self._since = now = self.clock()
        self.breathe_at = now + BREATH_S

    def _measure(self, in_hand: int) -> None:
        """How long it took to handle what was handed over before those that are in hand now."""
        now = self.clock()
        handled = self._open + self._handed + self.taken - in_hand
        if handled > 0 and self._pace is not None:
            self._pace.handled(handled, now - self._since)
        self._open, self._handed, self._since = in_hand, -self.taken, now

    def _forget(self, frames: list[Frame]) -> None:
        """They are not for whoever takes here."""
        size = sum(map(message_size, frames)) if self._account.counts_bytes else 0
        self._account.processed(len(frames), size)
        self._refill()

    def _drop_copies(self, frame: Frame) -> None:
        """A delivery of a server before is confirmed: what came again of it need not be handled."""
        self.held.remove(frame)
        if self.is_over and not self.buffered:
            self._all_taken()

    # Pulling

    def tell(self, *frames: Frame) -> None:
        """Account for what was taken; a pull may be due."""
        if self._pace is not None:
            self._measure(len(frames))
            self._account.limit(self._pace.room)
        if self._account.counts_bytes:
            self._account.processed(len(frames), sum(map(message_size, frames)))
            self.taken = 0
        self._account_for_taken()
        self._refill()
        if self.is_over and not self.buffered:
            self._all_taken()

    def _account_for_taken(self) -> None:
        if self.taken:
            self._account.processed(self.taken, 0)
            self._handed += self.taken
            self.taken = 0

    def _refill(self) -> None:
        """Send the pulls that are due, unless they must wait."""
        if not self._pulling:
            return
        if self.session.link is not None and self._pause is None:
            pause = self._account.pause
            if pause and self._account.due:
                self._pause = self.session.loop.call_later(pause, self._resume)
            else:
                self._pull_what_is_due()
        self.tell_at = self._account.taken_until_due

    def _resume(self) -> None:
        """The pause after a refusal is over."""
        self._pause = None
        if self.session.link is not None:
            self._pull_what_is_due()
        self.tell_at = self._account.taken_until_due

    def _pull_what_is_due(self) -> None:
        for _ in range(PULLS_AT_ONCE_MAX):
            if not self._account.due:
                return
            self._pull(self._account.request(self._pin.use()))

    def _pull(self, request: PullRequest) -> None:
        self._last_pull = self.session.loop.time()
        body = encode_request(request)
        self.session.counts.pulls += 1
        self.session.send_control(pub(self._subject, self._inbox, b"", body))

    def _check(self) -> None:
        """The heartbeat monitor; also keeps the pin of a client whose buffer is full for long."""
        account, now = self._account, self.session.loop.time()
        allowed = 2 * account.heartbeat
        silent = now - self.last_heard
        if self.session.link is None or not account.outstanding:
            self.last_heard = now
        elif silent >= allowed:
            self.last_heard = self._silent_at = now
            self.session.doubt.begin()
            self.report(
                HeartbeatMissedError(
                    f"no message and no heartbeat from consumer {self.consumer} for {silent:.1f} s: "
                    "it may be gone, or the server has too many pulls waiting; pulling anew"
                )
            )
            self._account_for_taken()
            account.restart()
            self._refill()
            self._ask_whether_gone()
        if self._pin.id and self._grouped and now - self._last_pull >= account.expires:
            self._pull(account.keep_pin_request(self._pin.use()))
        wait = allowed - (now - self.last_heard)
        if self._grouped and self._last_pull + account.expires > now:
            wait = min(wait, self._last_pull + account.expires - now)  # the pin's sake
        self._monitor = self.session.loop.call_later(wait, self._check)

    # The connection

    def connection_lost(self) -> None:
        """No pull is sent and no heartbeat is expected until it is back."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def connection_restored(self) -> None:
        """After a reconnect: pull again; what was asked for on the lost connection is forgotten."""
        self.last_heard = self.session.loop.time()
        if self._keeper is not None:
            self._keeper.tend()
        self.held.linked(self.session.routes.first)
        self._account_for_taken()
        self._account.restart()
        self._refill()

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good, and so is all that came and could not be answered any more."""
        self.frames.clear()
        self.held.take_back()
        self.end(ConnectionClosedError(str(reason)))
        self._all_taken()
        self.came_back()
