"""A broker on a clock that a test moves: what goes by time follows it at once, and nothing else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker, JetStreamMessage, KeyNotFoundError, Message, sync
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError, HeartbeatMissedError
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

HOUR_S = 3600.0


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {"store_dir": tmp_path, "sync": "os"} if request.param == "file" else {}


async def test_ages_and_times_to_live_follow_the_clock_at_once(store: dict[str, Any]) -> None:
    clock = ManualClock()
    async with Broker(clock=clock, **store) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(
            name="AGES", subjects=["ages.>"], max_age=HOUR_S, allow_msg_ttl=True
        )
        bucket = await js.create_key_value("KEYS", ttl=2 * HOUR_S)
        await bucket.put("key", b"value")
        await js.publish("ages.old", b"")
        await js.publish("ages.short", b"", ttl=60)
        assert (await stream.get_message(1)).timestamp_ns == clock.now_ns()
        clock.advance(59)
        assert (await stream.info()).state.messages == 2
        clock.advance(1)
        assert (await stream.info()).state.messages == 1
        clock.advance(HOUR_S - 60)
        assert (await stream.info()).state.messages == 0
        assert (await bucket.get("key")).value == b"value"
        clock.advance(HOUR_S)
        with pytest.raises(KeyNotFoundError):
            await bucket.get("key")


async def test_redeliveries_and_schedules_follow_the_clock_at_once(store: dict[str, Any]) -> None:
    clock = ManualClock()
    async with Broker(clock=clock, **store) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(
            name="WORK", subjects=["work.>", "plan.>"], allow_msg_schedules=True
        )
        consumer = await stream.create_consumer(
            durable_name="c", ack_wait=HOUR_S, filter_subject="work.>"
        )
        await js.publish("work.1", b"now")
        at = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC) + timedelta(hours=2)
        await js.schedule("plan.1", b"later", target="work.2", at=at)
        (first,) = await consumer.fetch(10, no_wait=True)
        clock.advance(HOUR_S - 1)
        assert list(await consumer.fetch(10, no_wait=True)) == []
        clock.advance(1)
        (again,) = await consumer.fetch(10, no_wait=True)
        assert (again.payload, again.metadata.delivered) == (b"now", 2)
        await again.ack_sync()
        clock.advance(HOUR_S)
        (planned,) = await consumer.fetch(10, no_wait=True)
        assert (planned.subject, planned.payload) == ("work.2", b"later")
        assert first.payload == b"now"


async def test_a_pause_ends_by_the_clock_and_a_jump_is_followed_when_it_has_lasted() -> None:
    clock = ManualClock(time.time_ns())
    async with Broker(clock=clock) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="WORK", subjects=["work"])
        consumer = await stream.create_consumer(durable_name="c")
        await js.publish("work", b"")
        await consumer.pause(HOUR_S)
        clock.advance(HOUR_S - 60)
        assert (await consumer.info()).paused
        assert list(await consumer.fetch(10, no_wait=True)) == []
        clock.advance(120)
        assert len(await consumer.fetch(10, no_wait=True)) == 1
        clock.jump(HOUR_S)
        await js.publish("work", b"")
        assert (await stream.get_message(2)).timestamp_ns < clock.now_ns()
        clock.advance(60)
        await js.publish("work", b"")
        assert (await stream.get_message(3)).timestamp_ns == clock.now_ns()


async def test_a_client_waits_by_the_machines_time() -> None:
    async with Broker(clock=ManualClock()) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="WORK", subjects=["work"])
        fetching = await stream.create_consumer(durable_name="f")
        consuming = await stream.create_consumer(durable_name="c")
        missed: list[Exception] = []
        came: list[bytes] = []

        def take(message: JetStreamMessage) -> None:
            came.append(message.payload)
            message.ack()

        async with consuming.consume(take, expires=1, heartbeat=0.5, on_error=missed.append):
            began = time.monotonic()
            assert list(await fetching.fetch(10, max_wait=0.1)) == []
            assert time.monotonic() - began >= 0.1
            await until(lambda: bool(missed))
            assert isinstance(missed[0], HeartbeatMissedError)
            assert connection.is_connected
            await js.publish("work", b"late")
            await until(lambda: came == [b"late"])


async def test_a_callback_may_move_the_clock() -> None:
    clock = ManualClock()
    async with Broker(clock=clock) as broker, broker.connect() as connection:
        stream = await connection.jetstream().create_stream(
            name="AGES", subjects=["ages"], max_age=10
        )
        moved: list[int] = []

        def move(message: Message) -> None:
            clock.advance(5)
            moved.append(clock.monotonic_ns())

        await connection.subscribe("ages", callback=move)
        for _ in range(4):
            await connection.publish("ages", b"")
        await connection.flush()
        await until(lambda: len(moved) == 4)
        await connection.flush()
        clock.advance(10)
        assert (await stream.info()).state.messages == 0


@pytest.fixture
def threaded() -> Iterator[tuple[ManualClock, sync.Broker]]:
    clock = ManualClock()
    with sync.Broker(clock=clock) as broker:
        yield clock, broker


def test_a_clock_moved_by_another_thread_is_followed_before_that_goes_on(
    threaded: tuple[ManualClock, sync.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    clock, broker = threaded
    with sync.connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = js.create_stream(name="AGES", subjects=["ages"], max_age=10)
        for turn in range(1, 51):
            js.publish("ages", b"")
            clock.advance(10)
            assert stream.info().state.messages == 0, turn
    assert "Clock" not in caplog.text  # both readings moved as one: no jump was seen


def test_silent_clients_outlive_any_move_of_the_clock(
    threaded: tuple[ManualClock, sync.Broker],
) -> None:
    clock, broker = threaded
    with sync.connect(broker.client_url) as connection:
        connection.flush()
        for _ in range(20):
            clock.advance(24 * HOUR_S)
        connection.flush()
        assert connection.reconnects == 0


def test_a_stopped_broker_follows_no_more(threaded: tuple[ManualClock, sync.Broker]) -> None:
    clock, broker = threaded
    broker.stop()
    clock.advance(1)  # waits for nobody
    assert clock._followers == []


async def test_one_clock_moves_several_brokers(threaded: tuple[ManualClock, sync.Broker]) -> None:
    clock, _ = threaded
    async with Broker(clock=clock) as near:
        clock.advance(HOUR_S)
        assert near.hub.clock.now_ns() == clock.now_ns()
        assert len(clock._followers) == 2


async def test_nothing_is_due_by_the_machines_time() -> None:
    """And a broker that waits for its clock does not look again and again."""
    clock = ManualClock()
    async with Broker(clock=clock) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="AGES", subjects=["ages"], max_age=0.1)
        await js.publish("ages", b"")
        await stream.info()
        assert broker.hub.next_deadline_ns() is not None
        pump: Any = broker._pump
        assert pump._timer is None


def test_what_is_no_clock_is_refused_with_what_is_accepted() -> None:
    for wrong in (5, time, threading):
        with pytest.raises(ConfigurationError, match=r"which has no .*; accepted: .*ManualClock"):
            Broker(clock=wrong)  # type: ignore[arg-type]
