"""The latest message of each subject, once: from both servers, while the stream changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.decoding.columns import layout_of
from headrace.spark.frames import Chunk
from headrace.spark.links.link import Link
from headrace.spark.offsets import DataLossError
from headrace.spark.options import parse_options
from headrace.spark.reading.snapshot import SnapshotPlan, read_snapshot
from headrace.spark.slices import Slice
from headrace.spark.tasks.read_slice import read_slice

from ..conftest import Feed

pytestmark = pytest.mark.usefixtures("links_end")


def plan(feed: Feed, **changes: Any) -> SnapshotPlan:
    return SnapshotPlan(feed.name, ">", 1000, 5.0, 5.0)._replace(**changes)


def latest(chunks: list[Chunk]) -> dict[str, bytes]:
    pairs = [(s.decode(), p) for c in chunks for s, p in zip(c.subjects, c.payloads, strict=True)]
    found = {subject.partition(".")[2]: payload for subject, payload in pairs}
    assert len(found) == len(pairs), "a subject came twice"
    return found


def read(feed: Feed, the_plan: SnapshotPlan) -> dict[str, bytes]:
    link = feed.connect()
    try:
        return latest(list(read_snapshot(lambda: link, the_plan)))
    finally:
        link.close()


def publish(feed: Feed, subject: str, payload: bytes, headers: bytes = b"") -> None:
    name = f"{feed.name}.{subject}".encode()
    sizes = len(headers), len(headers) + len(payload)
    feed.link.send(
        b"HPUB %b %b %d %d\r\n%b%b\r\n" % (name, feed._inbox, *sizes, headers, payload)
        if headers
        else b"PUB %b %b %d\r\n%b\r\n" % (name, feed._inbox, len(payload), payload)
    )
    (ack,) = feed.link.poll(5.0)
    assert b'"error"' not in ack[5], ack


@pytest.mark.parametrize("history", [-1, 1, 3])
def test_each_subject_comes_once_with_its_latest_value(
    make_feed: Callable[..., Feed], history: int
) -> None:
    feed = make_feed(max_msgs_per_subject=history)
    feed.publish([f"k{n % 37}" for n in range(1000)])
    assert read(feed, plan(feed)) == {f"k{n % 37}": b"m%d" % n for n in range(963, 1000)}
    assert read(feed, plan(feed, pattern=f"{feed.name}.k7")) == {"k7": b"m969"}
    assert read(feed, plan(feed, pattern=f"{feed.name}.none")) == {}
    feed.call(f"STREAM.PURGE.{feed.name}")
    assert read(feed, plan(feed)) == {}
    assert feed.consumers() == 0


def test_deleted_keys_are_left_out_also_at_the_end_of_the_stream(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(max_msgs_per_subject=5, allow_rollup_hdrs=True)
    feed.publish([f"k{n}" for n in range(6)])
    publish(feed, "k1", b"", b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")
    publish(feed, "k2", b"", b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n")
    publish(feed, "k3", b"", b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n")
    assert sorted(read(feed, plan(feed))) == ["k0", "k4", "k5"]
    publish(feed, "k2", b"back", b"NATS/1.0\r\nOther: x\r\n\r\n")
    assert sorted(read(feed, plan(feed))) == ["k0", "k2", "k4", "k5"]


class Meddled(Link):
    """Calls ``meddle`` once, before anything is pulled: the server has its list by then."""

    meddle: Callable[[], None]
    done = False

    def subscribe(self) -> tuple[bytes, bytes]:
        if not self.done:
            self.done = True
            self.meddle()
        return super().subscribe()


def meddled(feed: Feed, meddle: Callable[[], None]) -> Link:
    link = feed.connect()
    link.__class__ = Meddled
    link.meddle = meddle  # type: ignore[attr-defined]
    return link


def test_what_is_replaced_during_the_read_comes_with_its_new_value_and_nothing_is_missing(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(max_msgs_per_subject=1)
    keys = [f"k{n}" for n in range(50)]
    feed.publish(keys)

    def meddle() -> None:
        feed.publish([*keys[:20], "new", *keys[10:15]], lambda index: b"v%d" % index)

    link = meddled(feed, meddle)
    found = latest(list(read_snapshot(lambda: link, plan(feed, rows_per_chunk=7))))
    link.close()
    assert {key for key in found if key != "new"} == set(keys)
    assert all(found[key] == b"m%s" % key[1:].encode() for key in keys[20:])
    assert all(found[key].startswith((b"v", b"m")) for key in keys[:20])


def test_a_stream_made_again_meanwhile_is_no_table(feed: Feed) -> None:
    feed.publish([f"k{n}" for n in range(5)])
    epoch = feed.control.head()[0].epoch
    assert len(read(feed, plan(feed, epoch=epoch))) == 5

    def meddle() -> None:
        feed.call(f"STREAM.DELETE.{feed.name}")
        feed.create()
        feed.publish(["k0"])

    links = [feed.connect(), meddled(feed, meddle)]
    opened = list(links)
    with pytest.raises(DataLossError, match="made again"):
        list(read_snapshot(links.pop, plan(feed, epoch=epoch)))
    for link in opened:
        link.close()


def test_no_row_of_a_stream_made_again_is_passed_on(feed: Feed) -> None:
    """It is made again between the look at it and the consumer that reads it."""
    feed.publish([f"k{n}" for n in range(50)])
    planned = plan(feed, epoch=feed.control.head()[0].epoch, rows_per_chunk=5)
    link = feed.connect()
    looks: list[str] = []

    class Remade(Link):
        def request(self, subject: str, payload: bytes = b"") -> Any:
            answer = super().request(subject, payload)
            looks.append(subject)
            if len(looks) == 1:
                feed.call(f"STREAM.DELETE.{feed.name}")
                feed.create()
                feed.publish([f"k{n}" for n in range(50)])
            return answer

    link.__class__ = Remade
    found: list[Chunk] = []
    with contextlib.closing(link), pytest.raises(DataLossError, match="made again"):
        found.extend(read_snapshot(lambda: link, planned))
    assert ".STREAM.INFO." in looks[0]
    assert found == []


def test_a_broken_connection_is_replaced_and_no_subject_comes_twice(feed: Feed) -> None:
    feed.publish([f"k{n}" for n in range(5000)])
    links: list[Link] = []

    def connect() -> Link:
        links.append(feed.connect())
        return links[-1]

    chunks = []
    for chunk in read_snapshot(connect, plan(feed, rows_per_chunk=100)):
        chunks.append(chunk)
        if len(chunks) == 3:
            links[-1]._sock.shutdown(2)
    assert len(links) == 2
    assert len(latest(chunks)) == 5000
    links[-1].close()


def test_a_work_queue_is_no_table(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(retention="workqueue")
    with pytest.raises(ConfigurationError, match="is a work queue"):
        read(feed, plan(feed))


def test_a_bucket_is_a_table_of_keys_and_values(feed: Feed) -> None:
    bucket = f"B{feed.name}"
    stream = f"KV_{bucket}"
    config = {"name": stream, "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1}
    assert "error" not in feed.call(f"STREAM.CREATE.{stream}", config)
    for key, value in (("eu.fr", b'{"a":1}'), ("eu.de", b'{"a":2}'), ("eu.fr", b'{"a":3}')):
        feed.link.request(f"$KV.{bucket}.{key}", value)
    options = parse_options({"bucket": bucket, "servers": feed.url}, streaming=False)
    assert options.stream == stream
    batches = list(read_slice(options, ("key", "data", "sequence"), Slice(0, 3)))
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"key": "eu.de", "data": b'{"a":2}', "sequence": 2},
        {"key": "eu.fr", "data": b'{"a":3}', "sequence": 3},
    ]
    feed.call(f"STREAM.DELETE.{stream}")


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"bucket": "b", "stream": "S"}, "either 'bucket' or 'stream'"),
        ({"bucket": "b", "startingOffsets": "latest"}, "leave out startingOffsets"),
        ({"stream": "S", "lastPerSubject": "true", "endingOffsets": "5"}, "leave out starting"),
        ({"bucket": "b.c"}, "a name without blanks"),
    ],
)
def test_options_that_contradict_a_table_are_refused(raw: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_options(raw, streaming=False)


def test_a_table_is_no_stream() -> None:
    with pytest.raises(ConfigurationError, match="reads every change of the stream"):
        parse_options({"stream": "S", "lastPerSubject": "true"}, streaming=True)


def test_a_bucket_as_a_stream_has_every_change_and_null_for_deletions(feed: Feed) -> None:
    bucket = f"C{feed.name}"
    config = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "allow_direct": True}
    config["max_msgs_per_subject"] = 8
    assert "error" not in feed.call(f"STREAM.CREATE.KV_{bucket}", config)
    deletion = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
    changes = [
        ("a", b'{"n":1}', b""), ("a", b"", deletion), ("b", b"poison", b""), ("a", b'{"n":2}', b""),
    ]  # fmt: skip
    for key, value, block in changes:
        requests = [(f"$KV.{bucket}.{key}", value)]
        feed.link.request_many(requests, [block or b"NATS/1.0\r\n\r\n"])
    given = {"bucket": bucket, "servers": feed.url, "maxOffsetsPerTrigger": "2"}
    options = parse_options(given, streaming=True)
    assert (options.stream, options.last_per_subject) == (f"KV_{bucket}", False)

    def read_all(columns: Any, options: Any = options) -> list[Any]:
        found = read_slice(options, columns, Slice(0, 4))
        return [row for batch in found for row in batch.to_pylist()]

    assert read_all(("key", "data")) == [
        {"key": key, "data": None if block else value} for key, value, block in changes
    ]
    assert [row["data"] for row in read_all(("data",))] == [
        None if block else value for _, value, block in changes
    ]
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    schema = StructType(
        [StructField(name, kind) for name, kind in (("n", LongType()), ("key", StringType()))]
    )
    schema.add("_rescued", StringType())
    decoded = parse_options({**given, "valueFormat": "json"}, streaming=True)
    rows = read_all(layout_of(decoded, schema), decoded)
    assert [(row["key"], row["n"], row["_rescued"]) for row in rows] == [
        ("a", 1, None), ("a", None, None), ("b", None, "poison"), ("a", 2, None),
    ]  # fmt: skip
    feed.call(f"STREAM.DELETE.KV_{bucket}")
