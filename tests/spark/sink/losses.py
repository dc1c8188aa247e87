"""Connections of the sink that are lost at a chosen step, and tasks that Spark runs again because of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.errors import ConnectFailedError, HeadraceError
from headrace.spark.links.link import Link
from headrace.spark.options import Connection
from headrace.spark.sink.task import TaskIdentity
from headrace.spark.sink.writer import make_job
from headrace.spark.sink.writing import Job, Written, write_rows
from sim.spark.procs import Proc, here

How = Literal["half", "after"]
"""What is still done of the read or the write at which a connection is lost: half of it, or all."""

Row = tuple[str, bytes]  # subject, payload

SCHEMA: Final = StructType(
    [StructField("subject", StringType()), StructField("data", BinaryType())]
)
TYPES: Final = pa.schema([("subject", pa.string()), ("data", pa.binary())])
ARROW_ROWS: Final = 7
RUNS_MAX: Final = 3  # of a batch


@dataclass
class Losses:
    """Loses a connection at the step ``at``: an opening, a read or a write of a socket.

    Args:
        watcher: the link of the test itself, which is never lost.
    """

    watcher: Link
    how: How
    at: int = 0
    is_on: bool = True
    steps: int = 0
    lost: list[Link] = field(default_factory=list)

    def each(self) -> Iterator[int]:
        """The steps: 0, at which nothing is lost, and then one after the other until there are no more."""
        while self.steps >= self.at:
            self.steps = 0
            self.lost.clear()
            yield self.at
            self.at += 1

    def is_now(self, link: Link | None = None) -> bool:
        if not self.is_on or link is self.watcher or link in self.lost:
            return False
        self.steps += 1
        return self.steps == self.at

    def lose(self, link: Link) -> None:
        """Only when the server has read what was sent: it closes its end then."""
        self.lost.append(link)
        link._sock.shutdown(socket.SHUT_WR)
        link._sock.settimeout(5.0)
        while link._sock.recv(100_000):
            pass

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read, send, opened = Link._read, Link.send, Link.open

        def lossy_open(connection: Connection) -> Link:
            is_now = self.is_now()
            if is_now and self.how == "half":
                raise ConnectFailedError("cannot reach a NATS server")
            link = opened(connection)
            if is_now:
                self.lose(link)
            return link

        def lossy_read(link: Link, timeout_s: float) -> bytes | None:
            if not self.is_now(link):
                return b"" if link in self.lost else read(link, timeout_s)
            data = read(link, timeout_s) or b""
            self.lose(link)
            return data[: len(data) // 2] if self.how == "half" else data

        def lossy_send(link: Link, data: bytes) -> None:
            if self.is_now(link):
                send(link, data[: len(data) // 2] if self.how == "half" else data)
                self.lose(link)
                if self.how == "after":
                    return
            send(link, data)

        monkeypatch.setattr(Link, "open", lossy_open)
        monkeypatch.setattr(Link, "_read", lossy_read)
        monkeypatch.setattr(Link, "send", lossy_send)


@dataclass
class Spark:
    """Runs batches of a query. Tasks take turns: where one would sleep, or wait for its rows.

    A task that fails ends the query, which begins again; the other tasks of the batch do not know yet, and
    go on. So a task may write beside one of the next run.

    Args:
        check: is told of each task that is done: its partition and what it says.
    """

    options: dict[str, str]
    check: Callable[[int, Written], None]
    errors: list[HeadraceError] = field(default_factory=list)
    now: float = 0.0
    procs: list[Proc] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        proc = here()
        if proc is None:
            self.now += seconds
        else:
            proc.pause(self.now + seconds)

    def batch(self, number: int, partitions: list[list[Row]]) -> None:
        """Run it until it is through, and no task of it is left."""
        for _ in range(RUNS_MAX):
            job = make_job(self.options, SCHEMA, overwrite=False, streaming=True)
            procs = [
                Proc(f"task {at}", partial(self._task, job, at, number, rows))
                for at, rows in enumerate(partitions)
            ]
            self.procs += procs
            while not all(each.is_over for each in procs) and not any(each.error for each in procs):
                self._turn()
            if not any(each.error for each in procs):
                break
        else:
            raise AssertionError(self.errors)
        while self._turn():
            pass  # tasks that nobody waits for

    def _turn(self) -> bool:
        """Let each task go on that can; False if there are none."""
        running = [proc for proc in self.procs if not proc.is_over]
        if running:
            self.now = max(self.now, min(proc.wakes_at for proc in running))
        for proc in running:
            if proc.may_run(self.now):
                proc.resume()
                if proc.error is not None and not isinstance(proc.error, HeadraceError):
                    raise proc.error  # a defect, or the test's own complaint
        return bool(running)

    def _task(self, job: Job, partition: int, batch: int, rows: list[Row]) -> None:
        try:
            done = write_rows(job, TaskIdentity(partition, 0, batch, "query"), self._arrow(rows))
        except HeadraceError as error:
            self.errors.append(error)
            raise
        self.check(partition, done)

    def _arrow(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), ARROW_ROWS):
            yield arrow(rows[at : at + ARROW_ROWS])
            self.sleep(0.0)


def arrow(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"subject": subject, "data": data} for subject, data in rows], schema=TYPES
    )
