"""The blocking twin of the publisher of fast batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace import PublishError, PublishFailure, sync
from headrace.errors import ConfigurationError, InvalidSubjectError, JetStreamApiError

pytestmark = pytest.mark.peer


@pytest.fixture(params=["nats-server", "headrace"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Connection]:
    start = peers.start_headrace if request.param == "headrace" else peers.start_nats_server
    server = start(tmp_path)
    try:
        with sync.connect(server.url) as connection:
            yield connection
    finally:
        server.stop()


def test_several_threads_publish_and_each_failure_is_reported(connection: sync.Connection) -> None:
    js = connection.jetstream()
    stream = js.create_stream(
        name="S", subjects=["s.>"], storage="memory", allow_batched=True, max_msg_size=50
    )
    with js.publisher(fast=True, window=300) as publisher:

        def work(worker: int) -> None:
            publisher.send_many((f"s.{worker}", b"%d" % number) for number in range(1_000))
            for number in range(1_000, 2_000):
                publisher.send(f"s.{worker}", b"%d" % number, {"A": "b"} if number % 2 else None)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(InvalidSubjectError):
            publisher.send("a b")
        publisher.flush()
        assert (publisher.sent, publisher.acked, publisher.in_flight) == (6_000, 6_000, 0)
        publisher.send("s.a", b"x" * 60)
        publisher.send("s.a", b"x")
        with pytest.raises(PublishError) as caught:
            publisher.flush()
    assert [failure.index for failure in caught.value.failures] == [6_000]
    assert isinstance(caught.value.failures[0].error, JetStreamApiError)
    consumer = stream.create_consumer(durable_name="c", max_ack_pending=-1)
    seen: dict[str, list[int]] = {}
    for message in consumer.fetch(6_000):
        seen.setdefault(message.subject, []).append(int(message.payload))
    assert [seen[f"s.{worker}"] for worker in range(3)] == [[*range(2_000)]] * 3


def test_a_stream_that_takes_none_says_so(connection: sync.Connection) -> None:
    js = connection.jetstream()
    js.create_stream(name="S", subjects=["s.>"], storage="memory")
    failures: list[PublishFailure] = []
    with js.publisher(fast=True, on_failure=failures.append) as publisher:
        publisher.send("s.a", b"1")
        publisher.flush()
        with pytest.raises(ConfigurationError, match="allow_batched"):
            publisher.send("s.a", b"2")
    assert [failure.index for failure in failures] == [0]
