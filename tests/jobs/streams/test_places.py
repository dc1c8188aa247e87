"""A feed's place in its stream, whatever happens to that: a lost end, an older copy, a stream made anew.

A place is the stream, the sequence and the time of a message. What the stream gives sequences to anew is
another message, and becomes jobs; what is only put back becomes none.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from feed_world import Feeding
from headrace.cli import main
from headrace.client import JetStream, Stream, connect
from headrace.errors import ConsumerNotFoundError
from jobs_world import World
from peers import ServerProcess, either_running, start_either
from portions import play_one_way
from waiting import until

pytestmark = pytest.mark.one_database
KINDS = ("headrace", "nats-server")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Half of them are played on either server, and ``make test-all`` plays all on both."""
    play_one_way(metafunc, "server", KINDS)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server on disk, of either kind."""
    yield from either_running(request.param, tmp_path / "server", durable=True)


async def publish(js: JetStream, *payloads: str) -> None:
    for payload in payloads:
        await js.publish("orders.a", payload.encode())


async def make(js: JetStream, **settings: Any) -> Stream:
    return await js.create_stream(name="ORDERS", subjects=("orders.>",), **settings)


@asynccontextmanager
async def to(server: ServerProcess) -> AsyncIterator[JetStream]:
    async with connect(server.url) as connection:
        yield connection.jetstream()


async def put_back(server: ServerProcess, copy: Path) -> None:
    """End the server, and start it with an older copy of its store."""
    await asyncio.to_thread(server.kill)
    shutil.rmtree(server.store_dir)
    shutil.copytree(copy, server.store_dir)
    await asyncio.to_thread(server.start_again)


async def copied(server: ServerProcess, to: Path) -> Path:
    """A copy of the store, as it is when the server is stopped."""
    await asyncio.to_thread(server.stop)
    shutil.copytree(server.store_dir, to)
    await asyncio.to_thread(server.start_again)
    return to


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
@pytest.mark.parametrize("runs", [True, False], ids=["beside", "stopped"])
async def test_messages_that_are_given_the_sequences_of_lost_ones_become_jobs(
    world: World, server: ServerProcess, tmp_path: Path, runs: bool, retention: str
) -> None:
    feeding = Feeding(world, server.url)
    async with to(server) as js:
        await make(js, retention=retention)
        async with feeding.running():
            await until(lambda: _is_made(js, feeding), "no consumer", within=15)
            await publish(js, "1", "2", "3")
            await feeding.until_at(3)
    copy = await copied(server, tmp_path / "copy")
    async with feeding.running():
        async with to(server) as js:
            await publish(js, "4", "5", "6")
        await feeding.until_at(6)
        if runs:
            await put_back(server, copy)
            async with to(server) as js:
                await publish(js, "4b", "5b", "6b")
            await feeding.until_payloads(["1", "2", "3", "4", "5", "6", "4b", "5b", "6b"])
    if not runs:
        await put_back(server, copy)
        async with to(server) as js:
            await publish(js, "4b", "5b", "6b", "7b")
        async with feeding.running():
            await feeding.until_payloads(["1", "2", "3", "4", "5", "6", "4b", "5b", "6b", "7b"])
    assert await feeding.events() == ["feed_moved"]


async def test_what_a_consumer_ahead_of_a_lost_end_would_skip_becomes_jobs(
    world: World, server: ServerProcess
) -> None:
    feeding = Feeding(world, server.url)
    async with to(server) as js:
        stream = await make(js)
        await publish(js, "1", "2", "3", "4", "5", "6")
        async with feeding.running():
            await feeding.until_at(6)
        # The end is lost, and the consumer stands behind what comes anew.
        await stream.delete()
        await make(js)
        await publish(js, "1b", "2b", "3b", "4b", "5b", "6b")
        stream = await js.stream("ORDERS")
        await stream.create_consumer(
            durable_name=feeding.config.group,
            ack_policy="explicit",
            deliver_policy="by_start_sequence",
            opt_start_seq=7,
        )
        async with feeding.running():
            await publish(js, "7b")
            numbers = ["1", "2", "3", "4", "5", "6", "1b", "2b", "3b", "4b", "5b", "6b", "7b"]
            await feeding.until_payloads(numbers)


async def test_a_stream_that_is_put_back_as_it_was_becomes_jobs_once(
    world: World, server: ServerProcess, tmp_path: Path
) -> None:
    feeding = Feeding(world, server.url)
    async with to(server) as js:
        stream = await make(js)
        await publish(js, "1", "2", "3", "4", "5")
        async with feeding.running():
            await feeding.until_at(5)
        await stream.backup(tmp_path / "backup")
        await stream.delete()
        await js.restore_stream(tmp_path / "backup")
        stream = await js.stream("ORDERS")
        try:
            await stream.delete_consumer(feeding.config.group)
        except ConsumerNotFoundError:
            pass  # a backup without consumers has none
        async with feeding.running():
            await publish(js, "6")
            await feeding.until_payloads(["1", "2", "3", "4", "5", "6"])
    assert await feeding.events() == []


async def test_an_older_copy_of_the_database_takes_what_it_does_not_have(
    world: World, server: ServerProcess
) -> None:
    feeding = Feeding(world, server.url)
    async with to(server) as js:
        await make(js)
        await publish(js, "1", "2", "3")
        async with feeding.running():
            await feeding.until_at(3)
        # The consumer goes on for another database, and this one comes back.
        consumer = await (await js.stream("ORDERS")).consumer(feeding.config.group)
        await publish(js, "4", "5")
        taken = await consumer.fetch(2)
        for message in taken:
            await message.ack_sync()
        async with feeding.running():
            await publish(js, "6")
            await feeding.until_payloads(["1", "2", "3", "4", "5", "6"])


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
async def test_what_was_out_when_a_process_died_comes_in_order_and_once(
    world: World, server: ServerProcess, retention: str
) -> None:
    feeding = Feeding(world, server.url, ordering_key="subject")
    async with to(server) as js:
        await make(js, retention=retention)
        async with feeding.running():
            await until(lambda: _is_made(js, feeding), "no consumer", within=15)
        await publish(js, *(str(number) for number in range(1, 9)))
        consumer = await (await js.stream("ORDERS")).consumer(feeding.config.group)
        out = await consumer.fetch(3)  # by one that dies before it says anything
        assert len(out) == 3
        async with feeding.running():
            await feeding.until_payloads([str(number) for number in range(1, 9)])


async def _is_made(js: JetStream, feeding: Feeding) -> bool:
    stream = await js.stream("ORDERS")
    return feeding.config.group in [name async for name in stream.consumer_names()]


@pytest.mark.parametrize("loses_consumer", [False, True], ids=["", "without its consumer"])
async def test_a_feed_goes_on_where_the_message_of_its_place_was_removed(
    world: World, server: ServerProcess, loses_consumer: bool
) -> None:
    feeding = Feeding(world, server.url)
    async with to(server) as js:
        stream = await make(js)
        await publish(js, "1", "2", "3", "4")
        async with feeding.running():
            await feeding.until_at(4)
        await publish(js, "5")
        await stream.purge(below=5)
        if loses_consumer:
            await stream.delete_consumer(feeding.config.group)
        async with feeding.running():
            await publish(js, "6")
            await feeding.until_payloads(["1", "2", "3", "4", "5", "6"])
    assert await feeding.events() == []


async def test_a_consumer_that_somebody_made_otherwise_is_made_as_it_has_to_be(
    world: World, server: ServerProcess
) -> None:
    feeding = Feeding(world, server.url, filter="orders.a")
    async with to(server) as js:
        stream = await make(js)
        await publish(js, "1", "2")
        async with feeding.running():
            await feeding.until_at(2)
        await stream.delete_consumer(feeding.config.group)
        await stream.create_consumer(durable_name=feeding.config.group, ack_policy="none")
        await js.publish("orders.b", b"of another subject")
        async with feeding.running():
            await publish(js, "4")
            await feeding.until_payloads(["1", "2", "4"])
        consumer = await stream.consumer(feeding.config.group)
        assert consumer.cached_info is not None
        assert consumer.cached_info.config.ack_policy == "explicit"
        # Other subjects are asked for: what they had before is not taken, what comes is.
        other = Feeding(world, server.url, filter="orders.b")
        async with other.running():
            await js.publish("orders.b", b"5")
            await publish(js, "6")
            await other.until_payloads(["1", "2", "4", "5"])


@pytest.mark.peer
async def test_a_feed_goes_on_at_the_server_to_which_its_stream_was_moved(
    world: World, tmp_path: Path, nats_server: Callable[..., ServerProcess]
) -> None:
    """As the page on outgrowing has it: the feed is stopped, producers go on while the copy follows."""
    here, there = start_either("headrace", tmp_path / "here"), nats_server()
    try:
        feeding = Feeding(world, here.url)
        async with to(here) as js:
            await make(js)
            await publish(js, "1", "2", "3")
            async with feeding.running():
                await feeding.until_at(3)
            words = ["stream", "copy", "ORDERS", "ORDERS", "--server", here.url]
            words += ["--to-server", there.url]
            assert await asyncio.to_thread(main, words) == 0
            await publish(js, "4", "5")
            assert await asyncio.to_thread(main, words) == 0
    finally:
        here.stop()
    moved = Feeding(world, there.url)
    async with to(there) as js, moved.running():
        await publish(js, "6")
        await moved.until_payloads(["1", "2", "3", "4", "5", "6"])
    assert await moved.events() == []
