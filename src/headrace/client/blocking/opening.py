"""What the connection's facade does beyond handing calls over: its thread begins and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from ...errors import ConnectionClosedError
from ..connection import Connecting, Connection
from ..events import Event
from ..metrics import ConnectionStats
from .loop_thread import LoopThread, callback_here, iterate

__all__ = [
    "close_with_thread",
    "drain_with_thread",
    "events_until_closed",
    "open_on",
    "stats_of",
]


def open_on(
    make_thread: Callable[[], LoopThread], connecting: Connecting
) -> tuple[LoopThread, Connection]:
    """A loop thread, and on its loop the connection that ``connect`` was called for."""
    thread = make_thread()
    try:
        inner = thread.run(connecting._connect())
    except BaseException:
        thread.stop()
        raise
    thread.on_error = inner._session.report
    return thread, inner


def close_with_thread(thread: LoopThread, inner: Connection) -> None:
    """Close the connection and end the thread. In a forked child both are the parent's."""
    if thread.is_forked:
        return
    if not inner.is_closed:
        thread.run(inner.close())
    thread.stop()


def drain_with_thread(thread: LoopThread, inner: Connection) -> None:
    """Drain the connection and end the thread."""
    try:
        thread.run(inner._drain(callback_here()))
    finally:
        thread.stop()


def stats_of(thread: LoopThread, inner: Connection) -> ConnectionStats:
    """Read on the loop while there is one, so that the figures belong together."""
    return inner.stats() if inner.is_closed else thread.call(inner.stats)


def events_until_closed(thread: LoopThread, inner: Connection) -> Iterator[Event]:
    """Listen from now on, whenever the first one is asked for."""
    return _until_closed(thread, thread.call(inner.events))


def _until_closed(thread: LoopThread, events: AsyncIterator[Event]) -> Iterator[Event]:
    try:
        yield from iterate(thread, events)
    except ConnectionClosedError:
        return  # the loop ended with the connection
