"""A member at work, for threads: its handlers run on threads of the membership's own.

What waits is made of the asyncio methods (``headrace.blocking``). Written by hand are the
properties, of which type checkers would not infer the types, and what depends on who calls it: iterating
and ``leave``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ..api.consumers import ConsumerConfig
from ..blocking import Method, blocking, checked, documented, take_next
from ..client.blocking.jetstream import JetStream
from ..client.blocking.loop_thread import Facade, LoopThread, caller_here, sides_of
from ..client.blocking.messages import delivered_on
from ..client.jetstream_context import JetStream as AioJetStream
from ..client.seam import note_answered
from ..errors import ConfigurationError
from ..handling.callbacks import check_plain
from .member import Membership as AioMembership
from .member.loop_watch import MembershipStats
from .member.membership import (
    close_threads,
    is_handler_here,
    leave_from,
    leave_soon,
    read_from_here,
)
from .message import GroupMessage as AioGroupMessage
from .message import delivered, owner_of
from .record.records import ElasticGroup, StaticGroup

__all__ = ["Handler", "Membership", "joined"]

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", StaticGroup, ElasticGroup)


def verb(
    function: Callable[Concatenate[AioJetStream, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[JetStream, P], R]:
    """A function that is given a context, run on the loop of the context's connection."""
    return blocking(function)


def queueing(method: Method[P, R]) -> Method[P, R]:
    """Queue an answer from the caller's thread, and let the membership know."""

    def answer(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        queued = method(self, *args, **keywords)
        note_answered(delivered(self._source))
        return queued

    return documented(answer, method)


class GroupMessage(AioGroupMessage, eq=False):
    """A message of a group, and what can be answered to it.

    It is pending until one of ``ack``, ``nak``, ``term`` is called. They queue the answer at once;
    ``ack_sync`` waits until the server has it on disk.
    """

    _thread: LoopThread
    _source: AioGroupMessage

    ack = queueing(AioGroupMessage.ack)
    nak = queueing(AioGroupMessage.nak)
    term = queueing(AioGroupMessage.term)

    def ack_sync(self, timeout: float | None = None) -> None:  # type: ignore[override]
        self._thread.run(self._source.ack_sync(timeout))
        note_answered(self._message)

    documented(ack_sync, AioGroupMessage.ack_sync)


def on_thread(thread: LoopThread, source: AioGroupMessage) -> GroupMessage:
    """The message, for whoever is not on the loop's thread."""
    message = delivered_on(thread, delivered(source))
    return GroupMessage(message, owner_of(source), thread, source)  # type: ignore[arg-type]


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
    thread, context = sides_of(js)
    inner = join(
        context,
        stream,
        group,
        member,
        None if handler is None else _blocking(thread, handler),
        config,
        **settings,
    )
    return Membership(thread, inner)


def _blocking(thread: LoopThread, handler: Handler) -> Callable[[AioGroupMessage], None]:
    """``handler``, with the messages that it is to get."""
    check_plain("handler", handler)

    @wraps(handler)
    def call(message: AioGroupMessage) -> None:
        handler(on_thread(thread, message))

    return call


def outside_handlers(instead: str) -> Callable[[AioMembership[Any]], None]:
    """Refuses to wait for a membership inside its own handler. ``instead`` is what is true there."""

    def check(membership: AioMembership[Any]) -> None:
        if is_handler_here(membership):
            raise ConfigurationError(
                f"a membership cannot be waited for inside its own handler; {instead}"
            )

    return check


class Membership(Facade, Generic[G]):
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
            self._thread.run(leave_from(self._inner, caller_here(), ends_well=kind is None))
        finally:
            close_threads(self._inner)

    # Taking messages without a handler

    def __iter__(self) -> Iterator[GroupMessage]:
        return self

    def __next__(self) -> GroupMessage:
        read_from_here(self._inner)
        return on_thread(self._thread, take_next(self._thread, self._inner))

    wait_for_consuming = checked(
        outside_handlers("it consumes already"), blocking(AioMembership.wait_for_consuming)
    )

    # Ending

    wait = checked(outside_handlers("leave() ends it"), blocking(AioMembership.wait))

    def leave(self) -> None:
        """End: begin no more handlers, wait for those that run, and let a standby begin at once.

        A message that was handed out to who iterates is waited for, too, for ``ack_wait``; not if who
        iterates leaves: then it goes back, unless it was answered.

        Called by a handler it does not wait. Interrupted, it goes on waiting for them in the background.
        """
        if is_handler_here(self._inner):
            self._thread.call(leave_soon, self._inner)
            return
        self._thread.run(leave_from(self._inner, caller_here(), ends_well=False))
