"""A call that takes long, as something to wait for: how far it is while it runs, its result at the end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, TypeVar

from ..errors import ConfigurationError
from .progress import Progress, TransferProgress

__all__ = ["LongCall", "check_tells", "long_call"]

P = ParamSpec("P")
R = TypeVar("R")


def check_tells(call: Callable[..., object]) -> None:
    """Raise ConfigurationError where a call does not tell how far it is."""
    if "progress" not in inspect.signature(call).parameters:
        name = getattr(call, "__qualname__", repr(call))
        raise ConfigurationError(
            f"{name} does not tell how far it is; accepted are calls that take progress=, "
            "such as stream.backup"
        )


class LongCall(Generic[R]):
    """A call that runs. Made by ``long_call``.

    ``async for`` gives how far it is each time that it has come further (the newest, where it is quicker
    than who asks), and raises what the call raises. ``await`` it, or its ``result()``, for the result. Who
    waits in either way and is cancelled cancels the call; who leaves the loop lets it go on.

    Attributes:
        progress: how far it is; None before it has told.
    """

    def __init__(self, name: str, start: Callable[[Progress], Coroutine[Any, Any, R]]) -> None:
        self._name = name
        self._news = asyncio.Event()
        self.progress: TransferProgress | None = None
        self._task = asyncio.ensure_future(start(self._tell))
        self._task.add_done_callback(lambda _: self._news.set())

    def __repr__(self) -> str:
        percent = self.percent
        far = "done" if self.done() else "running" if percent is None else f"{percent:.0f} %"
        return f"<LongCall of {self._name!r}, {far}>"

    @property
    def percent(self) -> float | None:
        """From 0 to 100; None before it has told, and where nobody knows how much there will be."""
        return None if self.progress is None else self.progress.percent

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._task.done()

    def cancel(self) -> None:
        """End it, as where who waits is cancelled; what it leaves is what the call leaves then."""
        self._task.cancel()

    async def result(self) -> R:
        """Wait for its end, and return what the call returns. Raises what it raises, and CancelledError
        where it was cancelled."""
        return await self._task

    def __await__(self) -> Generator[Any, None, R]:
        return self._task.__await__()

    async def __aiter__(self) -> AsyncIterator[TransferProgress]:
        shown: TransferProgress | None = None
        while True:
            newest = self.progress
            if newest is not None and newest is not shown:
                shown = newest
                yield newest
            elif self._task.done():
                break
            else:
                self._news.clear()
                try:
                    await self._news.wait()
                except asyncio.CancelledError:
                    self._task.cancel()
                    raise
        self._task.result()

    def _tell(self, now: TransferProgress) -> None:
        self.progress = now
        self._news.set()


def long_call(
    call: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **keywords: P.kwargs
) -> LongCall[R]:
    """Begin a call that tells how far it is, and return what to wait for.

    ::

        backup = headrace.long_call(stream.backup, "orders-backup")
        async for now in backup:
            print(now.percent)
        print((await backup.result()).nbytes)

    Args:
        call: a method that takes ``progress``: of a stream ``backup``, of JetStream ``restore_stream``, of
            an object store ``put``, ``put_file``, ``get``, ``get_file``. A ``progress`` of yours among the
            keywords is called as well.

    Raises:
        ConfigurationError: the call does not tell how far it is.
    """
    check_tells(call)
    also: Any = keywords.get("progress")
    anyhow: Any = call

    def start(tell: Progress) -> Coroutine[Any, Any, R]:
        def both(now: TransferProgress) -> None:
            tell(now)
            also(now)

        told = tell if also is None else both
        started: Coroutine[Any, Any, R] = anyhow(*args, **{**keywords, "progress": told})
        return started

    return LongCall(getattr(call, "__name__", "call"), start)
