"""What users hand in to be called back: plain functions, coroutine functions, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from ..errors import ConfigurationError, HeadraceError

C = TypeVar("C", bound=Callable[..., object] | None)

CALLBACK_ERRORS = (Exception, asyncio.CancelledError)
"""What a callback may raise without ending more than its own call. A cancellation, too: of something it
waited for. (``await_result`` lets that of its own task through.)"""


class Queued:
    """What ``ack`` and its like return: the answer is queued already, awaiting it is optional."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the answer is queued>"

    def __await__(self) -> Generator[Any, Any, None]:
        # At once, and cheaper than a generator: this runs once per message. Any iterator will do.
        return iter(())  # type: ignore[return-value]


def gives_coroutines(callback: Callable[..., object]) -> bool:
    """Whether it is plain to see that a call must be awaited: a coroutine function, a partial of one, or an
    object whose ``__call__`` is one. A lambda that returns a coroutine shows only when it is called."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - not whether it is there, but what it is
    )


def check_callback(what: str, callback: C) -> C:
    """``callback``, if it can be called. Raises ConfigurationError otherwise."""
    if callback is not None and not callable(callback):
        raise ConfigurationError(f"{what} is {callback!r}; accepted is a function")
    return callback


def check_plain(what: str, callback: C) -> C:
    """``callback``, if it is one that is not awaited. Raises ConfigurationError otherwise."""
    check_callback(what, callback)
    if callback is not None and gives_coroutines(callback):
        raise ConfigurationError(
            f"{what} must be a plain function: it is called where nothing can be awaited; "
            "let it start a task, or put what it gets into a queue"
        )
    return callback


def tell(
    on_error: Callable[[Exception], object] | None,
    report: Callable[[Exception], object],
    error: Exception,
) -> None:
    """Tell ``on_error`` of an error, or ``report`` it without one; what ``on_error`` raises is reported."""
    try:
        (on_error or report)(error)
    except Exception as second:
        report(second)


async def await_result(result: Awaitable[Any]) -> None:
    """Await what a callback returned.

    Raises what it raises. Where something that it waited for was cancelled that is an error like any
    other (HeadraceError): only a cancellation of the task itself ends the task.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        await result
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise as_exception(error) from error


def awaitable_of(result: Any) -> Awaitable[Any] | None:
    """What is to be awaited of what a callback returned. Raises TypeError for a generator: nobody runs it."""
    if result is None or type(result) is Queued:
        return None
    if inspect.isawaitable(result):
        return result
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler made a generator, which nobody runs; it must not yield")
    return None


def close_unawaited(result: object) -> None:
    """Let go of what a callback returned, which nobody will await."""
    if inspect.iscoroutine(result):
        result.close()


ENDINGS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends a program, or the coroutine in which it is raised."""


def cancellations() -> int:
    """How often our own task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_ending(
    error: BaseException,
    endings: tuple[type[BaseException], ...] = ENDINGS,
    cancelled_before: int = 0,
) -> bool:
    """Whether what a handler raised on the loop ends who calls it: the cancellation of our own task, or one
    of ``endings``.

    Args:
        cancelled_before: how many cancellations of the task handlers have kept to themselves before.
    """
    if isinstance(error, asyncio.CancelledError):
        return cancellations() > cancelled_before
    return isinstance(error, endings)


class RaisedError(HeadraceError):
    """A handler raised what is no Exception, which is its cause."""


def as_exception(error: BaseException) -> Exception:
    """What can be reported, and raised elsewhere, of whatever a callback raised."""
    if isinstance(error, Exception):
        return error
    what = f"the handler raised {error!r}"
    if isinstance(error, asyncio.CancelledError):
        what = "a callback waited for something that was cancelled"
    reported = RaisedError(what)
    reported.__cause__ = error
    return reported
