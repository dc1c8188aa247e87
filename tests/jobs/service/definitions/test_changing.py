"""Definitions that change while they have jobs: what is at work stays with those who work on it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.cli import main
from headrace.jobs.client import JobsError, LeasedJob, Worker
from headrace.jobs.push.engine import PushEngine
from jobs_endpoint import Endpoint
from jobs_world import PULL, World, held, jobs_client
from waiting import until

CONSUMER = "/v2/channel/c/consumer/k"


async def patch(world: World, expect: int = 200, /, **change: Any) -> Any:
    response = await world.http.patch(CONSUMER, json=change)
    assert response.status_code == expect, response.text
    return response.json()


async def test_jobs_that_are_leased_stay_with_their_workers_when_the_consumer_becomes_push(
    world: World,
) -> None:
    for _ in range(6):
        await world.broadcast()
    leased = await world.claim(4)
    (plain, *_) = await world.queued()
    await world.move(plain["ID"], "INFLIGHT")
    async with Endpoint() as endpoint:
        await patch(world, type="push", callback_url=endpoint.url)
        engine = PushEngine(world.runtime)
        pushing = asyncio.create_task(engine.run())
        await endpoint.wait_for(1)
        (told,) = (await world.lease("heartbeat", jobs=held(leased[0])))["results"]
        assert told["code"] == "ok"
        for end, job, state in zip(
            ("complete", "fail", "complete"),
            leased,
            ("DELIVERED", "DEAD", "DELIVERED"),
            strict=False,
        ):
            item = held(job)[0] | ({"dead": True} if end == "fail" else {})
            assert (await world.lease(end, jobs=[item]))["results"][0]["state"] == state
        await world.move(plain["ID"], "DELIVERED")
        await world.lease("release", jobs=held(leased[3]))
        calls = await endpoint.wait_for(2)
        assert len(calls) == 2, "the one that waited, and the one that was given back"
        assert (await world.lease("claim", 412))["code"] == "not_a_pull_consumer"
        waiting = await world.http.get("/channel/c/consumer/k/queued-jobs", headers=PULL)
        assert waiting.status_code == 412
        engine.stop()
        async with asyncio.timeout(10):
            await pushing


@pytest.mark.one_database
async def test_a_worker_finishes_what_it_has_before_it_says_that_its_consumer_is_pushed_to(
    world: World,
) -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    async def work(job: LeasedJob) -> None:
        begun.set()
        await going.wait()

    await world.broadcast()
    async with jobs_client(world.runtime) as client:
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
        made = Worker(queue, work, concurrency=2, wait_s=1)
        task = asyncio.create_task(made.run())
        await begun.wait()
        await patch(world, type="push", callback_url="http://127.0.0.1:1/")
        going.set()
        with pytest.raises(JobsError, match="only pull consumers"):
            async with asyncio.timeout(10):
                await task
        await until(lambda: made.completed == 1)


async def claims(world: World, token: str) -> int:
    headers = {"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": token}
    answer = await world.http.post(f"{CONSUMER}/jobs/claim", json={"max": 1}, headers=headers)
    return answer.status_code


async def test_two_tokens_of_a_consumer_are_accepted_until_tokens_change_again(
    world: World,
) -> None:
    async def rotate(**body: Any) -> Any:
        answer = await world.http.post(f"{CONSUMER}/token", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert await rotate(token="k2") == {"token": "k2", "live": 2}
    assert [await claims(world, token) for token in ("kt", "k2", "k3")] == [200, 200, 403]
    await patch(world, paused=False)
    since = (await world.http.get("/channel/c/consumer/k")).headers["last-modified"]
    await world.put("/channel/c/consumer/k", since=since, token="k2")
    assert await claims(world, "kt") == 200, "the same token again ends nothing"
    third = (await rotate())["token"]
    assert [await claims(world, token) for token in ("kt", "k2", third)] == [403, 200, 200]
    assert await rotate(token=third, keep_previous=False) == {"token": third, "live": 1}
    assert [await claims(world, token) for token in ("k2", third)] == [403, 200]
    await rotate(token="k4")
    since = (await world.http.get("/channel/c/consumer/k")).headers["last-modified"]
    await world.put("/channel/c/consumer/k", since=since, token="k5")
    assert [await claims(world, token) for token in (third, "k4", "k5")] == [403, 403, 200]
    refused = await world.http.post(f"{CONSUMER}/token", json={"token": "\u00e4"})
    assert (refused.status_code, refused.json()["field"]) == (400, "token")


async def test_a_lower_limit_of_retries_says_how_many_jobs_die_of_their_next_failure(
    world: World,
) -> None:
    for _ in range(4):
        await world.broadcast()
    for times in (3, 2, 1):
        for job in await world.claim(times):
            await world.lease("fail", jobs=[{**held(job)[0], "retry_in_seconds": 0}])
    would = await patch(world, max_retries=1, dry_run=True)
    assert (would["max_retries"], would["dying"]) == (5, 3)
    assert (await patch(world, max_retries=2, dry_run=True))["dying"] == 2
    assert (await patch(world, max_retries=9, dry_run=True))["dying"] == 0
    assert (await patch(world, paused=False))["dying"] is None
    assert (await world.http.get("/v2/events")).json()["events"] == []
    changed = await patch(world, max_retries=1)
    assert (changed["max_retries"], changed["dying"]) == (1, 3)
    (event,) = (await world.http.get("/v2/events")).json()["events"]
    assert event["kind"] == "retries_lowered"
    assert (
        "max_retries 5 → 1: the next failure of 3 unfinished jobs is their last" in event["detail"]
    )
    for job in await world.claim(4):
        await world.lease("fail", jobs=held(job))
    dead = (await world.http.get(CONSUMER)).json()["jobs"]["DEAD"]
    assert dead == 3
    assert (await patch(world, max_retries=0))["dying"] == 0, "the last one had one retry already"


@pytest.mark.one_database
async def test_the_command_asks_before_jobs_die_of_fewer_retries(
    world: World, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def decline(prompt: str) -> str:
        asked.append(prompt)
        return "n\n"

    monkeypatch.setattr("headrace.cli.shared.asking.read_line", decline)
    await world.broadcast()
    (job,) = await world.claim()
    await world.lease("fail", jobs=[{**held(job)[0], "retry_in_seconds": 0}])
    words = ["jobs", "consumer", "c", "k", "--url", address, "--max-retries"]
    assert await asyncio.to_thread(main, [*words, "1"]) == 1
    assert "the next failure of 1 unfinished jobs of c/k is their last" in asked[0]
    assert (await world.http.get(CONSUMER)).json()["max_retries"] == 5
    assert await asyncio.to_thread(main, [*words, "2"]) == 0
    assert await asyncio.to_thread(main, [*words, "0", "--force"]) == 0
    assert (
        await asyncio.to_thread(
            main,
            [
                "jobs",
                "consumer",
                "c",
                "n",
                "--url",
                address,
                "--max-retries",
                "1",
                "--type",
                "pull",
            ],
        )
        == 0
    )
    assert len(asked) == 1
