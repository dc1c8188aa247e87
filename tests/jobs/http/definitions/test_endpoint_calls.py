"""How an endpoint answered lately: calls, failures, times, told by all processes and kept for a day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.metrics import BOUNDS_S, Metrics
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.service.push import call_statistics
from headrace.jobs.store import Tx
from jobs_endpoint import Endpoint, answer
from jobs_world import World, jobs_client
from waiting import until

PATH = "/v2/channel/c/consumer/k/calls"


def called(metrics: Metrics, seconds: float, code: str = "2xx", consumer: str = "k") -> None:
    labels = {"channel": "c", "consumer": consumer}
    metrics.add("push_attempts_total", 1, **labels, code_class=code)
    metrics.observe("push_attempt_duration_seconds", seconds, **labels)


async def slots(world: World, expect: int = 200, /, **query: Any) -> Any:
    response = await world.http.get(PATH, params=query)
    assert response.status_code == expect, response.text
    return response.json()


async def test_what_processes_have_called_is_added_up_in_slots_of_five_minutes(
    world: World, service_on: Callable[..., Runtime]
) -> None:
    one, other = Maintenance(world.runtime), service_on(clock=world.clock)
    await other.start()
    try:
        for _ in range(9):
            called(world.runtime.metrics, 0.02)
        await one.tick()
        called(other.metrics, 4.0, "5xx")
        called(other.metrics, 4.0, "error", consumer="gone")
        await Maintenance(other).resign()
        await one.resign()
        (slot,) = (await slots(world))["slots"]
        assert (slot["calls"], slot["failed"]) == (10, 1)
        assert 0.01 < slot["p50_seconds"] <= 0.025
        assert 2.5 < slot["p95_seconds"] <= 5
    finally:
        await other.close()
    world.clock.advance(limits.CALLS_SLOT_S)
    called(world.runtime.metrics, 0.02, "4xx")
    await one.tick()
    before, after = (await slots(world))["slots"]
    assert before == slot, "what was told once is not told again"
    assert (after["calls"], after["failed"]) == (1, 1)
    assert len((await slots(world, seconds=1))["slots"]) == 1


async def test_slots_that_are_a_day_old_are_removed_and_others_stay(world: World) -> None:
    maintenance = Maintenance(world.runtime)
    for _ in range(3):
        called(world.runtime.metrics, 0.2)
        await maintenance.tick()
        world.clock.advance(limits.CALLS_KEPT_S / 2)
    await maintenance.retain()

    def kept(tx: Tx) -> list[int]:
        seq = find_consumer(tx, "c", "k").seq
        return [row["n"] for row in tx.all("calls_of_consumer", consumer_seq=seq, since=0)]

    assert await world.runtime.database.read(kept) == [1, 1]


async def test_counts_of_a_process_whose_database_was_away_are_told_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = call_statistics.Teller(world.runtime.metrics)
    called(world.runtime.metrics, 0.2)
    first, _ = teller.news()  # it was not stored
    called(world.runtime.metrics, 0.2)
    second, counted = teller.news()
    assert first
    await world.runtime.database.write(lambda tx: call_statistics.add(tx, second))
    teller.told(counted)
    assert teller.news()[0] == ""
    (slot,) = (await slots(world))["slots"]
    assert slot["calls"] == 2


@pytest.mark.one_database
async def test_too_long_a_time_and_an_unknown_consumer_are_refused(world: World) -> None:
    assert (await slots(world, 400, seconds=86_401))["field"] == "seconds"
    missing = await world.http.get("/v2/channel/c/consumer/none/calls")
    assert missing.status_code == 404


@pytest.mark.one_database
async def test_pushes_are_shown_by_the_client_and_the_command(
    world: World, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    maintenance, engine = Maintenance(world.runtime), PushEngine(world.runtime)
    async with Endpoint() as endpoint:
        pushing = asyncio.create_task(engine.run())
        await world.consumer("h", callbackUrl=endpoint.url, token="ht")
        endpoint.respond = lambda call: answer(500)
        await world.broadcast()
        await until(lambda: world.runtime.metrics.numbers("push_attempts_total"), within=30)
        engine.stop()
        async with asyncio.timeout(30):
            await pushing
    await maintenance.resign()
    async with jobs_client(world.runtime) as client:
        (slot,) = await client.endpoint_calls("c", "h")
        assert (slot["calls"], slot["failed"]) == (1, 1)
        assert await client.endpoint_calls("c", "k", last_s=60) == []
    code = await asyncio.to_thread(main, ["jobs", "calls", "c", "h", "--url", address])
    said = capsys.readouterr().out
    assert (code, "1 (100%)" in said) == (0, True), said


@given(st.lists(st.floats(0, 60), min_size=1))
def test_half_of_the_calls_took_as_long_as_is_said_at_most_by_the_parts(took: list[float]) -> None:
    metrics = Metrics()
    for seconds in took:
        called(metrics, seconds)
    (counts,) = metrics.histograms("push_attempt_duration_seconds").values()
    slot = call_statistics._slot(0, dict(enumerate(counts)))
    assert slot.calls == len(took)
    assert slot.p50_s <= slot.p95_s <= BOUNDS_S[-1]
    within = sum(seconds <= _bound(slot.p50_s) for seconds in took)
    assert within * 2 >= len(took) or slot.p50_s == BOUNDS_S[-1]


def _bound(seconds: float) -> float:
    """The end of the part in which it is."""
    return next(bound for bound in BOUNDS_S if seconds <= bound)
