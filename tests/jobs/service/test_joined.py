"""Workers that ask at once share a transaction, and nothing else: each has its own jobs and leases."""

from __future__ import annotations

import asyncio
from typing import Any

from jobs_world import PULL, World

CLAIM = "/v2/channel/c/consumer/k/jobs/claim"
COMPLETE = "/v2/channel/c/consumer/k/jobs/complete"


async def test_workers_that_claim_one_job_each_at_once_get_different_ones(world: World) -> None:
    await world.consumer("other", type="pull", token="ot")
    for number in range(8):
        await world.broadcast(f"{number}", X_Broker_Message_Priority=str(number % 2))

    def claim(number: int) -> Any:
        headers, path = dict(PULL), CLAIM
        if number == 3:
            headers["X-Broker-Consumer-Token"] = "wrong"
        if number == 5:
            headers["X-Broker-Consumer-Token"] = "ot"
            path = CLAIM.replace("/k/", "/other/")
        body = {"max": 1, "lease_seconds": 30 + number % 3}
        return world.http.post(path, json=body, headers=headers)

    answers = await asyncio.gather(*(claim(number) for number in range(14)))
    assert [answer.status_code for answer in answers] == [200] * 3 + [403] + [200] * 10
    claimed = [answer.json()["jobs"] for answer in answers if answer.status_code == 200]
    own = [job for jobs in claimed for job in jobs]
    assert max(map(len, claimed)) == 1
    assert len(own) == 8 + 1
    assert len({job["id"] for job in own}) == len(own)
    assert len({job["lease"] for job in own}) == len(own), "no worker holds another's job"
    assert (
        world.runtime.metrics.page().text(9).count('jobs_claimed_total{channel="c",consumer="k"} 8')
        == 1
    )


async def test_completions_at_once_are_judged_each_by_its_lease(world: World) -> None:
    for number in range(6):
        await world.broadcast(f"{number}")
    jobs = [job for _ in range(6) for job in await world.claim()]
    held = [[{"id": job["id"], "lease": job["lease"]}] for job in jobs]
    swapped = [{"id": jobs[0]["id"], "lease": jobs[1]["lease"]}]
    said = [*held[:5], held[4], swapped, [{"id": "999", "lease": "none"}]]
    answers = await asyncio.gather(
        *(world.http.post(COMPLETE, json={"jobs": one}, headers=PULL) for one in said)
    )
    results = [answer.json()["results"][0] for answer in answers]
    assert [result["code"] for result in results] == ["ok"] * 6 + ["lease_lost", "not_found"]
    assert [result["id"] for result in results] == [one[0]["id"] for one in said]
    assert [await world.state(job["id"]) for job in jobs] == ["DELIVERED"] * 5 + ["INFLIGHT"]
    counted = 'jobs_completed_total{channel="c",consumer="k",outcome="delivered"} 5'
    assert counted in world.runtime.metrics.page().text(9), "what was said twice is counted once"
