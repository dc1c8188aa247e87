"""What the connection's facade does beyond handing calls over: its thread begins and ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from ...errors import ConnectionClosedError
from ..connection import Connecting, Connection
from ..events import Event
from ..metrics import ConnectionStats
from .portal import Portal, callback_here, iterate

__all__ = [
    "close_with_thread",
    "drain_with_thread",
    "events_until_closed",
    "open_on",
    "stats_of",
]


def open_on(make_portal: Callable[[], Portal], connecting: Connecting) -> tuple[Portal, Connection]:
    """A portal, and on its loop the connection that ``connect`` was called for."""
    portal = make_portal()
    try:
        inner = portal.run(connecting._connect())
    except BaseException:
        portal.stop()
        raise
    portal.on_error = inner._session.report
    return portal, inner


def close_with_thread(portal: Portal, inner: Connection) -> None:
    """Close the connection and end the thread. In a forked child both are the parent's."""
    if portal.is_forked:
        return
    if not inner.is_closed:
        portal.run(inner.close())
    portal.stop()


def drain_with_thread(portal: Portal, inner: Connection) -> None:
    """Drain the connection and end the thread."""
    try:
        portal.run(inner._drain(callback_here()))
    finally:
        portal.stop()


def stats_of(portal: Portal, inner: Connection) -> ConnectionStats:
    """Read on the loop while there is one, so that the figures belong together."""
    return inner.stats() if inner.is_closed else portal.call(inner.stats)


def events_until_closed(portal: Portal, inner: Connection) -> Iterator[Event]:
    """Listen from now on, whenever the first one is asked for."""
    return _until_closed(portal, portal.call(inner.events))


def _until_closed(portal: Portal, events: AsyncIterator[Event]) -> Iterator[Event]:
    try:
        yield from iterate(portal, events)
    except ConnectionClosedError:
        return  # the loop ended with the connection
