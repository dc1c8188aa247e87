"""Which process pushes to which consumer, and that limits of push hold for several processes together."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs import limits
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.push.engine import PushEngine, has_ended, whereabouts
from headrace.jobs.service.push import lanes
from headrace.jobs.store import Tx, open_database
from jobs_endpoint import Endpoint, answer
from jobs_world import World
from waiting import until

NAMES = st.lists(st.text("0123456789abcdef", min_size=8, max_size=8), min_size=2, unique=True)
PUBLISHER: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


@given(NAMES, st.lists(st.integers(1, 2**62), max_size=50))
def test_a_process_that_goes_moves_only_what_it_had(nodes: list[str], consumers: list[int]) -> None:
    for consumer in consumers:
        had = lanes.owner(consumer, nodes)
        assert had == lanes.owner(consumer, nodes[::-1])
        left = lanes.owner(consumer, nodes[1:])
        assert left == had or had == nodes[0]


async def push_consumer(world: World, name: str = "hook") -> int:
    await world.consumer(name, type="push", callbackUrl="http://127.0.0.1:9/", token="ht")
    row = await world.runtime.database.read(
        lambda tx: tx.one("get_consumer", channel_id="c", consumer_id=name)
    )
    assert row is not None
    return int(row["seq"])


async def test_what_one_process_has_no_other_takes_until_it_is_given_back_or_its_process_is_silent(
    world: World,
) -> None:
    seq, database = await push_consumer(world), world.runtime.database

    async def does(what: Any, *args: Any, **named: Any) -> Any:
        return await database.write(lambda tx: what(tx, *args, **named))

    assert not (await does(lanes.beat, "a", leaving=False)).was_known
    assert (await does(lanes.beat, "b", leaving=False)).nodes == ["a", "b"]
    assert await does(lanes.take, "a", [seq, 10**9]) == {seq}  # the other one does not exist
    assert await does(lanes.take, "b", [seq]) == set()
    assert await does(lanes.take, "a", [seq]) == {seq}
    assert await does(lanes.is_held, "a", seq)
    await does(lanes.give_back, "b", [seq])  # not its own
    assert await does(lanes.take, "b", [seq]) == set()

    assert (await does(lanes.beat, "a", leaving=True)).nodes == ["b"]
    assert await does(lanes.take, "b", [seq]) == set()  # there may be calls in progress
    await does(lanes.give_back, "a", [seq])
    assert await does(lanes.take, "b", [seq]) == {seq}
    assert not await does(lanes.is_held, "a", seq)

    world.clock.advance(limits.PUSH_NODE_S + 1)
    beaten = await does(lanes.beat, "a", leaving=False)
    assert (beaten.nodes, beaten.was_known) == (["a"], True)  # nobody missed it
    assert await does(lanes.take, "a", [seq]) == {seq}
    assert not await does(lanes.is_held, "b", seq)
    assert not (await does(lanes.beat, "b", leaving=False)).was_known
    await does(lanes.leave, "a")
    assert await does(lanes.take, "b", [seq]) == {seq}


async def test_a_process_that_was_taken_for_gone_pushes_no_more_and_takes_back_its_share(
    world: World,
) -> None:
    """It stood still, and another one took over: what it claims is checked where it is claimed."""
    database, runtime = world.runtime.database, world.runtime
    async with Endpoint() as endpoint:
        await world.consumer("hook", type="push", callbackUrl=endpoint.url, token="ht")
        row = await database.read(
            lambda tx: tx.one("get_consumer", channel_id="c", consumer_id="hook")
        )
        assert row is not None
        seq = row["seq"]
        engine = PushEngine(runtime)
        task = asyncio.create_task(engine.run())
        try:
            await world.broadcast("first")
            await endpoint.wait_for(1, 60)

            def takes_over(tx: Tx) -> None:
                lanes.leave(tx, engine.node)
                lanes.beat(tx, "other", leaving=False)
                assert lanes.take(tx, "other", [seq]) == {seq}

            await database.write(takes_over)
            await world.broadcast("second")

            async def is_known() -> bool:
                rows = await database.read(lambda tx: tx.all("list_push_nodes"))
                return len(rows) == 2

            await until(is_known, "it says nothing any more", within=60)
            assert len(endpoint.calls) == 1
            await database.write(lambda tx: lanes.leave(tx, "other"))
            await endpoint.wait_for(2, 60)
        finally:
            engine.stop()
            async with asyncio.timeout(60):
                await task
        assert await database.read(lambda tx: tx.all("list_push_nodes")) == []


async def test_what_a_process_had_that_was_killed_beside_it_a_new_one_has_at_once(
    world: World,
) -> None:
    """The clock stands still: nobody is silent for too long."""
    database = world.runtime.database
    async with Endpoint() as endpoint:
        await world.consumer("hook", type="push", callbackUrl=endpoint.url, token="ht")
        row = await database.read(
            lambda tx: tx.one("get_consumer", channel_id="c", consumer_id="hook")
        )
        assert row is not None
        killed = await a_process_that_says_where_it_is()
        elsewhere = f"elsewhere@{'0' * 32}-1-1:1:1"
        for node in (f"killed@{killed}", elsewhere, "of an earlier version"):
            await database.write(partial(lanes.beat, node=node, leaving=False))
        await database.write(lambda tx: lanes.take(tx, f"killed@{killed}", [row["seq"]]))
        engine = PushEngine(world.runtime)
        task = asyncio.create_task(engine.run())
        try:

            async def others() -> set[str]:
                rows = await database.read(lambda tx: tx.all("list_push_nodes"))
                return {each["node"] for each in rows} - {engine.node}

            await until(lambda: is_equal(others, {elsewhere, "of an earlier version"}), within=60)
            for node in (elsewhere, "of an earlier version"):  # nobody but the new one is there
                await database.write(partial(lanes.leave, node=node))
            await world.broadcast("first")
            await endpoint.wait_for(1, 60)
        finally:
            engine.stop()
            async with asyncio.timeout(60):
                await task


async def is_equal(found: Any, wanted: object) -> bool:
    return bool(await found() == wanted)


async def a_process_that_says_where_it_is() -> str:
    """Its whereabouts; it is killed when it has said them."""
    code = "from headrace.jobs.push.engine import *; print(whereabouts(), flush=True); input()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            said = (await process.stdout.readline()).decode().strip()
        assert not has_ended(said), "it is there"
    finally:
        process.kill()
        await process.wait()
    return said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says it")
async def test_a_process_has_ended_when_it_was_killed_or_another_one_has_its_number() -> None:
    ours = whereabouts()
    assert not has_ended(ours)
    place, pid, began = ours.split(":")
    assert int(pid) == os.getpid()
    assert has_ended(f"{place}:{pid}:{int(began) - 1}"), "it began before we did"
    assert not has_ended(f"{place}:1:{stat_of(1)}"), "the first one is there"
    for elsewhere in ("", "x", f"other-1-1:{pid}:{began}", f"{place}:", f"{place}:x:1", place):
        assert not has_ended(elsewhere), "who is elsewhere is not known"
    assert has_ended(await a_process_that_says_where_it_is())


def stat_of(pid: int) -> str:
    """When a process began."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


class Processes:
    """Two services on one database, which have both said that they push."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self.started: list[asyncio.subprocess.Process] = []
        self.addresses: list[str] = []

    async def __aenter__(self) -> Processes:
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0"),
                *("--allow-network", "127.0.0.0/8", "--database", self._url),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            self.started.append(process)
        for process in self.started:
            assert process.stdout is not None
            async with asyncio.timeout(120):
                line = await process.stdout.readline()
            self.addresses.append(line.decode().rpartition(" ")[2].strip())
        database = open_database(self._url, threads=1)
        await database.start()
        try:

            async def push() -> bool:
                return len(await database.read(lanes.nodes_of)) == 2

            await until(push, "they do not say that they push", within=60)
        finally:
            await database.close()
        return self

    async def __aexit__(self, *ended: object) -> None:
        for process in self.started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def define(client: AsyncJobsClient, endpoint: Endpoint, *names: str, **settings: Any) -> None:
    """A channel with these consumers, which have these settings before there is a message."""
    await client.put_producer("p", token="pt")
    await client.put_channel("c", token="ct")
    for name in names:
        await client.put_consumer("c", name, kind="push", callback_url=endpoint.url, token="ht")
        if settings:
            await client.patch_consumer("c", name, settings=settings)


async def test_two_processes_keep_the_concurrency_and_the_rate_of_a_consumer_together(
    postgres_url: str,
) -> None:
    async with (
        Endpoint(delay_s=0.02) as endpoint,
        Processes(postgres_url) as both,
        AsyncJobsClient(both.addresses[0]) as client,
    ):
        await define(client, endpoint, "hook", concurrency=2, rate_per_s=20)
        began = time.monotonic()
        for number in range(60):
            await client.publish("c", b"%d" % number, **PUBLISHER)
        await endpoint.wait_for(60, 120)
    assert time.monotonic() - began >= (60 - 20) / 20 - 0.1
    assert endpoint.most_at_once <= 2


async def test_two_processes_open_a_breaker_after_as_many_failures_as_one_does(
    postgres_url: str,
) -> None:
    async with (
        Endpoint(lambda call: answer(500)) as endpoint,
        Processes(postgres_url) as both,
        AsyncJobsClient(both.addresses[1]) as client,
    ):
        breaker = {"failures": 3, "open_s": 3600, "disable_after_s": 432000}
        await define(client, endpoint, "hook", concurrency=1, breaker=breaker)
        for _ in range(20):
            await client.publish("c", b"x", **PUBLISHER)
        await endpoint.wait_for(3, 60)
        with pytest.raises(TimeoutError):
            await endpoint.wait_for(4, 3.0)


async def test_consumers_are_shared_by_processes_and_go_to_the_other_when_one_is_killed(
    postgres_url: str,
) -> None:
    names = [f"hook{number}" for number in range(24)]  # all of one process: once in 8 million times
    async with (
        Endpoint() as endpoint,
        Processes(postgres_url) as both,
        AsyncJobsClient(both.addresses[0]) as client,
    ):
        await define(client, endpoint, *names)
        await client.publish("c", b"shared", **PUBLISHER)
        await endpoint.wait_for(24, 120)
        async with httpx2.AsyncClient(verify=False) as http:
            for address in both.addresses:
                text = (await http.get(f"{address}/metrics")).text
                assert "push_attempts_total{" in text
        both.started[1].kill()
        await both.started[1].wait()
        await client.publish("c", b"alone", **PUBLISHER)
        await endpoint.wait_for(48, 120)
        assert sum(call.body == b"alone" for call in endpoint.calls) == 24
