"""Who waits costs nothing, and finds what was not rung for: one look for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from headrace.clock import SystemClock
from headrace.jobs import limits
from headrace.jobs.models import NewMessage
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions import consumers
from headrace.jobs.service.definitions.consumers import ConsumerChange
from headrace.jobs.service.publishing.publishing import Publication, publish_all
from headrace.jobs.store import Tx, open_database, postgres
from jobs_world import World, http_of
from waiting import until

WAITERS = 100


def silent(tx: Tx, publication: Publication) -> None:
    """A job that nobody rings for, as another process puts it into a SQLite file."""
    tx.ring = lambda consumers: None  # type: ignore[method-assign]
    publish_all(tx, [publication])


@pytest.fixture
def publication(world: World) -> Publication:
    return Publication(
        "c", "ct", "p", "pt", [NewMessage(payload=b"x")], [False], world.runtime.options
    )


@asynccontextmanager
async def waiting(world: World, count: int) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """So many claims that wait for a job."""
    tasks = [asyncio.create_task(world.lease("claim", wait_seconds=60)) for _ in range(count)]
    await until(lambda: _by_consumer(world) == count, "they wait")
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _by_consumer(world: World) -> int:
    return max((len(waiting) for waiting in world.runtime.waiters._by_consumer.values()), default=0)


async def _looks(world: World, count: int) -> int:
    """Wait until so many looks have ended; how many it were."""
    lookout, ended = world.runtime._lookout, 0
    look = type(lookout).look

    async def counting() -> float:
        nonlocal ended
        pause_s = await look(lookout)
        ended += 1
        return pause_s

    lookout.look = counting  # type: ignore[method-assign]
    await until(lambda: ended >= count, "it looks")
    del lookout.look
    return ended


def _counted(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the database is asked from now on, by kind."""
    asked = {"read": 0, "write": 0}

    def counting(kind: str) -> Callable[[Any], Any]:
        ask = getattr(runtime.database, kind)

        async def call(work: Any) -> Any:
            asked[kind] += 1
            return await ask(work)

        return call

    for kind in asked:
        monkeypatch.setattr(runtime.database, kind, counting(kind))
    return asked


async def test_a_job_that_nobody_rang_for_reaches_a_waiter_at_the_next_look(
    world: World, publication: Publication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 0.2)
    async with waiting(world, 3) as tasks, asyncio.timeout(5):
        for _ in tasks:
            await world.runtime.database.write(lambda tx: silent(tx, publication))
        answers = await asyncio.gather(*tasks)
    assert [len(answer["jobs"]) for answer in answers] == [1, 1, 1]


async def test_a_job_that_becomes_due_reaches_a_waiter(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 0.2)
    await world.broadcast()
    job = (await world.claim())[0]
    await world.lease("release", jobs=[{"id": job["id"], "lease": job["lease"]}], delay_seconds=30)
    async with waiting(world, 1) as (task,):
        await _looks(world, 2)
        assert not task.done()
        world.clock.advance(30)
        async with asyncio.timeout(5):
            assert [found["id"] for found in (await task)["jobs"]] == [job["id"]]


async def test_idle_waiters_and_lanes_ask_the_database_once_for_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await world.consumer(f"push{number}", callbackUrl="http://127.0.0.1:9")
    # Which a process says for all its lanes together, whatever they do.
    monkeypatch.setattr(limits, "PUSH_BEAT_S", 3600.0)
    engine = PushEngine(world.runtime)
    pushing = asyncio.create_task(engine.run())
    await until(lambda: len(engine.consumers) == 20, "there are lanes")
    async with waiting(world, WAITERS):
        monkeypatch.setattr(limits, "POLL_S", 0.1)
        world.runtime._rung(())
        await _looks(world, 2)  # by now the lanes have found nothing
        asked = _counted(world.runtime, monkeypatch)
        looks = await _looks(world, 5)
        asked = dict(asked)  # before the engine says that it ends
    engine.stop()
    await pushing
    assert asked["write"] == 0, "nobody claims where nothing is"
    assert asked["read"] <= looks + 1, f"one for all, not one for each waiter: {asked}"


async def test_a_definition_that_another_process_changed_unheard_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_S", 0.1)
    await world.consumer("push", callbackUrl="http://127.0.0.1:9")
    engine = PushEngine(world.runtime)
    pushing = asyncio.create_task(engine.run())
    await until(lambda: len(engine.consumers) == 1, "there is a lane")

    def pause(tx: Tx) -> None:
        tx.ring = lambda consumers: None  # type: ignore[method-assign]
        change = ConsumerChange(paused=True)
        consumers.change_consumer(tx, "c", "push", lambda _: change, None, tx.now_us())

    await world.runtime.database.write(pause)
    await until(lambda: not engine.consumers, "its lane goes", within=5)
    engine.stop()
    await pushing


@pytest.mark.parametrize("back", [False, True])
async def test_while_nobody_listens_no_job_waits_longer_than_a_look(
    postgres_url: str, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or until the connection for notices is back, which looks at once."""
    monkeypatch.setattr(limits, "POLL_S", 60.0 if back else 0.3)
    monkeypatch.setattr(postgres, "_RECONNECT_S", 0.3 if back else 60.0)
    here = Runtime(open_database(postgres_url, threads=2))
    there = Runtime(open_database(postgres_url, threads=2))
    await here.start()
    await there.start()
    async with http_of(here) as http:
        world = World(http, here, SystemClock())  # type: ignore[arg-type]
        await world.define()
        other = http_of(there)
        async with waiting(world, 1) as (task,), other:
            assert _silence(postgres_url) >= 1
            await World(other, there, SystemClock()).broadcast()  # type: ignore[arg-type]
            async with asyncio.timeout(5):
                assert len((await task)["jobs"]) == 1
    await here.close()
    await there.close()


def _silence(url: str) -> int:
    """Break every connection that listens; how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        return len(
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            ).fetchall()
        )
