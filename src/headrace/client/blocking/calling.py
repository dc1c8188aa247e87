"""Calls that take long, of programs without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ...blocking import made_by
from ...errors import ConfigurationError
from ..calling import LongCall as AioLongCall
from ..calling import TransferProgress, check_tells
from ..calling import long_call as aio_long_call
from .loop_thread import Facade, LoopThread, sides_of

__all__ = ["LongCall", "long_call"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class LongCall(Facade, Generic[R]):
    """A call that runs. Made by ``long_call``.

    ``for`` gives how far it is each time that it has come further (the newest, where it is quicker than
    who asks), and raises what the call raises. ``result()`` gives the result. Who waits in either way and
    is interrupted cancels the call; who leaves the loop lets it go on.

    Attributes:
        progress: how far it is; None before it has told.
    """

    __slots__ = ("_made",)
    _inner: AioLongCall[Any]

    def __init__(
        self, thread: LoopThread, inner: AioLongCall[Any], made: Callable[[Any], R]
    ) -> None:
        super().__init__(thread, inner)
        self._made = made

    @property
    def progress(self) -> TransferProgress | None:
        """How far it is; None before it has told."""
        return self._inner.progress

    @property
    def percent(self) -> float | None:
        """From 0 to 100; None before it has told, and where nobody knows how much there will be."""
        return self._inner.percent

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._inner.done()

    def cancel(self) -> None:
        """End it, as where who waits is cancelled; what it leaves is what the call leaves then."""
        self._thread.call(self._inner.cancel)

    def __iter__(self) -> Iterator[TransferProgress]:
        news = aiter(self._inner)
        while (now := self._wait_for(anext(news, None))) is not None:
            yield now

    def result(self) -> R:
        """Wait for its end, and return what the call returns. Raises what it raises, and CancelledError
        where it was cancelled."""
        return self._made(self._wait_for(self._inner))

    def _wait_for(self, end: Awaitable[T]) -> T:
        async def wait() -> tuple[T | None, bool]:
            try:
                return await end, False
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise  # who waits is interrupted
                return None, True

        found, is_cancelled = self._thread.run(wait())
        if is_cancelled:
            raise concurrent.futures.CancelledError("the call was cancelled")
        return cast(T, found)


def long_call(call: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> LongCall[R]:
    """Begin a call that tells how far it is, and return what to wait for.

    ::

        backup = sync.long_call(stream.backup, "orders-backup")
        for now in backup:
            print(now.percent)
        print((backup.result()).nbytes)

    Args:
        call: a method that takes ``progress``: of a stream ``backup``, of JetStream ``restore_stream``, of
            an object store ``put``, ``put_file``, ``get``, ``get_file``. A ``progress`` of yours among the
            keywords is called as well.

    Raises:
        ConfigurationError: the call does not tell how far it is, or is none of ``headrace.sync``.
    """
    check_tells(call)
    facade = getattr(call, "__self__", None)
    if not isinstance(facade, Facade):
        raise ConfigurationError(
            f"{call!r} is no method of headrace.sync; accepted is one such as stream.backup"
        )
    thread, inner = sides_of(facade)
    function: Any = getattr(call, "__func__", call)
    begun = thread.call(aio_long_call, inspect.unwrap(function).__get__(inner), *args, **keywords)
    kind = made_by(function)
    return LongCall(thread, begun, lambda found: kind(thread, found) if kind else found)
