from __future__ import annotations

import contextlib
import gc
import random
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import peers
from headrace.api import base
from headrace.api.base import DocumentError
from headrace.api.consumers import ConsumerInfo
from headrace.api.times import parse_time
from headrace.errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    JetStreamApiError,
)
from headrace.spark.frames import Chunk, PayloadChunk, Rows, no_rows
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.lost_messages import Loss, read_losses
from headrace.spark.offsets import DataLossError
from headrace.spark.options import Connection
from headrace.spark.reading import reader
from headrace.spark.reading.gets import DirectGets, MessageGets, read_answers, read_answers_plainly
from headrace.spark.reading.reader import ReadPlan, read_payloads, read_range, still_asked
from headrace.spark.tasks.batch_builder import BatchBuilder
from headrace.wire import MSG, Frame, Parser

from ..conftest import Feed
from ..virtual import Time


def plan(feed: Feed, lo: int, hi: int, **changes: Any) -> ReadPlan:
    base = ReadPlan(feed.name, lo, hi, lambda config: "", 1000, 5.0, True)
    return base._replace(**changes)


def read(feed: Feed, the_plan: ReadPlan) -> list[Chunk]:
    link = feed.connect()
    try:
        return list(read_range(lambda: link, the_plan))
    finally:
        link.close()


def sequences(chunks: list[Chunk]) -> list[int]:
    found: list[int] = []
    for chunk in chunks:
        found += chunk.sequences or [int(ack.split(b".")[5]) for ack in chunk.acks]
    return found


def test_a_range_is_read_exactly_and_in_order(feed: Feed) -> None:
    feed.publish_numbers(1, 5000)
    chunks = read(feed, plan(feed, 1234, 4321))
    assert sequences(chunks) == list(range(1235, 4322))
    assert [p for c in chunks for p in c.payloads] == [b"m%d" % n for n in range(1235, 4322)]
    assert [len(c.payloads) for c in chunks] == [1000, 1000, 1000, 87]


def test_reading_a_range_again_gives_identical_chunks_while_the_stream_grows(feed: Feed) -> None:
    feed.publish_numbers(1, 3000)
    first = read(feed, plan(feed, 0, 2500))
    feed.publish_numbers(3001, 4000)
    second = read(feed, plan(feed, 0, 2500))
    assert [c.payloads for c in first] == [c.payloads for c in second]
    assert sequences(first) == sequences(second)


def test_garbage_is_collected_between_chunks_and_not_while_one_is_read(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.publish_numbers(1, 3000)
    during: list[bool] = []
    poll = Link.poll

    def polled(link: Link, timeout_s: float) -> list[Frame]:
        during.append(gc.isenabled())
        return poll(link, timeout_s)

    monkeypatch.setattr(Link, "poll", polled)
    link = feed.connect()
    between = [gc.isenabled() for _ in read_range(lambda: link, plan(feed, 0, 3000))]
    link.close()
    assert between == [True] * 3
    assert during
    assert not any(during)
    assert gc.isenabled()


def test_no_consumer_is_left_behind(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    read(feed, plan(feed, 0, 100))
    assert feed.consumers() == 0


def test_a_reader_that_stops_early_leaves_nothing_behind_and_a_usable_link(feed: Feed) -> None:
    feed.publish_numbers(1, 3000)
    link = feed.connect()
    chunks = read_range(lambda: link, plan(feed, 0, 3000, rows_per_chunk=10))
    next(chunks)
    assert isinstance(chunks, Generator)
    chunks.close()
    assert feed.consumers() == 0
    assert sequences(list(read_range(lambda: link, plan(feed, 10, 20)))) == list(range(11, 21))
    link.close()


def test_deleted_messages_are_gaps_also_at_both_ends_of_the_range(feed: Feed) -> None:
    feed.publish_numbers(1, 20)
    gone = {1, 2, 7, 8, 14, 15, 20}
    for seq in gone:
        answer = feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": seq})
        assert answer["success"], answer
    assert sequences(read(feed, plan(feed, 2, 15))) == [3, 4, 5, 6, 9, 10, 11, 12, 13]
    assert sequences(read(feed, plan(feed, 13, 15))) == []
    assert sequences(read(feed, plan(feed, 15, 20))) == [16, 17, 18, 19]


def test_large_payloads_cut_a_chunk_before_it_grows_large(feed: Feed) -> None:
    feed.publish(["big"] * 24, lambda index: bytes([index]) * 900_000)
    chunks = read(feed, plan(feed, 0, 24))
    assert sequences(chunks) == list(range(1, 25))
    assert max(sum(map(len, chunk.payloads)) for chunk in chunks) <= 8 * 1024 * 1024


def test_a_sparse_filter_is_left_to_the_server_and_a_dense_one_is_not(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FEW", 0)
    subjects = ["rare" if n % 100 == 0 else "common" for n in range(2000)]
    feed.publish(subjects)
    rare = read(feed, plan(feed, 0, 2000, server_filter=lambda config: f"{feed.name}.rare"))
    assert sequences(rare) == list(range(1, 2001, 100))
    common = read(feed, plan(feed, 0, 2000, server_filter=lambda config: f"{feed.name}.common"))
    assert len(sequences(common)) == 2000
    none = read(feed, plan(feed, 1902, 2000, server_filter=lambda config: f"{feed.name}.rare"))
    assert sequences(none) == []


def test_a_work_queue_is_read_without_consuming_it(make_feed: Callable[..., Feed]) -> None:
    feed = make_feed(retention="workqueue")
    feed.publish_numbers(1, 1200)
    chunks = read(feed, plan(feed, 100, 1200))
    assert sequences(chunks) == list(range(101, 1201))
    assert chunks[0].payloads[0] == b"m101"
    assert all(parse_time(time.decode()) > 0 for chunk in chunks for time in chunk.times)
    assert feed.control.stream_info().state.messages == 1200


def test_a_work_queue_that_allows_it_is_read_by_direct_gets(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(retention="workqueue", allow_direct=True)
    feed.publish_numbers(1, 2500)
    gone = {1, 7, 8, 900, 2400, 2500}
    for sequence in gone:
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": sequence})
    monkeypatch.setattr(MessageGets, "ask", None)  # the slow way is not taken
    chunks = read(feed, plan(feed, 0, 2500))
    assert sequences(chunks) == sorted(set(range(1, 2501)) - gone)
    assert [p for c in chunks for p in c.payloads] == [b"m%d" % n for n in sequences(chunks)]
    assert {s for c in chunks for s in c.subjects} == {f"{feed.name}.n".encode()}
    assert {h for c in chunks for h in c.headers} == {b""}
    assert sequences(read(feed, plan(feed, 100, 200))) == list(range(101, 201))
    assert sequences(read(feed, plan(feed, 2498, 2500))) == [2499]
    assert sequences(read(feed, plan(feed, 2499, 2500))) == []
    assert feed.control.stream_info().state.messages == 2494


def test_rows_of_direct_gets_are_those_of_single_gets_headers_and_times_included(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(retention="workqueue", allow_direct=True)
    blocks = [
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\nNats-Stream: X\r\nNats-Subject: forged\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
    ]
    requests = [(f"{feed.name}.h", b"x")] * len(blocks)
    feed.link.request_many(requests, blocks)
    feed.publish_numbers(1, 3)
    direct = read(feed, plan(feed, 0, 6))[0]
    config = feed.control.stream_info().config
    feed.call(f"STREAM.UPDATE.{feed.name}", {**base.to_wire(config), "allow_direct": False})
    single = read(feed, plan(feed, 0, 6))[0]
    assert direct.times
    assert [parse_time(time.decode()) for time in direct.times] == [
        parse_time(time.decode()) for time in single.times
    ]
    assert direct.headers[0] == single.headers[0]
    assert direct._replace(headers=[], times=[]) == single._replace(headers=[], times=[])
    columns = ("sequence", "timestamp", "subject", "data")
    built = [BatchBuilder(columns, feed.name).build(chunk) for chunk in (direct, single)]
    assert built[0].equals(built[1])


def test_single_gets_skip_what_was_removed(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(retention="workqueue")
    feed.publish(["keep" if n in (0, 20, 5_800, 5_999) else "gone" for n in range(6000)])
    feed.call(f"STREAM.PURGE.{feed.name}", {"filter": f"{feed.name}.gone"})
    asked: list[range] = []
    ask = MessageGets.ask

    def counted(messages: MessageGets, some: range) -> None:
        asked.append(some)
        ask(messages, some)

    monkeypatch.setattr(MessageGets, "ask", counted)
    assert sequences(read(feed, plan(feed, 0, 6000))) == [1, 21, 5801, 6000]
    assert sum(map(len, asked)) < 2000
    asked.clear()
    assert sequences(read(feed, plan(feed, 30, 5000))) == []
    assert sum(map(len, asked)) < 1000


def test_a_few_messages_are_read_without_a_consumer_and_are_the_same(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.link.request_many(
        [(f"{feed.name}.h", b""), (f"{feed.name}.h", b"y")],
        [b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nno colon\r\n\r\n"],
    )
    feed.publish_numbers(3, 150)
    for sequence in (7, 8, 150):
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": sequence})
    create = Control.create_ephemeral
    consumers: list[str] = []

    def created(control: Control, **config: Any) -> ConsumerInfo:
        info = create(control, **config)
        consumers.append(info.name)
        return info

    monkeypatch.setattr(Control, "create_ephemeral", created)
    columns = ("sequence", "timestamp", "subject", "data", "stream")

    def rows(lo: int, hi: int) -> list[dict[str, Any]]:
        build = BatchBuilder(columns, feed.name).build
        chunks = read(feed, plan(feed, lo, hi))
        return [row for chunk in chunks for row in build(chunk).to_pylist()]

    ranges = [(0, 100), (0, 1), (5, 9), (6, 8), (60, 150), (149, 150), (150, 150)]
    few = [rows(*each) for each in ranges]
    assert not consumers
    assert [len(each) for each in few] == [98, 1, 2, 0, 89, 0, 0]
    assert len(rows(0, 101)) == 99
    assert len(consumers) == 1
    monkeypatch.setattr(reader, "FEW", 0)
    assert [rows(*each) for each in ranges] == few
    assert len(consumers) == len(ranges)


def test_large_messages_are_not_got_one_by_one(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.publish(["n"] * 10, lambda index: b"x" * 10_000)
    monkeypatch.setattr(MessageGets, "ask", None)
    assert sequences(read(feed, plan(feed, 0, 10))) == list(range(1, 11))


def test_a_user_who_may_not_get_single_messages_reads_a_few_by_a_consumer(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.publish_numbers(1, 10)

    def refused(*_: object) -> None:
        raise AuthorizationError("the server said: Permissions Violation")

    monkeypatch.setattr(MessageGets, "ask", refused)
    time = Time()
    with contextlib.ExitStack() as stack:

        def connect() -> Link:
            link = feed.connect()
            stack.callback(link.close)
            return link

        found = read_range(connect, plan(feed, 0, 10), time.patience(5.0))
        assert sequences(list(found)) == list(range(1, 11))


def test_a_few_messages_that_were_lost_meanwhile_are_missed(
    make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed = make_feed(max_msgs=10)
    feed.publish_numbers(1, 20)
    with pytest.raises(DataLossError, match="begins at sequence 11 now"):
        read(feed, plan(feed, 5, 15))
    file = tmp_path / "losses"
    lax = plan(feed, 5, 15, fail_on_data_loss=False, losses=str(file))
    assert sequences(read(feed, lax)) == list(range(11, 16))
    assert read_losses(file)[0] == [Loss(feed.name, 6, 10, 5)]


def test_answers_read_together_are_those_read_one_by_one(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(retention="workqueue")
    feed.link.request_many(
        [(f"{feed.name}.h", b""), (f"{feed.name}.h", b"\x00\xff{}[],")],
        [b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nno colon\r\n\r\n"],
    )
    feed.publish_numbers(3, 9)
    feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": 4})
    subject = f"$JS.API.STREAM.MSG.GET.{feed.name}"
    requests = [(subject, b'{"seq":%d}' % sequence) for sequence in range(1, 12)]
    answers = [answer.payload for answer in feed.link.request_many(requests)]
    plainly = read_answers_plainly(answers)
    assert plainly.sequences == [1, 2, 3, 5, 6, 7, 8, 9]
    assert plainly.payloads[:3] == [b"", b"\x00\xff{}[],", b"m3"]
    # The slow way is not taken.
    monkeypatch.setattr("headrace.spark.reading.gets.read_answers_plainly", None)
    assert read_answers(answers) == plainly


@pytest.mark.parametrize(
    "odd", [b"", b"{", b'{"message":7}', b'{"error":{"code":500,"err_code":1}}']
)
def test_an_answer_that_is_no_message_is_an_error(odd: bytes) -> None:
    fine = b'{"message":{"subject":"a","seq":1,"data":"eA==","time":"2024-01-01T00:00:00Z"}}'
    assert read_answers([fine, fine]).payloads == [b"x", b"x"]
    with pytest.raises((JetStreamApiError, DocumentError)):
        read_answers([fine, odd, fine])


class Shuffling:
    """A link to a server that answers in any order, some requests at a time."""

    closed = False

    def __init__(self) -> None:
        self._answers: list[Frame] = []
        self._random = random.Random(7)

    def api(self, *tokens: str) -> str:
        return ".".join(("$JS.API", *tokens))

    def subscribe_below(self) -> tuple[bytes, bytes]:
        return b"_INBOX.p1.", b"2"

    def send(self, data: bytes) -> None:
        for _op, _subject, reply, _headers, body in Parser.for_server().feed(data):
            message = b'{"subject":"a","seq":%d,"time":"2024-01-01T00:00:00Z"}'
            answer = b'{"message":' + message % int(body[7:-1]) + b"}"
            self._answers.append((MSG, reply, b"2", b"", b"", answer))

    def poll(self, _timeout_s: float) -> list[Frame]:
        self._random.shuffle(self._answers)
        some, self._answers = self._answers[:7], self._answers[7:]
        return some


def test_answers_may_come_in_any_order() -> None:
    messages = MessageGets(cast("Link", Shuffling()), "S", 1.0)
    messages.ask(range(1, 30))
    messages.ask(range(30, 60))
    assert messages.take().sequences == list(range(1, 30))
    assert messages.take().sequences == list(range(30, 60))
    assert not messages.waiting


def test_a_user_who_may_not_get_directly_reads_a_work_queue_one_by_one(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(retention="workqueue", allow_direct=True)
    feed.publish_numbers(1, 10)

    def refused(*_: object) -> None:
        raise AuthorizationError("the server said: Permissions Violation")

    monkeypatch.setattr(DirectGets, "ask", refused)
    time = Time()
    with contextlib.ExitStack() as stack:

        def connect() -> Link:
            link = feed.connect()
            stack.callback(link.close)
            return link

        found = read_range(connect, plan(feed, 0, 10), time.patience(5.0))
        assert sequences(list(found)) == list(range(1, 11))


def test_an_answer_of_a_copy_that_lags_is_not_taken_for_the_end(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(retention="workqueue", allow_direct=True)
    feed.publish_numbers(1, 10)
    take, answers = DirectGets.take_all, iter([True, False])

    def lagging(gets: DirectGets) -> Rows:
        rows = take(gets)
        return no_rows() if next(answers) else rows

    monkeypatch.setattr(DirectGets, "take_all", lagging)
    time = Time()
    with contextlib.ExitStack() as stack:

        def connect() -> Link:
            link = feed.connect()
            stack.callback(link.close)
            return link

        found = read_range(connect, plan(feed, 0, 10), time.patience(5.0))
        assert sequences(list(found)) == list(range(1, 11))
    assert len(time.slept) == 1


def test_messages_that_expire_during_the_read_are_reported(
    make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed = make_feed(max_msgs=1000)
    feed.publish_numbers(1, 1500)
    with pytest.raises(DataLossError, match="begins at sequence 501 now"):
        read(feed, plan(feed, 100, 1500))
    file = tmp_path / "losses"
    kept = read(feed, plan(feed, 100, 1500, fail_on_data_loss=False, losses=str(file)))
    assert sequences(kept) == list(range(501, 1501))
    assert read_losses(file)[0] == [Loss(feed.name, 101, 500, 400)]


def test_messages_that_expire_behind_the_last_one_read_are_reported_too(
    make_feed: Callable[..., Feed],
) -> None:
    feed = make_feed(max_msgs=1000)
    feed.publish_numbers(1, 2000)
    with pytest.raises(DataLossError, match="begins at sequence 1001 now"):
        read(feed, plan(feed, 100, 900))


@pytest.mark.parametrize("max_age_s", [0, 3600])
def test_values_replaced_during_the_read_are_no_loss(
    make_feed: Callable[..., Feed], max_age_s: int
) -> None:
    feed = make_feed(max_msgs_per_subject=1, max_age=max_age_s * 1_000_000_000)
    keys = [f"k{n}" for n in range(50)]
    feed.publish(keys)
    link = feed.connect()
    chunks = read_range(lambda: link, plan(feed, 0, 50, rows_per_chunk=10))
    found = [next(chunks)]
    feed.publish(keys)
    found += chunks
    assert sequences(found)[:10] == list(range(1, 11))
    assert sequences(found) == sorted(set(sequences(found)))
    assert sequences(read(feed, plan(feed, 0, 75))) == list(range(51, 76))
    link.close()


def made_again(feed: Feed, messages: int) -> None:
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, messages)


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_stream_made_again_is_not_read_for_the_one_that_was_planned(
    make_feed: Callable[..., Feed], retention: str
) -> None:
    feed = make_feed(retention=retention)
    feed.publish_numbers(1, 10)
    planned = plan(feed, 0, 10, epoch=feed.control.head()[0].epoch)
    assert sequences(read(feed, planned)) == list(range(1, 11))
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create(retention=retention)
    feed.publish_numbers(1, 20)
    with pytest.raises(DataLossError, match="made again"):
        read(feed, planned)
    assert read(feed, planned._replace(fail_on_reset=False)) == []


@pytest.mark.parametrize("rows", [10, 1000])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_stream_made_again_during_the_read_is_found_before_the_last_rows_are_passed_on(
    feed: Feed, rows: int, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FEW", 0)
    feed.publish_numbers(1, 100)
    planned = plan(feed, 0, 100, epoch=feed.control.head()[0].epoch, rows_per_chunk=rows)
    link = feed.connect()

    class Meddled(Link):
        """Makes the stream again when the pull request has been sent, so when rows are on their way."""

        def poll(self, timeout_s: float) -> list[Any]:
            frames = super().poll(timeout_s)
            if frames and any(frame[3] for frame in frames):
                made_again(feed, 100)
            return frames

    link.__class__ = Meddled
    found: list[Chunk] = []
    with pytest.raises(DataLossError, match="made again"):
        found.extend(read_range(lambda: link, planned._replace(fail_on_reset=not accepted)))
    assert sum(len(chunk.payloads) for chunk in found) < 100
    link.close()


@pytest.mark.parametrize(
    ("config", "few"),
    [
        ({}, 0),
        ({}, reader.FEW),
        ({"retention": "workqueue"}, 0),
        ({"retention": "workqueue", "allow_direct": True}, 0),
    ],
    ids=["consumer", "few", "workqueue", "workqueue-direct"],
)
@pytest.mark.parametrize("accepted", [True, False])
def test_no_row_of_a_stream_made_again_is_passed_on_for_one_of_the_old_stream(
    make_feed: Callable[..., Feed],
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    few: int,
    accepted: bool,
) -> None:
    """It is made again between the look at it and the first request for messages."""
    monkeypatch.setattr(reader, "FEW", few)
    feed = make_feed(**config)
    feed.publish_numbers(1, 100)
    planned = plan(feed, 0, 100, epoch=feed.control.head()[0].epoch, rows_per_chunk=10)
    link = feed.connect()
    looks: list[str] = []

    class Meddled(Link):
        def request(self, subject: str, payload: bytes = b"") -> Any:
            answer = super().request(subject, payload)
            if ".STREAM.INFO." in subject:
                looks.append(subject)
                if len(looks) == 1:
                    feed.call(f"STREAM.DELETE.{feed.name}")
                    feed.create(**config)
                    feed.publish_numbers(1, 100)
            return answer

    link.__class__ = Meddled
    found: list[Chunk] = []
    told = (
        contextlib.nullcontext() if accepted else pytest.raises(DataLossError, match="made again")
    )
    with contextlib.closing(link), told:
        found.extend(read_range(lambda: link, planned._replace(fail_on_reset=not accepted)))
    assert len(looks) > 1
    assert found == []


def test_a_stream_made_again_while_a_few_messages_are_got_is_found(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.publish_numbers(1, 10)
    planned = plan(feed, 0, 10, epoch=feed.control.head()[0].epoch)
    take = MessageGets.take

    def meddled(messages: MessageGets) -> Rows:
        rows = take(messages)
        made_again(feed, 10)
        return rows

    monkeypatch.setattr(MessageGets, "take", meddled)
    with pytest.raises(DataLossError, match="made again"):
        read(feed, planned)
    planned = plan(feed, 0, 10, epoch=feed.control.head()[0].epoch, fail_on_reset=False)
    assert read(feed, planned) == []


@pytest.mark.peer
def test_wrong_credentials_are_not_tried_again_and_again(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(config='authorization { user: "me", password: "right" }')
    wrong = Connection(servers=(f"nats://me:wrong@127.0.0.1:{server.port}",))
    tries: list[Connection] = []

    def opened() -> Link:
        tries.append(wrong)
        return Link.open(wrong)

    with pytest.raises(AuthorizationError) as raised:
        list(read_range(opened, ReadPlan("S", 0, 1, str, 10, 5.0, True)))
    assert len(tries) == 1
    assert "wrong" not in str(raised.value)
    right = Connection(servers=(server.url,), user="me", password="right")
    Link.open(right).close()


def _frame(reply: bytes, block: bytes) -> Frame:
    return MSG, b"inbox", b"1", reply, block, b""


@pytest.mark.parametrize(
    ("statuses", "asked"),
    [
        ([b"100 Idle Heartbeat"], 7),
        ([b"408 Request Timeout"], 0),
        ([b"100 Idle Heartbeat", b"404 No Messages"], 0),
        ([b"409 Exceeded MaxWaiting"], 0),
        ([b"409 Consumer Deleted"], None),
        ([b"409 Consumer is push based"], None),
        ([b"409 Server Shutdown"], None),
        ([b"409 Leadership Change"], None),
        ([b"503"], None),
    ],
)
def test_a_status_says_whether_to_ask_again_or_to_begin_anew(
    statuses: list[bytes], asked: int | None
) -> None:
    frames = [_frame(b"ack", b""), *(_frame(b"", b"NATS/1.0 %b\r\n\r\n" % s) for s in statuses)]
    if asked is None:
        with pytest.raises(ConnectionClosedError, match=statuses[-1].decode()):
            still_asked(frames, 7)
    else:
        assert still_asked(frames, 7) == asked


@pytest.mark.parametrize("of_range", [read_range, read_payloads])
def test_a_broken_connection_is_replaced_and_nothing_is_read_twice(
    feed: Feed, of_range: Callable[..., Iterator[Chunk | PayloadChunk]]
) -> None:
    feed.publish_numbers(1, 30_000)
    links: list[Link] = []

    def connect() -> Link:
        links.append(feed.connect())
        return links[-1]

    found: list[Chunk] = []
    for chunk in of_range(connect, plan(feed, 0, 30_000)):
        found.append(chunk.as_rows() if isinstance(chunk, PayloadChunk) else chunk)
        if len(found) in (2, 7):
            with contextlib.suppress(OSError):  # broken already, with rows still in hand
                links[-1]._sock.shutdown(socket.SHUT_RDWR)
    assert len(links) >= 2
    assert sequences(found) == list(range(1, 30_001))
    assert [p for chunk in found for p in chunk.payloads] == [b"m%d" % n for n in range(1, 30_001)]
    assert {len(chunk.payloads) for chunk in found} == {1000}
    links[-1].close()


@pytest.mark.parametrize("of_range", [read_range, read_payloads])
def test_a_link_that_is_lost_while_a_gap_is_looked_at_loses_no_rows(
    make_feed: Callable[..., Feed],
    of_range: Callable[..., Iterator[Chunk | PayloadChunk]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = make_feed(max_msgs=100_000)
    feed.publish_numbers(1, 5000)
    for seq in (500, 1500, 4500):
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": seq})
    check, head = reader._RangeReader._check_expiry, Control.head
    checking, lost = False, 0

    def checked(self: Any, control: Control, last: int, rows: int) -> None:
        nonlocal checking
        checking = True
        try:
            check(self, control, last, rows)
        finally:
            checking = False

    def asked(control: Control) -> Any:
        nonlocal lost
        if checking and lost < 4 and not control.link.closed:
            lost += 1
            if lost % 2:
                control.link.close()
        return head(control)

    monkeypatch.setattr(reader._RangeReader, "_check_expiry", checked)
    monkeypatch.setattr(Control, "head", asked)
    links: list[Link] = []

    def connect() -> Link:
        links.append(feed.connect())
        return links[-1]

    found = [
        chunk.as_rows() if isinstance(chunk, PayloadChunk) else chunk
        for chunk in of_range(connect, plan(feed, 0, 5000))
    ]
    links[-1].close()
    assert sequences(found) == [n for n in range(1, 5001) if n not in (500, 1500, 4500)]
    assert (lost, len(links)) == (4, 3)


def test_a_server_that_is_away_for_a_minute_does_not_end_a_task(feed: Feed) -> None:
    feed.publish_numbers(1, 30_000)
    time_ = Time()
    links: list[Link] = []

    def connect() -> Link:
        if links and time_.clock() < 60.0:
            raise ConnectFailedError("cannot reach a NATS server")
        links.append(feed.connect())
        return links[-1]

    found: list[Chunk] = []
    for chunk in read_range(connect, plan(feed, 0, 30_000), time_.patience(120.0)):
        found.append(chunk)
        if len(found) == 2:
            links[0]._sock.shutdown(socket.SHUT_RDWR)
    assert len(links) == 2
    assert sequences(found) == list(range(1, 30_001))
    links[-1].close()


def test_a_server_that_stays_away_ends_a_task_when_its_time_is_up(feed: Feed) -> None:
    time_ = Time()

    def connect() -> Link:
        raise ConnectFailedError("cannot reach a NATS server")

    with pytest.raises(ConnectFailedError):
        list(read_range(connect, plan(feed, 0, 1), time_.patience(30.0)))
    assert time_.clock() == pytest.approx(30.0)


@pytest.mark.peer
def test_what_is_not_permitted_is_not_waited_for(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(
        config='authorization { users: [{ user: "me", password: "x", '
        'permissions: { publish: { deny: "$JS.API.>" } } }] }'
    )
    link = Link.open(Connection(servers=(server.url,), user="me", password="x"))
    with pytest.raises(AuthorizationError, match="Permissions Violation"):
        list(read_range(lambda: link, ReadPlan("S", 0, 1, str, 10, 5.0, True)))
    link.close()


def test_a_stream_that_is_not_there_is_named(feed: Feed) -> None:
    near = feed.name[:-1] + "X" + feed.name[-1]
    with pytest.raises(ConfigurationError, match=f"no stream {near!r}; there are: .*{feed.name}"):
        read(feed, plan(feed, 0, 1)._replace(stream=near))


def test_a_stream_that_allows_no_consumer_says_what_a_query_needs(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FEW", 0)
    feed = make_feed(max_consumers=1)
    feed.publish_numbers(1, 10)
    assert sequences(read(feed, plan(feed, 0, 10))) == list(range(1, 11))
    config = {"durable_name": "theirs", "ack_policy": "explicit"}
    feed.call(f"CONSUMER.CREATE.{feed.name}.theirs", {"stream_name": feed.name, "config": config})
    with pytest.raises(ConfigurationError, match=r"allows no more consumers.*raise max_consumers"):
        read(feed, plan(feed, 0, 10))


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accepts connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        accepted: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    accepted.append(listener.accept()[0])
            except OSError:
                return  # the listener was closed: the test is over

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for one in accepted:
        one.close()


def test_a_server_that_cannot_be_reached_is_named_with_the_reason(
    free_port: int, silent_server: str
) -> None:
    dead = f"nats://me:secret@127.0.0.1:{free_port}"
    with pytest.raises(ConnectFailedError) as raised:
        Link.open(Connection(servers=(dead, silent_server), connect_timeout_s=0.2))
    text = str(raised.value)
    assert f"127.0.0.1:{free_port}: Connection refused" in text
    assert silent_server in text
    assert "secret" not in text
