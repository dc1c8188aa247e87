"""Jobs that were claimed for a client that has gone meanwhile are others' at once, not after the lease."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from headrace.jobs.http import create_app
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.leases import Caller, Claim
from headrace.web.asgi import AsgiServer
from headrace.web.connections import ConnectionLimits
from jobs_world import PULL, World
from waiting import until

CALLER = Caller("c", "k", "ct", "kt")
ONE = Claim(CALLER.consumer, 1, 600.0)
CLAIM = "/v2/channel/c/consumer/k/jobs/claim"


class Held:
    """A claim that was carried out, and whose answer is held back until it is let go."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done, self.go = asyncio.Event(), asyncio.Event()
        claim = runtime.claim

        async def held_back(asked: Claim) -> Any:
            answer = await claim(asked)
            if answer[1]:
                self.done.set()
                await self.go.wait()
            return answer

        monkeypatch.setattr(runtime, "claim", held_back)


async def is_ready(world: World) -> bool:
    found = (await world.http.get("/v2/channel/c/jobs")).json()["jobs"]
    return [job["waits_for"] for job in found] == ["READY"]


async def stays(_: object = None) -> None:
    await asyncio.Event().wait()


@pytest.fixture
async def listening(world: World) -> AsyncIterator[tuple[str, Any]]:
    """The service on a socket, with its own connections."""
    server = AsgiServer(create_app(world.runtime), ConnectionLimits(100))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
        server.should_exit = True
        async with asyncio.timeout(30):
            await serving


@pytest.mark.parametrize("many", [1, 5])
async def test_a_claim_of_a_waiting_caller_that_is_cancelled_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    runtime, held = world.runtime, Held(world.runtime, monkeypatch)
    seq = (await runtime.database.read(CALLER.consumer)).seq
    waiting = asyncio.create_task(
        runtime.claim_or_wait(
            lambda: runtime.claim(Claim(CALLER.consumer, many, 600.0)), seq, 60.0, stays
        )
    )
    await until(lambda: seq in runtime.waiters.consumers(), "nobody waits")
    await world.broadcast()
    async with asyncio.timeout(30):
        await held.done.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not await is_ready(world), "it is claimed, and nobody knows of it"
    held.go.set()
    await until(lambda: is_ready(world), within=30)
    (job,) = await world.claim()
    assert job["message"]["payload"] == "x"
    detail = await world.job(job["id"])
    assert detail["retries"] == 0, "it was nobody's attempt"
    assert 'outcome="released"' in (await world.http.get("/metrics")).text


async def test_another_one_who_waits_has_the_job_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, held = world.runtime, Held(world.runtime, monkeypatch)
    seq = (await runtime.database.read(CALLER.consumer)).seq

    def wait_for_one() -> asyncio.Task[Any]:
        again = lambda: runtime.claim(ONE)  # noqa: E731
        return asyncio.create_task(runtime.claim_or_wait(again, seq, 60.0, stays))

    leaving = wait_for_one()
    await until(lambda: seq in runtime.waiters.consumers(), "nobody waits")
    await world.broadcast()
    async with asyncio.timeout(30):
        await held.done.wait()
        staying = wait_for_one()
        leaving.cancel()
        held.go.set()
        (job,) = await staying
    assert job.attempt == 2


async def test_a_service_that_ends_gives_back_before_its_database_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch, service_on: Callable[..., Runtime]
) -> None:
    ending = service_on(clock=world.clock)
    await ending.start()
    held = Held(ending, monkeypatch)
    await world.broadcast()
    again = lambda: ending.claim(ONE)  # noqa: E731
    waiting = asyncio.create_task(ending.claim_or_wait(again, 1, 60.0, stays))
    async with asyncio.timeout(60):
        await held.done.wait()
        waiting.cancel()
        closing = asyncio.create_task(ending.close())
        held.go.set()
        await closing
    await until(lambda: is_ready(world), within=30)


@pytest.mark.parametrize("wait_s", [0, 60])
async def test_who_hangs_up_while_jobs_are_claimed_gets_none(
    world: World,
    listening: tuple[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    wait_s: int,
) -> None:
    url, server = listening
    held = Held(world.runtime, monkeypatch)
    if not wait_s:
        await world.broadcast()
    body = {"wait_seconds": wait_s, "lease_seconds": 600}
    async with httpx2.AsyncClient(base_url=url, timeout=60) as leaving:
        asking = asyncio.create_task(leaving.post(CLAIM, json=body, headers=PULL))
        if wait_s:
            await until(world.runtime.waiters.consumers, "nobody waits", within=30)
            await world.broadcast()
        async with asyncio.timeout(30):
            await held.done.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await until(lambda: not server.server_state.connections, "it is there", within=30)
    held.go.set()
    await until(lambda: is_ready(world), within=30)
