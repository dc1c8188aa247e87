"""The end of a connection, as far as it concerns those who work over it: what begins no more, what goes back,
and what is waited for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConnectionClosedError, RequestTimeoutError
from .jetstream.consuming.feed import Feed
from .jetstream.receiving.fetch import Fetch
from .subscription import Subscription

if TYPE_CHECKING:
    from .net.session import Session

READ_TIMEOUT_S: Final = 2.0  # for the server to say that it has read what goes back
CANCEL_TIMEOUT_S: Final = 1.0  # for a callback that is cancelled to end
_CLOSED: Final = "the connection is closed: by close()"


async def wind_up(session: Session, caller: object) -> None:
    """Let nothing begin any more, give back what nobody took, and wait for what is in hand.

    What is in the hands of ``caller``, a task or the number of a thread, is not waited for. A callback that
    runs for longer than the option ``close_timeout`` is cancelled; on a thread it cannot be.
    """
    began = session.loop.time()
    leaving = begin_to_leave(session, caller, ConnectionClosedError(_CLOSED))
    residents = list(session.residents)
    hands: list[list[asyncio.Future[Any]]] = []
    must_be_read = False
    for observer in list(session.observers):
        if any(each._works_with(observer) for each in residents):
            continue
        if isinstance(observer, Feed):
            observer.stop_now(ConnectionClosedError(_CLOSED))
            hands += observer.hands(caller)
            must_be_read = True
        elif isinstance(observer, Fetch):
            observer.give_up(ConnectionClosedError(_CLOSED))
            must_be_read = True
    for subscription in list(session.subscriptions):
        if isinstance(subscription, Subscription):
            must_be_read |= subscription._stop_calling()
            worker = subscription._worker
            if worker is not None and worker is not caller:
                hands.append([worker])
    late = await _until_handled(hands, session.options.close_timeout)
    left = began + session.options.close_timeout - session.loop.time()
    late += await until_left(leaving, max(0.0, left))
    if late:
        session.report(
            RequestTimeoutError(
                f"closed while {len(late)} messages were still being handled after "
                f"{session.options.close_timeout} s (option close_timeout); what was not acknowledged "
                "is delivered again"
            )
        )
    if must_be_read and session.link is not None:  # so that what is on its way goes back, too
        read = session.keepalive.ping()
        await asyncio.wait([read], timeout=READ_TIMEOUT_S)
        if read.done() and not read.cancelled():
            read.exception()  # a lost link ends the wait as well


def begin_to_leave(
    session: Session, caller: object, reason: Exception | None = None
) -> list[asyncio.Task[None]]:
    """Have all that have an orderly way to leave begin to, within this turn."""
    residents = list(session.residents)
    for each in residents:
        each._begin_to_leave(caller, reason, is_cut_off=session.link is None)
    return [session.loop.create_task(each._until_left(caller)) for each in residents]


async def until_left(
    leaving: list[asyncio.Task[None]], timeout: float | None
) -> list[asyncio.Task[None]]:
    """Wait until they have left. Returns those that had not after ``timeout`` seconds; what they have in hand
    is cancelled then, and when this is."""
    if not leaving:
        return []
    try:
        _, late = await asyncio.wait(leaving, timeout=timeout)
    except asyncio.CancelledError:
        for task in leaving:
            task.cancel()
        raise
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=CANCEL_TIMEOUT_S)
    return list(late)


async def _until_handled(
    hands: list[list[asyncio.Future[Any]]], timeout: float
) -> list[asyncio.Future[Any]]:
    """Wait for each of ``hands``, until one of its futures is done. Returns those that never were, cancelled
    if they are tasks of callbacks."""
    waits = [asyncio.ensure_future(_first(each)) for each in hands if each]
    if not waits:
        return []
    try:
        await asyncio.wait(waits, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
    late = [each[0] for each in hands if each and not any(future.done() for future in each)]
    callbacks = [each[0] for each in hands if len(each) == 1 and isinstance(each[0], asyncio.Task)]
    callbacks = [task for task in callbacks if not task.done()]
    for task in callbacks:
        task.cancel()
    if callbacks:
        await asyncio.wait(callbacks, timeout=CANCEL_TIMEOUT_S)
    return late


async def _first(futures: list[asyncio.Future[Any]]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
