"""What a stream still has is delivered again, from a sequence or a time; what a channel in it cannot do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import uvicorn

from headrace.cli import main
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.http import create_app
from headrace.jobs.models import rfc3339
from jobs_endpoint import Endpoint, answer
from jobs_world import PRODUCER
from stream_channel_world import StreamWorld, by_body, stream_world


@pytest.fixture
async def world(database_url: str, broker_url: str) -> AsyncIterator[StreamWorld]:
    async with stream_world(database_url, broker_url) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def replay(world: StreamWorld, expect: int = 200, name: str = "h", **body: Any) -> Any:
    path = f"/v2/channel/c/consumer/{name}/stream/replay"
    return (await world.ask("POST", path, expect, json=body)).json()


async def test_a_consumer_delivers_again_from_a_sequence_and_goes_on_in_order(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.publish(*range(5), key="k")
    await world.consumer("h", endpoint)
    await world.publish(*range(5, 10), key="k")
    await world.until_done(last=10)
    assert by_body(endpoint) == {str(n): 1 for n in range(5, 10)}, "what comes after it was made"
    endpoint.calls.clear()
    asked = await replay(world, sequence=1)
    assert asked["replay_sequence"] == 1
    await endpoint.wait_for(10)
    await world.publish(10, key="k")
    found = await world.until_done(last=11)
    assert [call.body.decode() for call in endpoint.calls] == [str(n) for n in range(11)]
    assert (found["replay_sequence"], found["replay_since"]) == (None, None)
    assert (await world.until_event("stream_replayed"))["consumer"] == "h"


async def test_a_consumer_delivers_again_from_a_time(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    await world.publish("before")
    await world.until_done(last=1)
    stored = (await (await world.js.stream("S")).get_message(1)).timestamp_ns // 1000
    await world.publish("after")
    await world.until_done(last=2)
    endpoint.calls.clear()
    since = rfc3339(stored + 1)
    assert datetime.fromisoformat(since) <= datetime.now(UTC)
    await replay(world, since=since)
    await endpoint.wait_for(1)
    await world.until_done(last=2)
    assert by_body(endpoint) == {"after": 1}


async def test_a_replay_waits_for_calls_under_way_and_comes_to_a_paused_consumer_later(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.delay_s = 0.3
    await world.consumer("h", endpoint)
    await world.publish(0, key="k")
    await endpoint.wait_for(1)
    await replay(world, sequence=1)
    await endpoint.wait_for(2)
    assert endpoint.most_at_once == 1
    await world.until_done(last=1)
    await world.patch("h", paused=True)
    await replay(world, sequence=1)
    assert (await world.standing())["replay_sequence"] == 1
    await world.patch("h", paused=False)
    await endpoint.wait_for(3)
    await world.until_done(last=1)


async def test_a_message_that_failed_before_fails_and_is_retried_again_after_a_replay(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    endpoint.respond = lambda call: answer(500)
    await world.consumer("h", endpoint, max_retries=0)
    await world.publish("bad")
    await world.until_counts({"DEAD": 1})
    await replay(world, sequence=1)
    await endpoint.wait_for(3)
    await world.until_counts({"DEAD": 1})
    endpoint.respond = lambda call: answer()
    await replay(world, sequence=1)
    await endpoint.wait_for(4)
    await world.until_done(last=1)
    assert await world.counts() == {"DEAD": 1}, "the dead letter is another delivery's"


@pytest.mark.one_database
async def test_what_cannot_be_replayed_is_refused_in_words(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    for body in ({}, {"sequence": 0}, {"sequence": 1, "since": "2026-01-01T00:00:00Z"}):
        await replay(world, 400, **body)
    await replay(world, 400, since="yesterday")
    await replay(world, 404, "none", sequence=1)
    await world.put("/channel/d", token="dt")
    await world.put("/channel/d/consumer/k", token="kt", type="pull")
    await world.ask("GET", "/v2/channel/d/consumer/k/stream", 404)
    await world.ask("POST", "/v2/channel/d/consumer/k/stream/replay", 404, json={"sequence": 1})


@pytest.mark.one_database
async def test_what_a_channel_in_a_stream_cannot_do_is_refused_in_words(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    text = (await world.put("/channel/c/consumer/k", 400, type="pull", token="kt")).text
    assert "push consumers only" in text
    await world.ask("PATCH", "/v2/channel/c/consumer/h", 400, json={"type": "pull"})
    outcomes = {"settings": {"outcomes": True}}
    await world.ask("PATCH", "/v2/channel/c/consumer/h", 400, json=outcomes)
    cron = {"cron": "@daily", "message": {"payload": "x"}}
    await world.ask("PUT", "/v2/channel/c/schedule/s", 400, json=cron)
    later = {"X_Broker_Scheduled_For": "2999-01-01T00:00:00Z"}
    for refused in (
        later,
        {"X_Broker_Message_Priority": "1"},
        {"X_Broker_Unique": '{"by": ["payload"]}'},
        {"X_Broker_Subject": "elsewhere"},
    ):
        await world.broadcast("x", 409 if "X_Broker_Subject" in refused else 400, **refused)
    await world.live_in("c", 400, subject="elsewhere")
    await world.live_in("c", 409, name="T")
    await world.live_in("c", 400, filter=["s.a"])
    await world.put("/channel/d", token="dt")
    told = {"events_channel": "c"}
    await world.ask("PATCH", "/v2/channel/d", 400, json=told)
    await world.put("/channel/d/consumer/k", token="kt", type="pull")
    used = await world.live_in("d", 409)
    assert "has consumers" in used.text
    world.runtime.streams, streams = None, world.runtime.streams
    assert (await world.live_in("c", 409, subject="s.b")).json()["code"] == "no_streams"
    assert "[streams]" in (await world.broadcast("x", 409)).text
    assert "[streams]" in (await world.standing())["problem"]
    world.runtime.streams = streams


async def test_an_id_is_taken_once_and_a_batch_goes_to_the_stream(
    world: StreamWorld, endpoint: Endpoint
) -> None:
    await world.consumer("h", endpoint)
    first = await world.broadcast("a", X_Broker_Message_ID="one")
    assert "sequence 1" in (await world.broadcast("a", 409, X_Broker_Message_ID="one")).text
    again = await world.broadcast("a", Idempotency_Key="one")
    assert again.headers["location"] == first.headers["location"]
    messages = [
        {"payload": "b", "headers": {"X-N": "1"}, "ordering_key": "k"},
        {"payload": "Yw==", "encoding": "base64", "subject": "s.c", "id": "two"},
        {"payload": "a", "id": "one", "idempotent": True},
    ]
    answered = await world.ask(
        *("POST", "/v2/channel/c/messages/batch", 201),
        json={"messages": messages},
        headers=PRODUCER,
    )
    assert [one["replayed"] for one in answered.json()["messages"]] == [False, False, True]
    bad = {"messages": [{"payload": "d"}, {"payload": "e", "priority": 3}]}
    path = "/v2/channel/c/messages/batch"
    refused = await world.ask("POST", path, 400, json=bad, headers=PRODUCER)
    assert refused.json()["field"] == "messages[1].priority"
    await world.ask("POST", path, 403, json=bad, headers={**PRODUCER, "X-Broker-Channel-Token": ""})
    found = await world.until_done(last=3)
    assert found["last_sequence"] == 3
    calls = {call.body: call.headers for call in endpoint.calls}
    assert set(calls) == {b"a", b"b", b"c"}
    assert (calls[b"b"]["x-n"], calls[b"b"]["x-broker-ordering-key"]) == ("1", "k")
    assert calls[b"c"]["x-headrace-subject"] == "s.c"
    await world.ask("PATCH", "/v2/channel/c", json={"draining": True})
    await world.broadcast("late", 409)


@asynccontextmanager
async def served(world: StreamWorld) -> AsyncIterator[str]:
    """The service on a socket."""
    server = uvicorn.Server(
        uvicorn.Config(create_app(world.runtime), lifespan="off", log_config=None)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


@pytest.mark.one_database
async def test_commands_and_client_make_the_channel_show_where_it_is_and_deliver_again(
    database_url: str, broker_url: str, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        stream_world(database_url, broker_url, define=False) as world,
        served(world) as url,
        AsyncJobsClient(url) as client,
    ):

        async def run(*words: str, status: int = 0) -> str:
            assert await asyncio.to_thread(main, ["jobs", *words, "--url", url]) == status
            shown = capsys.readouterr()
            return shown.out + shown.err

        await run(
            *("channel", "c", "--stream", "S", "--stream-subject", "s.http"),
            *("--stream-filter", "s.http", "--stream-filter", "s.a"),
        )
        assert (await client.channel("c"))["stream"] == {
            "name": "S",
            "subject": "s.http",
            "filter": ["s.http", "s.a"],
        }
        said = await run("channel", "d", "--stream-subject", "s.b", status=1)
        assert "go with --stream" in said
        await world.consumer("h", endpoint)
        await world.publish("a", "b")
        await world.until_done(last=2)
        text = await run("stream", "c", "h")
        assert "done with: all up to sequence 2" in text
        assert "under way: 0, to come: 0" in text
        assert "waits for: messages" in text
        assert "the stream has sequences 1 to 2" in text
        table = (await run("stream", "c")).splitlines()
        assert " ".join(table[0].split()) == "CONSUMER DONE UP TO UNDER WAY TO COME DEAD WAITS FOR"
        assert [line.split() for line in table[1:]] == [["h", "2", "0", "0", "0", "messages"]]
        everyone = json.loads(await run("stream", "c", "--json"))
        assert everyone["consumers"] == [await client.stream_standing("c", "h")]
        assert everyone == await client.channel_standing("c")
        assert "need the name" in await run("stream", "c", "--replay-from", "2", status=1)
        await run("stream", "c", "h", "--replay-from", "2")
        await endpoint.wait_for(3)
        assert by_body(endpoint) == {"a": 1, "b": 2}
        both = ("--replay-from", "1", "--replay-since", "2026-01-01T00:00:00Z")
        assert "exclude each other" in await run("stream", "c", "h", *both, status=1)
        await client.set_stream("c", "S", subject="s.other")
        await client.replay_stream("c", "h", since="2026-01-01T00:00:00Z")
        await endpoint.wait_for(5)
        await world.until_done(last=2)
        assert (await client.stream_standing("c", "h"))["acknowledged"] == 2
