"""A thread's turn: it handles one message after the other by itself. What needs the loop ends the turn."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from typing import Any, Generic, NamedTuple, TypeVar

from .callbacks import Queued
from .threads import as_plain
from .waiting import Time, Waiting

M = TypeVar("M", bound=Hashable)


class Stopped(NamedTuple, Generic[M]):
    """What a thread leaves to the loop: a call that raised, or returned what is to be awaited."""

    message: M
    error: Exception | None
    awaitable: Awaitable[object] | None


def take_turn(
    waiting: Waiting[M],
    handler: Callable[[M], object],
    context: Context,
    clock: Callable[[], float],
    time: Time,
    most: int,
    *,
    skips: Callable[[M], bool] | None = None,
) -> Stopped[M] | None:
    """Handle what waits: up to ``most`` messages, and none that would begin after ``time.until``.

    Args:
        context: of which each call gets a copy.
        skips: whether a message is not to be handled after all.
    """
    message: M | None = None
    for _ in range(most):
        message = waiting.next(message, clock, time)
        if message is None:
            return None
        if skips is not None and skips(message):
            continue
        try:
            result = context.copy().run(handler, message)
        except BaseException as error:
            return Stopped(message, as_plain(error), None)
        if result is not None and (awaitable := awaitable_of(result)) is not None:
            return Stopped(message, None, awaitable)
    if message is not None:
        waiting.done(message, is_late=clock() >= time.until)
    return None


def awaitable_of(result: Any) -> Awaitable[object] | None:
    """What is to be awaited of what a handler returned: it was a coroutine function after all."""
    if result is None or type(result) is Queued or not inspect.isawaitable(result):
        return None
    return result
