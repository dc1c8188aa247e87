"""Tasks that write, without Spark: what the tests of the sink do with one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headrace.message import StoredMessage
from headrace.spark.sink.layout import Column, lay_out
from headrace.spark.sink.markers import PlanId
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.task import TaskIdentity
from headrace.spark.sink.writing import Job, Written, write_rows

from ..conftest import Feed

_plans = itertools.count(1)

DATA = (Column("data", "binary"),)
ATOMIC = {"allow_atomic": True}


def exactly(feed: Feed, columns: Iterable[Column] = DATA, /, **options: str) -> Job:
    """One run of a batch of the sink ``s``, exactly once."""
    wanted = {"delivery": "exactlyOnce", "sinkId": "s", "rowsPerAtomicBatch": "10", **options}
    return job(feed, columns, **{"markerPrefix": f"{feed.name}._sink", **wanted})


def job(feed: Feed, columns: Iterable[Column] = DATA, /, **options: str) -> Job:
    """One run of a batch; later ones are later."""
    given = {"servers": feed.url, "stream": feed.name, "reconnectTimeout": "1s", **options}
    if not any(column.name == "subject" for column in columns):
        given.setdefault("subject", f"{feed.name}.out")
    wanted = parse_sink_options(given, streaming=True)
    return Job(wanted, lay_out(wanted, columns), PlanId(next(_plans), "test"))


def payloads(first: int, last: int, size: int = 1000) -> Iterator[pa.RecordBatch]:
    """Arrow batches of numbered payloads."""
    for at in range(first, last + 1, size):
        rows = [b"r%d" % number for number in range(at, min(at + size, last + 1))]
        yield pa.record_batch([pa.array(rows, pa.binary())], names=["data"])


def write(
    one: Job,
    batches: Iterable[pa.RecordBatch],
    *,
    batch: int | None = 0,
    partition: int = 0,
    attempt: int = 0,
) -> Written:
    return write_rows(one, TaskIdentity(partition, attempt, batch, "query"), iter(batches))


def stored(feed: Feed, below: str = "out") -> list[StoredMessage]:
    """What rows made, in the stream's order."""
    last = feed.control.stream_info().state.last_seq
    subject = f"{feed.name}.{below}".encode()
    return [each for each in feed.stored(range(1, last + 1)) if each.subject == subject]


def rows_of(feed: Feed) -> list[bytes]:
    return [message.payload for message in stored(feed)]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"r%d" % number for number in range(first, last + 1)]


def columns(**types: Any) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in types.items())
