"""What becomes of messages when whoever works on them in a thread goes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

import peers
from headrace import sync
from headrace.client.blocking import loop_thread
from headrace.errors import ConfigurationError, ConnectionClosedError
from waiting import until_here

pytestmark = pytest.mark.peer

_numbers = itertools.count(1)


@pytest.fixture
def connection(reference_server: peers.ServerProcess) -> Iterator[sync.Connection]:
    with sync.connect(reference_server.url) as connection:
        yield connection


@pytest.fixture
def stream(connection: sync.Connection) -> Iterator[sync.Stream]:
    """A stream with 300 messages."""
    js = connection.jetstream()
    name = f"B{next(_numbers)}"
    stream = js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    with js.publisher() as publisher:
        for _ in range(300):
            publisher.send(f"{name}.a", b"x")
    yield stream
    stream.delete()


@pytest.fixture
def worker(reference_server: peers.ServerProcess) -> Iterator[sync.Connection]:
    """The connection of somebody who goes."""
    with sync.connect(reference_server.url, close_timeout=2) as connection:
        yield connection


def work_for(seconds: float) -> None:
    """What a handler does."""
    time.sleep(seconds)


def rest_of(consumer: sync.Consumer, count: int) -> list[int]:
    """What the next worker gets at once; more would be too many."""
    taken: list[sync.JetStreamMessage] = []
    while len(taken) < count and (more := consumer.fetch(count + 5 - len(taken), max_wait=2)):
        taken += more
    for message in taken:
        message.ack()
    return sorted(message.metadata.stream_seq for message in taken)


def test_no_callback_begins_after_close_and_the_one_that_runs_acknowledges(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    handled: list[int] = []

    def handle(message: sync.JetStreamMessage) -> None:
        work_for(0.005)
        message.ack()
        handled.append(message.metadata.stream_seq)

    consumption = worker.jetstream().consumer(stream.name, "c").consume(handle)
    until_here(lambda: len(handled) >= 3)
    worker.close()
    at_close = len(handled)
    rest = rest_of(consumer, 300 - at_close)
    assert len(handled) == at_close
    assert sorted(handled + rest) == list(range(1, 301))
    assert consumption.state == "failed"


def test_what_was_brought_to_a_thread_goes_back_when_another_one_closes(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    handled: list[int] = []
    ended: list[BaseException] = []

    def work() -> None:
        try:
            for message in worker.jetstream().consumer(stream.name, "c").consume(max_messages=500):
                work_for(0.005)
                message.ack()
                handled.append(message.metadata.stream_seq)
        except ConnectionClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until_here(lambda: len(handled) >= 3)
    worker.close()
    thread.join(5)
    assert len(ended) == 1
    rest = rest_of(consumer, 300 - len(handled))
    assert sorted(handled + rest) == list(range(1, 301))


def test_a_drained_connection_lets_a_thread_handle_what_was_brought_to_it(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    handled: list[int] = []

    def work() -> None:
        theirs = worker.jetstream().consumer(stream.name, "c")
        for message in theirs.consume(max_messages=30):
            work_for(0.002)
            message.ack()
            handled.append(message.metadata.stream_seq)

    thread = threading.Thread(target=work)
    thread.start()
    until_here(lambda: len(handled) >= 3)
    worker.drain()
    thread.join(5)
    assert len(handled) >= 29
    rest = rest_of(consumer, 300 - len(handled))
    assert sorted(handled + rest) == list(range(1, 301))


def test_who_iterates_and_closes_does_not_wait_for_itself(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    messages = worker.jetstream().consumer(stream.name, "c").consume(max_messages=500)
    first = next(messages)
    first.ack()
    until_here(lambda: messages.buffered >= 150)
    worker.close()
    with pytest.raises(ConnectionClosedError):
        next(messages)
    assert rest_of(consumer, 299) == list(range(2, 301))


def test_a_push_listener_on_a_thread_gives_back_what_was_not_handled(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(
        durable_name="c", deliver_subject=worker.new_inbox(), max_ack_pending=100
    )
    handled: list[int] = []

    def handle(message: sync.JetStreamMessage) -> None:
        work_for(0.005)
        message.ack()
        handled.append(message.metadata.stream_seq)

    worker.jetstream().consumer(stream.name, "c").listen(handle)
    until_here(lambda: len(handled) >= 3)
    worker.close()
    at_close = len(handled)
    with consumer.listen() as again:
        rest: list[int] = []
        while len(rest) < 300 - at_close:
            message = again.next(2)
            message.ack()
            rest.append(message.metadata.stream_seq)
    assert len(handled) == at_close
    assert sorted(handled + rest) == list(range(1, 301))


def test_iteration_that_is_left_ends_the_consume_and_sends_the_buffer_back(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c", max_deliver=3)

    def leave() -> int:
        for message in consumer.consume(max_messages=500):
            message.ack()
            return message.metadata.stream_seq
        raise AssertionError

    with pytest.warns(ResourceWarning, match=r"left open, made in .*test_endings\.py:\d+"):
        assert leave() == 1
    assert rest_of(consumer, 299) == list(range(2, 301))


def test_a_watch_that_is_left_ends(connection: sync.Connection) -> None:
    js = connection.jetstream()
    bucket = js.create_key_value("LEFT", storage="memory")
    bucket.put("a", b"1")

    def leave() -> None:
        for _ in bucket.watch():
            break

    with pytest.warns(ResourceWarning, match=r"left open, made in .*test_endings\.py:\d+"):
        leave()
    until_here(lambda: not list(js.stream("KV_LEFT").consumer_names()))
    js.delete_key_value("LEFT")


@pytest.mark.parametrize("most", [0, 500], ids=["default", "500"])
@pytest.mark.parametrize("how", ["callback", "iterated"])
def test_what_is_ahead_of_a_slow_handler_is_not_delivered_again(
    connection: sync.Connection, stream: sync.Stream, how: str, most: int
) -> None:
    consumer = stream.create_consumer(durable_name="c", ack_wait=0.4)
    runs: list[int] = []
    done = threading.Event()

    def handle(message: sync.JetStreamMessage) -> None:
        work_for(0.003)
        message.ack()
        runs.append(message.metadata.stream_seq)
        if len(set(runs)) == 300:
            done.set()

    if how == "callback":
        consumption = consumer.consume(handle, max_messages=most)
        assert done.wait(60), f"{len(runs)} runs of {len(set(runs))} messages"
        consumption.stop()
    else:
        with consumer.consume(max_messages=most) as messages:
            for message in messages:
                handle(message)
                if done.is_set():
                    break
    assert sorted(runs) == list(range(1, 301))


@pytest.mark.parametrize("end", ["stop", "drain", "drain the connection"])
def test_a_callback_on_a_thread_ends_and_nothing_is_handled_twice(
    worker: sync.Connection, stream: sync.Stream, end: str
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    handled: list[int] = []

    def handle(message: sync.JetStreamMessage) -> None:
        work_for(0.002)
        message.ack()
        handled.append(message.metadata.stream_seq)

    theirs = worker.jetstream().consumer(stream.name, "c")
    consumption = theirs.consume(handle, max_messages=40)
    until_here(lambda: len(handled) >= 3)
    if end == "stop":
        consumption.stop()
    elif end == "drain":
        consumption.drain()
    else:
        worker.drain()
    done = len(handled)
    assert end == "stop" or done >= 40
    assert sorted(handled + rest_of(consumer, 300 - done)) == list(range(1, 301))
    assert len(handled) == done


def test_iteration_on_a_thread_that_is_stopped_gives_back_what_was_brought(
    stream: sync.Stream,
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    with consumer.consume(max_messages=500) as messages:
        next(messages).ack()
        until_here(lambda: messages.buffered >= 150)
    assert rest_of(consumer, 299) == list(range(2, 301))


# Several at once


@pytest.mark.parametrize("how", ["close", "stop", "drain"])
def test_several_callbacks_at_once_keep_their_keys_in_order_and_end_as_one_does(
    worker: sync.Connection, stream: sync.Stream, how: str
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    begun, acked, lock = list[int](), list[int](), threading.Lock()
    busy, overlaps = set[int](), list[int]()

    def key(message: sync.JetStreamMessage) -> int:
        return message.metadata.stream_seq % 7

    def handle(message: sync.JetStreamMessage) -> None:
        with lock:
            begun.append(message.metadata.stream_seq)
            overlaps.extend({key(message)} & busy)
            busy.add(key(message))
        work_for(0.003)
        message.ack()
        with lock:
            acked.append(message.metadata.stream_seq)
            busy.discard(key(message))

    theirs = worker.jetstream().consumer(stream.name, "c")
    consumption = theirs.consume(handle, concurrency=4, order_by=key, max_messages=40)
    until_here(lambda: len(acked) >= 20)
    (worker.close if how == "close" else getattr(consumption, how))()
    at_end = len(begun)
    assert sorted(begun) == sorted(acked) and not overlaps
    assert all(
        part == sorted(part) for part in ([n for n in begun if n % 7 == k] for k in range(7))
    )
    assert sorted(acked + rest_of(consumer, 300 - at_end)) == list(range(1, 301))
    assert len(begun) == at_end


def test_a_callback_among_several_may_end_its_own_consume(
    worker: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    handled, errors = list[int](), list[Exception]()

    def handle(message: sync.JetStreamMessage) -> None:
        begin.wait(5)
        message.ack()
        handled.append(message.metadata.stream_seq)
        until_here(lambda: len(handled) >= 3)
        try:
            consumption.wait()
        except ConfigurationError as error:
            errors.append(error)
        consumption.stop()

    theirs = worker.jetstream().consumer(stream.name, "c")
    begin = threading.Event()
    consumption = theirs.consume(handle, concurrency=3, max_messages=50)
    begin.set()
    consumption.wait()
    assert len(errors) == len(handled) >= 3
    assert sorted(handled + rest_of(consumer, 300 - len(handled))) == list(range(1, 301))


def test_a_connection_that_cannot_be_closed_at_the_end_of_python_is_told_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads = [loop_thread.LoopThread() for _ in range(3)]
    closed: list[int] = []

    def fail() -> None:
        raise RuntimeError("a mistake of ours")

    def lost() -> None:
        raise ConnectionClosedError("another thread was faster")

    for thread, close in zip(threads, (fail, lost, lambda: closed.append(1)), strict=True):
        thread.close_at_exit = close
    monkeypatch.setattr(loop_thread, "_loop_threads", threads)
    loop_thread._at_exit()
    assert closed == [1]
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == [
        "a mistake of ours"
    ]
    for thread in threads:
        thread.stop()


def test_a_posted_call_that_fails_is_told_where_nobody_asked_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    thread = loop_thread.LoopThread()

    def fail() -> None:
        raise RuntimeError("a mistake of ours")

    thread.post(fail)
    until_here(lambda: "a mistake of ours" in caplog.text)
    thread.stop()
