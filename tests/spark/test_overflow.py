"""A query that takes the surplus of a consumer's workers, beside such workers, on both servers; no JVM."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace.errors import ConfigurationError, HeadraceError, RequestTimeoutError
from headrace.spark.links.pool import POOL
from headrace.spark.offsets import DataLossError
from headrace.spark.options import parse_options
from headrace.spark.options.group import OverflowOptions
from headrace.spark.overflow.consumer import Pull
from headrace.spark.overflow.offsets import OverflowOffset, Run, runs_of, share_out
from headrace.spark.overflow.query import OverflowQuery
from headrace.wire import MSG, Frame
from sim.spark.engine import Attempt, Checkpoint, Driver
from sim.spark.procs import Killed
from waiting import until_here

from .conftest import Feed
from .queries import copied, put_back

peers.package("pyspark")

MARK = 20
ACK_WAIT_S = 30.0


class Worker:
    """An ordinary worker: it pulls without a mark."""

    def __init__(self, feed: Feed) -> None:
        self._link = feed.connect()
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{feed.name}.workers"
        self._inbox, _ = self._link.subscribe()
        self.held: list[tuple[str, str]] = []  # payload, ack subject

    def take(self, most: int) -> list[str]:
        """What there is now, up to so many; it keeps them."""
        request = {"batch": most, "no_wait": True, "group": "spill", "expires": 200_000_000}
        self._link.publish(self._subject, json.dumps(request).encode(), self._inbox)
        came: list[tuple[str, str]] = []
        while len(came) < most:
            frames = self._link.poll(5.0)
            assert frames, "the pull does not end"
            came += [(each[5].decode(), each[3].decode()) for each in frames if each[3]]
            if not all(each[3] for each in frames):
                break
        self.held += came
        return [payload for payload, _ in came]

    def ack(self) -> None:
        self._link.request_many([(subject, b"+ACK") for _, subject in self.held])
        self.held.clear()

    def close(self) -> None:
        self._link.close()


@dataclass
class Place:
    """A stream, its consumer, where a query's rows go, and the checkpoint of the query."""

    feed: Feed
    out: Feed
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    drivers: list[Driver] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    published: int = 0

    def make_consumer(self, **changes: Any) -> None:
        config = {
            "durable_name": "workers",
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_S * 1e9),
            "priority_policy": "overflow",
            "priority_groups": ["spill"],
            **changes,
        }
        config = {key: value for key, value in config.items() if value is not None}
        body = {"stream_name": self.feed.name, "config": config}
        name = config["durable_name"]
        answer = self.feed.call(f"CONSUMER.CREATE.{self.feed.name}.{name}", body)
        assert "error" not in answer, answer

    def publish(self, count: int) -> None:
        first, self.published = self.published + 1, self.published + count
        self.feed.publish_numbers(first, self.published)

    def driver(self, hook: Callable[[str], None] = lambda name: None, **options: str) -> Driver:
        """A run of the query, from its checkpoint."""
        source = {
            "servers": self.feed.url,
            "stream": self.feed.name,
            "consumer": "workers",
            "minPending": str(MARK),
            "pollTimeout": "100ms",
            "includeHeaders": "true",
            **options,
        }
        source = {key: value for key, value in source.items() if value}
        sink = {"servers": self.out.url, "stream": self.out.name, "subject": f"{self.out.name}.r"}
        driver = Driver(self.checkpoint, source, sink, run_tasks, hook)
        self.drivers.append(driver)
        return driver

    def worker(self) -> Worker:
        self.workers.append(Worker(self.feed))
        return self.workers[-1]

    def rows(self) -> list[str]:
        last = self.out.control.stream_info().state.last_seq
        return [each.payload.decode() for each in self.out.stored(range(1, last + 1))]

    def all(self) -> list[str]:
        return [f"m{number}" for number in range(1, self.published + 1)]

    def pending(self) -> tuple[int, int]:
        info = self.feed.control.consumer_info("workers")
        assert info is not None
        return info.num_pending, info.num_ack_pending


def run_tasks(driver: Driver, batch: int, work: list[bytes]) -> list[bytes]:
    results = []
    for partition, each in enumerate(work):
        attempt = Attempt(driver, batch, partition, 0, each)
        while not attempt.proc.is_over:
            attempt.proc.resume()
        if attempt.proc.error is not None:
            raise attempt.proc.error
        results.append(attempt.proc.result)
    return results


@pytest.fixture
def make_place(make_feed: Callable[..., Feed]) -> Iterator[Callable[..., Place]]:
    made: list[Place] = []

    def make(retention: str = "workqueue", **consumer: Any) -> Place:
        made.append(Place(make_feed(retention=retention), make_feed()))
        made[-1].make_consumer(**consumer)
        return made[-1]

    yield make
    for place in made:
        for driver in place.drivers:
            driver.close()
        for worker in place.workers:
            worker.close()
    POOL.close()


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    return make_place()


def dies_at(name: str) -> Callable[[str], None]:
    def hook(here: str) -> None:
        if here == name:
            raise Killed

    return hook


@pytest.mark.parametrize("retention", ["workqueue", "limits"])
def test_the_query_gets_the_surplus_and_nothing_below_the_mark(
    make_place: Callable[..., Place], retention: str
) -> None:
    place = make_place(retention)
    driver, worker = place.driver(), place.worker()
    place.publish(MARK - 1)
    assert driver.run_batch()  # the first batch, which is empty
    assert not driver.run_batch()
    assert place.rows() == []
    first = worker.take(5)
    place.publish(40)
    assert driver.run_batch()
    surplus = place.rows()
    assert len(surplus) == MARK - 1 - 5 + 40 - (MARK - 1)
    # Until the batch is committed its messages are under way; then they are acknowledged.
    assert place.pending() == (MARK - 1, 5 + len(surplus))
    assert not driver.run_batch()
    assert place.pending() == (MARK - 1, 5)
    rest = worker.take(100)
    worker.ack()
    assert sorted(first + surplus + rest) == sorted(place.all())
    if retention == "workqueue":
        assert place.feed.control.stream_info().state.messages == 0


def test_the_other_mark_is_what_workers_have_not_acknowledged(place: Place) -> None:
    driver, worker = place.driver(minPending="", minAckPending="10"), place.worker()
    place.publish(30)
    worker.take(9)
    driver.run_batch()
    assert not driver.run_batch()
    worker.take(1)
    assert driver.run_batch()
    assert len(place.rows()) == 20
    assert not driver.run_batch()
    assert place.pending() == (0, 10)


@pytest.mark.parametrize(
    "hook", ["after offset log", "partitions", "tasks", "after tasks", "after sink commit"]
)
def test_a_batch_that_spark_wrote_down_runs_again_as_it_was(place: Place, hook: str) -> None:
    place.driver().run_batch()
    place.publish(50)
    killed = place.driver(dies_at(hook))
    with pytest.raises(Killed):
        killed.run_batch()
        killed.run_batch()
    killed.close()
    rows = place.rows()
    again = place.driver()
    assert again.run_batch()
    assert set(place.rows()) == set(place.all()[: 50 - MARK + 1])
    assert len(place.rows()) in (len(rows) + 50 - MARK + 1,)
    assert not again.run_batch()
    assert place.pending() == (MARK - 1, 0)


def test_what_spark_did_not_write_down_comes_again(make_place: Callable[..., Place]) -> None:
    place = make_place(ack_wait=10**9)
    place.driver().run_batch()
    place.publish(50)
    killed = place.driver(dies_at("before offset log"))
    with pytest.raises(Killed):
        killed.run_batch()
        killed.run_batch()
    killed.close()
    worker = place.worker()
    got: set[str] = set()

    def all_came() -> bool:
        got.update(worker.take(100))
        return len(got) == 50

    until_here(all_came, "they do not come again", within=20.0)
    worker.ack()
    assert place.feed.control.stream_info().state.messages == 0
    driver = place.driver()
    assert not driver.run_batch()
    assert place.rows() == []


def test_what_is_committed_is_acknowledged_by_the_next_run_too(place: Place) -> None:
    place.publish(50)
    killed = place.driver(dies_at("after commit log"))
    with pytest.raises(Killed):
        killed.run_batch()
    killed.close()
    assert place.pending() == (MARK - 1, 50 - MARK + 1)
    for _ in range(2):  # and by every later one, which changes nothing
        again = place.driver()
        assert not again.run_batch()
        assert place.pending() == (MARK - 1, 0)
        again.close()
    assert len(place.rows()) == 50 - MARK + 1


def test_a_batch_in_work_is_handed_to_nobody_else_however_long_it_takes(
    make_place: Callable[..., Place],
) -> None:
    place = make_place(ack_wait=900_000_000)
    place.publish(50)
    worker = place.worker()
    query = OverflowQuery(parse_options(source_of(place), streaming=True))
    try:
        start = query.initial_offset()
        end = query.latest_offset(start)
        assert query.latest_offset(start) == end  # the same answer, until it is committed
        began = place.feed.control.stream_info().ts
        assert len(worker.take(100)) == MARK - 1
        worker.ack()
        until_here(lambda: seconds_since(place, began) > 2.5, "time stands still", within=30.0)
        assert worker.take(1) == []
        assert place.pending() == (0, 50 - MARK + 1)
        assert query.latest_offset(end) == end
        assert place.pending() == (0, 0)
    finally:
        query.close()
    info = place.feed.control.consumer_info("workers")
    assert info is not None
    assert info.num_redelivered == 0


def seconds_since(place: Place, then: str) -> float:
    from headrace.api.times import parse_time

    now = place.feed.control.stream_info().ts
    return (parse_time(now) - parse_time(then)) / 1e9


def source_of(place: Place, **options: str) -> dict[str, str]:
    return {
        "servers": place.feed.url,
        "stream": place.feed.name,
        "consumer": "workers",
        "minPending": str(MARK),
        "pollTimeout": "100ms",
        **options,
    }


def test_a_bounded_run_takes_no_more_than_there_was_when_it_began(place: Place) -> None:
    place.publish(100)
    driver = place.driver(maxOffsetsPerTrigger="30")
    driver._reader.prepareForTriggerAvailableNow()
    place.publish(100)
    batches = 0
    while driver.run_batch():
        batches += 1
    assert batches == 4
    assert place.rows() == place.all()[:100]
    assert place.pending() == (100, 0)


def test_rows_keep_the_streams_order_and_many_tasks_share_them(place: Place) -> None:
    place.publish(MARK)
    workers = [place.worker() for _ in range(2)]
    driver = place.driver(maxTasks="3", minMessagesPerTask="5")
    driver.run_batch()
    assert len(place.rows()) == 1
    place.publish(60)
    for number in range(20):  # what is left has gaps
        workers[number % 2].take(1)
    driver.run_batch()
    (start, end) = driver.checkpoint.offsets[1]
    pieces = driver._reader.partitions(json.loads(start), json.loads(end))
    assert len(pieces) == 3
    rows = [int(row[1:]) for row in place.rows()[1:]]
    assert rows == sorted(rows)
    assert len(rows) == MARK - 1 + 60 - 20 - MARK + 1


def test_messages_that_another_worker_handled_meanwhile_are_not_in_a_batch_that_runs_again(
    make_place: Callable[..., Place],
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = make_place(ack_wait=10**9)
    place.publish(MARK + 9)
    killed = place.driver(dies_at("after offset log"))
    with pytest.raises(Killed):
        killed.run_batch()
    killed.close()
    worker, got = place.worker(), set[str]()

    def all_came() -> bool:
        got.update(worker.take(100))
        return len(got) == MARK + 9

    until_here(all_came, "they do not come again", within=20.0)
    worker.ack()
    assert place.driver().run_batch()
    assert place.rows() == []
    assert "10 of the 10 messages of a task are gone" in caplog.text


def test_a_stream_that_was_made_again_is_not_taken_for_the_old_one(place: Place) -> None:
    place.publish(50)
    driver = place.driver()
    assert driver.run_batch()
    place.feed.call(f"STREAM.DELETE.{place.feed.name}")
    place.feed.create(retention="workqueue")
    place.make_consumer()
    with pytest.raises(DataLossError, match="is not the one this query read before"):
        driver.run_batch()


@pytest.mark.parametrize("hook", ["after offset log", "after commit log"])
def test_a_copy_that_was_put_back_goes_on_and_nothing_is_acknowledged_unread(
    place: Place, tmp_path: Path, hook: str
) -> None:
    place.publish(50)
    killed = place.driver(dies_at(hook))
    with pytest.raises(Killed):
        killed.run_batch()
    killed.close()
    put_back(place.feed, copied(place.feed, tmp_path / "copy"))
    place.publish(10)
    driver = place.driver()
    while driver.run_batch():
        pass
    assert sorted(place.rows()) == sorted(place.all()[: 60 - MARK + 1])
    assert place.pending() == (MARK - 1, 0)


def test_where_messages_were_given_sequences_again_the_consumer_says_what_is_left(
    place: Place, tmp_path: Path
) -> None:
    copy = copied(place.feed, tmp_path / "copy")
    place.publish(50)
    killed = place.driver(dies_at("after offset log"))
    with pytest.raises(Killed):
        killed.run_batch()
    killed.close()
    put_back(place.feed, copy)
    place.publish(50)
    with pytest.raises(DataLossError, match=r"is not the one this query read before.*=continue"):
        place.driver().run_batch()
    told = place.driver(onStreamReset="continue")
    while told.run_batch():
        pass
    assert len(place.rows()) == 50 - MARK + 1
    assert set(place.rows()) <= {f"m{number}" for number in range(51, 101)}


def test_a_query_outlives_its_connection(place: Place) -> None:
    driver = place.driver()
    for _ in range(3):
        place.publish(40)
        driver.run_batch()
        query = driver._reader._query
        assert isinstance(query, OverflowQuery)
        control = query._call._control
        assert control is not None
        control.link._sock.shutdown(2)
    assert not driver.run_batch()
    assert place.rows() == place.all()[: len(place.rows())]
    assert place.pending() == (MARK - 1, 0)


def test_a_consumer_that_is_deleted_ends_the_query_with_a_sentence(place: Place) -> None:
    driver = place.driver()
    driver.run_batch()
    place.feed.control.delete_consumer("workers")
    with pytest.raises(ConfigurationError, match=r"'workers' of stream '\w+' was deleted; make it"):
        driver.run_batch()


@pytest.mark.parametrize(
    ("consumer", "options", "says"),
    [
        ({}, {"consumer": "nobody"}, "has no consumer 'nobody'; make it with the priority policy"),
        (
            {"priority_policy": None, "priority_groups": None},
            {},
            "has the priority policy none; 'consumer' needs overflow",
        ),
        ({"priority_policy": "pinned_client"}, {}, "has the priority policy pinned_client"),
        ({}, {"priorityGroup": "spell"}, "has no priority group 'spell'; it has: spill"),
        (
            {"max_ack_pending": 100},
            {"maxOffsetsPerTrigger": "100"},
            "lets 100 messages be unacknowledged, and a batch of 100 would leave none of them",
        ),
    ],
)
def test_a_consumer_that_hands_out_no_surplus_is_refused_with_a_remedy(
    make_place: Callable[..., Place], consumer: dict[str, Any], options: dict[str, str], says: str
) -> None:
    place = make_place(**consumer)
    with pytest.raises(HeadraceError, match=says):
        place.driver(lambda name: None, **options).run_batch()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"minPending": ""}, "'consumer' needs a mark, 'minPending' or 'minAckPending'"),
        ({"minPending": "0"}, "option 'minPending' is '0'; accepted: a whole number, at least 1"),
        ({"consumer": ""}, "'minPending' needs 'consumer', whose messages are taken"),
        ({"priorityGroup": "with blank"}, "accepted: 1 to 16 of"),
        ({"durable": "d", "subjects": "a"}, "leave out durable, subjects"),
        ({"stream": "A,B"}, "with 'consumer' a query reads one stream"),
        ({"group": "g"}, "leave out group"),
        ({"minPendin": "3"}, "did you mean 'minPending'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], says: str) -> None:
    given = {"stream": "S", "consumer": "c", "minPending": "5", **options}
    with pytest.raises(ConfigurationError, match=says):
        parse_options({key: value for key, value in given.items() if value}, streaming=True)


def test_a_batch_read_takes_no_surplus() -> None:
    given = {"stream": "S", "consumer": "c", "minPending": "5"}
    with pytest.raises(ConfigurationError, match="'consumer' is for streaming queries"):
        parse_options(given, streaming=False)


def test_offsets_are_short_where_messages_are_neighbours_and_come_back_as_they_were() -> None:
    deliveries = {5: 1, 6: 2, 7: 3, 9: 4, 10: 6, 3: 7}
    runs = runs_of(deliveries)
    assert runs == (Run(3, 3, 7), Run(5, 7, 1), Run(9, 9, 4), Run(10, 10, 6))
    offset = OverflowOffset("then", 4, "$JS.ACK.S.C", runs)
    text = json.dumps(offset.to_dict())
    assert OverflowOffset.from_dict(json.loads(text)) == offset
    assert list(offset.sequences()) == sorted(deliveries)
    assert dict(offset.ack_subjects()) == {
        sequence: f"$JS.ACK.S.C.1.{sequence}.{delivery}.0.0"
        for sequence, delivery in deliveries.items()
    }


@pytest.mark.parametrize(
    "raw",
    [
        {"seq": 3, "epoch": "x", "v": 1},
        {"a": "", "epoch": "x", "m": [], "n": 0, "v": 2},
        {"a": "", "epoch": "x", "m": [[1, 2]], "n": 0, "v": 1},
        {"a": "", "epoch": "x", "m": [[1, 2, -1]], "n": 0, "v": 1},
        {"a": "", "epoch": "x", "m": [], "n": True, "v": 1},
        {"a": "", "epoch": 3, "m": [], "n": 0, "v": 1},
    ],
)
def test_an_offset_of_something_else_is_refused(raw: object) -> None:
    with pytest.raises(ConfigurationError, match="the checkpoint's offset"):
        OverflowOffset.from_dict(raw)


def test_tasks_share_every_message_once_in_order() -> None:
    rng = random.Random(7)
    for _ in range(300):
        chosen = sorted(rng.sample(range(1, 200), rng.randrange(1, 120)))
        runs = runs_of({sequence: at for at, sequence in enumerate(chosen)})
        most, least = rng.randrange(1, 9), rng.randrange(1, 4)
        shares = share_out(runs, max_tasks=most, min_tasks=least, min_messages=rng.randrange(1, 40))
        flat = [each for share in shares for a, b in share for each in range(a, b + 1)]
        assert flat == chosen
        assert len(shares) <= max(most, least)
        sizes = [sum(b - a + 1 for a, b in share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def status(text: bytes) -> Frame:
    block = b"NATS/1.0 %b\r\n\r\n" % text
    return MSG, b"inbox", b"1", b"", block, b""


def test_a_consumer_that_pushes_by_now_ends_the_query() -> None:
    """Whoever asks it again and again is told the same."""
    pull = Pull("S", OverflowOptions("workers", "spill"), 1.0)
    nothing: Any = None
    assert not pull._is_end(nothing, status(b"100 Idle Heartbeat"))
    assert pull._is_end(nothing, status(b"408 Request Timeout"))
    for text in (b"409 Consumer is push based", b"400 Bad Request"):
        with pytest.raises(ConfigurationError, match=rf"'workers' of stream 'S': {text.decode()}"):
            pull._is_end(nothing, status(text))
    with pytest.raises(RequestTimeoutError, match="409 Exceeded MaxWaiting"):
        pull._is_end(nothing, status(b"409 Exceeded MaxWaiting"))
