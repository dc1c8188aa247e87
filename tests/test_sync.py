"""The blocking facade: same names as the asyncio client, from any thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    InvalidSubjectError,
    NoRespondersError,
    PullError,
)
from waiting import elapse_here, until_here


@pytest.fixture
def connection(reference_server: peers.ServerProcess) -> Iterator[sync.Connection]:
    threads = threading.active_count()
    with sync.connect(reference_server.url, name="sync tests") as connection:
        yield connection
    assert connection.is_closed
    until_here(lambda: threading.active_count() <= threads, "threads are left", within=5)
    assert threading.active_count() == threads


@pytest.fixture
def stream(connection: sync.Connection) -> Iterator[sync.Stream]:
    js = connection.jetstream()
    stream = js.create_stream(name="SYNC", subjects=["sync.>"], storage="memory")
    yield stream
    if not connection.is_closed:
        stream.delete()


@pytest.mark.peer
def test_messages_requests_and_subscriptions(connection: sync.Connection) -> None:
    subscription = connection.subscribe("a.*")
    for number in range(10):
        connection.publish(f"a.{number}", b"%d" % number, headers={"N": str(number)})
    connection.flush()
    first = subscription.next(2)
    assert (first.subject, first.payload, first.headers["N"]) == ("a.0", b"0", "0")
    assert [m.payload for m in subscription.next_batch(3)] == [b"1", b"2", b"3"]
    assert next(subscription).payload == b"4"
    assert subscription.pending_messages == 5
    subscription.unsubscribe()
    assert [m.payload for m in subscription] == [b"%d" % n for n in range(5, 10)]
    connection.subscribe("echo", callback=lambda m: m.respond(m.payload))
    assert connection.request("echo", b"hi").payload == b"hi"
    with pytest.raises(NoRespondersError):
        connection.request("nobody", timeout=1)
    with pytest.raises(InvalidSubjectError):
        connection.publish("a b")
    with pytest.raises(TimeoutError):
        connection.subscribe("silent").next(0.05)


@pytest.mark.peer
def test_publish_fetch_and_acknowledge(connection: sync.Connection, stream: sync.Stream) -> None:
    js = connection.jetstream()
    assert js.publish("sync.a", b"0").seq == 1
    with js.publisher() as publisher:
        assert publisher.send("sync.a", b"1") == 0
        assert publisher.send_many(("sync.a", b"%d" % n) for n in range(2, 3_000)) == 2_998
        publisher.flush()
        assert (publisher.sent, publisher.acked, publisher.in_flight) == (2_999, 2_999, 0)
        with pytest.raises(InvalidSubjectError):
            publisher.send("a b")
    consumer = stream.create_consumer(durable_name="c", max_ack_pending=-1)
    batch = consumer.fetch(3_000)
    assert batch.payloads == [b"%d" % n for n in range(3_000)]
    batch[0].ack_sync()
    batch.ack()
    until_here(lambda: not consumer.info().num_ack_pending, "not all was acknowledged", within=5)
    assert not consumer.fetch(1, no_wait=True)
    assert [info.name for info in stream.consumers()] == ["c"]
    assert list(js.stream_names(subject="sync.a")) == ["SYNC"]


@pytest.mark.peer
def test_reading_in_order_and_key_values(connection: sync.Connection, stream: sync.Stream) -> None:
    js = connection.jetstream()
    with js.publisher() as publisher:
        publisher.send_many(("sync.a", b"%d" % n) for n in range(500))
    ordered = stream.ordered_consumer()
    assert ordered.next().payload == b"0"
    assert len(ordered.fetch(99)) == 99
    with ordered.consume() as messages:
        rest = [int(next(messages).payload) for _ in range(400)]
    assert rest == list(range(100, 500))
    bucket = js.create_key_value("SYNC", storage="memory")
    bucket.put("a", b"1")
    with bucket.watch() as watch:
        assert [entry.value for entry in watch.initial()] == [b"1"]
        bucket.put("a", b"2")
        assert next(watch).value == b"2"
    assert bucket.keys() == ["a"]
    assert "SYNC" in list(js.key_values())
    js.delete_key_value("SYNC")


@pytest.mark.peer
def test_objects_and_batches(connection: sync.Connection, tmp_path: Path) -> None:
    js = connection.jetstream()
    store = js.create_object_store("SYNC", storage="memory")
    content = bytes(range(256)) * 1000
    (tmp_path / "in").write_bytes(content)
    info = store.put_file("file", tmp_path / "in", chunk_size=10_000)
    store.put("pieces", (content[at : at + 99] for at in range(0, 9900, 99)))
    assert store.get("pieces") == content[:9900]
    with store.open("file") as reader:
        assert reader.info == store.info("file")
        assert reader.read(100) + b"".join(reader) == content
    store.get_file("file", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content
    with store.watch() as watch:
        assert [i.name for i in watch.initial()] == ["file", "pieces"]
        store.add_link("link", info)
        assert next(watch).name == "link"
    assert store.get("link") == content
    store.delete("file")
    assert [i.name for i in store.list()] == ["pieces", "link"]
    assert "SYNC" in list(js.object_stores())
    js.delete_object_store("SYNC")
    stream = js.create_stream(
        name="ATOMIC", subjects=["atomic.>"], storage="memory", allow_atomic=True
    )
    with js.batch() as batch:
        for number in range(5):
            batch.add("atomic.a", b"%d" % number)
    assert batch.ack is not None
    assert (batch.ack.count, batch.first_sequence, len(batch)) == (5, 1, 5)
    with pytest.raises(RuntimeError), js.batch() as batch:
        batch.add("atomic.a")
        raise RuntimeError
    assert stream.info().state.messages == 5
    stream.delete()


@pytest.mark.peer
def test_several_threads_publish_through_one_publisher(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    with connection.jetstream().publisher(window=500) as publisher:

        def work(worker: int) -> None:
            for number in range(1_000):
                publisher.send(f"sync.{worker}", b"%d" % number)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert publisher.acked == 4_000
    consumer = stream.create_consumer(durable_name="c", max_ack_pending=-1)
    seen: dict[str, list[int]] = {}
    for message in consumer.fetch(4_000):
        seen.setdefault(message.subject, []).append(int(message.payload))
    assert all(numbers == list(range(1_000)) for numbers in seen.values())


@pytest.mark.peer
def test_consume_by_iteration_batches_and_callback(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    with connection.jetstream().publisher() as publisher:
        publisher.send_many(("sync.a", b"%d" % n) for n in range(900))
    consumer = stream.create_consumer(durable_name="c", ack_wait=30)
    seen: list[int] = []
    with consumer.consume() as messages:
        for message in messages:
            message.ack()
            seen.append(int(message.payload))
            if len(seen) == 300:
                break
    with consumer.consume() as messages:
        for batch in messages.batches(50):
            consumer.ack_all(batch)
            seen += [int(m.payload) for m in batch]
            if len(seen) >= 600:
                break
    enough = threading.Event()

    def callback(message: sync.JetStreamMessage) -> None:
        message.ack()
        seen.append(int(message.payload))
        if len(set(seen)) == 900:
            enough.set()

    consumption = consumer.consume(callback)
    assert enough.wait(10)
    consumption.stop()
    consumption.wait()
    assert set(seen) == set(range(900))


@pytest.mark.peer
def test_a_deleted_consumer_ends_a_consume(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    consumer = stream.create_consumer(durable_name="c")
    consumption = consumer.consume(lambda message: None)
    until_here(lambda: consumer.info().num_waiting)
    consumer.delete()
    with pytest.raises(PullError, match="Consumer Deleted"):
        consumption.wait()


@pytest.mark.peer
def test_closing_ends_a_wait_in_another_thread(connection: sync.Connection) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            connection.subscribe("never").next()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    elapse_here(0.05, "the other thread waits for a message")
    connection.close()
    thread.join(5)
    assert [type(error) for error in errors] == [ConnectionClosedError]
    with pytest.raises(ConnectionClosedError):
        connection.publish("a")
    connection.close()


@pytest.mark.peer
def test_a_blocking_call_on_the_background_thread_is_refused(
    reference_server: peers.ServerProcess,
) -> None:
    errors: list[Exception] = []
    holder: list[sync.Connection] = []

    def on_event(event: object) -> None:
        if holder:
            try:
                holder[0].flush()
            except Exception as error:
                errors.append(error)

    with sync.connect(reference_server.url, on_event=on_event) as connection:
        holder.append(connection)
        with connection.jetstream().publisher(retries=0, on_failure=on_event) as publisher:
            publisher.send("no.stream")
    assert isinstance(errors[0], ConfigurationError)


def test_a_failed_connect_leaves_no_thread(free_port: int) -> None:
    before = threading.active_count()
    with pytest.raises(ConnectionClosedError, match=str(free_port)):
        sync.connect(f"nats://127.0.0.1:{free_port}")
    assert threading.active_count() == before


@pytest.mark.peer
def test_what_is_not_entered_says_how_it_is_entered_without_async(
    connection: sync.Connection, stream: sync.Stream
) -> None:
    js = connection.jetstream()
    with pytest.raises(
        ConnectionClosedError, match=r"`async with`, or with `with` in headrace\.sync"
    ):
        js.publisher().send("sync.a", b"x")
    store = js.create_object_store("UNENTERED", storage="memory")
    store.put("page", b"x")
    with pytest.raises(ConfigurationError, match=r"in headrace\.sync `with store\.open\(name\)`"):
        store.open("page").read()
    js.delete_object_store("UNENTERED")
    js.publish("sync.a", b"x")
    messages = stream.create_consumer().consume()
    next(iter(messages))
    with pytest.warns(ResourceWarning, match=r"`async with`, in headrace\.sync by `with`"):
        del messages
        gc.collect()
