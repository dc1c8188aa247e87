"""A running query of Spark, as the runner looks at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from . import conditions
from .model import Declared
from .totals import Batch, ViewRows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SparkQuery", "batch_of", "behind"]

_PROCESSING: Final = "Processing new data"


class SparkQuery:
    """One started query."""

    def __init__(self, declared: Declared, query: StreamingQuery) -> None:
        self._declared = declared
        self._query = query
        self._last = ""

    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def is_in_a_batch(self) -> bool:
        status = self._query.status
        return bool(status["isTriggerActive"]) and status["message"] == _PROCESSING

    def error(self) -> BaseException | None:
        return self._query.exception()

    def batches(self, after: int) -> list[Batch]:
        last = self._query.lastProgress
        if last is None or last.json == self._last:
            return []
        self._last = last.json
        found = [json.loads(each.json) for each in self._query.recentProgress]
        ran = [each for each in found if "addBatch" in each["durationMs"]]
        return [batch_of(self._declared, each) for each in ran if each["batchId"] > after]

    def stop(self) -> None:
        self._query.stop()


def batch_of(declared: Declared, progress: Mapping[str, Any]) -> Batch:
    """A finished batch, of what Spark reports about it."""
    sources = progress.get("sources", [])
    views: dict[str, ViewRows] = {}
    for name, observed in progress.get("observedMetrics", {}).items():
        if name in declared.views:
            views[name] = conditions.counted(declared.views[name].expectations, observed)
    distances = [behind(each.get("endOffset"), each.get("latestOffset")) for each in sources]
    known = [each for each in distances if each is not None]
    return Batch(
        query=str(progress.get("name") or ""),
        number=int(progress["batchId"]),
        rows=int(progress.get("numInputRows", 0)),
        seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
        ends=tuple(_text(each.get("endOffset")) for each in sources),
        behind=sum(known) if known else None,
        views=views,
    )


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
