from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import peers
from headrace.client import JetStream, connect
from headrace.groups import ElasticGroup, GroupMessage, StaticGroup, elastic
from headrace.groups.lag import measure
from headrace.groups.server.presence import Present, announce, instance_name, who_is_there
from waiting import until

pytestmark = pytest.mark.peer

A = Present(member="a", instance="host/1", generations=(7, 9))
B = Present(member="b", instance="host/2")


async def all_there(js: JetStream, stream: str, count: int) -> list[Present]:
    """Who answers, once that many do: on a busy machine some need longer than one question waits."""

    async def are_there() -> list[Present] | None:
        found = await who_is_there(js, ElasticGroup, stream, "g", within=0.1)
        return found if len(found) >= count else None

    there = await until(are_there, f"there are never {count}")
    assert there is not None
    return there


async def test_those_who_have_joined_answer(js: JetStream) -> None:
    async with (
        await announce(js, ElasticGroup, "S", "g", lambda: B),
        await announce(js, ElasticGroup, "S", "g", lambda: A),
        await announce(js, ElasticGroup, "S", "other", lambda: A),
        await announce(js, StaticGroup, "S", "g", lambda: A),
    ):
        assert await all_there(js, "S", 2) == [A, B]
        await js.connection.publish("headrace.groups.elastic.S.g", b"nobody waits for an answer")
    assert await who_is_there(js, ElasticGroup, "S", "g", within=0.1) == []


async def test_strangers_on_the_subject_are_not_counted(js: JetStream) -> None:
    async with (
        await announce(js, ElasticGroup, "S", "g", lambda: A),
        await js.connection.subscribe(
            "headrace.groups.elastic.S.g", callback=lambda question: question.respond(b"?")
        ),
        await js.connection.subscribe(
            "headrace.groups.elastic.S.g",
            callback=lambda question: question.respond(b'{"more":' * 5000),
        ),
    ):
        assert await all_there(js, "S", 1) == [A]


async def test_it_takes_no_longer_than_is_given(js: JetStream) -> None:
    assert await who_is_there(js, ElasticGroup, "S", "g", within=0.05) == []


async def test_members_say_that_they_have_joined_and_what_they_own(js: JetStream) -> None:
    await js.create_stream(name="ORDERS", subjects=["orders.*"], storage="memory")
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    seen = asyncio.Event()

    async def handle(message: GroupMessage) -> None:
        await message.ack_sync()
        seen.set()

    async with (
        elastic.join(js, "ORDERS", "g", "a", handle) as a,
        elastic.join(js, "ORDERS", "g", "later", handle),
    ):
        waiting = await all_there(js, "ORDERS", 2)
        assert [(each.member, each.generations) for each in waiting] == [("a", ()), ("later", ())]
        assert {each.instance for each in waiting} == {instance_name(js)}
        await js.publish("orders.1")
        await asyncio.wait_for(seen.wait(), 10)
        active, _ = await all_there(js, "ORDERS", 2)
        assert active.generations == (a.generation,)
        look = await measure(js, await elastic.get(js, "ORDERS", "g"))
        assert look.members[0].pin is not None
        assert look.members[0].pin.since_ns == a.generation
    assert await who_is_there(js, ElasticGroup, "ORDERS", "g", within=0.1) == []


async def test_where_it_may_not_be_said_a_member_works_all_the_same(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    denied = 'permissions: { subscribe: { deny: "headrace.groups.>" } }'
    server = nats_server(
        config=f"authorization {{ users = [ {{ user: u, password: p, {denied} }} ] }}"
    )
    events: list[object] = []
    handled = asyncio.Event()

    async def handle(message: GroupMessage) -> None:
        await message.ack_sync()
        handled.set()

    async with connect(server.url, user="u", password="p", on_event=events.append) as connection:
        js = connection.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.*"], storage="memory")
        await elastic.create(js, "ORDERS", "g", 2, members=["a"])
        async with elastic.join(js, "ORDERS", "g", "a", handle):
            await js.publish("orders.1")
            await asyncio.wait_for(handled.wait(), 10)
    assert any("Permissions Violation for Subscription" in str(event) for event in events)


async def test_an_instance_has_a_name_for_people(js: JetStream) -> None:
    assert instance_name(js).startswith("tests of groups/")
