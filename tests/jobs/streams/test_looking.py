"""What is told of a channel that lives in a stream: where its consumers are, and its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.jobs import limits
from headrace.jobs.service.stream_positions import Cursor, Follower, Replay
from headrace.jobs.states import State
from headrace.jobs.streams.looking import Standing, waits_for
from jobs_endpoint import Endpoint, answer
from stream_channel_world import StreamWorld, stream_world
from waiting import until


@pytest.fixture
async def world(database_url: str, broker_url: str) -> AsyncIterator[StreamWorld]:
    async with stream_world(database_url, broker_url) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def told(world: StreamWorld, channel: str = "c") -> Any:
    return (await world.ask("GET", f"/v2/channel/{channel}/stream")).json()


async def message(world: StreamWorld, message_id: str, expect: int = 200) -> Any:
    path = f"/channel/c/message/{message_id}"
    answered = await world.ask("GET", path, expect, headers={"Accept": "application/json"})
    return answered.json()


def follower(
    *,
    paused: bool = False,
    disabled: str | None = None,
    failing_since_us: int | None = None,
    replay: Replay | None = None,
    retries: int = 0,
) -> Follower:
    cursor = Cursor(consumer_seq=1, stream="S", durable="d", created="", acked_seq=0, replay=replay)
    return Follower(
        consumer_id="h",
        paused=paused,
        disabled_reason=disabled,
        failing_since_us=failing_since_us,
        jobs={**dict.fromkeys(State, 0), State.QUEUED: retries},
        cursor=cursor,
    )


def test_what_a_consumer_waits_for_is_what_has_to_change_first() -> None:
    well = Standing(acknowledged=3, delivered=3, lag=0, under_way=0)
    busy = Standing(acknowledged=3, delivered=5, lag=9, under_way=2)
    behind = Standing(acknowledged=3, delivered=3, lag=9, under_way=0)
    unknown = Standing(acknowledged=3)
    again = Replay(sequence=1)

    def waits(
        one: Follower, standing: Standing = busy, problem: str | None = None, pushed: bool = True
    ) -> str:
        return waits_for(one, standing, problem, is_pushed=pushed)

    assert waits(follower(paused=True, disabled="410"), unknown, "away", False) == "enable"
    assert waits(follower(paused=True, replay=again), unknown, "away", False) == "resume"
    assert waits(follower(replay=again), unknown, "away", False) == "broker"
    assert waits(follower(replay=again, failing_since_us=1), pushed=False) == "pusher"
    assert waits(follower(replay=again, failing_since_us=1)) == "replay"
    assert waits(follower(failing_since_us=1)) == "endpoint"
    assert waits(follower()) == "answers"
    assert waits(follower(), behind) == "fetch"
    assert waits(follower(), unknown) == "fetch", "its durable consumer is about to be made"
    assert waits(follower(retries=1), well) == "answers"
    assert waits(follower(retries=1, failing_since_us=1), well) == "endpoint"
    assert waits(follower(failing_since_us=1), well) == "messages", "nothing is left to be called"


async def test_a_channel_tells_its_stream_and_the_place_of_each_of_its_consumers(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.live_in("c", filter=["s.http", "s.a"])
    endpoint.respond = lambda call: answer(500 if call.body == b"bad" else 200)
    await world.consumer("b", endpoint, max_retries=0)
    await world.consumer("a", endpoint)
    await world.patch("a", paused=True)
    await world.until_known("b")
    await world.publish("x", "bad", "y")
    await world.until_counts({"DEAD": 1}, "b")
    await world.until_done("b", last=3)
    found = await told(world)
    assert found["stream"] == {"name": "S", "subject": "s.http", "filter": ["s.http", "s.a"]}
    assert found["subjects"] == ["s.>"]
    assert (found["first_sequence"], found["last_sequence"], found["left_out"]) == (1, 3, 0)
    assert found["created"] == (await (await world.js.stream("S")).info()).created
    a, b = found["consumers"]
    assert (a["consumer"], a["paused"], a["waits_for"]) == ("a", True, "resume")
    assert (b["consumer"], b["acknowledged"], b["lag"], b["under_way"]) == ("b", 3, 0, 0)
    assert b["jobs"] == {"QUEUED": 0, "INFLIGHT": 0, "DELIVERED": 0, "DEAD": 1}
    assert b == await world.standing("b")
    assert b["waits_for"] == "messages"


async def test_it_is_told_that_no_process_pushes_and_that_the_broker_has_no_such_stream(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)

    async def waits(word: str) -> bool:
        return bool((await world.standing())["waits_for"] == word)

    await until(lambda: waits("messages"), "it never comes to the end of an empty stream")
    await world.js.delete_stream("S")
    (one,) = (await told(world))["consumers"]
    assert (one["waits_for"], one["lag"]) == ("broker", None)
    assert "no stream S" in one["problem"]
    assert "no stream S" in (await told(world))["problem"]
    await world.js.create_stream(name="S", subjects=("s.>",))
    await until(lambda: waits("messages"), "it never goes on in the new stream", within=30)
    await world.runtime.database.write(lambda tx: tx.run("drop_push_node", node=world.engine.node))
    assert (await told(world))["consumers"][0]["waits_for"] == "pusher"


@pytest.mark.one_database
async def test_a_channel_of_the_database_says_so_and_many_consumers_are_counted(
    world: StreamWorld, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put("/channel/d", token="dt")
    await world.put("/channel/d/consumer/k", token="kt", type="pull")
    found = await told(world, "d")
    assert (found["stream"], found["consumers"], found["left_out"]) == (None, [], 0)
    await world.ask("GET", "/v2/channel/none/stream", 404)
    for name in ("h", "i", "j"):
        await world.consumer(name, endpoint)
    monkeypatch.setattr(limits, "STREAM_STANDINGS", 2)
    found = await told(world)
    assert [each["consumer"] for each in found["consumers"]] == ["h", "i"]
    assert found["left_out"] == 1
    with monkeypatch.context() as hasty:
        hasty.setattr(limits, "STREAM_STANDINGS_S", 0.0)
        found = await told(world)
    assert "did not answer (within 0 s)" in found["problem"]
    assert [each["waits_for"] for each in found["consumers"]] == ["broker", "broker"]
    world.runtime.streams, streams = None, world.runtime.streams
    assert "[streams]" in (await told(world))["problem"]
    world.runtime.streams = streams


async def test_a_message_is_found_by_its_id_while_the_stream_has_it(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    named = {"X_Broker_Metadata_Headers": "X-Kind", "X_Kind": "paid"}
    published = await world.broadcast('{"a": 1}', Content_Type="application/json", **named)
    await world.js.publish("s.raw", b"\xff")
    await endpoint.wait_for(2)
    await world.until_done(last=2)
    first = published.headers["location"].rpartition("/")[2]
    prefix = first.rpartition(".")[0]
    shown = (await world.ask("GET", published.headers["location"])).json()
    assert (shown["ID"], shown["Payload"]) == (first, '{"a": 1}')
    assert (shown["ContentType"], shown["Status"]) == ("application/json", "DISPATCHED")
    assert (shown["Headers"]["X-Kind"], shown["Jobs"]) == ("paid", [])
    raw = await message(world, f"{prefix}.2")
    assert (raw["Payload"], raw["PayloadEncoding"]) == ("/w==", "base64")


async def test_what_cannot_be_looked_up_is_said_with_what_can(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    published = await world.broadcast("x", X_Broker_Message_ID="mine")
    await world.publish("y", "z")
    prefix = published.headers["location"].rpartition("/")[2].rpartition(".")[0]
    stream = await world.js.stream("S")
    await stream.delete_message(2)
    for wanted in ("mine", f"{prefix}.x", f"{prefix}.0", f"{prefix}.01", "S.00000000.1"):
        said = await message(world, wanted, 404)
        assert f"has the form {prefix}.SEQUENCE" in said["message"]
        assert said["field"] == "messageId"
    assert "S has 1 to 3" in (await message(world, f"{prefix}.4", 404))["message"]
    assert "2 was removed" in (await message(world, f"{prefix}.2", 404))["message"]
    await world.live_in("c", filter=["s.http"])
    assert "not take: s.a" in (await message(world, f"{prefix}.3", 404))["message"]
    assert (await message(world, f"{prefix}.1"))["Payload"] == "x"
    await stream.purge()
    assert "1" not in (await message(world, f"{prefix}.1", 404))["message"].rpartition(":")[2]
    await world.js.delete_stream("S")
    assert (await message(world, f"{prefix}.1", 409))["code"] == "stream_missing"


@pytest.mark.one_database
async def test_a_message_that_failed_is_found_also_when_the_stream_has_it_no_more(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(500)
    await world.consumer("h", endpoint, max_retries=0)
    await world.publish("bad")
    await world.until_counts({"DEAD": 1})
    (call, *_) = endpoint.calls
    await (await world.js.stream("S")).purge()
    shown = await message(world, call.headers["x-broker-message-id"])
    assert (shown["Payload"], shown["Jobs"][0]["Status"]) == ("bad", "DEAD")


async def test_jobs_of_a_consumer_in_a_stream_are_not_moved_and_it_is_said_what_to_do(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    other = Endpoint()
    async with other:
        endpoint.respond = lambda call: answer(500)
        await world.consumer("h", endpoint, max_retries=0)
        await world.consumer("i", other)
        await world.publish("bad")
        await world.until_counts({"DEAD": 1})
        await other.wait_for(1)
        path = "/channel/c/consumer/h"
        version = (await world.ask("GET", f"/v2{path}")).headers["etag"]
        headers = {"If-Match": version, "Accept": "application/json"}
        refused = await world.ask("DELETE", f"{path}?move_to=i", 400, headers=headers)
        said = refused.json()
        assert (said["code"], said["field"]) == ("stream_channel", "move_to")
        assert "/v2/channel/c/consumer/i/stream/replay" in said["message"]
        assert await world.counts() == {"DEAD": 1}, "nothing was changed"
        await world.ask("DELETE", path, 204, headers=headers)
        await world.until_done("i", last=1)
        assert len(other.calls) == 1
