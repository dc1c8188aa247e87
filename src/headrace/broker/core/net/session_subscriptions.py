"""The subscriptions of one session: made, ended, renewed when its permissions change, and removed at its end.

The subscriptions of a disconnected client are closed at once, so nothing more is written to them. Removing a
hundred thousand from the trie is half a second of work, and nobody waits for it: that is done some at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ....clock import Clock
from ....subjects import are_valid_patterns, is_valid_pattern
from ....wire import encode
from ....wire.frames import SUB
from ..timers import TimerQueue
from .router import Router
from .subscription import GuardedSubscription, Subscription

RUN_MAX: Final = 32  # so many SUB lines are taken together: a fraction of a millisecond

if TYPE_CHECKING:
    from ....wire.frames import Frame
    from ..options import HubOptions
    from .router import Router
    from .session import Session


class SessionSubscriptions:
    """The subscriptions of one session, by ``sid``. If ``plain`` is None, all of them are ``guarded``."""

    __slots__ = ("_drop", "_guarded", "_listener", "_past_messages", "_plain", "by_sid", "on_end")

    def __init__(
        self,
        listener: Session,
        plain: type[Subscription] | None,
        guarded: type[GuardedSubscription],
    ) -> None:
        self._listener = listener
        self._plain = plain
        self._guarded = guarded
        self._past_messages = 0
        # One for all of them: each look makes another.
        self._drop: Callable[[Subscription], None] = self.drop
        self.by_sid: dict[bytes, Subscription] = {}
        self.on_end: Callable[[list[bytes]], object] | None = None

    @property
    def delivered(self) -> int:
        """How many messages were delivered, ended subscriptions included."""
        found = self._past_messages
        for subscription in self.by_sid.values():
            found += subscription.delivered
        return found

    def add(self, options: HubOptions, pattern: bytes, queue: bytes, sid: bytes) -> str:
        """Subscribe. Returns why not, or an empty text. As in nats-server, the first of a ``sid`` stays."""
        if sid in self.by_sid:
            return ""
        refusal = self._why_not(options, pattern, queue)
        if not refusal:
            subscription = self.by_sid[sid] = self._make(pattern, queue, sid)
            self._listener.router.subscribe(subscription)
        return refusal

    def add_run(
        self, options: HubOptions, first: Frame, rest: Iterator[Frame]
    ) -> tuple[int, Frame | None]:
        """``add`` for SUB frames of a client that may subscribe to anything; refusals are told.

        Returns how many were taken, and what was read behind them, if anything was.
        """
        run, after = _run_of(first, rest)
        if not self._add_together(options, run):
            for _op, pattern, queue, sid in run:
                refusal = self.add(options, pattern, queue, sid)
                if refusal:
                    self._listener.output.write(encode.err(refusal))
        return len(run), after

    def _add_together(self, options: HubOptions, frames: Sequence[Frame]) -> bool:
        """Subscribe to all of these; False, and to nothing, if one may be refused or repeats a ``sid``."""
        plain, by_sid, listener = self._plain, self.by_sid, self._listener
        if plain is None or listener.identity.permissions is not None:
            return False
        if subscriptions_max(listener, options) - len(by_sid) < len(frames):
            return False
        sids = [frame[3] for frame in frames]
        if len({*sids}) < len(sids) or not by_sid.keys().isdisjoint(sids):
            return False
        patterns = [frame[1] for frame in frames]
        dots_max = max([pattern.count(b".") for pattern in patterns])
        if dots_max >= options.subscription_tokens_max or not are_valid_patterns(patterns):
            return False
        client_id, output, drop = listener.client_id, listener.output, self._drop
        made = [
            plain(client_id, output, pattern, queue, sid, drop)
            for _op, pattern, queue, sid in frames
        ]
        by_sid.update(zip(sids, made, strict=True))
        listener.router.subscribe_all(made)
        return True

    def end(self, sid: bytes, messages_max: int) -> None:
        """Unsubscribe after ``messages_max`` messages in total, or now if they were delivered."""
        subscription = self.by_sid.get(sid)
        if subscription is not None:
            if messages_max > subscription.delivered:
                subscription.messages_max = messages_max
            else:
                self.drop(subscription)

    def drop(self, subscription: Subscription) -> None:
        if self.by_sid.pop(subscription.name, None) is not None:
            self._close(subscription)
            self._listener.router.unsubscribe(subscription)
            if self.on_end is not None:
                self.on_end([subscription.name])

    def move(self, router: Router) -> None:
        """Listen in another account from here on."""
        for subscription in self.by_sid.values():
            self._listener.router.unsubscribe(subscription)
            router.subscribe(subscription)

    def renew(self) -> None:
        """Drop subscriptions that are no longer permitted, and remake the others as permitted now."""
        listener = self._listener
        permissions, router = listener.identity.permissions, listener.router
        for sid, before in list(self.by_sid.items()):
            pattern = before.pattern
            if permissions is not None and not permissions.may_subscribe(pattern, before.queue):
                self.drop(before)
                text = (
                    f'Permissions Violation for Subscription to "{shown(pattern)}" '
                    f'(sid "{shown(sid)}")'
                )
                listener.output.write(encode.err(text))
                continue
            successor = self._make(pattern, before.queue, sid)
            successor.delivered, successor.messages_max = before.delivered, before.messages_max
            self.by_sid[sid] = successor
            router.subscribe(successor)  # first, so that interest never lapses
            before.closed = True
            router.unsubscribe(before)

    def close(self) -> dict[bytes, Subscription]:
        """End them all, and let the session go. Returns them, because they are still in the router."""
        ended, self.by_sid = self.by_sid, {}
        past = 0
        for subscription in ended.values():  # a hundred thousand: no call for each
            subscription.closed = True
            past += subscription.delivered
        self._past_messages += past
        if self.on_end is not None:
            self.on_end([*ended])
        self.on_end = None
        self._drop = _dropped
        del self._listener
        return ended

    def _close(self, subscription: Subscription) -> None:
        subscription.closed = True
        self._past_messages += subscription.delivered

    def _make(self, pattern: bytes, queue: bytes, sid: bytes) -> Subscription:
        """A subscription within the permissions of the identity, not yet known to the router."""
        listener = self._listener
        permissions, answers = listener.identity.permissions, listener.answers
        deny = None if permissions is None else permissions.denied_within(pattern, queue)
        client_id, output = listener.client_id, listener.output
        if self._plain is not None and deny is None and answers is None:
            return self._plain(client_id, output, pattern, queue, sid, self._drop)
        guarded = self._guarded(client_id, output, pattern, queue, sid, self._drop)
        return guarded.guard(deny, answers)

    def _why_not(self, options: HubOptions, pattern: bytes, queue: bytes) -> str:
        """Why a subscription is refused, in the words of nats-server; empty if it is not."""
        identity = self._listener.identity
        if len(self.by_sid) >= subscriptions_max(self._listener, options):
            return "maximum subscriptions exceeded"
        if not is_valid_pattern(pattern):
            return "Invalid Subject"
        if pattern.count(b".") >= options.subscription_tokens_max:
            return f'Permissions Violation for Subscription to "{shown(pattern)}", too many tokens'
        permissions = identity.permissions
        if permissions is not None and not permissions.may_subscribe(pattern, queue):
            using = f' using queue "{shown(queue)}"' if queue else ""
            return f'Permissions Violation for Subscription to "{shown(pattern)}"{using}'
        return ""


def _dropped(_subscription: Subscription) -> None:
    """In place of ``drop``, once all of them have ended."""


def _run_of(first: Frame, rest: Iterator[Frame]) -> tuple[list[Frame], Frame | None]:
    """A SUB frame and those right behind it; and what was read beyond them, if anything was."""
    run = [first]
    for frame in islice(rest, RUN_MAX - 1):
        if frame[0] != SUB:
            return run, frame
        run.append(frame)
    return run, None


def subscriptions_max(listener: Session, options: HubOptions) -> int:
    """How many a client may have: the least that the server, its account and its user allow."""
    limits = (listener.account.options.subscriptions_max, listener.identity.subscriptions_max)
    return min([options.subscriptions_max, *(limit for limit in limits if limit >= 0)])


def shown(subject: bytes) -> str:
    """A subject as error texts show it."""
    return subject.decode(errors="backslashreplace")


AT_ONCE: Final = 512
AT_ONCE_MAX: Final = 8192  # more than are made meanwhile
QUEUE_TICKS: Final = 32


class Leaving:
    """The queue of subscriptions that are closed and still in a router."""

    def __init__(self, clock: Clock, timers: TimerQueue) -> None:
        self._clock = clock
        self._timers = timers
        self._queue: deque[tuple[Router, dict[bytes, Subscription]]] = deque()
        self._left = 0
        self._asked = False

    def __len__(self) -> int:
        """How many are still in a router."""
        return self._left

    def add(self, router: Router, subscriptions: dict[bytes, Subscription]) -> None:
        """Remove closed subscriptions, its own from here on: few of them now, others in later ticks."""
        if len(subscriptions) <= AT_ONCE:
            router.unsubscribe_all(subscriptions.values())
            return
        self._queue.append((router, subscriptions))
        self._left += len(subscriptions)
        if not self._asked:
            self._go_on()

    def _go_on(self) -> None:
        self._asked = False
        queue = self._queue
        # The longer the queue the more, or clients that come and go would let it grow for ever.
        count = min(max(AT_ONCE, self._left // QUEUE_TICKS), AT_ONCE_MAX)
        while count and queue:
            router, subscriptions = queue[0]
            take = subscriptions.popitem
            some = [take()[1] for _ in range(min(count, len(subscriptions)))]
            router.unsubscribe_all(some)
            count -= len(some)
            self._left -= len(some)
            if not subscriptions:
                queue.popleft()
        if queue:
            self._asked = True
            self._timers.call_at(self._clock.monotonic_ns(), self._go_on)
