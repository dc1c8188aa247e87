"""Publishes that go over as a run, and what takes a run apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.server import User
from headrace.client import Connection
from headrace.client.net.inprocess import InProcessOutbox
from headrace.client.publish.publisher import PublishError, PublishFailure
from headrace.client.publish.transports import InProcessPublisher
from headrace.embedded import Broker
from headrace.errors import (
    ConnectionClosedError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from headrace.subjects import SubjectFilter
from headrace.wire.inprocess import PublishRun

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(port=-1, store_dir=tmp_path / "store") as broker:
        yield broker


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[Connection]:
    async with broker.connect() as connection:
        await connection.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=1)
        yield connection


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[PublishRun]:
    """Every run that is made."""
    made: list[PublishRun] = []
    genuine = PublishRun.__init__

    def noted(run: PublishRun, *args: Any) -> None:
        genuine(run, *args)
        made.append(run)

    monkeypatch.setattr(PublishRun, "__init__", noted)
    return made


def numbered(count: int) -> list[tuple[str, bytes]]:
    return [("s.a", b"%d" % number) for number in range(count)]


async def stored(connection: Connection) -> list[bytes]:
    stream = await connection.jetstream().stream("S")
    consumer = await stream.create_consumer(ack_policy="none", inactive_threshold=60)
    return (await consumer.fetch(10_000, no_wait=True)).payloads


async def test_a_run_is_stored_in_order_and_answered_once(
    connection: Connection, runs: list[PublishRun]
) -> None:
    before = connection.stats().in_messages
    async with connection.jetstream().publisher() as publisher:
        await publisher.send_many(numbered(2_000))
        await publisher.flush()
        assert (publisher.sent, publisher.acked, publisher.failed) == (2_000, 2_000, 0)
        assert (publisher.in_flight, publisher._unacked_bytes) == (0, 0)
        assert publisher.last_sequence == 2_000
    in_runs = sum(len(run.payloads) for run in runs)
    assert in_runs > 1_500
    assert connection.stats().in_messages - before <= 2_000 - in_runs + len(runs)
    assert await stored(connection) == [b"%d" % number for number in range(2_000)]


async def test_an_acknowledgement_of_a_run_waits_for_the_disk(
    broker: Broker, connection: Connection
) -> None:
    async with connection.jetstream().publisher() as publisher:
        await publisher.send_many(numbered(3_000))
        assert broker._storage is not None
        while publisher.in_flight:
            hub = broker._hub
            assert hub is not None
            assert hub.engine is not None
            store = hub.engine.registry.streams["S"].store
            assert publisher.acked <= store.durable_seq
            await asyncio.sleep(0)


async def test_who_listens_hears_each_message_of_a_run(
    connection: Connection, runs: list[PublishRun]
) -> None:
    listener = await connection.subscribe("s.*")
    async with connection.jetstream().publisher() as publisher:
        await publisher.send_many(numbered(600))
    assert runs
    heard = [(await listener.next(2)).payload for _ in range(600)]
    assert heard == [b"%d" % number for number in range(600)]
    assert await stored(connection) == heard


async def test_a_stream_that_has_to_look_answers_each(
    connection: Connection, runs: list[PublishRun]
) -> None:
    stream = await connection.jetstream().stream("S")
    await stream.update(max_msg_size=3)
    failures: list[PublishFailure] = []
    async with connection.jetstream().publisher(on_failure=failures.append) as publisher:
        messages = numbered(1_200)
        await publisher.send_many(messages)
        await publisher.flush()
        assert (publisher.acked, publisher.failed) == (1_000, 200)
        assert (publisher.in_flight, publisher._unacked_bytes) == (0, 0)
    assert 0 < len(runs) <= 1_200 // 256 + 1
    assert [failure.index for failure in failures] == list(range(1_000, 1_200))
    assert all(isinstance(failure.error, JetStreamApiError) for failure in failures)
    assert await stored(connection) == [payload for _, payload in messages[:1_000]]


async def test_where_runs_are_taken_apart_no_more_are_made(
    connection: Connection, runs: list[PublishRun]
) -> None:
    listener = await connection.subscribe("s.*")
    async with connection.jetstream().publisher(window=600) as publisher:
        await publisher.send_many(numbered(6_000))
    assert 0 < len(runs) <= 4  # of what was under way when the first answer came
    assert publisher.acked == 6_000
    assert listener.pending_messages == 6_000


async def test_without_a_stream_each_message_of_a_run_fails(connection: Connection) -> None:
    failures: list[PublishFailure] = []
    options: dict[str, Any] = {"retries": 0, "on_failure": failures.append}
    async with connection.jetstream().publisher(**options) as publisher:
        await publisher.send_many([("nobody", b"x")] * 700)
        await publisher.flush()
        assert (publisher.acked, publisher.failed, publisher.in_flight) == (0, 700, 0)
        assert publisher._unacked_bytes == 0
    assert all(isinstance(failure.error, NoRespondersError) for failure in failures)
    assert sorted(failure.index for failure in failures) == list(range(700))


async def test_a_run_nobody_answers_is_sent_again_one_by_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = connection.jetstream().publisher(ack_timeout=0.2, retries=1)
    assert isinstance(publisher, InProcessPublisher)
    async with publisher:
        await publisher.send("s.a", b"first")
        await publisher.flush()
        with monkeypatch.context() as patched:
            patched.setattr(InProcessOutbox, "put_once", lambda outbox, chunk: None)  # it is lost
            await publisher.send_many(numbered(500))
        assert publisher._in_runs > 0
        await publisher.flush()
        assert (publisher.acked, publisher.failed, publisher.in_flight) == (501, 0, 0)
    assert await stored(connection) == [b"first", *[b"%d" % number for number in range(500)]]


async def test_a_run_nobody_ever_answers_fails(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = connection.jetstream().publisher(ack_timeout=0.05, retries=1)
    async with publisher:
        await publisher.send("s.a", b"first")
        await publisher.flush()
        monkeypatch.setattr(InProcessOutbox, "put_once", lambda outbox, chunk: None)
        await publisher.send_many(numbered(300))
        with pytest.raises(PublishError) as failed:
            await publisher.flush()
        monkeypatch.undo()
    assert failed.value.count == 300
    assert all(isinstance(failure.error, RequestTimeoutError) for failure in failed.value.failures)


async def test_a_broker_that_stops_fails_what_is_in_a_run(broker: Broker) -> None:
    connection = await broker.connect()
    await connection.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=1)
    failures: list[PublishFailure] = []
    publisher = connection.jetstream().publisher(on_failure=failures.append)
    async with publisher:
        await publisher.send_many(numbered(5_000))
        await broker.stop()
        await publisher.flush()
        assert publisher.acked + publisher.failed == 5_000
        assert publisher.in_flight == 0
    assert all(isinstance(failure.error, ConnectionClosedError) for failure in failures)
    assert len(failures) == publisher.failed
    with pytest.raises(ConnectionClosedError):
        await connection.flush()


async def test_permissions_hold_for_a_run() -> None:
    limited = Permissions(publish_deny=SubjectFilter([b"s.secret"]))
    async with (
        Broker(port=-1, users=[User("u", "p", limited)]) as broker,
        broker.connect(user="u", password="p") as connection,
    ):
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], storage="memory", num_replicas=1)
        publisher = js.publisher(ack_timeout=0.1, retries=0, on_failure=lambda failure: None)
        async with publisher:
            await publisher.send_many([*numbered(400), *[("s.secret", b"x")] * 400])
            await publisher.flush()
            assert (publisher.acked, publisher.failed) == (400, 400)
        assert len(await stored(connection)) == 400


async def test_a_stray_answer_concerns_no_run(connection: Connection) -> None:
    async with connection.jetstream().publisher() as publisher:
        await publisher.send_many(numbered(10))
        prefix = publisher._prefix.decode()
        for token in ("0-99", "x-y", "-", "x", "77"):
            await connection.publish(prefix + token, b'{"stream":"S","seq":1}')
        await publisher.send_many(numbered(500))
        await publisher.flush()
        assert (publisher.acked, publisher.failed, publisher._unacked_bytes) == (510, 0, 0)
