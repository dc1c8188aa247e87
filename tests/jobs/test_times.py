"""Whatever the job service promises for a time, and a stop or a kill of it inside that time: it is kept.

Another process begins on the database that the first one left. Of each promise the right answer is written as
what holds ``early``, before its time is over, and ``late``. What a process alone keeps, as the breaker and
the rate of calls, begins anew with another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from headrace.clock import ManualClock
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import World, held, http_of
from portions import some

TIME_S = 240.0


class Promise:
    async def begin(self, world: World) -> None:
        raise NotImplementedError

    async def early(self, world: World) -> None:
        assert await world.claim(10) == []

    async def late(self, world: World) -> None:
        assert len(await world.claim(10)) == 1


class Lease(Promise):
    """A job is in the hands of one worker."""

    async def begin(self, world: World) -> None:
        await world.broadcast()
        assert len(await world.claim(lease=TIME_S)) == 1


class Retry(Promise):
    """A job that failed waits."""

    async def begin(self, world: World) -> None:
        await world.broadcast()
        (job,) = await world.claim()
        await world.lease("fail", jobs=[{**held(job)[0], "retry_in_seconds": TIME_S}])


class Backoff(Promise):
    """A job that failed waits as long as the service says."""

    async def begin(self, world: World) -> None:
        await world.broadcast()
        (job,) = await world.claim()
        await world.lease("fail", jobs=held(job))


class Scheduled(Promise):
    """A message for later."""

    async def begin(self, world: World) -> None:
        at = datetime.fromtimestamp(world.clock.now_ns() / 1e9 + TIME_S, UTC).isoformat()
        await world.broadcast(X_Broker_Scheduled_For=at)


class Schedule(Promise):
    """A message that comes by cron."""

    async def begin(self, world: World) -> None:
        at = datetime.fromtimestamp(world.clock.now_ns() / 1e9 + TIME_S, UTC)
        body = {"cron": f"{at.minute} {at.hour} * * *", "message": {"payload": "x"}}
        answer = await world.http.put("/v2/channel/c/schedule/s", json=body)
        assert answer.status_code == 201, answer.text


class UniqueMessages(Promise):
    """Of messages that are the same one is stored."""

    async def begin(self, world: World) -> None:
        await self._publish(world)
        assert len(await world.claim(lease=10 * TIME_S)) == 1

    async def early(self, world: World) -> None:
        await self._publish(world)
        await super().early(world)

    async def late(self, world: World) -> None:
        await self._publish(world)
        await super().late(world)

    async def _publish(self, world: World) -> None:
        unique = {"by": ["payload"], "within": TIME_S}
        await world.broadcast(json.dumps(1), X_Broker_Unique=json.dumps(unique))


class Idempotency(Promise):
    """A publish that is sent again is the same one, for as long as its message is there."""

    async def begin(self, world: World) -> None:
        await world.broadcast("x", Idempotency_Key="one")
        assert len(await world.claim(lease=10 * TIME_S)) == 1

    async def early(self, world: World) -> None:
        await world.broadcast("x", Idempotency_Key="one")
        await super().early(world)

    async def late(self, world: World) -> None:
        await self.early(world)


PROMISES = [Lease, Retry, Backoff, Scheduled, Schedule, UniqueMessages, Idempotency]
CELLS = [
    (promise, moment, end)
    for promise in PROMISES
    for moment in ("inside", "beyond")
    for end in ("stop", "kill")
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_040 * 1_000_000_000)  # a whole minute, as a schedule has


@pytest.fixture
def options() -> Options:
    return Options(schedule_min_delay_s=120.0, max_retries=5, retry_delays_s=(TIME_S,))


@pytest.mark.parametrize(("promise", "moment", "end"), some(CELLS, 5))
async def test_a_promise_is_kept(
    promise: type[Promise],
    moment: str,
    end: str,
    clock: ManualClock,
    options: Options,
    service_on: Callable[..., Runtime],
) -> None:
    asked = promise()
    async with AsyncExitStack() as stack:

        async def begun() -> World:
            runtime = service_on(options=options, clock=clock, random=lambda: 1.0)
            await runtime.start()
            http = http_of(runtime)
            stack.push_async_callback(http.aclose)
            return World(http, runtime, clock)

        async def go_on(seconds: float) -> None:
            clock.advance(seconds)
            await Maintenance(world.runtime).tick()

        world = await begun()
        await world.define()
        await asked.begin(world)
        await go_on(TIME_S / 2)
        await asked.early(world)
        if end == "stop":
            await world.runtime.close()
        else:
            stack.push_async_callback(world.runtime.close)  # nothing of it is done before
        clock.advance(TIME_S / 4 if moment == "inside" else TIME_S)
        world = await begun()
        stack.push_async_callback(world.runtime.close)
        if moment == "inside":
            await go_on(0)
            await asked.early(world)
            await go_on(TIME_S / 4 - 1)
            await asked.early(world)
        for _ in range(2):  # who takes the upkeep over waits for the one before
            await go_on(15)
        await asked.late(world)
