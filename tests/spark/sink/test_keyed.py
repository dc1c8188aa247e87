"""A sink with a key keeps the latest value: on each of the servers, whoever writes when."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigurationError
from headrace.message import StoredMessage
from headrace.spark.sink import keyed
from headrace.spark.sink.keyed import LastValues
from headrace.spark.sink.layout import Column, lay_out
from headrace.spark.sink.markers import FencedError, PlanId, StreamResetError
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.target import look
from headrace.spark.sink.versions import read_version
from headrace.spark.sink.writing import Job

from ..conftest import Feed
from .sinks import columns, write

Make = Callable[..., Feed]
Row = tuple[str, str | None, int]

TYPES = columns(user="string", text="string", sequence="bigint")
SCHEMA = pa.schema([("user", pa.string()), ("text", pa.string()), ("sequence", pa.int64())])
BUCKET = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "allow_direct": True}


class Bucket(Feed):
    """A stream that is a key-value bucket of its own."""

    def __init__(self, url: str, **config: object) -> None:
        super().__init__(url)
        self.call(f"STREAM.DELETE.{self.name}")
        self.bucket = self.name
        self.name = self.control.stream = f"KV_{self.bucket}"
        subjects = [f"$KV.{self.bucket}.>"]
        self.create(**{**BUCKET, "name": self.name, "subjects": subjects, **config})


@pytest.fixture(params=[True, False], ids=["direct", "not direct"])
def bucket(server_url: str, request: pytest.FixtureRequest) -> Iterable[Bucket]:
    made = Bucket(server_url, allow_direct=request.param)
    yield made
    made.close()


def plan(run: int) -> PlanId:
    return PlanId(1000 + run, "n")


def job(feed: Bucket, run: int = 0, types: tuple[Column, ...] = TYPES, **options: str) -> Job:
    """A run of a batch; later ones are later."""
    given = {"servers": feed.url, "bucket": feed.bucket, "key": "user", "reconnectTimeout": "1s"}
    wanted = parse_sink_options({**given, **options}, streaming=True)
    layout = lay_out(wanted, types)
    return Job(wanted, layout, plan(run), look(wanted.connection, wanted, layout).epoch)


def arrow(rows: Iterable[Row], size: int = 1000) -> list[pa.RecordBatch]:
    each = [dict(zip(("user", "text", "sequence"), row, strict=True)) for row in rows]
    parts = [each[at : at + size] for at in range(0, len(each), size)]
    return [pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in parts]


def entries(feed: Bucket) -> dict[str, StoredMessage]:
    """The last message of each key."""
    last = feed.control.stream_info().state.last_seq
    begin = len(f"$KV.{feed.bucket}.")
    found: dict[str, StoredMessage] = {}
    for at in range(1, last + 1, 5000):
        for message in feed.stored(range(at, min(last, at + 4999) + 1)):
            found[message.subject.decode()[begin:]] = message
    return found


def values(feed: Bucket) -> dict[str, bytes]:
    """The value of each key that is there."""
    return {
        key: message.payload
        for key, message in entries(feed).items()
        if b"KV-Operation" not in message.headers
    }


def document(row: Row) -> bytes:
    return b'{"user":"%b","text":"%b","sequence":%d}' % (
        row[0].encode(), (row[1] or "").encode(), row[2],
    )  # fmt: skip


def test_the_last_row_of_each_key_is_stored_and_no_other(bucket: Bucket) -> None:
    rows = [(f"u{number % 7}", f"t{number}", number) for number in range(700)]
    done = write(job(bucket), arrow(rows, 100))
    assert (done.rows, done.found, done.bad) == (700, 0, 0)
    assert bucket.control.stream_info().state.last_seq == 7
    assert values(bucket) == {row[0]: document(row) for row in rows[-7:]}
    later = [("u1", "new", 1), ("u1", None, 5), ("u2", "other", 6), ("u3", None, 7)]
    write(job(bucket, 1), arrow(later), batch=1)
    expected = {row[0]: document(row) for row in rows[-7:] if row[0] not in ("u1", "u3")}
    assert values(bucket) == expected | {"u2": document(later[2])}
    assert b"KV-Operation: DEL" in entries(bucket)["u3"].headers


def test_the_order_is_that_of_the_stream_whatever_order_rows_come_in(bucket: Bucket) -> None:
    draw = random.Random(4)
    rows = [(f"u{draw.randrange(9)}", f"t{number}", number) for number in range(500)]
    last = {row[0]: document(row) for row in rows}
    draw.shuffle(rows)
    parts = [rows[at::3] for at in range(3)]
    one = job(bucket)
    for partition in (2, 0, 1):
        write(one, arrow(parts[partition], 40), partition=partition)
    assert values(bucket) == last
    # The same rows in other partitions, as a batch that runs again has them: nothing is stored again.
    before = bucket.control.stream_info().state.last_seq
    again = job(bucket, 1, delivery="exactlyOnce", sinkId="other")
    assert write(again, arrow(rows)).outrun == 0
    found = write(job(bucket, 2, delivery="exactlyOnce", sinkId="other"), arrow(rows, 77))
    assert found.found == len(last)
    assert bucket.control.stream_info().state.last_seq == before + len(last)
    assert values(bucket) == last


def test_other_columns_can_tell_the_order_and_without_any_it_is_that_of_tasks_and_rows(
    bucket: Bucket,
) -> None:
    import datetime as dt

    types = columns(user="string", day="date", at="timestamp", text="string")
    day = dt.date(2026, 1, 1)
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

    def batch(*rows: tuple[str, int, int, str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {
                "user": [row[0] for row in rows],
                "day": [day + dt.timedelta(days=row[1]) for row in rows],
                "at": pa.array(
                    [noon + dt.timedelta(seconds=row[2]) for row in rows],
                    pa.timestamp("us", "UTC"),
                ),
                "text": [row[3] for row in rows],
            }
        )

    rows = batch(("a", 1, 5, "last"), ("a", 1, 4, "x"), ("b", 0, 9, "y"), ("b", 2, 0, "last"))
    write(job(bucket, 0, types, order="day, at"), [rows])
    assert {key: b'"last"' in value for key, value in values(bucket).items()} == dict.fromkeys(
        "ab", True
    )
    one = job(bucket, 1, types)
    write(one, [batch(("a", 0, 0, "second"), ("a", 0, 0, "last of all"))], batch=1, partition=1)
    write(one, [batch(("a", 0, 0, "first"))], batch=1, partition=0)
    assert b'"last of all"' in values(bucket)["a"]


def test_a_late_row_of_a_later_batch_does_not_replace_the_later_value(bucket: Bucket) -> None:
    first = [("a", "late", 5), ("b", "kept", 5), ("c", None, 5)]
    ordered: dict[str, Any] = {"order": "sequence", "sinkId": "s"}
    write(job(bucket, 0, **ordered), arrow(first))
    second = [("a", "new", 6), ("b", "too late", 4), ("c", "too late", 4)]
    done = write(job(bucket, 1, **ordered), arrow(second), batch=1)
    assert (done.rows, done.late) == (3, 2)
    assert values(bucket) == {"a": document(second[0]), "b": document(first[1])}
    # Another sink that reads all again, and a row that ties.
    other = {**ordered, "sinkId": "other"}
    again = [("a", "late", 5), ("b", "tie", 5), ("c", "back", 6)]
    assert write(job(bucket, 2, **other), arrow(again)).late == 1
    expected = {"a": document(second[0]), "b": document(again[1]), "c": document(again[2])}
    assert values(bucket) == expected
    # Without the option the later batch wins.
    write(job(bucket, 3, sinkId="other"), arrow(second[1:2]), batch=1)
    assert values(bucket)["b"] == document(second[1])


def test_tasks_that_write_the_same_keys_at_the_same_time_leave_the_later_rows(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is held between its look at what is stored and its write, while others write."""
    monkeypatch.setattr(keyed, "PORTION", 3)
    rows = [(f"u{number % 10}", f"t{number}", number) for number in range(100)]
    one = job(bucket)
    read = LastValues.read
    inside: list[bool] = []
    others = [arrow(rows[50:60]), arrow(rows[90:100]), arrow(rows[10:20])]

    def while_others_write(last: LastValues, *given: Any, **more: Any) -> object:
        found = read(last, *given, **more)
        if not inside and others:
            inside.append(True)
            write(one, others.pop(), partition=3 - len(others))
            inside.pop()
        return found

    monkeypatch.setattr(LastValues, "read", while_others_write)
    write(one, arrow(rows[:50]), partition=0)
    assert not others
    assert values(bucket) == {row[0]: document(row) for row in rows[-10:]}


def test_a_writer_that_was_given_up_stores_nothing_over_its_successors(bucket: Bucket) -> None:
    rows = [("a", "old", 1), ("b", "old", 2)]
    old = job(bucket, 0)
    write(old, arrow(rows[:1]), batch=4)
    with_new = [("a", "new", 3)]
    write(job(bucket, 1), arrow(with_new), batch=5)
    with pytest.raises(FencedError, match="has a value of batch 5 of sink 'query'"):
        write(old, arrow(rows), batch=4)
    assert values(bucket) == {"a": document(with_new[0])}
    # A run of the same batch that was given up is refused, too; a later run goes over it.
    run, later = job(bucket, 2), job(bucket, 3)
    write(later, arrow([("a", "later", 9)]), batch=6)
    with pytest.raises(FencedError, match="a later run of batch 6"):
        write(run, arrow([("a", "earlier", 99)]), batch=6)
    write(job(bucket, 4), arrow([("a", "last run", 9)]), batch=6)
    assert values(bucket)["a"] == document(("a", "last run", 9))
    # A deletion is a value, too: what was given up does not bring the key back.
    write(job(bucket, 5), arrow([("a", None, 10)]), batch=7)
    with pytest.raises(FencedError):
        write(run, arrow([("a", "earlier", 99)]), batch=6)
    assert "a" not in values(bucket)


@pytest.mark.parametrize(
    ("options", "meanwhile"),
    [
        ({}, "older"),
        ({"order": "sequence"}, "newer"),
        ({"delivery": "exactlyOnce", "sinkId": "s"}, "newer"),
    ],
    ids=["at least once", "with an order", "exactly once"],
)
def test_a_batch_that_runs_again_may_show_older_rows_meanwhile_only_at_least_once_and_without_order(
    bucket: Bucket, options: dict[str, str], meanwhile: str
) -> None:
    """Its first task has the older rows of the keys, and is through before the second one begins."""
    older, newer = [("a", "older", 5)], [("a", "newer", 10)]
    for run in (0, 1):
        one = job(bucket, run, TYPES, **options)
        write(one, arrow(older), partition=0)
        expected = "older" if run == 0 else meanwhile
        assert values(bucket) == {"a": document(("a", expected, 5 if expected == "older" else 10))}
        write(one, arrow(newer), partition=1)
        assert values(bucket) == {"a": document(newer[0])}


def test_another_sink_goes_over_what_was_stored_before_it_began_and_not_over_what_came_since(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """A query with a new checkpoint counts its batches from 0; what it writes is later all the same."""
    write(job(bucket, 5, sinkId="first"), arrow([("a", "1", 1)]), batch=40)
    write(job(bucket, 6, sinkId="second"), arrow([("a", "2", 1)]), batch=0)
    assert values(bucket)["a"] == document(("a", "2", 1))
    done = write(job(bucket, 5, sinkId="first"), arrow([("a", "3", 1)]), batch=41)
    assert done.outrun == 1
    assert values(bucket)["a"] == document(("a", "2", 1))
    bucket.link.publish(f"$KV.{bucket.bucket}.a", b"by hand")
    bucket.link.publish(f"$KV.{bucket.bucket}.b", b"by hand")
    write(job(bucket, 7, sinkId="first"), arrow([("a", "4", 1)]), batch=42)
    assert values(bucket) == {"a": document(("a", "4", 1)), "b": b"by hand"}


def test_subjects_of_a_stream_keep_their_latest_value_and_keys_may_have_several_columns(
    make_feed: Make, bucket: Bucket
) -> None:
    feed = make_feed()
    given = {
        "servers": feed.url,
        "stream": feed.name,
        "subject": f"{feed.name}.{{land}}.{{city}}",
        "key": "Land, City",
    }
    options = parse_sink_options(given, streaming=True)
    types = columns(land="string", city="string", n="int")
    batch = pa.RecordBatch.from_pydict(
        {"land": ["de", "de", "fr"], "city": ["b", "b", "p"], "n": pa.array([1, 2, 3], pa.int32())}
    )
    one = Job(options, lay_out(options, types), plan(0))
    write(one, [batch])
    stored = feed.stored(range(1, 10))
    assert sorted((m.subject.decode(), m.payload) for m in stored) == [
        (f"{feed.name}.de.b", b'{"land":"de","city":"b","n":2}'),
        (f"{feed.name}.fr.p", b'{"land":"fr","city":"p","n":3}'),
    ]
    write(job(bucket, 0, types, key="land,city"), [batch])
    assert set(values(bucket)) == {"de.b", "fr.p"}


def test_raw_values_are_deleted_by_null_and_headers_travel_along(bucket: Bucket) -> None:
    types = columns(user="string", data="binary", headers="map<string,string>")
    headers = pa.array(
        [[("colour", "blue"), ("Headrace-Version", "of another")], None, None],
        pa.map_(pa.string(), pa.string()),
    )
    batch = pa.RecordBatch.from_pydict(
        {"user": ["a.b", "c", "c"], "data": [b"1", b"2", None], "headers": headers}
    )
    write(job(bucket, 0, types), [batch])
    found = entries(bucket)
    assert values(bucket) == {"a.b": b"1"}
    assert b"colour: blue" in found["a.b"].headers
    version = read_version(found["a.b"].headers)
    assert version is not None
    assert (version.sink, version.batch, version.place.row) == ("query", 0, 0)


def test_rows_that_make_no_value_are_bad_and_the_one_before_them_is_the_last(
    make_feed: Make, bucket: Bucket
) -> None:
    dead = make_feed()
    large = "x" * (bucket.link.info.max_payload + 1)
    rows = [
        ("a", "1", 1), ("a", "2", 2), ("a", large, 3), ("no key", "1", 4), ("", "2", 5), ("b", "1", 6),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pydict(
        {
            "user": [row[0] for row in rows] + ["c", None],
            "text": [row[1] for row in rows] + ["x", "y"],
            "sequence": pa.array([row[2] for row in rows] + [None, 7], pa.int64()),
        }
    )
    for run in range(2):
        done = write(job(bucket, run, onBadRow=f"deadletter:{dead.name}.bad"), [batch])
        assert (done.rows, done.bad) == (3, 5)
    assert values(bucket) == {"a": document(rows[1]), "b": document(rows[5])}
    letters = dead.stored(range(1, 20))
    assert sorted(
        line.partition(b": ")[2].decode()
        for letter in letters
        for line in letter.headers.split(b"\r\n")
        if line.startswith(b"Headrace-Row")
    ) == ["2", "3", "4", "6", "7"]


def test_what_a_task_holds_is_stored_before_it_is_too_much(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "HELD_BYTES_MAX", 5000)
    rows = [(f"u{number % 50}", f"t{number}", number) for number in range(500)]
    write(job(bucket), arrow(rows, 60))
    assert values(bucket) == {row[0]: document(row) for row in rows[-50:]}
    assert bucket.control.stream_info().state.last_seq > 50


def test_a_stream_that_is_made_again_under_a_batch_fails_it_where_rows_count_once(
    bucket: Bucket,
) -> None:
    one = job(bucket, delivery="exactlyOnce", sinkId="s")
    write(one, arrow([("a", "1", 1)]))
    bucket.call(f"STREAM.DELETE.{bucket.name}")
    bucket.create(**BUCKET, subjects=[f"$KV.{bucket.bucket}.>"])
    with pytest.raises(StreamResetError, match="it has to run again"):
        write(one, arrow([("b", "1", 1)]), partition=1)


def test_what_does_not_go_with_a_key_is_said_before_a_row_is_written(bucket: Bucket) -> None:
    def refused(match: str, types: tuple[Column, ...] = TYPES, **options: str) -> None:
        with pytest.raises(ConfigurationError, match=match):
            given = {"servers": bucket.url, **options}
            wanted = parse_sink_options(given, streaming=True)
            lay_out(wanted, types)

    refused("name the columns of the key with the option 'key'", bucket="b")
    refused("give either 'bucket' or 'stream'", bucket="b", key="user", stream="S")
    refused("needs the option 'key'", stream="S", subject="s.{user}", order="sequence")
    refused("leave out delivery=dedupe", bucket="b", key="user", delivery="dedupe")
    refused("it has user", stream="S", subject="s.{user}", key="text")
    refused("or key=subject", stream="S", key="user")
    refused("needs the option 'sinkId'", bucket="b", key="user", delivery="exactlyOnce")
    refused("column 'usr', which the rows do not have; did you mean 'user'", bucket="b", key="usr")
    refused("names column 'at'", bucket="b", key="user", order="at")
    refused("column text is string; it must be", bucket="b", key="user", order="text")
    with_id = columns(user="string", msg_id="string", n="int")
    refused("needs no message id", with_id, bucket="b", key="user")
    refused("'key' is 'a,A'; accepted", bucket="b", key="a,A")


def test_a_stream_that_cannot_keep_the_latest_is_refused(make_feed: Make, server_url: str) -> None:
    def refused(match: str, **config: object) -> None:
        feed = make_feed(**config)
        given = {"servers": feed.url, "stream": feed.name, "key": "subject"}
        options = parse_sink_options(given, streaming=True)
        with pytest.raises(ConfigurationError, match=match):
            look(options.connection, options, lay_out(options, columns(subject="string", n="int")))

    refused("It needs retention limits", retention="workqueue")
    refused(
        "refuses new messages of a subject that is full",
        max_msgs_per_subject=1,
        discard="new",
        discard_new_per_subject=True,
    )
    options = parse_sink_options(
        {"servers": server_url, "bucket": "NONE", "key": "user"}, streaming=True
    )
    with pytest.raises(ConfigurationError, match="no bucket 'NONE'; make it: headrace kv add NONE"):
        look(options.connection, options, lay_out(options, TYPES))
