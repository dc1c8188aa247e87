"""Waiting for a leader: what an election looks like from outside, and how long to try again.

In a cluster each stream has a leader, and so has JetStream itself. While one is being elected, a publish is
answered "no responders" and an API call is not answered at all. Such calls are made again until
``delivery_timeout``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Final, TypeGuard, TypeVar

from ...api.errors import Errors
from ...errors import (
    ConfigurationError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...retries import pause_s
from .session import LeaderWait

if TYPE_CHECKING:
    from .session import Session


T = TypeVar("T")

PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 1.0
_LAST: Final = re.compile(r"wrong last sequence: (\d{1,19})")


def is_unanswered(session: Session, error: Exception) -> bool:
    """Whether a call has no answer as one of a cluster may have none while it elects. It may have been
    executed or not."""
    if session.is_refusing:
        return False  # nothing is to wait for a connection
    return bool(session.info.cluster) and isinstance(error, RequestTimeoutError | DisconnectedError)


def is_behind(session: Session, error: Exception, expected: int) -> bool:
    """Whether a server of a cluster refused an expected sequence because it is behind: sequences only grow,
    so it names a lower one. It led before, and does not know yet that it does no longer."""
    if not session.info.cluster or not is_wrong_last(error):
        return False
    found = _LAST.fullmatch(error.description)
    return found is not None and 0 < int(found[1]) < expected


def is_wrong_last(error: Exception) -> TypeGuard[JetStreamApiError]:
    """Whether a server refused an expected sequence, and said what the last one is."""
    wrong = Errors.STREAM_WRONG_LAST_SEQUENCE.err_code
    return isinstance(error, JetStreamApiError) and error.err_code == wrong


def no_leader(of: str, limit: float) -> NoRespondersError:
    """What is raised for what was certainly not stored, when the time is over."""
    return NoRespondersError(f"{of} had no leader within {limit} s; nothing was stored")


def pauses() -> Iterator[float]:
    """Seconds between attempts, without end."""
    return (pause_s(failures, PAUSE_FIRST_S, PAUSE_MAX_S) for failures in count(1))


# Patience


def delivery_seconds(session: Session, given: float | None, otherwise: float = 0.0) -> float:
    """A ``delivery_timeout``: the given one, or what else holds. Raises ConfigurationError."""
    if given is None:
        return otherwise or session.options.delivery_timeout
    if not isinstance(given, int | float) or not given > 0:
        raise ConfigurationError(f"delivery_timeout is {given!r}; accepted: more than 0 seconds")
    return given


async def patiently(
    session: Session,
    limit: float,
    attempt: Callable[[], Awaitable[T]],
    awaited: Callable[[HeadraceError], Awaitable[str]],
    failed: HeadraceError | None = None,
) -> T:
    """The result of ``attempt``, made again and again until ``limit`` seconds have passed.

    ``awaited`` says of an error what has no leader, in words, or "" if waiting does not help; it may raise
    another error instead. ``failed`` is the error of an attempt that was made already.
    """
    loop = session.loop
    deadline, steps = loop.time() + limit, pauses()
    wait, found = LeaderWait(session.waits), False
    try:
        while True:
            if failed is None:
                try:
                    result = await attempt()
                except HeadraceError as error:
                    failed = error
                else:
                    found = True
                    return result
            now_of = await awaited(failed)
            pause = next(steps)
            if not now_of:
                found = isinstance(failed, JetStreamApiError)  # somebody decided
                raise failed
            if loop.time() + pause >= deadline:
                if isinstance(failed, NoRespondersError):
                    raise no_leader(now_of, limit) from None
                failed.add_note(f"{now_of} had no leader within {limit} s")
                raise failed
            wait.begin(now_of)
            failed = None
            await asyncio.sleep(pause)
    finally:
        wait.end(found=found)
