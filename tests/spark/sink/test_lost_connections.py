"""A connection that is lost at each step of a micro-batch in turn: ``delivery`` holds what it promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.spark.links.outages import ServerPatience
from headrace.spark.links.pool import POOL
from headrace.spark.sink.task import TaskIdentity
from headrace.spark.sink.writer import make_job
from headrace.spark.sink.writing import Job, Written, write_rows

from ..conftest import Feed
from ..virtual import steady
from .losses import SCHEMA, How, Losses, Row, Spark, arrow

Make = Callable[..., Feed]

SIZES = (25, 12)  # rows of the partitions: three atomic batches or windows, and two
AT_ONCE = 10
BAD_AT = (16, 3)  # rows that make no message; the first one comes when others are on their way


def good(partition: int) -> list[bytes]:
    return [b"%d-%d" % (partition, number) for number in range(SIZES[partition])]


def rows(name: str, partition: int) -> list[Row]:
    made = [(f"{name}.{partition}", payload) for payload in good(partition)]
    made.insert(BAD_AT[partition], ("no subject", b"bad %d" % partition))
    return made


class Bench:
    """One stream, and for each step subjects and a sink of its own.

    Attributes:
        runs: how many there were, each with its loss but the first and the last.
        errors: those of tasks.
    """

    def __init__(self, feed: Feed, delivery: str, losses: Losses) -> None:
        self.feed, self.delivery, self.losses = feed, delivery, losses
        self.runs = 0
        self.errors: list[HeadraceError] = []

    def run(self, patch: pytest.MonkeyPatch, *, cut_short: bool = False) -> None:
        self.losses.patch(patch)
        for at in self.losses.each():
            name = f"{self.feed.name}.{at}"
            options = {
                "servers": self.feed.url,
                "stream": self.feed.name,
                "delivery": self.delivery,
                "sinkId": f"s{at}",
                "markerPrefix": f"{self.feed.name}._sink",
                "rowsPerAtomicBatch": str(AT_ONCE),
                "maxInFlight": str(AT_ONCE),
                "reconnectTimeout": "10s",
                "onBadRow": f"deadletter:{name}.bad",
            }
            if cut_short:
                self.losses.is_on = False
                write_some(make_job(options, SCHEMA, overwrite=False, streaming=True), name)
                self.losses.is_on = True
            spark = Spark(options, partial(self.is_true, name))
            patch.setattr(
                ServerPatience.__init__, "__defaults__", (spark.clock, spark.sleep, steady)
            )
            spark.batch(0, [rows(name, partition) for partition in range(len(SIZES))])
            POOL.close()
            self.errors += spark.errors
            self.runs += 1

    def is_true(self, name: str, partition: int, done: Written) -> None:
        """What a task says is written is in the stream by then."""
        assert (done.rows, done.bad) == (SIZES[partition], 1), name
        info = self.feed.call(f"STREAM.INFO.{self.feed.name}", {"subjects_filter": f"{name}.*"})
        counts = info["state"]["subjects"]
        assert counts[f"{name}.{partition}"] >= SIZES[partition], name
        assert counts[f"{name}.bad"] >= 1, name

    def check(self) -> None:
        """The rows in the stream, of all runs."""
        found: dict[str, list[bytes]] = defaultdict(list)
        last = self.feed.control.stream_info().state.last_seq
        for message in self.feed.stored(range(1, last + 1)):
            found[message.subject.decode()].append(message.payload)
        for at in range(self.runs):
            name = f"{self.feed.name}.{at}"
            assert sorted(found[f"{name}.bad"]) == [b"bad 0", b"bad 1"], at
            for partition in range(len(SIZES)):
                stored = found[f"{name}.{partition}"]
                if self.delivery == "atLeastOnce":
                    stored = list(dict.fromkeys(stored))
                assert stored == good(partition), at


def write_some(job: Job, name: str) -> None:
    """A run that ends in the middle: ten rows of each partition are stored."""

    def some(partition: int) -> Iterator[pa.RecordBatch]:
        yield arrow(rows(name, partition)[: AT_ONCE + 2])
        yield arrow([])  # asked for when those are on their way
        raise KeyboardInterrupt

    for partition in range(len(SIZES)):
        with pytest.raises(KeyboardInterrupt):
            write_rows(job, TaskIdentity(partition, 0, 0, "query"), some(partition))


@pytest.fixture
def out(make_feed: Make) -> Feed:
    """In memory: that files are synced is not what is tested here, and there are hundreds of batches."""
    return make_feed(allow_atomic=True, storage="memory")


@pytest.mark.parametrize(
    ("delivery", "how"),
    [
        ("atLeastOnce", "half"),
        ("dedupe", "after"),
        ("exactlyOnce", "half"),
        ("exactlyOnce", "after"),
    ],
)
def test_every_row_is_stored_as_promised_wherever_a_connection_is_lost(
    out: Feed, monkeypatch: pytest.MonkeyPatch, delivery: str, how: How
) -> None:
    bench = Bench(out, delivery, Losses(out.link, how))
    bench.run(monkeypatch)
    assert bench.runs > 25
    assert bench.errors == [], "a task waits for the server, and goes on"
    bench.check()


def test_a_batch_that_ended_in_the_middle_is_completed_once_wherever_the_next_run_of_it_fails(
    out: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task has patience here: each loss ends it, and the query, which then runs the batch once more."""
    monkeypatch.setattr(ServerPatience, "persist", lambda patience, call, *_, **__: call())
    bench = Bench(out, "exactlyOnce", Losses(out.link, "after"))
    bench.run(monkeypatch, cut_short=True)
    assert bench.runs > 40
    assert len(bench.errors) > 25
    bench.check()


@pytest.mark.parametrize(
    ("delivery", "how"),
    [("exactlyOnce", "half"), ("exactlyOnce", "after"), ("atLeastOnce", "after")],
)
def test_each_key_ends_with_its_last_row_wherever_a_connection_is_lost(
    out: Feed, monkeypatch: pytest.MonkeyPatch, delivery: str, how: How
) -> None:
    losses = Losses(out.link, how)
    losses.patch(monkeypatch)
    steps = 0
    for at in losses.each():
        steps += 1
        name = f"{out.name}.{at}"
        options = {
            "servers": out.url,
            "stream": out.name,
            "key": "subject",
            "delivery": delivery,
            "sinkId": f"k{at}",
            "reconnectTimeout": "10s",
        }
        spark = Spark(options, lambda partition, written: None)
        monkeypatch.setattr(
            ServerPatience.__init__, "__defaults__", (spark.clock, spark.sleep, steady)
        )
        keyed = [
            [(f"{name}.{number % 4}", b"%d-%d" % (partition, number)) for number in range(size)]
            for partition, size in enumerate(SIZES)
        ]
        spark.batch(0, keyed)
        spark.batch(1, [[(f"{name}.0", b"later")], []])
        POOL.close()
        losses.is_on = False
        last: dict[bytes, bytes] = {}
        begin = out.control.stream_info().state.last_seq
        for message in out.stored(range(max(1, begin - 100), begin + 1)):
            if message.subject.startswith(f"{name}.".encode()):
                last[message.subject] = message.payload
        expected = dict(row for rows_ in keyed for row in rows_) | {f"{name}.0": b"later"}
        assert last == {subject.encode(): value for subject, value in expected.items()}, at
        losses.is_on = True
    assert steps > 15
