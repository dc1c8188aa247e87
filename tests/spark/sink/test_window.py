"""At least once and dedupe, on each of the servers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pyarrow as pa
import pytest

from headrace.errors import ConfigurationError, JetStreamApiError
from headrace.spark.links.link import Link
from headrace.spark.options import Connection
from headrace.spark.sink import window
from headrace.spark.sink.dead_letters import BadRowError
from headrace.spark.sink.rows import Rows
from headrace.spark.sink.window import WindowPublisher
from headrace.wire import parse_headers

from ..conftest import Feed
from .sinks import columns, job, numbered, payloads, rows_of, stored, write

Make = Callable[..., Feed]


@pytest.mark.parametrize("most_wanted", [1, 7, 700, 8000])
def test_every_row_is_stored_in_order_and_no_more_are_in_flight(
    feed: Feed, most_wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = 30 if most_wanted < 10 else 3000
    most = 0
    take = WindowPublisher._take

    def watch(publisher: WindowPublisher, rows: Rows, numbers: Sequence[int]) -> list[bytes]:
        nonlocal most
        made = take(publisher, rows, numbers)
        most = max(most, len(publisher._unacked))
        return made

    monkeypatch.setattr(WindowPublisher, "_take", watch)
    assert write(job(feed, maxInFlight=str(most_wanted)), payloads(1, last)).rows == last
    assert rows_of(feed) == numbered(1, last)
    assert min(most_wanted, 500) <= most <= most_wanted


def test_a_server_that_is_slow_to_acknowledge_is_given_fewer_messages_at_once(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that syncs after each message needs seconds for thousands, which would pass for lost."""
    clock = [0.0]
    monkeypatch.setattr(window, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    hear = WindowPublisher._hear
    windows: list[int] = []

    def slowly(publisher: WindowPublisher, at_most: int) -> None:
        clock[0] += (len(publisher._unacked) - at_most) * 0.01  # 100 messages a second
        hear(publisher, at_most)
        windows.append(publisher._window)

    monkeypatch.setattr(WindowPublisher, "_hear", slowly)
    assert write(job(feed), payloads(1, 3000)).rows == 3000
    assert rows_of(feed) == numbered(1, 3000)
    assert max(windows) == 500
    assert 50 <= min(windows) < 200


def test_a_connection_that_breaks_loses_nothing_and_dedupe_doubles_nothing(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[Link] = []
    opened = Link.open

    def remember(connection: Connection) -> Link:
        broken.append(opened(connection))
        return broken[-1]

    monkeypatch.setattr(Link, "open", remember)

    def breaks(number: int, size: int) -> Iterator[pa.RecordBatch]:
        for batch in payloads(1, number, size):
            yield batch
            broken[-1]._sock.shutdown(2)

    one = job(feed, delivery="dedupe", reconnectTimeout="30s")
    assert write(one, breaks(3000, 1000)).rows == 3000
    assert len(broken) >= 3
    assert rows_of(feed) == numbered(1, 3000)
    again = write(job(feed, delivery="dedupe"), payloads(1, 3000))
    assert (again.rows, again.found) == (3000, 3000)
    assert write(job(feed, delivery="dedupe"), payloads(1, 10), batch=1).found == 0


def test_a_connection_that_breaks_after_the_last_ack_is_no_error(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = WindowPublisher._hear
    broken = []

    def then_breaks(publisher: WindowPublisher, at_most: int) -> None:
        hear(publisher, at_most)
        if at_most == 0 and publisher._link is not None:
            publisher._link._sock.shutdown(2)
            broken.append(at_most)

    monkeypatch.setattr(WindowPublisher, "_hear", then_breaks)
    assert write(job(feed), payloads(1, 10)).rows == 10
    assert write(job(feed), payloads(11, 20)).rows == 10
    assert len(broken) == 2
    assert rows_of(feed) == numbered(1, 20)


@pytest.mark.parametrize("with_ttl", [False, True])
def test_dedupe_loses_no_row_where_a_batch_is_cut_into_other_partitions(
    make_feed: Make, with_ttl: bool
) -> None:
    """An id names the row, too, not only its place: what is another row there is stored."""
    feed = make_feed(allow_msg_ttl=True)
    types = columns(data="binary", **({"ttl": "int"} if with_ttl else {}))

    def rows(first: int, last: int) -> Iterator[pa.RecordBatch]:
        for batch in payloads(first, last):
            named = {"data": batch.column(0)}
            if with_ttl:
                named["ttl"] = pa.array([3600] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_pydict(named)

    for first, last, partition in ((1, 50, 0), (51, 70, 1)):
        write(job(feed, types, delivery="dedupe"), rows(first, last), partition=partition)
    found = [
        write(
            job(feed, types, delivery="dedupe"), rows(at * 25 + 1, at * 25 + 25), partition=at
        ).found
        for at in range(4)
    ]
    assert found == [25, 0, 0, 0], "the first 25 rows have their places, the others have not"
    assert set(rows_of(feed)) == set(numbered(1, 100))


def test_dead_letters_of_a_batch_that_is_cut_otherwise_are_all_there(make_feed: Make) -> None:
    feed = make_feed()
    dead = f"{feed.name}.dead"
    types = columns(subject="string", data="binary")
    for bad in (b"one", b"other", b"other"):
        batch = pa.RecordBatch.from_pydict({"subject": ["no subject"], "data": [bad]})
        batch = batch.cast(pa.schema([("subject", pa.string()), ("data", pa.binary())]))
        one = job(feed, types, delivery="dedupe", onBadRow=f"deadletter:{dead}")
        assert write(one, [batch]).bad == 1
    assert [letter.payload for letter in stored(feed, "dead")] == [b"one", b"other"]


def test_dedupe_without_a_batch_is_good_for_the_tasks_of_one_write(feed: Feed) -> None:
    one = job(feed, delivery="dedupe")
    write(one, payloads(1, 10), batch=None)
    assert write(one, payloads(1, 10), batch=None, attempt=1).found == 10


def test_headers_ids_and_lifetimes_arrive(make_feed: Make) -> None:
    feed = make_feed(allow_msg_ttl=True)
    types = columns(
        subject="string", data="binary", headers="map<string,string>", msg_id="string", ttl="int"
    )
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "subject": [f"{feed.name}.out"] * 2,
            "data": [b"1", b"2"],
            "headers": pa.array([[("colour", "blue")], None], kind),
            "msg_id": ["a", "a"],
            "ttl": [60, None],
        }
    )
    done = write(job(feed, types), [batch])
    assert (done.rows, done.found) == (2, 1)
    (message,) = stored(feed)
    headers = parse_headers(message.headers)
    assert (headers["colour"], headers["Nats-Msg-Id"], headers["Nats-TTL"]) == ("blue", "a", "60")


TWO = columns(subject="string", data="binary")


def mixed(feed: Feed) -> pa.RecordBatch:
    large = b"x" * (feed.link.info.max_payload + 1)
    return pa.RecordBatch.from_pydict(
        {
            "subject": [f"{feed.name}.out", "no where", f"{feed.name}.out", f"{feed.name}.out"],
            "data": [b"r1", b"bad", large, b"r2"],
        }
    )


@pytest.mark.parametrize("delivery", ["atLeastOnce", "exactlyOnce"])
def test_bad_rows_fail_the_task_or_are_left_out_and_counted(
    make_feed: Make, delivery: str, caplog: pytest.LogCaptureFixture
) -> None:
    feed = make_feed(allow_atomic=True)
    more = {"delivery": delivery, "sinkId": "s", "markerPrefix": f"{feed.name}._sink"}
    with pytest.raises(BadRowError, match=r"row 1 of s:0:0: 'no where' is no subject"):
        write(job(feed, TWO, **more), [mixed(feed)])
    assert rows_of(feed) == []
    done = write(job(feed, TWO, onBadRow="skip", **more), [mixed(feed)])
    assert (done.rows, done.bad) == (2, 2)
    assert rows_of(feed) == numbered(1, 2)
    assert "2 bad rows of this task: skipped; the first is row 1 of s:0:0" in caplog.text


@pytest.mark.parametrize("delivery", ["atLeastOnce", "exactlyOnce"])
def test_bad_rows_go_to_a_stream_once_however_often_a_batch_runs(
    make_feed: Make, delivery: str
) -> None:
    feed, dead = make_feed(allow_atomic=True), make_feed()
    more = {"delivery": delivery, "sinkId": "s", "markerPrefix": f"{feed.name}._sink"}
    for _ in range(2):
        one = job(feed, TWO, onBadRow=f"deadletter:{dead.name}.bad", **more)
        assert write(one, [mixed(feed)]).bad == 2
    assert dead.control.stream_info().state.messages == 2
    first, second = dead.stored(range(1, 3))
    headers = parse_headers(first.headers)
    assert (first.payload, headers["Headrace-Row"]) == (b"bad", "1")
    assert headers["Headrace-Subject"] == "no where"
    assert "is no subject" in headers["Headrace-Failure"]
    headers = parse_headers(second.headers)
    full = feed.link.info.max_payload + 1
    assert headers["Headrace-Truncated"] == str(full)
    assert full - 5000 < len(second.payload) < full
    assert f"it has {full} bytes" in headers["Headrace-Failure"]


def test_a_dead_letter_has_the_row_s_headers(make_feed: Make) -> None:
    feed, dead = make_feed(), make_feed()
    types = columns(subject="string", data="binary", headers="map<string,string>")
    headers = pa.array([[("colour", "blue")]], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_pydict({"subject": [None], "data": [b"x"], "headers": headers})
    write(job(feed, types, onBadRow=f"deadletter:{dead.name}.bad"), [batch])
    (letter,) = dead.stored(range(1, 2))
    kept = base64.b64decode(parse_headers(letter.headers)["Headrace-Headers"])
    assert kept == b"NATS/1.0\r\ncolour: blue\r\n\r\n"


def test_dead_letters_that_no_stream_takes_fail_the_task(feed: Feed) -> None:
    with pytest.raises(ConfigurationError, match=r"no stream takes the subject 'nobody\.listens'"):
        write(job(feed, TWO, onBadRow="deadletter:nobody.listens"), [mixed(feed)])


def test_a_row_that_the_stream_refuses_is_a_bad_row(make_feed: Make) -> None:
    """Limits that changed after the task looked are told by the stream's answers."""
    feed, dead = make_feed(), make_feed()

    def shrinks() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([b"r1"])], names=["data"])
        config = {"name": feed.name, "subjects": [f"{feed.name}.>"], "max_msg_size": 50}
        assert "error" not in feed.call(f"STREAM.UPDATE.{feed.name}", config)
        yield pa.record_batch([pa.array([b"x" * 60, b"r2"])], names=["data"])

    done = write(job(feed, onBadRow=f"deadletter:{dead.name}.bad"), shrinks())
    assert (done.rows, done.bad) == (2, 1)
    assert rows_of(feed) == numbered(1, 2)
    (letter,) = dead.stored(range(1, 2))
    assert "message size exceeds maximum" in parse_headers(letter.headers)["Headrace-Failure"]
    # When the batch runs again the row is found bad before it is sent: the same row, and one letter.
    again = pa.record_batch([pa.array([b"r1", b"x" * 60, b"r2"])], names=["data"])
    done = write(job(feed, onBadRow=f"deadletter:{dead.name}.bad"), [again])
    assert (done.rows, done.bad) == (2, 1)
    (letter,) = dead.stored(range(1, 3))
    assert parse_headers(letter.headers)["Headrace-Row"] == "1"


def test_a_stream_that_is_full_fails_the_task(make_feed: Make) -> None:
    feed = make_feed(max_msgs=5, discard="new")
    with pytest.raises(JetStreamApiError, match="maximum messages exceeded"):
        write(job(feed), payloads(1, 10))
    assert rows_of(feed) == numbered(1, 5)
