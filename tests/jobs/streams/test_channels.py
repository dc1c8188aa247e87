"""Channels that live in a stream, from the publish to the endpoint, on both brokers and both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.jobs.signature import verify
from jobs_endpoint import Call, Endpoint, answer
from stream_channel_world import StreamWorld, by_body, stream_world
from waiting import until


@pytest.fixture
async def world(database_url: str, broker_url: str) -> AsyncIterator[StreamWorld]:
    async with stream_world(database_url, broker_url) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def test_what_is_published_over_http_and_to_the_stream_is_delivered(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.publish("before it was made")
    await world.consumer("h", endpoint)
    answered = await world.broadcast(
        '{"a": 1}',
        Content_Type="application/json",
        X_Broker_Metadata_Headers="X-Kind",
        X_Kind="paid",
        X_Broker_Subject="s.orders.7",
        X_Broker_Ordering_Key="k1",
    )
    assert "/channel/c/message/S." in answered.headers["location"]
    await world.publish("from a client")
    calls = (await endpoint.wait_for(2))[:2]  # at the same time: only one has a key
    second, first = sorted(calls, key=lambda call: call.body == b'{"a": 1}')
    assert first.body == b'{"a": 1}'
    assert first.headers["content-type"] == "application/json"
    assert first.headers["x-kind"] == "paid"
    assert first.headers["x-headrace-subject"] == "s.orders.7"
    assert first.headers["x-headrace-sequence"] == "2"
    assert first.headers["x-broker-ordering-key"] == "k1"
    assert first.headers["x-broker-attempt"] == "1"
    assert first.headers["x-broker-message-id"] == answered.headers["location"].rpartition("/")[2]
    assert first.headers["webhook-id"].startswith("msg_S_")
    secret = (await world.ask("POST", "/v2/channel/c/consumer/h/secret", json={})).json()["secret"]
    assert second.body == b"from a client"
    found = await world.until_done(last=3)
    assert (found["acknowledged"], found["last_sequence"]) == (3, 3)
    assert await world.counts() == {}
    await until(
        lambda: world.engine.consumers["c/h"].secrets[0] == secret, "it signs by the secret before"
    )
    await world.publish("signed by the new secret")
    calls = await endpoint.wait_for(3)
    now_s = world.runtime.now_us() / 1e6
    verify([secret], calls[2].headers, calls[2].body, now_s)


async def test_a_failed_call_becomes_a_job_that_is_retried_with_the_same_id(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    failures = 2

    def respond(call: Call) -> bytes:
        nonlocal failures
        if call.body == b"bad" and failures:
            failures -= 1
            return answer(500, b"not now")
        return answer()

    endpoint.respond = respond
    await world.consumer("h", endpoint)
    await world.publish("good", "bad", "better")
    await endpoint.wait_for(5)
    await world.until_counts({"DELIVERED": 1})
    assert by_body(endpoint) == {"good": 1, "bad": 3, "better": 1}
    bad = [call for call in endpoint.calls if call.body == b"bad"]
    assert len({call.headers["webhook-id"] for call in bad}) == 1
    assert len({call.headers["x-broker-message-id"] for call in bad}) == 1
    assert [call.headers["x-broker-attempt"] for call in bad] == ["1", "2", "3"]
    message = bad[0].headers["x-broker-message-id"]
    shown = (await world.ask("GET", f"/channel/c/message/{message}")).json()
    assert shown["Payload"] == "bad"
    await world.until_done(last=3)


async def test_what_fails_for_good_is_a_dead_letter_that_can_be_requeued(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(500, b"never")
    await world.consumer("h", endpoint, max_retries=1)
    await world.publish("bad")
    await world.until_counts({"DEAD": 1})
    await world.until_done(last=1)
    endpoint.respond = lambda call: answer()
    dead = (await world.ask("GET", "/channel/c/consumer/h/dlq")).json()["DeadJobs"]
    assert len(dead) == 1
    await world.ask("POST", "/channel/c/consumer/h/dlq", 202, data={"requeue": "ht"})
    await world.until_counts({"DELIVERED": 1})
    assert by_body(endpoint) == {"bad": 3}


async def test_messages_of_a_key_are_called_one_by_one_in_order_also_behind_a_retry(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    """A failing one holds up its own key alone."""
    failures = 3

    def respond(call: Call) -> bytes:
        nonlocal failures
        if call.body == b"a3" and failures:
            failures -= 1
            return answer(503)
        return answer()

    endpoint.respond, endpoint.delay_s = respond, 0.005
    await world.consumer("h", endpoint, breaker={"failures": 100})
    for number in range(20):
        await world.publish(f"a{number}", key="a")
        await world.publish(f"b{number}", key="b")
        await world.publish(f"c{number}")
    await endpoint.wait_for(63, 20)
    await world.until_done(last=60)
    await world.until_counts({"DELIVERED": len(await in_table(world))})
    bodies = [call.body.decode() for call in endpoint.calls]
    a = [body for body in bodies if body[0] == "a"]
    assert a == [f"a{n}" for n in range(4)] + ["a3"] * 3 + [f"a{n}" for n in range(4, 20)]
    assert [body for body in bodies if body[0] == "b"] == [f"b{n}" for n in range(20)]


async def in_table(world: StreamWorld) -> list[Any]:
    return list(
        await world.runtime.database.read(lambda tx: tx.all("whole_page_job", after=0, n=1000))
    )


async def test_two_consumers_get_each_message_and_fail_by_themselves(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    async with Endpoint(respond=lambda call: answer(500)) as other:
        await world.consumer("h", endpoint)
        await world.consumer("g", other, max_retries=0)
        await world.publish(*range(10))
        await endpoint.wait_for(10)
        await world.until_counts({"DEAD": 10}, "g")
        await world.until_done(last=10)
        await world.until_done("g", last=10)
        assert await world.counts() == {}
        assert by_body(endpoint) == {str(n): 1 for n in range(10)}
