"""Small batches: their rows go to Spark together with their plan.

A task in Python costs Spark some 60 ms however little it reads, more than everything else in a batch of few
rows. Of a reader that is made of a ``SimpleDataSourceStreamReader`` Spark takes the rows with the plan, and
no task in Python is needed. It looks whether a reader is of a class of Spark's own for those, just after
``partitions``: ``HandingOver`` says so as long as it has such rows. The plan is complete all the same, and
where Spark has lost the rows a task reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ...errors import HeadraceError
from ..decoding.columns import Layout
from ..options import SourceOptions
from ..slices import Slice
from ..tasks.read_slice import read_slice

_ASKED: type | None
try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    _ASKED = _SimpleStreamReaderWrapper
except ImportError:  # not documented, so it may go: then tasks read everything
    _ASKED = None

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("headrace.spark")

SMALL: Final = 1_000  # messages at most
SMALL_BYTES: Final = 256 * 1024  # … and about so many bytes


class HandingOver:
    """A stream reader that may hand rows over with a plan."""

    _rows: list[pa.RecordBatch] | None = None

    def offer(self, rows: list[pa.RecordBatch] | None) -> None:
        """Called with every plan: these are its rows; None: its tasks read them."""
        self._rows = rows if _ASKED is not None else None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``isinstance`` is told."""
        return type(self) if self._rows is None else _ASKED

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        """Spark takes the rows."""
        rows, self._rows = self._rows, None
        assert rows is not None
        return iter(rows)


def small_batch(
    options: SourceOptions, columns: Layout, pieces: Sequence[Slice]
) -> list[pa.RecordBatch] | None:
    """The rows of a batch of few messages for which one task is planned; None if that is to read them.

    It does not wait for a server that is away, and no error ends it: the task waits, or fails, where Spark
    expects it.
    """
    if len(pieces) != 1:
        return None
    piece = pieces[0]
    if piece.runs or not (0 < piece.width <= SMALL and 0 < piece.size <= SMALL_BYTES):
        return None
    try:
        return list(read_slice(replace(options, reconnect_timeout_s=0.0), columns, piece))
    except HeadraceError as error:
        _LOG.debug("a small batch is left to a task: %s", error)
        return None
