"""Failures, recoveries and dead letters as messages of another channel, and consumers that are disabled."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli import main
from headrace.errors import ConfigurationError
from headrace.jobs.models import Options
from headrace.jobs.seeds import Seeds, apply_seeds
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.service.push import results as push_results
from jobs_world import World, held


@pytest.fixture
async def told(world: World) -> World:
    """Channel ``ops`` is told of ``c``; its consumer ``watch`` pulls."""
    await world.put("/channel/ops", token="ct")
    await world.put("/channel/ops/consumer/watch", type="pull", token="kt")
    await tell(world, "c", "ops")
    return world


async def tell(world: World, channel: str, to: str, expect: int = 200) -> Any:
    response = await world.http.patch(f"/v2/channel/{channel}", json={"events_channel": to})
    assert response.status_code == expect, response.text
    return response.json()


async def notices(world: World) -> list[dict[str, Any]]:
    """Those that came since the last time, without their times."""
    claimed = await world.http.post(
        "/v2/channel/ops/consumer/watch/jobs/claim",
        json={"max": 100},
        headers={"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"},
    )
    found = []
    for job in claimed.json()["jobs"]:
        document = json.loads(job["message"]["payload"])
        assert document.pop("at").endswith("Z")
        assert job["message"]["headers"] == {
            "X-Headrace-Subject": document["event"],
            "X-Headrace-Channel": document["channel"],
            "X-Headrace-Consumer": document["consumer"],
        }
        assert job["message"]["content_type"] == "application/json"
        found.append(document)
    return found


async def fail(world: World, reason: str, **how: Any) -> str:
    (job,) = await world.claim(1)
    await world.lease("fail", jobs=[{**held(job)[0], "reason": reason, **how}])
    return str(job["id"])


async def test_a_job_is_told_of_when_it_fails_for_the_fourth_time_and_when_it_recovers(
    told: World,
) -> None:
    await told.broadcast(X_Broker_Message_ID="m")
    for number in range(5):
        assert await notices(told) == []
        job = await fail(told, f"no {number}", retry_in_seconds=0)
        if number == 3:
            about = {"channel": "c", "consumer": "k", "job": job, "message": "m"}
            failing = {"event": "job.failing", **about, "retries": 4, "error": "no 3"}
            assert await notices(told) == [failing]
    (last,) = await told.claim(1)
    await told.lease("complete", jobs=held(last))
    recovered = {"event": "job.recovered", **about, "retries": 5, "error": "no 4"}
    assert await notices(told) == [recovered]


async def test_a_dead_letter_is_told_of_however_the_job_died(told: World) -> None:
    for number in range(4):
        await told.broadcast(X_Broker_Message_ID=f"m{number}")
    ids = [await fail(told, "never", dead=True)]
    (expired,) = await told.claim(1, lease=1.0)
    change = {"max_retries": 0}
    assert (await told.http.patch("/v2/channel/c/consumer/k", json=change)).status_code == 200
    await told.sweep(2)
    ids.append(expired["id"])
    job = (await told.queued())[0]["ID"]
    await told.move(job, "INFLIGHT")
    await told.move(job, "DEAD")
    ids.append(job)
    found = await notices(told)
    assert [(one["event"], one["job"], one["message"]) for one in found] == [
        ("job.dead", number, f"m{place}") for place, number in enumerate(ids)
    ]
    assert [one["error"] for one in found[:2]] == ["never", "the lease expired"]


async def test_what_was_cancelled_and_what_is_delivered_at_once_is_not_told_of(
    told: World,
) -> None:
    await told.broadcast()
    (job,) = await told.claim(1)
    await told.lease("complete", jobs=held(job))
    await told.broadcast()
    await told.http.post("/v2/channel/c/jobs/cancel", json={"consumer": "k"})
    assert await notices(told) == []


async def test_many_that_die_together_are_told_of_one_by_one_to_those_whose_filter_they_fit(
    told: World,
) -> None:
    await told.put("/channel/ops/consumer/other", type="pull", token="kt")
    for name, wanted in (("watch", "job.dead"), ("other", "consumer.*")):
        await told.http.patch(
            f"/v2/channel/ops/consumer/{name}",
            json={"settings": {"filter": {"subjects": [wanted]}}},
        )
    for _ in range(20):
        await told.broadcast()
    jobs = await told.claim(20)
    failures = [{**one, "dead": True, "reason": "no"} for one in held(*jobs)]
    await told.lease("fail", jobs=failures)
    assert {one["job"] for one in await notices(told)} == {job["id"] for job in jobs}
    counts = (await told.http.get("/v2/channel/ops/consumer/other")).json()["jobs"]
    assert counts["QUEUED"] == 0


async def test_a_consumer_that_is_disabled_and_enabled_is_told_of(told: World) -> None:
    await told.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")

    def gone(tx: Any) -> Any:
        consumer = find_consumer(tx, "c", "h")
        call: Any = SimpleNamespace(ok=False)
        return push_results._judge(tx, consumer, [call], tx.now_us(), gone=True)

    await told.runtime.database.write(gone)
    about = {"channel": "c", "consumer": "h"}
    reason = "the endpoint answered 410 Gone"
    assert await notices(told) == [{"event": "consumer.disabled", **about, "error": reason}]
    for _ in range(2):
        await told.http.patch("/v2/channel/c/consumer/h", json={"enable": True})
    assert await notices(told) == [{"event": "consumer.enabled", **about, "error": None}]


async def test_nothing_is_told_when_what_it_tells_is_undone(told: World) -> None:
    await told.broadcast()
    (job,) = await told.claim(1)
    seq, lease = int(job["id"]), job["lease"]

    def undone(tx: Any) -> None:
        from headrace.jobs.service.leases import Held, end, failed

        consumer = find_consumer(tx, "c", "k")
        failure = failed(Held(seq, lease), "no", dead=True)
        end(tx, [(consumer, [failure], lambda: 0.5)], tx.now_us())
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        await told.runtime.database.write(undone)
    assert await notices(told) == []


async def test_a_channel_that_is_told_tells_no_other(told: World) -> None:
    await told.put("/channel/third", token="ct")
    for channel, to in (("c", "c"), ("third", "c"), ("ops", "third"), ("ops", "c")):
        refused = await tell(told, channel, to, 400)
        assert (refused["code"], refused["field"]) == ("events_of_events", "events_channel")
    assert (await tell(told, "third", "ops"))["events_channel"] == "ops"
    missing = await tell(told, "third", "nowhere", 404)
    assert missing["field"] == "events_channel"
    # A consumer of events whose jobs die makes no events.
    await told.broadcast()
    await fail(told, "no", dead=True)
    headers = {"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
    path = "/v2/channel/ops/consumer/watch/jobs"
    claimed = await told.http.post(f"{path}/claim", json={}, headers=headers)
    (job,) = claimed.json()["jobs"]
    failure = {"id": job["id"], "lease": job["lease"], "dead": True}
    await told.http.post(f"{path}/fail", json={"jobs": [failure]}, headers=headers)
    assert await notices(told) == []


async def test_it_ends_with_the_channel_that_is_told_while_that_is_drained_and_when_asked(
    told: World,
) -> None:
    for ended in ({"draining": True}, {"draining": False}):
        assert (await told.http.patch("/v2/channel/ops", json=ended)).status_code == 200
        await told.broadcast()
        await fail(told, "no", dead=True)
        assert len(await notices(told)) == (0 if ended["draining"] else 1)
    assert (await tell(told, "c", ""))["events_channel"] is None
    await told.broadcast()
    await fail(told, "no", dead=True)
    assert await notices(told) == []
    await tell(told, "c", "ops")
    version = (await told.http.get("/channel/ops")).headers["etag"]
    deleted = await told.http.delete("/channel/ops?discard=true", headers={"If-Match": version})
    assert deleted.status_code == 204
    await told.broadcast()
    await fail(told, "no", dead=True)
    assert (await told.http.get("/v2/channel/c")).json()["events_channel"] is None


async def test_the_configuration_names_the_channel_that_is_told(world: World) -> None:
    channels = {
        "first": {"token": "t", "events_channel": "then"},
        "then": {"token": "t", "consumers": {}},
    }

    async def apply(**document: Any) -> None:
        seeds = Seeds.read({"channels": document})
        now = world.runtime.now_us()
        await world.runtime.database.write(lambda tx: apply_seeds(tx, seeds, Options(), now))

    await apply(**channels)
    assert (await world.http.get("/v2/channel/first")).json()["events_channel"] == "then"
    with pytest.raises(ConfigurationError, match="no such channel"):
        await apply(first={"token": "t", "events_channel": "nowhere"})
    await apply(first={"token": "t", "events_channel": ""})
    assert (await world.http.get("/v2/channel/first")).json()["events_channel"] is None


@pytest.mark.one_database
async def test_the_command_names_the_channel_that_is_told(
    world: World, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*typed: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["jobs", "channel", *typed, "--url", address])
        said = capsys.readouterr()
        return code, said.out + said.err

    code, said = await run("new", "--events-to", "ops")
    assert code != 0
    assert "no such channel" in said
    assert (await world.http.get("/channel/new")).status_code == 404
    await world.put("/channel/ops", token="ct")
    assert (await run("new", "--events-to", "ops"))[0] == 0
    assert (await world.http.get("/v2/channel/new")).json()["events_channel"] == "ops"
    assert (await run("new", "--events-to", ""))[0] == 0
    assert (await world.http.get("/v2/channel/new")).json()["events_channel"] is None
