"""Readiness: what the balancer is told is what a writer would meet."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

import postgres_server
from headrace.clock import ManualClock
from headrace.jobs.runtime import parts as readiness
from headrace.jobs.store import Tx
from jobs_world import PRODUCER, World
from waiting import until

Setting = Callable[[bool], Awaitable[None]]


@pytest.fixture
async def refuse_writes(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Setting]:
    """Lets the database itself refuse writes, or take them again; reads go on."""
    if world.runtime.database.name == "sqlite":

        def writer(tx: Any) -> Any:
            return tx._connection

        connection = await world.runtime.database.write(writer)

        async def change(refuse: bool) -> None:
            connection.execute(f"PRAGMA query_only = {int(refuse)}")

        yield change
        return
    server: postgres_server.PostgresServer = request.getfixturevalue("postgres")

    async def alter(refuse: bool) -> None:
        value = "on" if refuse else "off"
        async with await psycopg.AsyncConnection.connect(
            server.url("postgres"), autocommit=True
        ) as operator:
            await operator.execute(
                f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode()
            )
            await operator.execute("SELECT pg_reload_conf()")

        async def told() -> bool:
            rows = await world.runtime.database.read(
                lambda tx: tx.all("get_meta", key="cursor_key")
            )
            del rows
            return await asyncio.to_thread(_setting, server.url("jobs")) == value

        await until(told)

    yield alter
    await alter(False)


def _setting(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SHOW default_transaction_read_only").fetchone()
        assert row is not None
        return str(row[0])


async def test_it_is_not_ready_while_writes_fail_and_ready_when_they_work_again(
    world: World, clock: ManualClock, refuse_writes: Setting
) -> None:
    assert (await world.http.get("/health/ready")).status_code == 200
    await refuse_writes(True)

    async def asked() -> tuple[int, int]:
        clock.advance(1)
        ready = await world.http.get("/health/ready")
        stored = await world.http.post("/channel/c/broadcast", content=b"x", headers=PRODUCER)
        return ready.status_code, stored.status_code

    async def refused() -> bool:
        return await asked() == (503, 503)

    await until(refused)
    clock.advance(1)
    told = (await world.http.get("/health/ready")).json()
    assert told["status"] == "unavailable"
    assert "jobs" in told["detail"], "the database is named"
    assert ("readonly" in told["detail"]) or ("read-only" in told["detail"])
    assert (await world.http.get("/channel/c/messages")).status_code == 200
    await refuse_writes(False)

    async def taken() -> bool:
        return await asked() == (200, 201)

    await until(taken)


async def test_many_who_ask_cause_one_write_a_second(
    world: World, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0
    write = world.runtime.database.write

    async def counted(work: Callable[[Tx], Any]) -> Any:
        nonlocal writes
        writes += 1
        return await write(work)

    monkeypatch.setattr(world.runtime.database, "write", counted)
    for _ in range(3):
        clock.advance(1)
        answers = await asyncio.gather(*(world.http.get("/health/ready") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
    assert writes == 3


@pytest.mark.one_database
async def test_a_write_that_does_not_end_is_told_and_waited_for_by_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PROBE_WAIT_S", 0.01)
    ended = asyncio.Event()

    async def stuck(work: Callable[[Tx], Any]) -> None:
        await ended.wait()

    with monkeypatch.context() as patched:
        patched.setattr(world.runtime.database, "write", stuck)
        for _ in range(2):
            told = await world.http.get("/health/ready")
            assert told.status_code == 503
            assert "did not end within" in told.json()["detail"]
        ended.set()
        await until(lambda: True)


async def test_a_full_disk_is_named_to_the_balancer_and_ends_nothing(tmp_path: Path) -> None:
    """A real one: the system refuses the service's files to grow."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0"),
        *("--database", f"sqlite:///{tmp_path / 'jobs.db'}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[-1]
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.put("/channel/c", data={"name": ""})).status_code == 200
            _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, hard))

            async def is_ready() -> bool:
                return (await http.get("/health/ready")).status_code == 200

            async def is_not() -> bool:
                return not await is_ready()

            await until(is_not)
            told = (await http.get("/health/ready")).json()
            assert str(tmp_path / "jobs.db") in told["detail"]
            assert "MiB left" in told["detail"]
            assert (await http.put("/channel/d", data={"name": ""})).status_code == 503
            assert (await http.get("/channels")).status_code == 200
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            await until(is_ready)
            assert (await http.put("/channel/d", data={"name": ""})).status_code == 200
    finally:
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors, errors.decode()
