"""Connections to a broker in the same process: the usual client, its guarantees, and no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.api.streams import StorageKind
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.server import User
from headrace.client import Connection
from headrace.client.events import Event
from headrace.embedded import Broker
from headrace.errors import (
    AuthorizationError,
    BufferFullError,
    ConfigurationError,
    ConnectionClosedError,
    LimitExceededError,
    NoRespondersError,
    ServerError,
    SlowConsumerError,
)
from headrace.subjects import SubjectFilter
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(port=-1, store_dir=tmp_path / "store") as broker:
        yield broker


@pytest.fixture
async def connection(embedded: Broker) -> AsyncIterator[Connection]:
    async with embedded.connect(name="here") as connection:
        yield connection


async def test_messages_requests_and_queues_work_as_over_a_socket(connection: Connection) -> None:
    plain = await connection.subscribe("a.*")
    async with asyncio.timeout(5):
        await connection.publish("a.b", b"1", headers={"H": "v"}, reply="back")
        message = await plain.next()
        assert (message.subject, message.payload, message.reply) == ("a.b", b"1", "back")
        assert message.headers["H"] == "v"
        service = await connection.subscribe("service", queue="q")
        asking = asyncio.ensure_future(connection.request("service", b"?"))
        await (await service.next()).respond(b"!")
        assert (await asking).payload == b"!"
        with pytest.raises(NoRespondersError):
            await connection.request("nobody")
        await plain.unsubscribe(2)
        await connection.publish("a.c", b"2")
        assert [message.payload async for message in plain] == [b"2"]
        await connection.flush()
    assert connection.server == "in-process"


async def test_a_socket_and_an_in_process_client_hear_each_other(embedded: Broker) -> None:
    from headrace import connect

    async with embedded.connect() as near, connect(embedded.client_url) as far:
        heard_near, heard_far = await near.subscribe("x"), await far.subscribe("x")
        await far.flush()
        await near.publish("x", b"near", headers={"A": "1"})
        await far.publish("x", b"far")
        await far.flush()
        assert {(await heard_near.next(2)).payload, (await heard_near.next(2)).payload} == {
            b"near",
            b"far",
        }
        assert [(await heard_far.next(2)).payload for _ in range(2)] == [b"near", b"far"]


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_streams_publish_fetch_and_acknowledge(
    connection: Connection, storage: StorageKind
) -> None:
    js = connection.jetstream()
    stream = await js.create_stream(name="S", subjects=["s.>"], storage=storage)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
    async with js.publisher(window=500) as publisher:
        await publisher.send_many(("s.a", b"%d" % n) for n in range(3_000))
        await publisher.send_many([("s.b", b"x", {"H": "1"}), ("s.b", b"y")])
        await publisher.send("s.c", b"z", msg_id="once")
        await publisher.send("s.c", b"z", msg_id="once")
    assert (publisher.acked, publisher.failed, publisher.duplicates) == (3_004, 0, 1)
    seen: list[bytes] = []
    while batch := await consumer.fetch(1_000, no_wait=True):
        seen += batch.payloads
        batch.ack()
    assert seen == [b"%d" % n for n in range(3_000)] + [b"x", b"y", b"z"]
    await connection.flush()
    info = await consumer.info()
    assert (info.num_ack_pending, info.num_pending) == (0, 0)
    assert info.ack_floor.stream_seq == 3_003
    last = await stream.get_message(3_001)
    assert last.headers["H"] == "1"


async def test_refused_publishes_are_reported_one_by_one(connection: Connection) -> None:
    js = connection.jetstream()
    await js.create_stream(name="S", subjects=["s"], storage="memory", max_msgs=10, discard="new")
    failed: list[Any] = []
    async with js.publisher(on_failure=failed.append) as publisher:
        await publisher.send_many(("s", b"%d" % n) for n in range(25))
    assert (publisher.acked, [failure.index for failure in failed]) == (10, list(range(10, 25)))
    assert "maximum messages exceeded" in str(failed[0].error)
    assert failed[0].subject == "s"


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async with Broker(port=-1, store_dir=tmp_path) as broker, broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        async with js.publisher() as publisher:
            await publisher.send_many(("s", b"%d" % n) for n in range(100))
    async with Broker(port=-1, store_dir=tmp_path) as broker, broker.connect() as connection:
        stream = await connection.jetstream().stream("S")
        assert (await stream.info()).state.messages == 100


async def test_what_is_published_cannot_be_changed_afterwards(connection: Connection) -> None:
    js = connection.jetstream()
    stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
    payload = bytearray(b"before")
    async with js.publisher() as publisher:
        await publisher.send_many([("s", payload), ("s", payload)])
        await publisher.send("s", memoryview(payload))
        payload[:] = b"after!"
    assert [(await stream.get_message(n)).payload for n in (1, 2, 3)] == [b"before"] * 3


async def test_subjects_too_long_for_a_line_are_refused(connection: Connection) -> None:
    js = connection.jetstream()
    async with js.publisher() as publisher:
        with pytest.raises(LimitExceededError, match="4096"):
            await publisher.send("s" * 4_090)
        with pytest.raises(LimitExceededError, match="at most 1048576"):
            await publisher.send("s", b"x" * 1_048_577)
    assert publisher.sent == 0


async def test_permissions_hold() -> None:
    only_ok = Permissions(
        publish_allow=SubjectFilter([b"ok"]), subscribe_allow=SubjectFilter([b"ok"])
    )
    users = (
        User("all", "secret"),
        User("some", "secret", permissions=only_ok),
    )
    async with Broker(port=-1, users=users) as broker:
        refused: tuple[dict[str, Any], ...] = ({}, {"user": "some", "password": "wrong"})
        for wrong in refused:
            with pytest.raises(AuthorizationError):
                await broker.connect(**wrong)
        events: list[Event] = []
        async with (
            broker.connect(user="some", password="secret", on_event=events.append) as some,
            broker.connect(user="all", password="secret") as everything,
        ):
            heard = await everything.subscribe(">")
            await some.publish("forbidden", b"no")
            await some.publish("ok", b"yes")
            assert (await heard.next(2)).payload == b"yes"
            await some.subscribe("forbidden")
            await some.flush()
            texts = [str(e.error) for e in events if hasattr(e, "error")]
            assert all("Permissions Violation" in text for text in texts)
            assert len(texts) == 2


async def test_who_publishes_without_pause_is_held_back(embedded: Broker) -> None:
    async with embedded.connect(outbound_bytes=1_000_000) as connection:
        payload = b"x" * 100_000
        with pytest.raises(BufferFullError):
            for _ in range(200):
                connection.publish_nowait("nowhere", payload)
        assert connection.unsent_bytes <= 4_000_000
        await connection.flush()
        most = 0
        async with asyncio.timeout(10):
            for _ in range(500):
                await connection.publish("nowhere", payload)
                most = max(most, connection.unsent_bytes)
            await connection.flush()
        assert most <= 4_100_000
        assert embedded.hub.sessions[5].in_bytes > 50_000_000


async def test_who_does_not_take_its_messages_loses_them_and_is_told(embedded: Broker) -> None:
    events: list[Event] = []
    async with embedded.connect(on_event=events.append) as connection:
        subscription = await connection.subscribe("x", pending_messages=10)
        for _ in range(25):
            await connection.publish("x")
        await connection.flush()
        assert (subscription.pending_messages, subscription.dropped) == (10, 15)
        assert any(isinstance(getattr(e, "error", None), SlowConsumerError) for e in events)


async def test_too_much_output_at_once_closes_the_connection_as_over_a_socket(
    tmp_path: Path,
) -> None:
    events: list[Event] = []
    async with (
        Broker(port=-1, outbound_bytes_max=100_000, max_payload=60_000) as broker,
        broker.connect() as sender,
        broker.connect(on_event=events.append, reconnect=False) as reader,
    ):
        await reader.subscribe("x")
        await reader.flush()
        for _ in range(3):
            await sender.publish("x", b"x" * 50_000)
        await sender.flush()
        async with asyncio.timeout(5):
            while not reader.is_closed:
                await asyncio.sleep(0)
        errors = [getattr(e, "error", None) for e in events]
        assert any(isinstance(e, ServerError) and "Slow Consumer" in str(e) for e in errors)
        assert broker.hub.slow_consumers == 1


async def test_a_client_that_leaves_is_forgotten(embedded: Broker) -> None:
    connection = await embedded.connect()
    await connection.subscribe("x")
    await connection.flush()
    assert len(embedded.hub.sessions) == 1
    await connection.close()
    assert not embedded.hub.sessions
    assert embedded.hub.router.subscriptions == 0


async def test_a_broker_that_stops_closes_its_clients_for_good(tmp_path: Path) -> None:
    broker = Broker(port=-1)
    with pytest.raises(ConnectionClosedError, match="not running"):
        await broker.connect()
    await broker.start()
    connection = await broker.connect()
    subscription = await connection.subscribe("x")
    taking = asyncio.ensure_future(subscription.next())
    await connection.flush()
    await broker.stop()
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(taking, 5)
    assert connection.is_closed
    with pytest.raises(ConnectionClosedError):
        await connection.publish("x")
    with pytest.raises(ConnectionClosedError, match="not running"):
        await broker.connect()
    await connection.close()


async def test_a_client_whose_credentials_are_taken_away_is_hung_up_on() -> None:
    users = (User("a", "1"), User("b", "2"))
    async with Broker(port=-1, users=users) as broker:
        connection = await broker.connect(user="b", password="2", reconnect_wait=0.001)
        await connection.flush()
        import dataclasses

        broker.reload(dataclasses.replace(broker.options, users=users[:1]))
        await until(lambda: connection.is_closed, within=5)
        await connection.close()


async def test_it_belongs_to_the_brokers_own_loop(embedded: Broker) -> None:
    def elsewhere() -> None:
        with pytest.raises(ConfigurationError, match="own event loop"):
            asyncio.run(connect())

    async def connect() -> None:
        await embedded.connect()

    await asyncio.to_thread(elsewhere)
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_full_broker_refuses(tmp_path: Path) -> None:
    async with Broker(port=-1, connections_max=1) as broker, broker.connect():
        with pytest.raises(ConnectionClosedError, match="maximum connections exceeded"):
            await broker.connect()


async def test_those_who_listen_to_acks_hear_each_of_a_batch(connection: Connection) -> None:
    js = connection.jetstream()
    stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
    consumer = await stream.create_consumer(durable_name="c")
    async with js.publisher() as publisher:
        await publisher.send_many(("s", b"") for _ in range(5))
    everything = await connection.subscribe("$JS.ACK.>")
    batch = await consumer.fetch(5)
    batch.ack()
    await connection.flush()
    assert everything.pending_messages == 5
    assert (await consumer.info()).num_ack_pending == 0
    assert SubjectFilter([b"$JS.ACK.S.c.>"]).matches((await everything.next()).subject.encode())
