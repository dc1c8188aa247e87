"""A member at work, for threads: its handlers run on threads of the membership's own.

The docstrings are those of the asyncio class; ``make blocking`` writes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Generic, Self, TypeVar

from ...api.consumers import ConsumerConfig
from ...client.blocking.jetstream import JetStream
from ...client.blocking.loop_thread import Blocking, LoopThread, caller_here, take_next
from ...client.callbacks import check_plain
from ...errors import ConfigurationError
from ..member import Membership as AioMembership
from ..member.machine import Release
from ..member.stats import MembershipStats
from ..message import GroupMessage as AioGroupMessage
from ..records import ElasticGroup, StaticGroup
from .message import GroupMessage

__all__ = ["Handler", "Membership", "joined"]

G = TypeVar("G", StaticGroup, ElasticGroup)
Handler = Callable[[GroupMessage], object]


def joined(
    js: JetStream,
    join: Callable[..., AioMembership[G]],
    stream: str,
    group: str,
    member: str,
    handler: Handler | None,
    config: ConsumerConfig | None,
    **settings: Any,
) -> Membership[G]:
    """What ``join``, which is that of ``static`` or ``elastic``, is for threads."""
    inner = join(
        js._inner,
        stream,
        group,
        member,
        None if handler is None else _blocking(js._thread, handler),
        config,
        **settings,
    )
    return Membership(js._thread, inner)


def _blocking(thread: LoopThread, handler: Handler) -> Callable[[AioGroupMessage], None]:
    """``handler``, with the messages that it is to get."""
    check_plain("handler", handler)

    @wraps(handler)
    def call(message: AioGroupMessage) -> None:
        handler(GroupMessage._of(thread, message))

    return call


class Membership(Blocking, Generic[G]):
    """One instance of a group's member. Made by ``static.join`` and ``elastic.join``.

    ::

        with elastic.join(js, "ORDERS", "billing", "a", handle) as membership:
            membership.wait()

    Entered, it waits until the record lists the member, takes part, and follows the record's changes. Of
    several instances of one member the first that gets work is active; the others stand by. Without a
    handler iterate it: ``for message in membership``; a message counts as handled when the next one is
    asked for.

    Args:
        kind: ``StaticGroup`` or ``ElasticGroup``.
        stream, group, member: the stream of the group, the group, and which of its members this is.
        handler: called for each message; it acknowledges the message. It runs on one of ``concurrency``
            threads of the membership's own, and may block; each call has a copy of the context
            (``contextvars``) of the connection's background thread.
        config: how the member's consumers deliver; all instances of a group give the same. Names, filters
            and priority group are set by the group. ``ack_wait`` is 5 seconds where none is given.
        concurrency: how many handlers run at once, never two for one key.
        key: what a message's key is, instead of what the group partitions by; called on the background
            thread, where it must not make blocking calls.
        on_failure: what follows when the handler raises: ``Stop()``, ``Retry(…)``, ``DeadLetter(…)``.
        on_active, on_standby: called on the background thread, where it must not make blocking calls,
            when this instance becomes the owner of partitions, with the generation, and when it is the
            owner of none any more.
        on_error: called with errors that do not end the membership, on the background thread, where it
            must not make blocking calls; without it those are connection events.
        random: for pauses.
        threads: where a plain handler runs, instead of threads of its own.

    Attributes:
        stream, group, member: as given.
    """

    __slots__ = ()
    _inner: AioMembership[G]

    # What it is

    @property
    def stream(self) -> str:
        """As given."""
        return self._inner.stream

    @property
    def group(self) -> str:
        """As given."""
        return self._inner.group

    @property
    def member(self) -> str:
        """As given."""
        return self._inner.member

    @property
    def is_active(self) -> bool:
        """Whether this instance surely owns partitions."""
        return self._inner.is_active

    @property
    def is_consuming(self) -> bool:
        """Whether it reads a consumer of its member, as the active instance or as one that stands by."""
        return self._inner.is_consuming

    @property
    def partitions(self) -> tuple[int, ...]:
        """Those it owns now."""
        return self._inner.partitions

    @property
    def generation(self) -> int:
        """The newest generation of what it owns; 0 if that is nothing."""
        return self._inner.generation

    @property
    def stats(self) -> MembershipStats:
        """What went wrong so far, as numbers."""
        return self._inner.stats

    # Beginning

    def __enter__(self) -> Self:
        self._thread.run(self._inner.start())
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self._thread.run(self._inner._exit(caller_here(), kind))
        finally:
            self._inner._threads.close()

    # Taking messages without a handler

    def __iter__(self) -> Iterator[GroupMessage]:
        return self

    def __next__(self) -> GroupMessage:
        if self._inner._iteration is not None:
            self._inner._iteration.reader = threading.get_ident()
        return GroupMessage._of(self._thread, take_next(self._thread, self._inner))

    def wait_for_consuming(self) -> None:
        """Until it reads a consumer of its member: the record lists the member, and messages can come.

        Raises:
            GroupError: the membership ends before. What ``wait`` raises is raised, if it has a reason.
        """
        if self._inner._threads.is_here:
            raise ConfigurationError(
                "a membership cannot be waited for inside its own handler; it consumes already"
            )
        self._thread.run(self._inner.wait_for_consuming())

    # Ending

    def wait(self) -> None:
        """Until the membership has ended: by ``leave``, or because the group was deleted.

        Raises:
            GroupChangedError: what is fixed at the group's creation was changed, or the record is bad.
            HandlerFailedError: the handler failed, and the policy is to stop.
            ConnectionClosedError: the connection is closed.
            GroupError: the member's consumer cannot be had.
        """
        if self._inner._threads.is_here:
            raise ConfigurationError(
                "a membership cannot be waited for inside its own handler; leave() ends it"
            )
        self._thread.run(self._inner.wait())

    def leave(self) -> None:
        """End: begin no more handlers, wait for those that run, and let a standby begin at once.

        A message that was handed out to who iterates is waited for, too, for ``ack_wait``; not if who
        iterates leaves: then it goes back, unless it was answered.

        Called by a handler it does not wait. Interrupted, it goes on waiting for them in the background.
        """
        if self._inner._threads.is_here:
            self._thread.call(self._inner._finish, None, Release.HAND_OVER)
            return
        self._thread.run(self._inner._leave(caller_here()))
