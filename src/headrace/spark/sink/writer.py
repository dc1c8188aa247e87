"""The classes that Spark calls to write. They only translate Spark's calls.

A writer is made on the driver for every batch and pickled into its tasks, and another one for the commit.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..error_text import in_one_sentence
from .layout import check_types, columns_of, lay_out
from .markers import PlanId
from .options import ACCEPTED, parse_sink_options
from .target import check_before
from .task import current_task
from .values import encoder_of, with_schema
from .writing import Job, Written, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LOG: Final = logging.getLogger("headrace.spark")
_COMMIT_RUNNER: Final = "pyspark.sql.worker.python_streaming_sink_runner"


class TaskDone(WriterCommitMessage):
    """What a task tells the driver; contains no secret."""

    def __init__(self, written: Written) -> None:
        self.written = written


def make_job(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> Job:
    """Check everything that can be checked before a row is there.

    Raises:
        ConfigurationError: an option, a column or the stream is wrong.
    """
    with in_one_sentence():
        return _checked(raw, schema, overwrite, streaming=streaming)


def _checked(
    raw: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> Job:
    options = parse_sink_options(raw, streaming=streaming)
    if overwrite:
        how = "outputMode('append'), or foreachBatch" if streaming else "mode('append')"
        raise ACCEPTED.error(f"a stream is only added to, it cannot be overwritten; use {how}")
    layout = lay_out(options, columns_of(schema))
    check_types(layout, schema)
    epoch = ""
    if _COMMIT_RUNNER not in sys.modules:  # there a batch is over, and nothing is left to check
        options = with_schema(options, streaming=streaming)
        encoder_of(layout, options.value_schema)
        epoch = check_before(options, layout, streaming=streaming)
    return Job(options, layout, PlanId(time.time_ns(), secrets.token_hex(8)), epoch)


class JetStreamWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with in_one_sentence():
            return TaskDone(write_rows(self._job, current_task(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _say(messages, self._job.options.stream)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: what is stored stays, and running the write again is what the options say."""


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with in_one_sentence():
            return TaskDone(write_rows(self._job, current_task(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _say(messages, self._job.options.stream, f"batch {batchId}: ")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: the batch runs again, and is written as ``delivery`` says."""


def _say(messages: list[WriterCommitMessage | None], stream: str, which: str = "") -> None:
    """Say how many rows were bad, and how many the stream had already, if any."""
    done = [message.written for message in messages if isinstance(message, TaskDone)]
    rows, bad = sum(each.rows for each in done), sum(each.bad for each in done)
    if bad:
        first = next(each.first_bad for each in done if each.bad)
        _LOG.warning(
            "stream %r: %s%d of %d rows were bad; one is %s", stream, which, bad, rows + bad, first
        )
    if outrun := sum(each.outrun for each in done):
        _LOG.warning(
            "stream %r: %s%d keys keep a value that another sink has stored since the batch began",
            stream,
            which,
            outrun,
        )
    if late := sum(each.late for each in done):
        _LOG.info(
            "stream %r: %s%d keys keep a value that is later by the columns of 'order'",
            stream,
            which,
            late,
        )
    if found := sum(each.found for each in done):
        _LOG.info("stream %r: %s%d of %d rows were stored before", stream, which, found, rows)
