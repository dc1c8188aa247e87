"""Jobs are found by channel, message, consumer, state and age, and cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from headrace.jobs import limits
from headrace.jobs.client import AsyncJobsClient, worker
from headrace.jobs.http import create_app
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import PULL, World, held

FIND = "/v2/channel/c/jobs"


async def found(world: World, expect: int = 200, /, **query: Any) -> Any:
    response = await world.http.get(FIND, params=query)
    assert response.status_code == expect, response.text
    return response.json()


async def ids_of(world: World, **query: Any) -> list[int]:
    """Ids of all pages, newest first; each page is also reached backwards."""
    page = await found(world, **query)
    shown = []
    before: list[Any] | None = None
    while page["jobs"]:
        shown += [int(job["id"]) for job in page["jobs"]]
        if before is not None:
            back = (await world.http.get(page["pages"]["previous"])).json()
            assert back["jobs"] == before
        before = page["jobs"]
        page = (await world.http.get(page["pages"]["next"])).json()
    return shown


async def cancel(world: World, expect: int = 200, /, **body: Any) -> Any:
    response = await world.http.post(f"{FIND}/cancel", json=body)
    assert response.status_code == expect, response.text
    return response.json()


async def test_from_a_message_to_its_jobs_and_back(world: World) -> None:
    await world.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")
    await world.broadcast(X_Broker_Message_ID="m1")
    await world.broadcast(X_Broker_Message_ID="m2")
    jobs = (await found(world, message="m2"))["jobs"]
    assert {(job["consumer"], job["message"], job["state"]) for job in jobs} == {
        ("k", "m2", "QUEUED"),
        ("h", "m2", "QUEUED"),
    }
    shown = (await world.http.get("/channel/c/message/m2")).json()["Jobs"]
    assert {job["ID"] for job in shown} == {job["id"] for job in jobs}
    assert {job["JobURL"] for job in shown} == {job["url"] for job in jobs}
    for job in jobs:
        detail = (await world.http.get(job["url"])).json()
        assert (detail["id"], detail["message"]) == (job["id"], "m2")
    assert len((await found(world, message="m2", consumer="h"))["jobs"]) == 1
    assert (await found(world, 404, message="none"))["field"] == "message"
    assert (await found(world, 404, consumer="none"))["field"] == "consumer"


async def test_jobs_are_listed_by_consumer_state_and_age_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAGE_SIZE", 4)
    await world.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")
    for _ in range(7):
        await world.broadcast()
        world.clock.advance(10)
    (dead, running, *_) = await world.claim(2)
    await world.lease("fail", jobs=[{**held(dead)[0], "dead": True}])
    everything = await ids_of(world)
    assert everything == sorted(everything, reverse=True)
    assert len(everything) == 14
    push = await ids_of(world, consumer="h", state="QUEUED")
    assert len(push) == 7
    assert await ids_of(world, state="DEAD") == [int(dead["id"])]
    assert await ids_of(world, state="DEAD,INFLIGHT", consumer="k") == sorted(
        [int(dead["id"]), int(running["id"])], reverse=True
    )
    assert len(await ids_of(world, older_than_seconds=31)) == 8
    assert len(await ids_of(world, older_than_seconds=31, consumer="h")) == 4
    assert await ids_of(world, older_than_seconds=71) == []
    assert await ids_of(world, older_than_seconds=10) == everything
    monkeypatch.undo()
    (delayed,) = await world.claim()
    await world.lease("release", jobs=held(delayed), delay_seconds=50)
    waits = {job["id"]: job["waits_for"] for job in (await found(world, consumer="k"))["jobs"]}
    assert waits.pop(delayed["id"]) == "DELAYED"
    assert set(waits.values()) <= {"READY", None}


@pytest.mark.one_database
async def test_a_filter_that_means_nothing_names_its_field(world: World) -> None:
    for query, field in (
        ({"state": "WAITING"}, "state"),
        ({"older_than_seconds": "1h"}, "older_than_seconds"),
        ({"message": "\u00e4"}, "message"),
        ({"next": "x"}, "next"),
    ):
        assert (await found(world, 400, **query))["field"] == field
    assert (await cancel(world, 400))["code"] == "no_filter"
    assert (await cancel(world, 400, states=["DEAD"]))["field"] == "states"
    assert (await cancel(world, 404, job="x"))["code"] == "not_found"
    assert (await world.http.get("/v2/channel/none/jobs")).status_code == 404


async def test_a_waiting_job_is_cancelled_and_can_be_requeued_by_itself(world: World) -> None:
    await world.broadcast()
    await world.broadcast()
    first, second = reversed(await ids_of(world))
    assert await cancel(world, job=str(first)) == {
        "waiting": 1, "running": 0, "consumers": {"k": 1}, "dry_run": False,
    }  # fmt: skip
    detail = await world.job(str(first))
    assert (detail["state"], detail["last_error"], detail["retries"]) == ("DEAD", "cancelled", 0)
    assert [job["id"] for job in await world.claim(5)] == [str(second)]
    assert (await cancel(world, 409, job=str(first)))["code"] == "finished"
    events = (await world.http.get("/v2/events")).json()["events"]
    assert [event["kind"] for event in events] == ["jobs_cancelled"]
    dead = 'jobs_dead_total{channel="c",consumer="k",cause="cancelled"} 1'
    assert dead in (await world.http.get("/metrics")).text
    await world.http.post("/channel/c/consumer/k/dlq", data={"requeue": "kt"})
    assert await world.state(str(first)) == "DEAD", "requeueing all leaves what was cancelled"
    one = f"/channel/c/consumer/k/job/{first}/requeue-dead-job"
    assert (await world.http.post(one, headers=PULL)).status_code == 202
    assert [job["id"] for job in await world.claim(5)] == [str(first)]
    await world.sweep(40)
    assert await world.state(str(first)) == "QUEUED", "it is not cancelled any more"


async def test_many_are_cancelled_by_filter_in_slices_after_a_dry_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 3)
    await world.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")
    for _ in range(10):
        await world.broadcast()
    world.clock.advance(60)
    await world.broadcast()
    jobs = await world.claim(2)
    await world.lease("complete", jobs=held(jobs[0]))
    wanted = {"consumer": "k", "older_than_seconds": 30}
    expected = {"waiting": 8, "running": 1, "consumers": {"k": 9}}
    assert await cancel(world, **wanted, dry_run=True) == {**expected, "dry_run": True}
    assert len(await ids_of(world, state="DEAD")) == 0
    assert await cancel(world, **wanted) == {**expected, "dry_run": False}
    assert len(await ids_of(world, state="DEAD", consumer="k")) == 8
    assert len(await ids_of(world, state="QUEUED", consumer="k")) == 1, "the young one"
    assert len(await ids_of(world, state="QUEUED", consumer="h")) == 11
    again = await cancel(world, **wanted)
    assert (again["waiting"], again["running"]) == (0, 0)
    assert (await cancel(world, states=["QUEUED"]))["consumers"] == {"h": 11, "k": 1}
    counted = (await world.http.get("/v2/channel/c/consumer/h")).json()["jobs"]
    assert counted == {"QUEUED": 0, "INFLIGHT": 0, "DELIVERED": 0, "DEAD": 11}


@pytest.mark.parametrize("end", ["complete", "fail", "release", "expire"])
async def test_a_running_job_is_told_at_its_heartbeat_and_ends_with_its_claim(
    world: World, end: str
) -> None:
    await world.broadcast()
    (job,) = await world.claim(lease=30)
    assert (await cancel(world, consumer="k"))["running"] == 1
    assert await world.state(job["id"]) == "INFLIGHT"
    for _ in range(2):
        (told,) = (await world.lease("heartbeat", 409, jobs=held(job)))["results"]
        assert (told["code"], told["state"]) == ("cancelled", "INFLIGHT")
        assert told["message"]
    if end == "expire":
        await world.sweep(31)
    else:
        (result,) = (await world.lease(end, jobs=held(job)))["results"]
        assert result["state"] == ("DELIVERED" if end == "complete" else "DEAD")
        assert "at" not in result
    detail = await world.job(job["id"])
    if end == "complete":
        assert detail["state"] == "DELIVERED", "what was done was done"
    else:
        assert (detail["state"], detail["last_error"]) == ("DEAD", "cancelled")


async def test_the_next_job_of_a_key_follows_one_that_is_cancelled(world: World) -> None:
    for _ in range(3):
        await world.broadcast(X_Broker_Ordering_Key="a")
    third, second, first = await ids_of(world)
    await cancel(world, job=str(second))
    (job,) = await world.claim(5)
    assert job["id"] == str(first)
    await world.lease("complete", jobs=held(job))
    assert [job["id"] for job in await world.claim(5)] == [str(third)]


async def test_cancelling_needs_the_tokens_of_the_consumer_or_the_administrators(
    world: World, runtime: Runtime
) -> None:
    await world.broadcast()
    runtime.admin_token = "at"
    path = f"{FIND}/cancel"

    async def status(headers: dict[str, str], **body: Any) -> int:
        return (await world.http.post(path, json=body, headers=headers)).status_code

    channel = {"X-Broker-Channel-Token": "ct"}
    assert await status({}, consumer="k") == 401
    assert await status(channel, consumer="k") == 401
    assert await status({**PULL, "X-Broker-Consumer-Token": "no"}, consumer="k") == 403
    assert await status(PULL, states=["QUEUED"]) == 400
    assert await status(PULL, consumer="k", dry_run=True) == 200
    assert await status({"Authorization": "Bearer at"}, states=["QUEUED"]) == 200
    assert (await world.http.get(FIND)).status_code == 403
    assert (await world.http.get(FIND, headers=channel)).status_code == 200


@pytest.mark.one_database
async def test_a_worker_stops_a_job_that_is_cancelled(world: World) -> None:
    transport = httpx2.ASGITransport(create_app(world.runtime))
    async with AsyncJobsClient("http://127.0.0.1", transport=transport) as client:
        begun, stopped = asyncio.Event(), asyncio.Event()
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")

        @worker(queue, lease_s=1.0, wait_s=0.0)
        async def handle(job: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        await world.broadcast()
        running = asyncio.create_task(handle.run())
        async with asyncio.timeout(10):
            await begun.wait()
            assert (await client.cancel_jobs("c", consumer="k"))["running"] == 1
            await stopped.wait()
            handle.stop()
            await running
        (job,) = [job async for job in client.find_jobs("c", states=["DEAD"])]
        assert (job["last_error"], handle.cancelled, handle.lost) == ("cancelled", 1, 0)
