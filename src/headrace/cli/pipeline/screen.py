"""What is seen of a running pipeline: a table that is drawn anew on a terminal, lines of JSON elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from ...pipeline.checkpoints.totals import Batch, Totals
from ...pipeline.failures.causes import Poison
from ...pipeline.failures.supervising import Outage
from ...pipeline.model import Declared, Problem
from ...pipeline.running.run import log_of
from ...pipeline.running.runner import Ended, Watcher
from ...pipeline.standby.state import Ready
from ...pipeline.status.status import rfc3339
from ...quantities import counted
from ...spark.lost_messages import Loss
from ..shared.output import Output, json_text, terminal
from .stray_output import apart

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


LOST_SHOWN: Final = 3


class Screen(Watcher, Protocol):
    """A watcher that also shows how everything ended."""

    def summary(self, ended: list[Ended]) -> None: ...


@contextmanager
def screen_of(output: Output, declared: Declared) -> Iterator[Screen]:
    """The screen for this output."""
    console = terminal() if output.is_text else None
    with apart(log_of(declared), errors=console is not None) as shown:
        if console is None:
            yield Lines(shown)
            return
        console.file = shown
        with Picture(console, declared).live() as picture:
            yield picture


class Lines:
    """An event a line, as JSON: ``event``, ``time`` and what belongs to it.

    Args:
        out: where to; default: standard output.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def refused(self, problems: Sequence[Problem | str]) -> None:
        """The run does not begin, or ends without the queries' own words."""
        self._line("refused", problems=told_problems(problems))

    def starting(self, what: str) -> None:
        self._line("starting", what=what)

    def standby(self, holder: str, ready: Ready) -> None:
        told = told_problems(ready.problems)
        since = rfc3339(ready.since)
        self._line("standby", holder=holder, ready=ready.is_ready, since=since, problems=told)

    def standing(self, ready: Ready) -> None:
        pass  # a change has its line

    def active(self, token: int, nobody_s: float | None) -> None:
        nobody_s = round(nobody_s, 1) if nobody_s is not None else None
        self._line("active", token=token, nobody_s=nobody_s)

    def started(self, query: str) -> None:
        self._line("started", query=query)

    def batch(self, batch: Batch, totals: Totals) -> None:
        self._line(
            "batch",
            query=batch.query,
            batch=batch.number,
            rows=batch.rows,
            rows_per_s=round(batch.rows_per_s, 1),
            seconds=batch.seconds,
            behind=batch.behind,
            ends=list(batch.ends),
            failed={name: dict(view.failed) for name, view in batch.views.items()},
            total_rows=totals.rows,
        )

    def lost(self, query: str, loss: Loss) -> None:
        self._line("lost", query=query, **loss._asdict(), why=str(loss))

    def waiting(self, query: str, why: str) -> None:
        self._line("waiting", query=query, why=why)

    def away(self, query: str, outage: Outage) -> None:
        gone_s = round(outage.gone_s, 1)
        left_s = None if math.isinf(outage.left_s) else round(outage.left_s, 1)
        what = {"server": outage.server, "away_s": gone_s, "left_s": left_s}
        self._line("waiting", query=query, why=str(outage), **what)

    def back(self, query: str) -> None:
        self._line("back", query=query)

    def restarting(self, query: str, attempt: int, cause: str, wait_s: float) -> None:
        self._line("restarting", query=query, attempt=attempt, cause=cause, wait_s=wait_s)

    def poison(self, query: str, poison: Poison, *, quarantined: bool) -> None:
        found = {**asdict(poison), "file": str(poison.place.file), "line": poison.place.line}
        del found["place"]
        self._line("poison", query=query, **found, quarantined=quarantined, why=str(poison))

    def stopping(self, why: str) -> None:
        self._line("stopping", why=why)

    def ended(self, ended: Ended) -> None:
        problem = str(ended.problem) if ended.problem is not None else None
        self._line(
            "ended",
            query=ended.query,
            state=ended.state,
            batches=ended.batches,
            rows=ended.rows,
            last_batch=ended.totals.last,
            problem=problem,
            restarts=ended.restarts,
        )

    def summary(self, ended: list[Ended]) -> None:
        pass  # every end had its line

    def _line(self, event: str, **fields: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json_text({"event": event, "time": now, **fields}, indent=0)
        print(line, file=self._out, flush=True)


def told_problems(problems: Sequence[Problem | str]) -> list[dict[str, Any]]:
    """Problems, for programs."""
    return [
        {"file": str(each.place.file), "line": each.place.line, "text": each.text}
        if isinstance(each, Problem)
        else {"text": each}
        for each in problems
    ]


@dataclass
class _Row:
    """What is shown of a query."""

    state: str = ""
    batch: Batch | None = None
    rows: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    problem: str = ""


class Picture:
    """A table with a row for each query."""

    def __init__(self, console: Console, declared: Declared) -> None:
        self._console = console
        self._declared = declared
        self._rows = {name: _Row() for name in declared.sinks}
        self._since = time.monotonic()
        self._note = ""
        self._lost: list[str] = []
        self._live: Live | None = None

    @contextmanager
    def live(self) -> Iterator[Picture]:
        """While it is drawn."""
        from rich.live import Live

        with Live(console=self._console, get_renderable=self._draw, refresh_per_second=4) as live:
            self._live = live
            yield self

    def starting(self, what: str) -> None:
        self._note = f"starting {what} …"

    def standby(self, holder: str, ready: Ready) -> None:
        self._note = f"stands by, {ready}; {holder or 'another runner'} has the lease"

    def standing(self, ready: Ready) -> None:
        pass  # a change is told

    def active(self, token: int, nobody_s: float | None) -> None:
        self._note = ""

    def started(self, query: str) -> None:
        self._note = ""
        self._rows[query].state = "running"

    def batch(self, batch: Batch, totals: Totals) -> None:
        row = self._rows[batch.query]
        row.batch, row.rows = batch, row.rows + batch.rows
        for view in batch.views.values():
            for name, count in view.failed.items():
                row.failed[name] = row.failed.get(name, 0) + count

    def lost(self, query: str, loss: Loss) -> None:
        self._lost.append(f"{query}: {loss}")

    def waiting(self, query: str, why: str) -> None:
        self._rows[query].state = f"waits {why}"

    def away(self, query: str, outage: Outage) -> None:
        self._rows[query].state = f"waits {outage}"

    def back(self, query: str) -> None:
        self._rows[query].state = "running"

    def restarting(self, query: str, attempt: int, cause: str, wait_s: float) -> None:
        self._rows[query].state = f"is begun again in {wait_s:g} s ({attempt}): {cause}"

    def poison(self, query: str, poison: Poison, *, quarantined: bool) -> None:
        if quarantined:
            self._lost.append(f"{query}: {poison}; it is in quarantine")

    def stopping(self, why: str) -> None:
        self._note = (
            f"{why}; running batches are finished, Ctrl-C again ends at once" if why else ""
        )

    def ended(self, ended: Ended) -> None:
        row = self._rows[ended.query]
        row.state = ended.state
        row.problem = str(ended.problem) if ended.problem is not None else ""

    def summary(self, ended: list[Ended]) -> None:
        self._note = ""
        for each in ended:
            where = f" after batch {each.totals.last:,}" if each.totals.last >= 0 else ""
            rows = (
                f"{counted(each.rows, 'row')} in {each.batches:,} batch{'es' * (each.batches != 1)}"
            )
            text = f"{each.query}: {each.state}{where}; {rows}"
            self._console.print(text, markup=False)
        for text in self._lost:
            self._console.print(text, style="yellow", markup=False)

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("query")
        for heading in ("batch", "rows", "rows/s", "lag"):
            table.add_column(heading, justify="right")
        table.add_column("failed expectations")
        table.add_column("")
        for name, row in self._rows.items():
            table.add_row(name, *self._cells(row))
        seconds = time.monotonic() - self._since
        head = Text(f"{self._declared.name}  {seconds:,.0f} s", style="bold")
        problems = [Text(row.problem, "red") for row in self._rows.values() if row.problem]
        lost = [Text(text, style="yellow") for text in self._lost[-LOST_SHOWN:]]
        return Group(
            head,
            table,
            *problems,
            *lost,
            *([Text(self._note, style="yellow")] if self._note else []),
        )

    def _cells(self, row: _Row) -> tuple[str, ...]:
        batch = row.batch
        failed = ", ".join(f"{name}: {count:,}" for name, count in row.failed.items() if count)
        if batch is None:
            return "", "", "", "", failed, row.state
        behind = "?" if batch.behind is None else f"{batch.behind:,}"
        rate = f"{batch.rows_per_s:,.0f}"
        return f"{batch.number:,}", f"{row.rows:,}", rate, behind, failed, row.state
