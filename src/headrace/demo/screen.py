"""The terminal output: progress bars, two tables, a few plain sentences."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

    from ..pipeline.checkpoints.totals import ViewRows


@dataclass
class Stage:
    """One stage of the demo: how many messages it processed in how many seconds (0: none)."""

    name: str
    messages: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds > 0 else 0.0


class Screen:
    """The terminal, or wherever standard output goes.

    It keeps its own descriptors, because Spark's processes inherit redirected standard output and error
    while they start.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        self._errors: TextIO = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        self._console = Console(file=self._out, highlight=False)
        self.stages: list[Stage] = []
        self.quality: ViewRows | None = None
        """The rows that were checked, and how many failed each expectation."""

    def close(self) -> None:
        self._out.close()
        self._errors.close()

    def complain(self, sentence: str) -> None:
        """One line on standard error, as every command reports its errors."""
        self._errors.write(f"headrace demo: {sentence}\n")
        self._errors.flush()

    def say(self, text: str) -> None:
        """One plain line."""
        self._console.print(text, markup=False)

    @contextmanager
    def stage(
        self, name: str, total: int | None = None, *, warms_up: bool = False
    ) -> Iterator[Callable[[int], None]]:
        """Show a stage while it runs. Call the returned function with each number of finished messages.

        With ``warms_up`` the messages after the first call are also counted separately.
        """
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        stage = Stage(name)
        first: Stage | None = None
        rest: Stage | None = None
        counts = TextColumn("{task.fields[counts]}", justify="right")
        columns = (
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description:20}"),
            BarColumn(bar_width=20),
            counts,
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(name, total=total or None, counts="")
            began = time.monotonic()

            def advance(messages: int) -> None:
                nonlocal first
                stage.messages += messages
                if warms_up and first is None:
                    first = Stage(name, stage.messages, time.monotonic() - began)
                rate = stage.messages / max(time.monotonic() - began, 1e-9)
                counts_text = f"{stage.messages:>9,} messages {rate:>9,.0f}/s"
                progress.update(task, completed=stage.messages, counts=counts_text)

            yield advance
            stage.seconds = time.monotonic() - began
            done = stage.messages if total else 1
            progress.update(task, total=done or 1, completed=done or 1)
            if first is not None and stage.messages > first.messages:
                warm = stage.messages - first.messages, stage.seconds - first.seconds
                rest = Stage("  after the first batch", *warm)
        self.stages.append(stage)
        if rest is not None:
            self.stages.append(rest)

    def show_stages(self) -> None:
        """The throughput of each stage."""
        from rich import box
        from rich.table import Table

        table = Table(title="Throughput", title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("stage")
        for column in ("messages", "seconds", "messages/s"):
            table.add_column(column, justify="right")
        for stage in self.stages:
            moved = (f"{stage.messages:,}", f"{stage.rate:,.0f}") if stage.messages else ("–", "–")
            table.add_row(stage.name, moved[0], f"{stage.seconds:.1f}", moved[1])
        self._console.print(table)

    def show_quality(self) -> None:
        """How many rows failed each expectation of the pipeline."""
        from rich import box
        from rich.table import Table

        if self.quality is None:
            return
        title = f"Row quality: of {self.quality.rows:,} flights, all kept"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("expectation")
        for column in ("failed", "share"):
            table.add_column(column, justify="right")
        for name, failed in self.quality.failed.items():
            share = failed / max(1, self.quality.rows)
            table.add_row(name, f"{failed:,}", f"{share:.2%}")
        self._console.print(table)

    def show_aircraft(self, legs: pa.Table, count: int = 8) -> None:
        """The aircraft that carried the most delay."""
        from rich import box
        from rich.table import Table

        title = f"The {count} aircraft that carried the most delay from leg to leg"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("aircraft")
        table.add_column("carrier")
        for column in ("legs", "in a chain", "late, min", "carried, min", "share"):
            table.add_column(column, justify="right")
        for row in worst_aircraft(legs, count):
            table.add_row(
                row["tailnum"],
                row["carrier_max"],
                f"{row['sequence_count']:,}",
                f"{row['carried_count']:,}",
                f"{row['late_sum']:,}",
                f"{row['carried_sum']:,}",
                f"{row['carried_sum'] / max(1, row['late_sum']):.0%}",
            )
        self._console.print(table)


def worst_aircraft(legs: pa.Table, count: int) -> list[dict[str, Any]]:
    """The aircraft with the most carried minutes; ``late_sum`` counts the same legs."""
    import pyarrow.compute as pc

    late = pc.add(legs["carried"], legs["added"])
    grouped = legs.append_column("late", late).group_by("tailnum")
    sums = [("carrier", "max"), ("sequence", "count"), ("carried", "count"), ("carried", "sum")]
    table = grouped.aggregate([*sums, ("late", "sum")])
    table = table.filter(pc.greater(table["carried_count"], 0))
    table = table.sort_by([("carried_sum", "descending"), ("tailnum", "ascending")])
    rows: list[dict[str, Any]] = table.slice(0, count).to_pylist()
    return rows
