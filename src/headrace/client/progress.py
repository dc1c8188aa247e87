"""How far a long call is: what it tells, and a bar that shows it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from ..handling.callbacks import check_plain

__all__ = ["Progress", "ProgressBar", "TransferProgress", "checked", "progress_bar"]

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
