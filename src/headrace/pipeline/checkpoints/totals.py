"""What a query's batches did, and their sum, which outlives the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...files import SHARED, write_whole
from .checkpoint import load_json


@dataclass(frozen=True)
class ViewRows:
    """The rows that came to a view's expectations, and how many failed each."""

    rows: int
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """One finished micro-batch.

    ``ends``: where it ended in each source (JSON). ``behind``: messages still to read, None if not known.
    ``was_written``: the sink had it from a runner that was killed before the batch was finished, and of its
    rows nobody has counted any. ``rows_out``: what the sink was handed, None if that is not known. ``late``:
    rows that came after the watermark and were dropped. ``watermark``: RFC 3339, "" if the query has none.
    """

    query: str
    number: int
    rows: int
    seconds: float
    ends: tuple[str, ...] = ()
    behind: int | None = None
    views: Mapping[str, ViewRows] = field(default_factory=dict)
    was_written: bool = False
    rows_out: int | None = None
    late: int = 0
    watermark: str = ""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Totals:
    """The sum over a generation's batches; each is counted once, and what was missed is known.

    A batch that was written just before a kill may not have been counted: ``missed`` says how many.
    ``rows_out`` is None once a batch did not tell, ``late`` if batches were summed before late rows were.

    Args:
        is_new: the checkpoint has no batch yet; sums that are there are those of one that was lost, and are
            replaced with the first batch.

    Raises:
        ConfigurationError: the file is damaged.
    """

    def __init__(self, file: Path | None, *, is_new: bool = False) -> None:
        self._file = file
        raw = load_json(file) if file is not None and not is_new else {}
        self.last = int(raw.get("last", -1))
        self.batches = int(raw.get("batches", 0))
        self.rows = int(raw.get("rows", 0))
        self.seconds = float(raw.get("seconds", 0.0))
        before = 0 if self.batches == 0 else None  # sums of before there were these
        self.rows_out: int | None = raw.get("rows_out", before)
        self.late: int | None = raw.get("late", before)
        self.watermark = str(raw.get("watermark", ""))
        self.views: dict[str, ViewRows] = {
            name: ViewRows(int(each["rows"]), dict(each["failed"]))
            for name, each in raw.get("views", {}).items()
        }

    @property
    def missed(self) -> int:
        """Finished batches that are not in the sum."""
        return self.last + 1 - self.batches

    def add(self, batch: Batch) -> None:
        """Count a batch, and write the sum down. One that was counted before is not counted again."""
        if batch.number <= self.last:
            return
        views = dict(self.views)
        for name, seen in batch.views.items():
            before = views.get(name, ViewRows(0))
            names = {*before.failed, *seen.failed}
            failed = {each: before.failed.get(each, 0) + seen.failed.get(each, 0) for each in names}
            views[name] = ViewRows(before.rows + seen.rows, failed)
        raw: dict[str, Any] = {
            "last": batch.number,
            "batches": self.batches + (not batch.was_written),
            "rows": self.rows + batch.rows,
            "seconds": round(self.seconds + batch.seconds, 3),
            "rows_out": _sum(self.rows_out, 0 if batch.was_written else batch.rows_out),
            "late": _sum(self.late, batch.late),
            "watermark": batch.watermark or self.watermark,
            "views": {
                name: {"rows": v.rows, "failed": dict(v.failed)} for name, v in views.items()
            },
        }
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(raw), SHARED)
        self.last, self.batches = batch.number, raw["batches"]
        self.rows, self.seconds, self.views = raw["rows"], raw["seconds"], views
        self.rows_out, self.late, self.watermark = raw["rows_out"], raw["late"], raw["watermark"]


def _sum(before: int | None, more: int | None) -> int | None:
    """What is not known once is not known in sum."""
    return None if before is None or more is None else before + more
