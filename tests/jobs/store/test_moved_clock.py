"""SQLite on a machine whose clock is set: leases and pauses last as long as they were given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from headrace.jobs.store.moved_clock import Steady
from headrace.jobs.store.sqlite import migrate
from jobs_world import World, held, http_of

pytestmark = pytest.mark.one_database


class SetClock(ManualClock):
    """A clock that somebody sets."""

    def set_by(self, seconds: float) -> None:
        self.jump(seconds)


@pytest.fixture
def clock() -> ManualClock:
    return SetClock()


STEPS = [sign * step for step in (1, 3600, 86_400, 365 * 86_400) for sign in (1, -1)]


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_lease_lasts_as_long_as_it_was_given_when_the_clock_is_set(
    world: World, clock: SetClock, step_s: float
) -> None:
    maintenance = Maintenance(world.runtime)
    await maintenance.tick()
    await world.broadcast()
    (job,) = await world.claim(lease=30)
    clock.advance(20)
    clock.set_by(step_s)
    await tick_often(maintenance, clock, 5)
    assert await world.state(job["id"]) == "INFLIGHT", "5 s are left"
    answer = await world.lease("heartbeat", jobs=held(job), lease_seconds=10)
    assert answer["results"][0]["code"] == "ok"
    await tick_often(maintenance, clock, 9)
    assert await world.state(job["id"]) == "INFLIGHT"
    await tick_often(maintenance, clock, 6)
    assert await world.state(job["id"]) == "QUEUED"


async def tick_often(maintenance: Maintenance, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1)
        await maintenance.tick()


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_retry_comes_after_its_pause_when_the_clock_is_set(
    world: World, clock: SetClock, step_s: float
) -> None:
    await world.broadcast()
    (job,) = await world.claim()
    await world.lease("fail", jobs=[{**held(job)[0], "retry_in_seconds": 60}])
    clock.set_by(step_s)
    clock.advance(50)
    await world.broadcast()
    (other,) = await world.claim(5)
    assert other["id"] != job["id"]
    clock.advance(12)
    (again,) = await world.claim(5)
    assert again["id"] == job["id"]


@pytest.mark.parametrize("step_s", STEPS)
async def test_another_process_takes_the_upkeep_over_in_time_when_the_clock_is_set(
    world: World, clock: SetClock, service_on: Callable[..., Runtime], step_s: float
) -> None:
    """The first process leads and dies; the clock is set; a lease that ends is seen by the other one."""
    other = service_on(clock=clock)
    await other.start()
    await Maintenance(world.runtime).tick()
    await world.broadcast()
    (job,) = await world.claim(lease=5)
    clock.set_by(step_s)
    await tick_often(Maintenance(other), clock, 30)
    assert await world.state(job["id"]) == "QUEUED"
    await other.close()


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_scheduled_message_follows_the_time_of_day(
    world: World, clock: SetClock, step_s: float
) -> None:
    at = datetime.fromtimestamp(clock.now_ns() / 1e9 + 200, UTC).isoformat()
    await world.broadcast(X_Broker_Scheduled_For=at)
    maintenance = Maintenance(world.runtime)
    await maintenance.tick()
    clock.set_by(step_s)
    await tick_often(maintenance, clock, 5)
    assert bool(await world.claim()) == (step_s > 200)
    if abs(step_s) <= 1:
        await tick_often(maintenance, clock, 200)
        assert len(await world.claim()) == 1


@pytest.mark.parametrize("step_s", STEPS)
async def test_a_message_that_is_sent_again_is_the_same_whatever_the_clock_says(
    world: World, clock: SetClock, step_s: float
) -> None:
    await world.broadcast("x", Idempotency_Key="one")
    clock.set_by(step_s)
    await world.broadcast("x", Idempotency_Key="one")
    assert len(await world.claim(5)) == 1


async def test_a_step_while_no_process_runs_is_noticed_by_the_next_one(
    tmp_path: Path, clock: SetClock, options: Options
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def run(job: Callable[[World], object]) -> object:
        runtime = Runtime(open_database(url, clock=clock), options, clock=clock)
        await runtime.start()
        async with http_of(runtime) as http:
            result = await job(World(http, runtime, clock))  # type: ignore[misc]
        await runtime.close()
        return result

    async def first(world: World) -> str:
        await world.define()
        await world.broadcast()
        return str((await world.claim(lease=30))[0]["id"])

    async def second(world: World) -> str:
        await Maintenance(world.runtime).tick()
        return await world.state(str(seq))

    seq = await run(first)
    clock.set_by(-3600)
    clock.advance(31)
    assert await run(second) == "QUEUED"


async def test_two_processes_move_a_lease_once(
    world: World, clock: SetClock, service_on: Callable[..., Runtime]
) -> None:
    other = service_on(clock=clock)
    await other.start()
    await world.broadcast()
    (job,) = await world.claim(lease=30)
    clock.set_by(-3600)
    for runtime in (world.runtime, other, world.runtime):
        await Maintenance(runtime).tick()
    clock.advance(29)
    await Maintenance(other).tick()
    assert await world.state(job["id"]) == "INFLIGHT"
    clock.advance(2)
    await Maintenance(world.runtime).tick()
    await Maintenance(other).tick()
    assert await world.state(job["id"]) == "QUEUED"
    await other.close()


def test_another_run_of_the_machine_moves_nothing() -> None:
    first, second = ManualClock(), ManualClock()
    assert Steady(first)._run != Steady(second)._run


def test_a_full_disk_that_ended_a_transaction_is_told_as_one() -> None:
    """And not that there is no transaction any more that could be rolled back."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON meta BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END"
    )
    with pytest.raises(sqlite3.Error, match="the disk is full"):
        Steady(ManualClock()).follow(connection)
    assert not connection.in_transaction
    connection.close()
