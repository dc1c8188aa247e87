"""Push by ordering key: one call of a key at a time, in order, while the rest of the channel goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.jobs.push.engine import PushEngine
from jobs_endpoint import Call, Endpoint, answer
from jobs_world import PRODUCER, World


class Held(Endpoint):
    """Answers the first call of key ``a`` when each of key ``b`` has come."""

    def __init__(self) -> None:
        super().__init__()
        self.running_of = Counter[str]()
        self.most_of = Counter[str]()
        self.others = 0
        self.have_come = asyncio.Event()

    async def _handle(self, call: Call, writer: asyncio.StreamWriter) -> None:
        key = call.headers["x-broker-ordering-key"]
        self.running_of[key] += 1
        self.most_of[key] = max(self.most_of[key], self.running_of[key])
        self.others += key == "b"
        if self.others == 3:
            self.have_come.set()
        if key == "a":
            async with asyncio.timeout(60):
                await self.have_come.wait()
        self.running_of[key] -= 1
        await super()._handle(call, writer)


@asynccontextmanager
async def pushing(world: World) -> AsyncIterator[None]:
    engine = world.engine = PushEngine(world.runtime)
    task = asyncio.create_task(engine.run())
    try:
        yield
    finally:
        engine.stop()
        async with asyncio.timeout(30):
            await task


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


async def test_an_endpoint_reads_the_subject_and_the_key_that_were_given(
    world: World, endpoint: Endpoint
) -> None:
    await world.consumer("h", callbackUrl=endpoint.url, token="ht")
    async with pushing(world):
        response = await world.http.post(
            "/channel/c/broadcast",
            content=b"x",
            headers=[
                *((name.encode(), value.encode()) for name, value in PRODUCER.items()),
                (b"X-Broker-Subject", "größe.€".encode()),
                (b"X-Broker-Ordering-Key", "schlüssel".encode()),
            ],
        )
        assert response.status_code == 201
        call = (await endpoint.wait_for(1))[0]
    assert call.headers["x-headrace-subject"].encode("latin-1").decode() == "größe.€"
    assert call.headers["x-broker-ordering-key"].encode("latin-1").decode() == "schlüssel"


async def until(world: World, check: Callable[[], Awaitable[bool]]) -> None:
    """Let lanes look again until ``check`` is true."""
    async with asyncio.timeout(60):
        while not await check():
            world.runtime.waiters.ring(())
            await asyncio.sleep(0.005)


async def state_of(world: World, payload: str) -> dict[str, Any]:
    found = await world.http.get(f"/v2/channel/c/jobs?consumer=h&message={payload}")
    (job,) = found.json()["jobs"]
    return dict(job)


async def test_of_each_key_one_call_is_on_its_way_and_those_of_other_keys_go_on(
    world: World,
) -> None:
    endpoint = Held()
    async with endpoint:
        await world.consumer("h", callbackUrl=endpoint.url, token="ht")
        for number in range(3):
            for key in ("a", "b"):
                await world.broadcast(f"{key}{number}", X_Broker_Ordering_Key=key)
        async with pushing(world):
            calls = await endpoint.wait_for(6, timeout_s=60)
        bodies = [call.body.decode() for call in calls]
        assert [body for body in bodies if body[0] == "a"] == ["a0", "a1", "a2"]
        assert [body for body in bodies if body[0] == "b"] == ["b0", "b1", "b2"]
        assert endpoint.most_of == {"a": 1, "b": 1}


async def test_a_key_whose_call_fails_waits_and_shows_why_while_the_others_go_on(
    world: World, endpoint: Endpoint
) -> None:
    down = True

    def respond(call: Call) -> bytes:
        is_down = down and call.headers["x-broker-ordering-key"] == "a"
        return answer(500, b"out of paper") if is_down else answer()

    endpoint.respond = respond
    await world.consumer("h", callbackUrl=endpoint.url, token="ht")
    for number in range(3):
        for key in ("a", "b"):
            await world.broadcast(
                f"{key}{number}", X_Broker_Ordering_Key=key, X_Broker_Message_ID=f"{key}{number}"
            )
    async with pushing(world):

        async def b_is_done() -> bool:
            done = await world.http.get("/v2/channel/c/jobs?consumer=h&state=DELIVERED")
            return {job["message"] for job in done.json()["jobs"]} == {"b0", "b1", "b2"}

        async def a_has_failed() -> bool:
            return bool((await state_of(world, "a0"))["last_error"])

        await until(world, a_has_failed)
        world.clock.advance(1.0)
        first, second = await state_of(world, "a0"), await state_of(world, "a1")
        assert first["waits_for"] == "DELAYED"
        assert first["blocked_by"] is None
        assert second["waits_for"] == "BLOCKED"
        assert second["blocked_by"] == {
            "id": first["id"],
            "state": "QUEUED",
            "due_at": first["due_at"],
            "last_error": first["last_error"],
        }
        detail = await world.job(second["id"], "h")
        assert (detail["waits_for"], detail["blocked_by"]) == ("BLOCKED", second["blocked_by"])
        down = False

        async def all_done() -> bool:
            world.clock.advance(10.0)
            counts = (await world.http.get("/v2/channel/c/consumer/h")).json()["jobs"]
            return bool(counts["DELIVERED"] == 6)

        await until(world, b_is_done)
        await until(world, all_done)
    for key in ("a", "b"):
        bodies = [call.body.decode() for call in endpoint.calls if call.body.decode()[0] == key]
        assert list(dict.fromkeys(bodies)) == [f"{key}{number}" for number in range(3)]
