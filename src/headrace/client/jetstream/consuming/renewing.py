"""What is held ahead of a handler is kept from being delivered again: renewed, or let go of in time."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ....api.acks import IN_PROGRESS, parse_ack_subject
from ....errors import DisconnectedError, HeadraceError, RequestTimeoutError
from ....wire.frames import Frame
from .prefetch import Ages, Pace

if TYPE_CHECKING:
    from ....handling.waiting import Waiting
    from ...net.session import Session
    from ..message import JetStreamMessage


SHARE: Final = 1 / 3  # of the time to acknowledge passes between two questions …
AT_LEAST_S: Final = 1.0  # … and so long


Ask = Callable[[], Awaitable[float]]
"""Asks the server how long it waits for acknowledgements, in seconds; 0: for ever."""


class Following:
    """Asks now and then, while there is a reason to.

    Args:
        ack_wait: seconds, as far as is known.
        changed: told what it is instead.
    """

    def __init__(
        self,
        session: Session,
        label: str,
        ask: Ask,
        ack_wait: float,
        changed: Callable[[float], None],
    ) -> None:
        self._session = session
        self._label = label
        self._ask = ask
        self._ack_wait = ack_wait
        self._changed = changed
        self._asking: asyncio.Task[None] | None = None
        self._not_before = -math.inf

    def look(self, now: float) -> None:
        """Something is held for long, or was for too long: ask, unless that was done lately."""
        if self._asking is None and now >= self._not_before:
            self._not_before = now + max(AT_LEAST_S, self._ack_wait * SHARE)
            self._asking = self._session.loop.create_task(
                self._learn(), name=f"ask for ack_wait of {self._label}"
            )

    def stop(self) -> None:
        """Ask no more."""
        self._not_before = math.inf
        if self._asking is not None:
            self._asking.cancel()

    async def _learn(self) -> None:
        try:
            ack_wait = await self._ask()
        except (RequestTimeoutError, DisconnectedError):
            return  # asked again
        except HeadraceError as error:
            self._not_before = math.inf  # it is gone, which others see to; or we may not ask
            _log.debug("consumer %s: its ack_wait is not asked for: %s", self._label, error)
            return
        finally:
            self._asking = None
        if ack_wait and ack_wait != self._ack_wait:
            _log.info("consumer %s: ack_wait is %g s now", self._label, ack_wait)
            self._ack_wait = ack_wait
            self._changed(ack_wait)


BREATH_S: Final = 0.005  # a handler that never waits lets the loop breathe after so long
LOOK_EVERY: Final = 1 / 6  # of the time to acknowledge, at most
LATE: Final = 1 / 8  # of it: where a timer is so late the loop was blocked
LOOK_MIN_S: Final = 0.01

_log = logging.getLogger("headrace.client")


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Its clock, read anew: some loops know only when their turn began."""
    is_real = isinstance(loop, asyncio.BaseEventLoop) or type(loop).__module__.startswith("uvloop")
    return time.monotonic if is_real else loop.time


class Keeper:
    """Says of what is held that it is in progress, many at a time, a few times in ``ack_wait``.

    Where that was not possible in time, without a link or because the loop was blocked, the server delivers
    the messages again; so they are let go of, but for those that are not delivered once more.

    Args:
        frames, with_thread: what is held; the latter is older, and was taken for a thread.
        ack_wait: seconds.
        max_deliver: how often a message is delivered; 0 or less: without limit.
        forget: told which frames were let go of.
        ask: asks the server for ``ack_wait``, which may be changed; None: it stays.
        pace: how many may be ahead of a handler, for which it counts, too.
    """

    def __init__(
        self,
        session: Session,
        frames: deque[Frame],
        with_thread: deque[Any],
        *,
        label: str,
        ack_wait: float,
        max_deliver: int,
        forget: Callable[[list[Frame]], None],
        ask: Ask | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._session = session
        self._frames = frames
        self._with_thread = with_thread
        self._label = label
        self._max_deliver = max_deliver
        self._forget = forget
        self._by_key: Waiting[JetStreamMessage] | None = None
        self._ages = Ages(ack_wait)
        self._pace = pace
        self._following = ask and Following(session, label, ask, ack_wait, self._follow)
        self._doubtful_since: float | None = None
        self._is_told = False
        self.clock = clock_of(session.loop)
        self._arm(self.clock())

    def keep_by_key(self, by_key: Waiting[JetStreamMessage]) -> None:
        """Keep what is there, too, which is taken in any order."""
        self._by_key = by_key
        self._ages.in_order = False

    def arrived(self, messages: int) -> None:
        """So many came."""
        now = self.clock()
        self._ages.arrived(messages, now if self._doubtful_since is None else self._doubtful_since)

    def stop(self) -> None:
        """Renew no more."""
        self._timer.cancel()
        if self._following is not None:
            self._following.stop()

    def _follow(self, ack_wait: float) -> None:
        """The consumer has another ``ack_wait`` now."""
        self._ages.ack_wait = ack_wait
        if self._pace is not None:
            self._pace.follow(ack_wait)
        self._timer.cancel()
        self.tend()
        self._arm(self.clock())

    def turned(self, now: float) -> None:
        """The loop has turned, which it may not have done for long: what comes now may have come then."""
        if now - self._when >= self._ages.ack_wait * LATE:
            self._look()

    def tend(self) -> None:
        """Let go of what is over, and renew what is old."""
        session, now = self._session, self.clock()
        waiting = [] if self._by_key is None else self._by_key.waiting()
        held = len(waiting) + len(self._with_thread) + len(self._frames)
        over, are_old = self._ages.look(held, now)
        if over:
            self._let_go(over)
        if self._following is not None and (over or are_old) and session.link is not None:
            self._following.look(now)
        if are_old and session.link is not None:
            replies = [message._frame[3] for message in (*waiting, *self._with_thread.copy())]
            replies += [frame[3] for frame in self._frames]
            if replies:
                session.send_control(session.outbox.answers(replies, IN_PROGRESS))
            self._ages.renewed(now)

    def _arm(self, now: float) -> None:
        ages = self._ages
        self._armed_at = now
        latest = now + ages.ack_wait * LOOK_EVERY
        self._when = max(min(ages.next_look(now), latest), now + LOOK_MIN_S)
        self._timer = self._session.loop.call_later(self._when - now, self._look)

    def _look(self) -> None:
        self._timer.cancel()
        late = self.clock() - self._when
        if late >= self._ages.ack_wait * LATE:
            self._tell_of_block(late)
            # The loop was blocked, when at the earliest is known. What came since then, and what comes
            # before the server answers anew, may have been on its way for as long.
            self._doubtful_since = self._armed_at
            self._ages.doubt(self._armed_at)
            self._session.keepalive.call_when_read(self._is_sure)
        self.tend()
        self._arm(self.clock())

    def _tell_of_block(self, seconds: float) -> None:
        """Once: who blocks does it again and again."""
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "consumer %s: the event loop stood still for %.1f s, and ack_wait is %g s: nothing could be "
                "renewed or acknowledged meanwhile. What blocks belongs on a thread: a plain function with "
                "concurrency=, or asyncio.to_thread",
                self._label,
                seconds,
                self._ages.ack_wait,
            )

    def _is_sure(self) -> None:
        self._doubtful_since = None

    def _let_go(self, over: int) -> None:
        """Of the oldest ``over`` messages, which will be delivered again."""
        let_go = 0
        kept: list[Any] = []
        if self._by_key is not None:  # all of it is
            waiting = [
                (message, self._is_last(message._frame)) for message in self._by_key.waiting()
            ]
            gone = self._by_key.remove({message for message, is_last in waiting if not is_last})
            self._forget([message._frame for message in gone])
            let_go, over = len(gone), len(self._frames)
        for _ in range(min(over, len(self._with_thread))):
            try:
                message = self._with_thread.popleft()
            except IndexError:  # the thread was faster
                break
            if self._is_last(message._frame):
                kept.append(message)
            else:
                let_go += 1
            over -= 1
        self._with_thread.extendleft(reversed(kept))
        oldest = [self._frames.popleft() for _ in range(min(over, len(self._frames)))]
        self._frames.extendleft(reversed([frame for frame in oldest if self._is_last(frame)]))
        frames = [frame for frame in oldest if not self._is_last(frame)]
        self._forget(frames)
        let_go += len(frames)
        if let_go:
            _log.warning(
                "consumer %s: %d messages waited here for too long and are delivered again, as they "
                "could not be renewed: no link, or the event loop was blocked",
                self._label,
                let_go,
            )

    def _is_last(self, frame: Frame) -> bool:
        """Whether it is not delivered again."""
        limit = self._max_deliver
        return 0 < limit <= parse_ack_subject(frame[3].decode()).delivered
