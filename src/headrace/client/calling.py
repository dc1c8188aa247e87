"""A call that takes long, as something to wait for: how far it is while it runs, its result at the end."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from ..errors import ConfigurationError
from ..handling.callbacks import check_plain

__all__ = [
    "LongCall",
    "Progress",
    "ProgressBar",
    "TransferProgress",
    "check_tells",
    "checked",
    "long_call",
    "progress_bar",
]


_STEP: Final = 10  # percent between two lines, where nothing draws


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How far a backup, a restore, or an object on its way is."""

    stream: str
    """Of an object the stream of its bucket."""
    nbytes: int
    """Bytes that came or went so far."""
    total_bytes: int
    """About how many there will be: of a backup, what the stream's messages take; exact for a restore and for
    an object; 0 where nobody knows, as of an object that an iterable makes."""

    @property
    def percent(self) -> float | None:
        """From 0 to 100; None where nobody knows how much there will be."""
        if not self.total_bytes:
            return None
        return min(100.0, 100.0 * self.nbytes / self.total_bytes)


Progress = Callable[[TransferProgress], object]


def checked(progress: Progress | None) -> Progress | None:
    """``progress``, if it can be called. Raises ConfigurationError otherwise."""
    return check_plain("progress", progress)


class _Drawing(Protocol):
    def draw(self, now: TransferProgress, more: int) -> None: ...

    def close(self) -> None: ...


class ProgressBar:
    """Shows how far a long call is. Made by ``progress_bar``.

    Called with a ``TransferProgress``, so it is what ``progress`` of a call takes.
    """

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._shown = 0
        self._drawing: _Drawing | None = None

    def __repr__(self) -> str:
        return f"<ProgressBar {self._label!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __call__(self, now: TransferProgress) -> None:
        """Show it."""
        if self._drawing is None:
            self._drawing = _drawing(self._label or now.stream, now.total_bytes)
        self._drawing.draw(now, now.nbytes - self._shown)
        self._shown = now.nbytes

    def close(self) -> None:
        """Stop drawing."""
        if self._drawing is not None:
            self._drawing.close()
            self._drawing = None


def progress_bar(label: str = "") -> ProgressBar:
    """A bar for a call that takes long, drawn by tqdm or else by rich, whichever is installed; where neither
    is, a line on standard error at each tenth.

    ::

        with headrace.progress_bar("backup") as bar:
            await stream.backup("orders-backup", progress=bar)

    In a notebook tqdm draws a widget.

    Args:
        label: in front of the bar; the name of the stream if it is "".
    """
    return ProgressBar(label)


def _drawing(label: str, total: int) -> _Drawing:
    for kind in (_Tqdm, _Rich):
        try:
            return kind(label, total)
        except ImportError:
            continue  # it is not installed, and need not be
    return _Lines(label)


class _Tqdm:
    def __init__(self, label: str, total: int) -> None:
        tqdm: Any = importlib.import_module("tqdm.auto").tqdm
        self._bar = tqdm(
            desc=label, total=total or None, unit="B", unit_scale=True, unit_divisor=1024
        )

    def draw(self, now: TransferProgress, more: int) -> None:
        self._bar.update(more)

    def close(self) -> None:
        self._bar.close()


class _Rich:
    def __init__(self, label: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(label, total=total or None)
        self._bar.start()

    def draw(self, now: TransferProgress, more: int) -> None:
        self._bar.advance(self._task, more)

    def close(self) -> None:
        self._bar.stop()


class _Lines:
    def __init__(self, label: str) -> None:
        self._label = label
        self._next = 0.0

    def draw(self, now: TransferProgress, more: int) -> None:
        percent = now.percent
        if percent is None or percent < self._next:
            return
        self._next = percent // _STEP * _STEP + _STEP
        print(f"{self._label}: {percent:.0f} %", file=sys.stderr, flush=True)

    def close(self) -> None: ...


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
