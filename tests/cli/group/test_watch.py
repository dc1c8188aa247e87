from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import yaml

import group_world
import peers
import waiting
from headrace.cli.group.watch import Seen, looks, watch
from headrace.client import JetStream, Stream, connect
from headrace.groups import (
    ElasticGroup,
    GroupMessage,
    GroupNotFoundError,
    StaticGroup,
    elastic,
    static,
)
from headrace.groups.server.presence import instance_name

pytestmark = pytest.mark.peer

NEVER_S = 60.0  # only an event makes it look


@pytest.fixture(scope="module", params=["nats-server", "headrace"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    start = peers.start_headrace if request.param == "headrace" else peers.start_nats_server
    running = start(tmp_path_factory.mktemp(f"watch-{request.param}"))
    yield running
    running.stop()


@pytest.fixture
async def js(server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await js.create_stream(
            name="ORDERS", subjects=["orders.*", "0.x"], storage="memory", allow_direct=True
        )
        yield js
        async for info in js.streams():
            await js.delete_stream(info.config.name)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@asynccontextmanager
async def running(
    js: JetStream, out: io.StringIO, **options: Any
) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """A watch in the background, and what waits until its output has a text behind what was seen."""
    options = {"every": NEVER_S, **options}
    task = asyncio.create_task(watch(js, ElasticGroup, "ORDERS", "g", out=out, **options))
    place = 0

    async def until(text: str) -> str:
        nonlocal place
        async with asyncio.timeout(10):
            while text not in out.getvalue()[place:]:
                assert not task.done(), out.getvalue()
                await asyncio.sleep(0.005)
        found = out.getvalue()[place:]
        place = len(out.getvalue())
        return found

    try:
        yield until
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_it_looks_when_something_happens(js: JetStream) -> None:
    group = await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    await js.publish("orders.1", b"x")
    work = await js.stream("ORDERS-g")
    await waiting.until(lambda: _holds(work, 1))
    async with running(js, io.StringIO()) as until:
        await until("a[0-1]=absent,1")
        consumer = (await group_world.member_consumers(js, group, "a"))[0]
        async with consumer.consume(group="PCG", expires=30, max_messages=1) as messages:
            await until("a[0-1]=active,1")  # its instance was pinned
            await anext(messages)
        await consumer.unpin("PCG")
        await until("a[0-1]=absent,1")
        await elastic.add_members(js, "ORDERS", "g", ["b"])
        await until("b[1]=absent")  # the record was changed


async def _holds(stream: Stream, messages: int) -> bool:
    return (await stream.info()).state.messages == messages


async def test_it_ends_with_the_group(js: JetStream) -> None:
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    found: list[Seen] = []
    async with asyncio.timeout(10):
        async with aclosing(looks(js, ElasticGroup, "ORDERS", "g", every=NEVER_S)) as seen:
            async for each in seen:
                found.append(each)
                if len(found) == 1:
                    await elastic.delete(js, "ORDERS", "g")
    assert found[0].look is not None
    assert found[0].look.lag == 0


async def test_without_events_it_looks_again_after_a_while(js: JetStream) -> None:
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    async with running(js, io.StringIO(), every=0.02) as until:
        await until("lag 0")
        await js.publish("orders.1", b"x")
        await until("lag 1")


async def test_a_terminal_is_drawn_over(js: JetStream) -> None:
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    async with running(js, Terminal(), every=0.02) as until:
        first = await until("HANDLED/S")
        assert "\x1b[" not in first.replace("\x1b[K", "").replace("\x1b[J", "")
        lines = first.count("\n")
        assert f"\x1b[{lines}A\x1b[Kelastic group 'g'" in await until("/s are handled")


async def test_as_json_each_look_is_a_document(js: JetStream) -> None:
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    out = io.StringIO()
    async with running(js, out, every=0.02, form="json") as until:
        await until("\n")
        await until("\n")
    first, second = map(json.loads, out.getvalue().splitlines()[:2])
    assert first["handled_per_second"] is None
    assert second["handled_per_second"] == 0.0
    assert second["members"][0]["member"] == "a"


async def test_an_instance_that_is_at_work_is_named(js: JetStream) -> None:
    await elastic.create(js, "ORDERS", "g", 2, members=["a"])
    seen = asyncio.Event()

    def handle(message: GroupMessage) -> None:
        message.ack()
        seen.set()

    async with elastic.join(js, "ORDERS", "g", "a", handle):
        await js.publish("orders.1", b"x")
        await asyncio.wait_for(seen.wait(), 10)
        out = io.StringIO()
        await watch(js, ElasticGroup, "ORDERS", "g", once=True, form="json", out=out)
    (member,) = json.loads(out.getvalue())["members"]
    assert (member["state"], member["instance"]) == ("active", instance_name(js))


async def test_once(js: JetStream) -> None:
    await static.create(js, "ORDERS", "s", 2, members=["a", "b"])
    out = io.StringIO()
    await watch(js, StaticGroup, "ORDERS", "s", once=True, out=out)
    assert out.getvalue().startswith("static group 's' of stream 'ORDERS'")
    out = io.StringIO()
    await watch(js, StaticGroup, "ORDERS", "s", once=True, form="json", out=out)
    assert [each["member"] for each in json.loads(out.getvalue())["members"]] == ["a", "b"]
    out = io.StringIO()
    await watch(js, StaticGroup, "ORDERS", "s", once=True, form="yaml", out=out)
    assert [each["member"] for each in yaml.safe_load(out.getvalue())["members"]] == ["a", "b"]
    with pytest.raises(GroupNotFoundError):
        await watch(js, StaticGroup, "ORDERS", "none", once=True)
    with pytest.raises(GroupNotFoundError):
        await watch(js, StaticGroup, "ORDERS", "none")
