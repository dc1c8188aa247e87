"""How far long work is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import Output, terminal

if TYPE_CHECKING:
    from ...client import TransferProgress

Advance = Callable[[int], None]


def telling(advance: Advance) -> Callable[[TransferProgress], None]:
    """What ``progress`` of a call of the client takes, to advance a bar."""
    shown = 0

    def tell(now: TransferProgress) -> None:
        nonlocal shown
        advance(now.nbytes - shown)
        shown = now.nbytes

    return tell


@contextmanager
def progress(
    output: Output, label: str, total: int | None, *, of_bytes: bool = False, wanted: bool = True
) -> Iterator[Advance]:
    """Yields a function that is called with how much more is done.

    Args:
        output: nothing is drawn for programs.
        label: in front of the bar.
        total: how much there is; None if nobody knows.
        of_bytes: whether it is counted in bytes.
        wanted: whether there is to be a bar at all.
    """
    console = terminal(stderr=True) if output.is_text and wanted else None
    if console is None:
        yield lambda count: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (DownloadColumn(), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
