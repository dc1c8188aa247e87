"""A running query of Spark, as the runner looks at it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from ...spark.ending import announce, forget
from ...spark.lost_messages import Loss, read_losses
from ..checkpoints.totals import Batch, ViewRows
from ..failures.causes import SparkGoneError, gone
from ..model import Declared
from ..queries import conditions
from .runner import Phase

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_END_S: Final = 5.0  # how long a Java that answers no more may take to end
_ASKING: Final = "Getting offsets"


def status_of_java() -> int | None:
    """With what Spark's Java has ended; None if it was not started here, or does not end."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(_END_S))
    except subprocess.TimeoutExpired:
        return None


class SparkQuery:
    """One started query.

    ``again``: the batch that was interrupted before, and runs again. ``losses``: where its sources note what
    they found missing. ``on_first_batch``: called when one has ended. ``ended``: the status with which Java
    has ended. ``run``: what its sources know this start of it by; ``heeds``: whether they all are ours, and
    offer nothing more once the end is announced.
    """

    def __init__(
        self,
        declared: Declared,
        query: StreamingQuery,
        again: int | None = None,
        losses: Path | None = None,
        on_first_batch: Callable[[], object] | None = None,
        ended: Callable[[], int | None] = status_of_java,
        run: str = "",
        heeds: bool = False,
    ) -> None:
        self._declared = declared
        self._query = query
        self._again = again
        self._last = ""
        self._gone: SparkGoneError | None = None
        self._losses = losses
        self._on_first_batch = on_first_batch
        self._ended = ended
        self._run, self._heeds = run, heeds
        self._told: set[Loss] = set()
        self._read_up_to = read_losses(losses)[1] if losses is not None else 0

    def is_active(self) -> bool:
        return self._ask(lambda: bool(self._query.isActive), otherwise=False)

    def phase(self) -> Phase:
        def look() -> Phase:
            status = self._query.status
            if not status["isTriggerActive"]:
                return "idle"
            return "asking" if status["message"].startswith(_ASKING) else "batch"

        return self._ask(look, otherwise="idle")

    def error(self) -> BaseException | None:
        return self._ask(lambda: self._query.exception(), otherwise=None) or self._gone

    def batches(self, after: int) -> list[Batch]:
        return self._ask(lambda: self._batches(after), otherwise=[])

    def losses(self) -> list[Loss]:
        if self._losses is None:
            return []
        found, self._read_up_to = read_losses(self._losses, self._read_up_to)
        new = [each for each in dict.fromkeys(found) if each not in self._told]
        self._told.update(new)
        return new

    def finish(self) -> bool:
        if self._losses is None or not self._run:
            return False
        return announce(str(self._losses), self._run) and self._heeds

    def stop(self) -> None:
        self._ask(lambda: self._query.stop(), otherwise=None)
        if self._losses is not None and self._run:
            forget(str(self._losses))

    def _batches(self, after: int) -> list[Batch]:
        last = self._query.lastProgress
        if last is None or last.json == self._last:
            return []
        found = [json.loads(each.json) for each in self._query.recentProgress]
        ran = [each for each in found if "addBatch" in each["durationMs"]]
        self._last = last.json
        if ran and self._on_first_batch is not None:
            self._on_first_batch()
            self._on_first_batch = None
        return [
            batch_of(self._declared, each, self._again) for each in ran if each["batchId"] > after
        ]

    def _ask(self, ask: Callable[[], T], otherwise: T) -> T:
        """The answer; ``otherwise`` if Spark's process has gone, which then is the query's error."""
        if self._gone is not None:
            return otherwise
        try:
            return ask()
        except Py4JJavaError:
            raise
        except (Py4JError, OSError):  # no Java, or none that answers
            self._gone = gone(self._ended())
            return otherwise


def batch_of(declared: Declared, progress: Mapping[str, Any], again: int | None = None) -> Batch:
    """A finished batch, of what Spark reports about it.

    ``again``: the batch that was interrupted. If its sink has it already Spark runs it without a row.
    """
    sources = progress.get("sources", [])
    views: dict[str, ViewRows] = {}
    for name, observed in progress.get("observedMetrics", {}).items():
        if name in declared.views:
            views[name] = conditions.counted(declared.views[name].expectations, observed)
    distances = [behind(each.get("endOffset"), each.get("latestOffset")) for each in sources]
    known = [each for each in distances if each is not None]
    stateful = progress.get("stateOperators", [])
    number, rows = int(progress["batchId"]), int(progress.get("numInputRows", 0))
    return Batch(
        query=str(progress.get("name") or ""),
        number=number,
        rows=rows,
        seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
        ends=tuple(_text(each.get("endOffset")) for each in sources),
        behind=sum(known) if known else None,
        views=views,
        was_written=number == again and rows == 0,
        rows_out=_rows_out(declared, progress),
        late=sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in stateful),
        watermark=str(progress.get("eventTime", {}).get("watermark", "")),
    )


def _rows_out(declared: Declared, progress: Mapping[str, Any]) -> int | None:
    """The rows that the sink was handed: counted on the way there, or by the sink; None if by neither."""
    sink = declared.sinks.get(str(progress.get("name")))
    if sink is not None and conditions.is_counted(sink):
        # Spark leaves the counting out of a plan of which it sees that no row comes.
        counted = progress.get("observedMetrics", {}).get(conditions.OUT, {})
        return int(counted.get(conditions.ROWS) or 0)
    told = int(progress.get("sink", {}).get("numOutputRows", -1))
    return told if told >= 0 else None


def behind(end: Any, latest: Any) -> int | None:
    """How many sequences of its streams lie between two offsets; None where that cannot be told."""
    ends, last = _sequences(end), _sequences(latest)
    if not ends or not last:
        return None
    return sum(max(0, seq - ends.get(stream, 0)) for stream, seq in last.items())


def _sequences(offset: Any) -> dict[str, int]:
    """Of each stream; of one that is not named, "" is the name."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping):
        return {}
    each = offset.get("s") or {"": offset}
    return {name: one["seq"] for name, one in each.items() if isinstance(one.get("seq"), int)}


def _text(offset: Any) -> str:
    if offset is None:
        return ""
    return offset if isinstance(offset, str) else json.dumps(offset, sort_keys=True)
