"""From a stream into a channel, and outcomes back into a stream."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import JetStream, connect
from headrace.jobs.config.config import FeedConfig, OutcomesConfig
from headrace.jobs.streams.feed import feed_channel
from headrace.jobs.streams.outcomes import publish_outcomes
from jobs_world import World, held
from waiting import elapse, until

if TYPE_CHECKING:
    from headrace.broker.server import Broker

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def until_queued(world: World, count: int) -> list[dict[str, Any]]:
    async def are_there() -> list[dict[str, Any]]:
        found = await world.queued(100)
        return found if len(found) >= count else []

    return await until(are_there, f"never {count} jobs", within=15)


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def publish(js: JetStream, first: int, last: int) -> None:
    for number in range(first, last):
        await js.publish(
            f"orders.{number % 2}",
            b"%d" % number,
            headers={"Content-Type": "text/plain", "X-T": "1", "traceparent": TRACE},
        )


async def test_each_sequence_becomes_one_message_across_crashes(
    world: World, broker: Broker
) -> None:
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=("orders.>",))
        config = FeedConfig(
            channel="c", stream="ORDERS", url=broker.client_url, filter="orders.1", batch=4
        )
        await publish(js, 0, 20)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        jobs = await until_queued(world, 10)
        await stop(feeding)
        assert [job["Message"]["Payload"] for job in jobs] == [str(n) for n in range(1, 20, 2)]
        headers = jobs[0]["Message"]["Headers"]
        assert (headers["X-T"], headers["X-Headrace-Subject"], headers["X-Headrace-Sequence"]) == (
            "1",
            "orders.1",
            "2",
        )
        assert headers["traceparent"] == TRACE
        assert jobs[0]["Message"]["ContentType"] == "text/plain"
        # The acknowledgements are lost: everything comes again.
        await stream.delete_consumer(config.group)
        await publish(js, 20, 24)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        jobs = await until_queued(world, 12)
        await elapse(0.3, "what comes twice would be there now")
        await stop(feeding)
        assert len(await world.queued(100)) == 12
        # Made anew, its sequences begin anew, and are other messages.
        await stream.delete()
        await js.create_stream(name="ORDERS", subjects=("orders.>",))
        await publish(js, 0, 4)
        feeding = asyncio.create_task(feed_channel(world.runtime, config))
        await until_queued(world, 14)
        await stop(feeding)


@pytest.mark.one_database
async def test_a_feed_waits_for_a_stream_that_is_not_there(world: World, broker: Broker) -> None:
    config = FeedConfig(channel="c", stream="LATER", url=broker.client_url)
    feeding = asyncio.create_task(feed_channel(world.runtime, config))
    await until(lambda: "feed c" in world.runtime.parts.failing, "it does not miss the stream")
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="LATER", subjects=("later",))
        await js.publish("later", b"x")
        await until_queued(world, 1)
    await stop(feeding)


async def test_outcomes_are_published_once_in_order(world: World, broker: Broker) -> None:
    await world.http.patch("/v2/channel/c/consumer/k", json={"settings": {"outcomes": True}})
    for number in range(3):
        await world.broadcast(X_Broker_Message_ID=f"m{number}")
    a, b, _ = await world.claim(3)
    await world.lease("complete", jobs=held(a))
    await world.lease("fail", jobs=[{**held(b)[0], "dead": True, "reason": "no"}])
    async with connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="OUT", subjects=("out",))
        config = OutcomesConfig(url=broker.client_url, subject="out")
        publishing = asyncio.create_task(publish_outcomes(world.runtime, config))

        async def both() -> bool:
            return (await stream.info()).state.messages >= 2

        await until(both, "the outcomes do not come", within=15)
        found = [json.loads((await stream.get_message(n)).payload) for n in (1, 2)]
        assert [(one["message"], one["state"], one["error"]) for one in found] == [
            ("m0", "DELIVERED", None),
            ("m1", "DEAD", "no"),
        ]

        async def all_out() -> bool:
            left = await world.runtime.database.read(lambda tx: tx.all("list_outcomes", n=5))
            return not left

        await until(all_out, "outcomes are left")
        await stop(publishing)
        assert (await stream.info()).state.messages == 2
