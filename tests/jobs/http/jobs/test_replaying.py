"""Jobs that were delivered, or are dead, are handed out again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.cli import main
from headrace.jobs import limits
from jobs_world import World, held


async def replay(world: World, expect: int = 200, /, **body: Any) -> Any:
    answer = await world.http.post("/v2/channel/c/replay", json=body)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def at(world: World, seconds: float = 0.0) -> str:
    """The time by the service's clock, and so many seconds later."""
    from headrace.jobs.models import rfc3339

    return rfc3339(world.runtime.now_us() + round(seconds * 1e6))


async def finish(world: World, count: int, *, dead: int = 0, key: str = "") -> list[str]:
    """Publish messages, and let their jobs be delivered, the last ones die. Returns the jobs."""
    made = []
    for _ in range(count):
        await world.broadcast(X_Broker_Ordering_Key=key)
        (job,) = await world.claim()
        made.append(job["id"])
        item = held(job)[0]
        if len(made) > count - dead:
            await world.lease("fail", jobs=[{**item, "dead": True}])
        else:
            await world.lease("complete", jobs=[item])
        world.clock.advance(60)
    return made


async def test_jobs_are_replayed_by_time_and_state_in_slices_after_a_dry_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    begun = await at(world)
    jobs = await finish(world, 9, dead=3)
    would = await replay(world, since=begun, dry_run=True)
    assert (would["delivered"], would["dead"], would["consumers"]) == (6, 3, {"k": 9})
    assert await world.claim(5) == []
    middle = await at(world, -60 * 4.5)
    done = await replay(world, since=middle, states=["DELIVERED"], consumer="k")
    assert (done["delivered"], done["dead"], done["dry_run"]) == (1, 0, False)
    claimed = await world.claim(9)
    assert [job["id"] for job in claimed] == [jobs[5]]
    assert claimed[0]["attempt"] == 2
    await world.lease("complete", jobs=held(*claimed))
    assert (await replay(world, since=begun, until=middle))["consumers"] == {"k": 5}
    assert (await replay(world, since=begun))["consumers"] == {"k": 4}, "those that wait are left"
    assert [job["id"] for job in await world.claim(20)] == jobs
    (event, *_) = (await world.http.get("/v2/events")).json()["events"]
    assert (event["kind"], event["detail"]) == ("jobs_replayed", "4 jobs are handed out again")


async def test_a_rate_spreads_them_and_an_ordering_key_keeps_its_order(world: World) -> None:
    begun = await at(world)
    jobs = await finish(world, 3)
    done = await replay(world, since=begun, rate_per_s=0.5)
    assert done["last_due_at"] == await at(world, 4)
    seen = []
    for _ in range(3):
        seen += [job["id"] for job in await world.claim(9)]
        world.clock.advance(2)
    assert seen == jobs
    keyed = await finish(world, 3, dead=1, key="a")
    await replay(world, since=begun)
    handed = []
    while claimed := await world.claim(9):
        assert len(claimed) == 1
        handed.append(claimed[0]["id"])
        await world.lease("complete", jobs=held(*claimed))
    assert handed == keyed


async def test_messages_are_replayed_by_id_also_cancelled_ones(world: World) -> None:
    await world.broadcast(X_Broker_Message_ID="m1")
    await world.broadcast(X_Broker_Message_ID="m2")
    begun = await at(world, -1)
    await world.http.post("/v2/channel/c/jobs/cancel", json={"consumer": "k"})
    assert (await replay(world, since=begun))["dead"] == 0, "what was cancelled is left"
    missing = await replay(world, 404, messages=["m1", "none"])
    assert "message none" in missing["message"]
    assert await world.claim() == []
    assert (await replay(world, messages=["m2"]))["dead"] == 1
    assert [job["message"]["id"] for job in await world.claim(5)] == ["m2"]
    assert (await replay(world, messages=["m2"]))["consumers"] == {}, "it runs"


@pytest.mark.one_database
async def test_a_replay_that_means_nothing_names_its_field(world: World) -> None:
    now = await at(world)
    for body, field in (
        ({}, "body"),
        ({"messages": ["m"], "since": now}, "messages"),
        ({"messages": ["m", "m"]}, "messages"),
        ({"messages": ["a b"]}, "messages"),
        ({"since": "yesterday"}, "since"),
        ({"since": now, "until": "2026-01-01"}, "until"),
        ({"since": now, "states": ["QUEUED"]}, "states"),
        ({"since": now, "rate_per_s": -1}, "rate_per_s"),
        ({"since": now, "rate_per_s": 1e-9}, "rate_per_s"),
    ):
        assert (await replay(world, 400, **body))["field"] == field, body
    await replay(world, 404, since=now, consumer="none")
    assert (
        await world.http.post("/v2/channel/none/replay", json={"since": now})
    ).status_code == 404


@pytest.mark.one_database
async def test_the_command_counts_asks_and_replays(
    world: World, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await at(world)
    await finish(world, 2, dead=1)
    words = ["jobs", "replay", "c", "--since", begun, "--rate", "1", "--url", address]
    assert await asyncio.to_thread(main, [*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would hand out 1 delivered and 1 dead jobs of c again\n"
    monkeypatch.setattr("headrace.cli.shared.asking.read_line", lambda prompt: "n\n")
    assert await asyncio.to_thread(main, words) == 1
    assert await world.claim() == []
    assert await asyncio.to_thread(main, [*words, "--force"]) == 0
    assert "2 are handed out again, the last is due at" in capsys.readouterr().out
    assert len(await world.claim(5)) == 1
