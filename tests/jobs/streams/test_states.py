"""What lives apart changes apart: stream, durable consumer, broker, service, definition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace.client import connect
from headrace.errors import ConsumerNotFoundError
from jobs_endpoint import Endpoint, answer
from portions import one_way
from stream_channel_world import SUBJECTS, StreamWorld, by_body, stream_world
from waiting import until

pytestmark = pytest.mark.one_database


@pytest.fixture
async def world(database_url: str, broker_url: str) -> AsyncIterator[StreamWorld]:
    async with stream_world(database_url, broker_url) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def durable_of(world: StreamWorld, name: str = "h") -> str:
    found: str = (await world.standing(name))["durable"]
    return found


async def config_of(world: StreamWorld) -> Any:
    """How the durable consumer is configured; None while it is made anew."""
    try:
        consumer = await world.js.consumer("S", await durable_of(world))
        return (await consumer.info()).config
    except ConsumerNotFoundError:
        return None


def numbers(first: int, last: int) -> dict[str, int]:
    return {str(n): 1 for n in range(first, last)}


async def test_a_service_that_is_restarted_goes_on_where_it_was_and_calls_nothing_twice(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.delay_s = 0.02
    await world.consumer("h", endpoint, concurrency=4)
    await world.publish(*range(60))
    await endpoint.wait_for(10)
    await world.stop()
    called = len(endpoint.calls)
    assert called < 60, "it was stopped in the middle"
    await world.publish(*range(60, 70))
    await world.start()
    await world.until_done(last=70)
    assert by_body(endpoint) == numbers(0, 70)


async def test_a_durable_consumer_that_somebody_deleted_is_made_again_and_nothing_is_lost(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.publish(*range(20))
    await world.until_done(last=20)
    await world.js.delete_consumer("S", await durable_of(world))
    await world.publish(*range(20, 40))
    await world.until_done(last=40)
    assert set(by_body(endpoint)) == set(numbers(0, 40))
    moved = await world.until_event("cursor_moved")
    assert "was gone from the broker" in moved["detail"]


async def test_a_push_consumer_in_its_place_is_replaced(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.publish(*range(5))
    await world.until_done(last=5)
    durable = await durable_of(world)
    await world.stop()
    await world.js.delete_consumer("S", durable)
    await world.js.create_consumer("S", durable_name=durable, deliver_subject="elsewhere")
    await world.publish(*range(5, 9))
    await world.start()
    await world.until_done(last=9)
    assert set(by_body(endpoint)) == set(numbers(0, 9))


async def test_a_deleted_stream_is_named_and_a_new_one_is_delivered_from_its_beginning(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.publish(*range(3))
    await world.until_done(last=3)
    await world.js.delete_stream("S")
    assert (await world.standing())["problem"] == "the broker has no stream S"
    refused = await world.broadcast("lost", 409)
    assert "no stream S" in refused.text
    assert (await world.live_in("c", 409, subject="s.other")).json()["code"] == "stream_missing"

    async def told() -> bool:
        failing = world.runtime.parts.failing
        return any("stream of c/h" in part for part in failing)

    await until(told, "nobody is told that the stream is gone", within=20)
    await world.js.create_stream(name="S", subjects=SUBJECTS)
    await world.publish("a", "b")
    await world.until_done(last=2)
    assert by_body(endpoint) == {**numbers(0, 3), "a": 1, "b": 1}
    assert "made anew" in (await world.until_event("cursor_moved"))["detail"]
    assert not world.runtime.parts.failing


async def test_what_a_purge_took_is_not_delivered_and_the_rest_is(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.patch("h", paused=True)
    await until(lambda: not world.engine.consumers, "it still pushes")
    await world.publish(*range(10))
    await (await world.js.stream("S")).purge()
    await world.publish(*range(10, 15))
    await world.patch("h", paused=False)
    await world.until_done(last=15)
    assert by_body(endpoint) == numbers(10, 15)


async def test_a_paused_consumer_gives_back_what_it_has_and_goes_on_when_it_is_resumed(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.delay_s = 0.1
    await world.consumer("h", endpoint, concurrency=1)
    await world.publish(*range(30), key="k")
    await endpoint.wait_for(3)
    await world.patch("h", paused=True)
    await until(lambda: not world.engine.consumers, "it still pushes")
    assert len(endpoint.calls) < 30, "it was paused in the middle"
    endpoint.delay_s = 0.02
    resumed = time.monotonic()
    await world.patch("h", paused=False)
    await world.until_done(last=30)
    assert [call.body.decode() for call in endpoint.calls] == list(numbers(0, 30))
    assert time.monotonic() - resumed < 10, "each call begins when the one before it ends"


async def test_a_durable_consumer_that_somebody_changed_is_changed_back(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.publish(0)
    await world.until_done(last=1)
    durable = await world.js.consumer("S", await durable_of(world))
    await durable.update(max_ack_pending=1, filter_subject="s.none")
    await world.publish(1)

    async def is_back() -> bool:
        config = await config_of(world)
        return config is not None and (config.max_ack_pending, config.filter_subject) == (40, "")

    # Where nothing is fetched, it is looked at when the request for messages ends.
    await world.patch("h", settings={"timeout_s": 29})
    await until(is_back, "it stays as it was changed", within=20)
    await world.publish(2)
    await world.until_done(last=3)
    assert set(by_body(endpoint)) == {"0", "1", "2"}, "also what it left out meanwhile"


async def test_a_changed_definition_reaches_the_durable_consumer(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.patch("h", settings={"concurrency": 50, "filter": {"subjects": ["s.yes"]}})
    await world.until_done()

    async def is_wider() -> bool:
        config = await config_of(world)
        return config is not None and config.max_ack_pending == 100

    await until(is_wider, "it holds as many as before", within=20)
    for subject in ("s.yes", "s.no", "s.yes"):
        await world.js.publish(subject, subject.encode())
    await world.until_done(last=3)
    assert by_body(endpoint) == {"s.yes": 2}
    await world.patch("h", settings={"filter": {"subjects": []}})
    await world.live_in("c", filter=["s.no", "s.http"])

    async def is_filtered() -> bool:
        config = await config_of(world)
        return config is not None and config.filter_subjects == ("s.no", "s.http")

    await until(is_filtered, "it still gets all subjects", within=20)
    await world.js.publish("s.yes", b"left out by the channel")
    await world.js.publish("s.no", b"s.no")
    await endpoint.wait_for(3)
    assert by_body(endpoint) == {"s.yes": 2, "s.no": 1}


async def test_a_deleted_consumer_takes_its_durable_one_with_it(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.consumer("g", endpoint)
    await world.publish(1)
    await world.until_done("h", last=1)
    await world.until_done("g", last=1)
    stream = await world.js.stream("S")
    assert len([name async for name in stream.consumer_names()]) == 2
    shown = await world.ask("GET", "/channel/c/consumer/h")
    since = {"If-Unmodified-Since": shown.headers["last-modified"]}
    await world.ask("DELETE", "/channel/c/consumer/h", 204, headers=since)

    async def left(count: int) -> bool:
        return len([name async for name in stream.consumer_names()]) == count

    await until(lambda: left(1), "its durable consumer stays", within=20)
    shown = await world.ask("GET", "/channel/c")
    since = {"If-Unmodified-Since": shown.headers["last-modified"]}
    await world.ask("DELETE", "/channel/c", 204, headers=since)
    await until(lambda: left(0), "that of the channel stays", within=20)

    async def is_forgotten() -> bool:
        rows = await world.runtime.database.read(lambda tx: tx.all("forgotten_cursors", n=5))
        return not rows

    await until(is_forgotten, "the database remembers it")


@pytest.mark.parametrize("kind", one_way(["headrace", "nats-server"], "killed"))
async def test_a_broker_that_is_killed_and_comes_back_loses_no_acknowledged_message(
    kind: str,
    database_url: str,
    endpoint: Endpoint,
    nats_server: Callable[..., peers.ServerProcess],
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    server = headrace_server() if kind == "headrace" else nats_server(sync="always")
    async with stream_world(database_url, server.url) as world:
        endpoint.delay_s = 0.01
        await world.consumer("h", endpoint, concurrency=4)
        for number in range(20):
            await world.broadcast(str(number))
        await asyncio.to_thread(server.kill)
        refused = await world.broadcast("nobody took it", 503)
        assert refused.headers["retry-after"]
        assert "did not answer" in (await world.standing())["problem"]
        await asyncio.to_thread(server.start_again)

        async def takes_again() -> bool:
            again = await world.http.post(
                "/channel/c/broadcast",
                content=b"20",
                headers={
                    "X-Broker-Channel-Token": "ct",
                    "X-Broker-Producer-ID": "p",
                    "X-Broker-Producer-Token": "pt",
                    "Idempotency-Key": "twenty",
                },
            )
            return again.status_code in (200, 201)

        await until(takes_again, "it never takes a message again", within=30)
        await endpoint.wait_for(21, 30)
        await world.until_done()
        assert set(by_body(endpoint)) - {"nobody took it"} == set(numbers(0, 21))


async def test_a_service_pointed_to_another_broker_delivers_the_stream_that_is_there(
    world: StreamWorld, endpoint: Endpoint, headrace_server: Callable[..., peers.ServerProcess]
) -> None:
    await world.consumer("h", endpoint)
    await world.publish(*range(5))
    await world.until_done(last=5)
    await world.stop()
    other = headrace_server()
    async with connect(other.url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=SUBJECTS)
        for payload in ("a", "b"):
            await js.publish("s.a", payload.encode())
        world.broker_url = other.url
        await world.start()
        await world.until_done(last=2)
        assert by_body(endpoint) == {**numbers(0, 5), "a": 1, "b": 1}
        assert "made anew" in (await world.until_event("cursor_moved"))["detail"]


async def test_an_endpoint_that_is_down_leaves_what_it_has_not_taken_in_the_stream(
    world: StreamWorld, endpoint: Endpoint, tmp_path: Path
) -> None:
    """The breaker opens: the database gets a few failures, not the whole stream."""
    del tmp_path
    endpoint.respond = lambda call: answer(500)
    await world.consumer(
        "h", endpoint, concurrency=2, breaker={"failures": 3, "open_s": 0.5}, max_retries=50
    )
    await world.publish(*range(200))
    await endpoint.wait_for(5)
    found = await world.standing()
    assert found["lag"] + found["under_way"] > 150
    assert sum((await world.counts()).values()) < 20
    endpoint.respond = lambda call: answer()
    await world.until_done(last=200)
    assert set(by_body(endpoint)) == set(numbers(0, 200))
