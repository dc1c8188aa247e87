"""Exactly once, on each of the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.api.times import parse_time
from headrace.spark.links.link import Link
from headrace.spark.links.outages import ServerPatience
from headrace.spark.sink import fenced
from headrace.spark.sink.fenced import NotComparedError
from headrace.spark.sink.markers import (
    PLAN,
    FencedError,
    MarkerStore,
    PlanChangedError,
    StreamResetError,
)
from headrace.spark.sink.writer import make_job
from headrace.spark.sink.writing import Job

from ..conftest import Feed
from ..queries import copied, put_back
from ..virtual import steady
from .sinks import ATOMIC, columns, exactly, numbered, payloads, rows_of, stored, write

Make = Callable[..., Feed]


@pytest.fixture
def out(make_feed: Make) -> Feed:
    return make_feed(**ATOMIC)


def state(feed: Feed) -> dict[str, int]:
    info = feed.call(f"STREAM.INFO.{feed.name}", {"subjects_filter": f"{feed.name}._sink.>"})
    subjects: dict[str, int] = info["state"].get("subjects") or {}
    tokens = {subject.rsplit(".", 1)[1]: count for subject, count in subjects.items()}
    return {"plan" if token.startswith(PLAN) else token: n for token, n in tokens.items()}


def planned(feed: Feed) -> Job:
    """A run as the driver plans it."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = {
        "servers": feed.url,
        "stream": feed.name,
        "subject": f"{feed.name}.out",
        "delivery": "exactlyOnce",
        "sinkId": "s",
        "markerPrefix": f"{feed.name}._sink",
        "reconnectTimeout": "1s",
    }
    schema = StructType([StructField("data", BinaryType())])
    return make_job(options, schema, overwrite=False, streaming=True)


def test_rows_are_stored_in_order_in_batches_that_a_marker_closes(out: Feed) -> None:
    done = write(exactly(out), payloads(1, 25, size=4))
    assert (done.rows, done.found, done.bad) == (25, 0, 0)
    assert rows_of(out) == numbered(1, 25)
    assert state(out) == {"plan": 1, "0": 3}
    sequences = [message.sequence for message in stored(out)]
    assert sequences[9] + 2 == sequences[10], "a marker stands between two batches"


def test_a_batch_that_runs_again_stores_nothing_new(out: Feed) -> None:
    write(exactly(out), payloads(1, 25))
    for size in (1, 7, 25):
        again = write(exactly(out), payloads(1, 25, size=size), attempt=1)
        assert (again.rows, again.found) == (25, 25)
    assert write(exactly(out), payloads(26, 30), batch=1).found == 0
    assert rows_of(out) == numbered(1, 30)


def test_a_batch_that_was_cut_short_is_completed(out: Feed) -> None:
    def breaks_off() -> Iterator[pa.RecordBatch]:
        yield from payloads(1, 25, size=5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(exactly(out), breaks_off())
    assert rows_of(out) in (numbered(1, 10), numbered(1, 20))
    done = write(exactly(out, rowsPerAtomicBatch="7"), payloads(1, 30, size=6))
    assert done.rows == 30
    assert done.found in (10, 20)
    assert rows_of(out) == numbered(1, 30)


def test_only_the_last_marker_is_kept_where_the_stream_rolls_up(make_feed: Make) -> None:
    out = make_feed(**ATOMIC, allow_rollup_hdrs=True)
    for batch in range(3):
        write(exactly(out), payloads(batch * 25 + 1, batch * 25 + 25), batch=batch)
    assert state(out) == {"plan": 1, "0": 1}
    assert rows_of(out) == numbered(1, 75)


def test_a_writer_of_an_earlier_run_is_refused_in_the_middle(out: Feed) -> None:
    """A zombie has stored a part, its successor the whole; then the zombie goes on."""
    zombie = exactly(out)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from payloads(1, 25, size=5)
        assert write(exactly(out), payloads(1, 100)).rows == 100
        yield from payloads(26, 100)

    with pytest.raises(FencedError, match="a later run of batch 0 writes to sink 's'"):
        write(zombie, overtaken())
    with pytest.raises(FencedError, match="a later run"):
        write(zombie, payloads(1, 100))
    assert rows_of(out) == numbered(1, 100)


def test_a_writer_of_an_earlier_batch_is_refused(out: Feed) -> None:
    late = exactly(out)
    write(exactly(out), payloads(1, 25), batch=7)
    write(exactly(out), payloads(26, 50), batch=8, partition=1)
    with pytest.raises(
        FencedError, match="sink 's' is at batch 8, and this is a writer of batch 7"
    ):
        write(late, payloads(1, 25), batch=7)
    with pytest.raises(FencedError, match="new or restored checkpoint"):
        write(exactly(out), payloads(1, 5), batch=0, partition=3)
    other = write(exactly(out, sinkId="other"), payloads(51, 60), batch=0)
    assert other.rows == 10
    assert rows_of(out) == numbered(1, 60)


def test_a_twin_of_a_task_stores_its_rows_once_with_it(out: Feed) -> None:
    """Speculative execution: two attempts of one run write the same partition in turns."""
    run = exactly(out)

    def with_a_twin() -> Iterator[pa.RecordBatch]:
        yield from payloads(1, 25, size=5)
        twin = write(run, payloads(1, 60, size=60), attempt=1)
        assert twin.rows == 60
        yield from payloads(26, 60, size=5)

    done = write(run, with_a_twin())
    assert (done.rows, done.found > 0) == (60, True)
    assert rows_of(out) == numbered(1, 60)


@pytest.mark.parametrize(
    ("last", "changed", "complaint"),
    [
        (25, [(1, 24)], "the stream has 25 rows of it, and now it has 24"),
        (25, [(1, 26)], "it had 25 rows, and now has more"),
        (25, [(2, 26)], "first 25 rows are not those"),
    ],
)
def test_a_batch_with_other_rows_is_refused(
    out: Feed, last: int, changed: list[tuple[int, int]], complaint: str
) -> None:
    write(exactly(out), payloads(1, last))
    for first, end in changed:
        with pytest.raises(PlanChangedError, match=complaint):
            write(exactly(out), payloads(first, end))
    assert rows_of(out) == numbered(1, last)


def test_a_batch_cut_into_other_partitions_is_refused_before_a_row_is_doubled(out: Feed) -> None:
    """Two partitions before, four now: the third has no marker, and its rows are there already."""
    earlier = exactly(out)
    write(earlier, payloads(1, 50), partition=0)
    write(earlier, payloads(51, 100), partition=1)
    run = exactly(out, reconnectTimeout="100ms")
    with pytest.raises(NotComparedError, match="2 partitions that an earlier run of batch 0 wrote"):
        write(run, payloads(51, 75), partition=2)
    with pytest.raises(PlanChangedError, match="the stream has 50 rows of it, and now it has 25"):
        write(run, payloads(1, 25), partition=0)
    assert rows_of(out) == numbered(1, 100)


def test_a_partition_that_had_written_nothing_waits_for_the_others_and_writes(out: Feed) -> None:
    earlier = exactly(out)
    write(earlier, payloads(1, 25), partition=0)
    run = exactly(out)
    write(run, payloads(1, 25), partition=0)
    assert write(run, payloads(26, 50), partition=1).found == 0
    assert rows_of(out) == numbered(1, 50)


def test_a_task_without_rows_writes_nothing(out: Feed) -> None:
    run = exactly(out)
    assert write(run, []).rows == 0
    assert write(run, payloads(1, 0), partition=1).rows == 0
    assert state(out) == {"plan": 1}


def test_large_rows_make_smaller_batches(out: Feed) -> None:
    size = fenced.BYTES_MAX // 8
    rows = [bytes([number]) * size for number in range(30)]
    batches = [
        pa.record_batch([pa.array(rows[at : at + 10], pa.binary())], names=["data"])
        for at in (0, 10, 20)
    ]
    one = exactly(out, rowsPerAtomicBatch="999")
    assert write(one, batches).rows == 30
    assert [payload[0] for payload in rows_of(out)] == list(range(30))
    assert state(out)["0"] >= 4
    assert write(exactly(out, rowsPerAtomicBatch="999"), batches).found == 30


def test_a_stream_made_again_ends_the_task_that_writes_to_the_old_one(out: Feed) -> None:
    def made_again() -> Iterator[pa.RecordBatch]:
        yield from payloads(1, 25, size=5)
        out.call(f"STREAM.DELETE.{out.name}")
        out.create(**ATOMIC)
        yield from payloads(26, 50, size=5)

    with pytest.raises(StreamResetError, match="deleted and made again"):
        write(exactly(out, requestTimeout="300ms"), made_again())
    write(exactly(out), payloads(1, 50))
    assert rows_of(out) == numbered(1, 50)


@pytest.mark.parametrize("before", [25, 45])
@pytest.mark.parametrize("is_created_anew", [True, False])
def test_a_target_that_lost_its_end_while_a_batch_was_written_has_the_batch_run_again(
    out: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_created_anew: bool, before: int
) -> None:
    if not is_created_anew:  # as after a power cut of a server
        created = out.control.head()[0].epoch
        monkeypatch.setattr(MarkerStore, "created", lambda store, link: created)
    job = exactly(out)
    write(job, payloads(1, 25), batch=0)
    copy = copied(out, tmp_path / "copy")
    job = exactly(out)

    def loses() -> Iterator[pa.RecordBatch]:
        yield from payloads(26, before, size=5)
        assert write(job, payloads(101, 125), batch=1, partition=1).rows == 25
        put_back(out, copy)
        yield from payloads(before + 1, 90, size=5)

    with pytest.raises(StreamResetError, match="the batch has to run again"):
        write(job, loses(), batch=1)
    monkeypatch.undo()
    again = exactly(out)
    write(again, payloads(26, 90), batch=1)
    write(again, payloads(101, 125), batch=1, partition=1)
    assert sorted(rows_of(out)) == sorted([*numbered(1, 90), *numbered(101, 125)])


def test_a_run_goes_on_in_no_other_stream_than_it_was_planned_for(out: Feed) -> None:
    """One task at a time: a partition is done when the stream is made again, the next one has not begun."""
    run = planned(out)
    write(run, payloads(1, 25), partition=0)
    out.call(f"STREAM.DELETE.{out.name}")
    out.create(**ATOMIC)
    with pytest.raises(StreamResetError, match="deleted and made again"):
        write(run, payloads(26, 50), partition=1)
    assert rows_of(out) == []
    again = planned(out)
    write(again, payloads(1, 25), partition=0)
    write(again, payloads(26, 50), partition=1)
    assert rows_of(out) == numbered(1, 50)


def test_a_stream_made_again_while_a_task_begins_gets_no_row_of_it(
    out: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the stream and its plan."""
    look, looks = MarkerStore.created, []

    def made_again(store: MarkerStore, link: Link) -> str:
        created = look(store, link)
        looks.append(created)
        if len(looks) == 1:
            out.call(f"STREAM.DELETE.{out.name}")
            out.create(**ATOMIC)
        return created

    monkeypatch.setattr(MarkerStore, "created", made_again)
    with pytest.raises(StreamResetError, match="deleted and made again"):
        write(exactly(out), payloads(1, 50))
    assert rows_of(out) == []
    assert write(exactly(out), payloads(1, 50)).rows == 50
    assert rows_of(out) == numbered(1, 50)


def test_a_writer_that_knew_an_earlier_stream_is_refused_in_the_one_made_again(out: Feed) -> None:
    """Both streams have their plan at sequence 1, and the partition no marker: only the stream differs."""
    zombie = planned(out)

    def overtaken() -> Iterator[pa.RecordBatch]:
        out.call(f"STREAM.DELETE.{out.name}")
        out.create(**ATOMIC)
        assert write(planned(out), payloads(1, 50)).rows == 50
        yield from payloads(26, 50)

    with pytest.raises(StreamResetError, match="deleted and made again"):
        write(zombie, overtaken(), partition=1)
    assert rows_of(out) == numbered(1, 50)


def test_a_partition_waits_for_others_as_long_as_one_after_the_other_is_compared(
    out: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them takes four fifths of the time that may pass without any."""
    others, earlier = 3, exactly(out)
    for partition in range(1, others + 1):
        write(earlier, payloads(partition * 100, partition * 100 + 9), partition=partition)
    run = exactly(out, reconnectTimeout="10s")
    slept, compared = [0.0], [0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        if slept[0] >= 8 * (compared[0] + 1) and compared[0] < others:
            compared[0] += 1
            partition = compared[0]
            write(run, payloads(partition * 100, partition * 100 + 9), partition=partition)

    clock = (lambda: slept[0], sleep, steady)
    monkeypatch.setattr(ServerPatience.__init__, "__defaults__", clock)
    assert write(run, payloads(1, 10), partition=0).rows == 10
    assert slept[0] > 20
    assert len(rows_of(out)) == 10 * (others + 1)


def test_markers_that_limits_removed_are_begun_again(make_feed: Make) -> None:
    out = make_feed(**ATOMIC, max_msgs=40)
    write(exactly(out), payloads(1, 100))
    subject = f"{out.name}._sink.s.{PLAN}{parse_time(out.control.head()[0].epoch)}"
    plan = out.call(f"STREAM.MSG.GET.{out.name}", {"last_by_subj": subject})
    assert plan["message"]["seq"] > 40, "the first plan must be gone, or this shows nothing"
    write(exactly(out), payloads(101, 200), batch=1)
    left = rows_of(out)
    assert left == numbered(201 - len(left), 200)
    with pytest.raises(FencedError, match="is at batch 1"):
        write(exactly(out), payloads(1, 100), batch=0)


def test_message_ids_that_are_there_already_are_said(out: Feed) -> None:
    types = columns(data="binary", msg_id="string")

    def rows(name: str) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pydict({"data": [b"x"], "msg_id": [name]})]

    write(exactly(out, types), rows("a"))
    with pytest.raises(ValueError, match="a message id of the column msg_id is in the stream"):
        write(exactly(out, types), rows("a"), batch=1)
    assert write(exactly(out, types), rows("b"), batch=1).rows == 1
