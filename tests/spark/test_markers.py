"""Markers of exactly-once sinks are rows of nobody: they are left out however a stream is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigurationError
from headrace.spark import frames as run
from headrace.spark.batches.driver import Driver
from headrace.spark.batches.plans import plan_batch
from headrace.spark.links.pool import POOL
from headrace.spark.options import parse_options
from headrace.spark.slices import Slice, counted_subjects
from headrace.spark.tasks.read_slice import read_slice

from .conftest import Feed
from .sink.sinks import exactly, write

Make = Callable[..., Feed]
ROWS = 300

pytestmark = pytest.mark.usefixtures("links_end")

FORMER = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"
MARKED = b"NATS/1.0\r\nHeadrace-Marker: rows\r\n\r\n"


def documents(first: int, last: int) -> pa.RecordBatch:
    rows = [b'{"n":%d}' % number for number in range(first, last + 1)]
    return pa.record_batch([pa.array(rows, pa.binary())], names=["data"])


def written(make_feed: Make, space: str) -> Feed:
    """A stream with rows that were written exactly once in two batches, and their markers."""
    feed = make_feed(allow_atomic=True, allow_direct=True)
    own = [f"{feed.name}.>"] if space else [f"{feed.name}.>", f"_sink.{feed.name}.>"]
    config = {"name": feed.name, "subjects": own, "allow_atomic": True, "allow_direct": True}
    assert "error" not in feed.call(f"STREAM.UPDATE.{feed.name}", config)
    more = {"markerPrefix": f"{feed.name}.{space}" if space else f"_sink.{feed.name}"}
    half = ROWS // 2
    write(exactly(feed, **more), [documents(1, half)], batch=0)
    write(exactly(feed, **more), [documents(half + 1, ROWS)], batch=1)
    POOL.close()
    return feed


def read(feed: Feed, columns: Any = ("data",), **more: str) -> list[Any]:
    options = parse_options({"stream": feed.name, "servers": feed.url, **more}, streaming=False)
    last = feed.control.stream_info().state.last_seq
    pieces = [Slice(0, last)]
    if "splitBy" in more:
        pieces = plan_batch(options)
    found: list[Any] = []
    for piece in pieces:
        for batch in read_slice(options, columns, piece):
            found += batch.to_pylist()
    return found


@pytest.mark.parametrize("space", ["", "marks"])
def test_a_read_has_the_rows_alone_by_whichever_way_it_goes(
    make_feed: Make, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_RUN_BYTES_MIN", 1)
    feed = written(make_feed, space)
    rows = [b'{"n":%d}' % number for number in range(1, ROWS + 1)]
    total = feed.control.stream_info().state.messages
    assert total > ROWS + 2

    def data(**more: str) -> list[bytes]:
        return [row["data"] for row in read(feed, **more)]

    assert data() == rows, "payloads alone"
    every = read(feed, ("subject", "data", "sequence", "headers"), includeHeaders="true")
    assert [row["data"] for row in every] == rows
    assert {row["subject"] for row in every} == {f"{feed.name}.out"}
    by_partition = data(
        splitBy="partition", partitions="3", partitionBy="hash=1,2", minMessagesPerTask="1"
    )
    assert sorted(by_partition) == sorted(rows)
    with_markers = data(includeMarkers="true")
    assert len(with_markers) == total
    assert len(read(feed, ("subject", "data"), includeMarkers="true")) == total
    few = read_slice(
        parse_options({"stream": feed.name, "servers": feed.url}), ("data",), Slice(0, 20)
    )
    assert [row for batch in few for row in batch.column(0).to_pylist()] == rows[: 20 - 2]
    last = read(feed, ("subject", "data"), lastPerSubject="true")
    assert [row["data"] for row in last] == rows[-1:]


@pytest.mark.parametrize("value_format", ["json", "string"])
def test_markers_are_not_decoded_and_so_none_is_a_misfit(
    make_feed: Make, value_format: str
) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from headrace.spark.decoding.columns import layout_of

    feed = written(make_feed, "marks")
    wanted = {"json": StructField("n", LongType()), "string": StructField("value", StringType())}
    schema = StructType([wanted[value_format]])
    options = parse_options(
        {
            "stream": feed.name,
            "servers": feed.url,
            "valueFormat": value_format,
            "mode": "failfast" if value_format == "json" else "permissive",
        }
    )
    last = feed.control.stream_info().state.last_seq
    found = [
        value
        for batch in read_slice(options, layout_of(options, schema), Slice(0, last))
        for value in batch.column(0).to_pylist()
    ]
    numbers = range(1, ROWS + 1)
    assert found == (
        [*numbers] if value_format == "json" else [f'{{"n":{number}}}' for number in numbers]
    )


def test_markers_of_earlier_releases_are_known_by_their_subject_and_copies_by_their_header(
    make_feed: Make,
) -> None:
    """They had no header of their own. A stream that copies another has its markers, too."""
    feed = make_feed(subjects=["_sink.OTHER.>", "SPARKCOPY.>"], retention="workqueue")

    def send(subject: str, block: bytes, body: bytes) -> None:
        size = len(block) + len(body)
        head = b"HPUB" if block else b"PUB"
        sizes = b"%d %d" % (len(block), size) if block else b"%d" % size
        line = b"%b %b %b %b\r\n%b%b\r\n" % (
            head, subject.encode(), feed._inbox, sizes, block, body,
        )  # fmt: skip
        feed.link.send(line)
        assert feed.link.poll(5.0)

    send("_sink.OTHER.s.plan-17", FORMER, b"{}")
    send("_sink.OTHER.s.0", FORMER, b"{}")
    send("SPARKCOPY.a", MARKED, b"{}")
    send("_sink.OTHER.s.0", b"", b"no headers: somebody's own")
    send("_sink.OTHER.s.other", FORMER, b"another subject")
    send("SPARKCOPY.a", b"", b"row")
    left = [b"no headers: somebody's own", b"another subject", b"row"]
    assert [row["data"] for row in read(feed)] == left  # one by one, as a work queue is read
    config = {
        "name": feed.name,
        "subjects": ["_sink.OTHER.>", "SPARKCOPY.>"],
        "retention": "workqueue",
        "allow_direct": True,
    }
    assert "error" not in feed.call(f"STREAM.UPDATE.{feed.name}", config)
    assert [row["data"] for row in read(feed)] == left  # … and by direct gets


def until_pending(feed: Feed, count: int) -> None:
    """nats-server counts what is pending a moment after it has answered the publish."""
    deadline = time.monotonic() + 10.0
    while True:
        shown = feed.control.consumer_info("lag")
        assert shown is not None
        if shown.num_pending == count:
            return
        assert time.monotonic() < deadline, shown


def test_a_lag_counts_rows_where_subjects_tell_them_from_markers(make_feed: Make) -> None:
    feed = written(make_feed, "")
    options = parse_options(
        {"stream": feed.name, "servers": feed.url, "durable": "lag"}, streaming=True
    )
    driver = Driver(options)
    try:
        look = driver.look(driver.initial_offset())
        assert driver.count(look) == ROWS
        assert driver.lag(look).messages == ROWS
        shown = feed.control.consumer_info("lag")
        assert shown is not None
        assert shown.num_pending == ROWS
        driver.look(driver.end(look, None))
        shown = feed.control.consumer_info("lag")
        assert shown is not None
        assert shown.num_pending == 0
        # A stream that is given more subjects is counted with these.
        subjects = [f"{feed.name}.>", f"_sink.{feed.name}.>", f"{feed.name}x.>"]
        config = {"name": feed.name, "subjects": subjects, "allow_atomic": True}
        assert "error" not in feed.call(
            f"STREAM.UPDATE.{feed.name}", {**config, "allow_direct": True}
        )
        feed.link.publish(f"{feed.name}x.a", b"more", feed._inbox)
        feed.link.poll(5.0)
        look = driver.look(driver.end(look, None))
        assert driver.count(look) == 1
        driver.look(driver.end(look, None))
        feed.link.publish(f"{feed.name}x.a", b"more", feed._inbox)
        feed.link.poll(5.0)
        until_pending(feed, 1)
    finally:
        driver.close()


def test_where_subjects_do_not_tell_all_messages_are_counted(make_feed: Make) -> None:
    feed = written(make_feed, "marks")
    options = parse_options({"stream": feed.name, "servers": feed.url}, streaming=True)
    config = feed.control.stream_info().config
    assert counted_subjects(options, config) == ()
    more = parse_options(
        {"stream": feed.name, "servers": feed.url, "includeMarkers": "true"}, streaming=True
    )
    config = written(make_feed, "").control.stream_info().config
    assert counted_subjects(options, config) == (config.subjects[0],)
    assert counted_subjects(more, config) == ()


def test_asking_for_markers_alone_needs_the_option(feed: Feed) -> None:
    given = {"stream": feed.name, "servers": feed.url, "subjects": f"_sink.{feed.name}.>"}
    with pytest.raises(ConfigurationError, match="set includeMarkers=true to read them"):
        parse_options(given)
    assert parse_options({**given, "includeMarkers": "true"}).include_markers
