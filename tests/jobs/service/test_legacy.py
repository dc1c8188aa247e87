"""Pull consumption as specified: the list, the table of transitions, the time-outs."""

from __future__ import annotations

from typing import Any

import pytest

from jobs_world import PULL, World, held

TABLE = {
    # state:     INFLIGHT, INFLIGHT+T, DELIVERED, DEAD, DELIVERED+T, DEAD+T, QUEUED, other, empty
    "QUEUED": [202, 202, 400, 400, 400, 400, 202, 400, 400],
    "INFLIGHT": [202, 400, 202, 202, 400, 400, 400, 400, 400],
    "DELIVERED": [400, 400, 202, 400, 400, 400, 400, 400, 400],
    "DEAD": [202, 202, 400, 202, 400, 400, 400, 400, 400],
}
ASKED: list[tuple[str, int | None]] = [
    ("INFLIGHT", None),
    ("INFLIGHT", 10),
    ("DELIVERED", None),
    ("DEAD", None),
    ("DELIVERED", 10),
    ("DEAD", 10),
    ("QUEUED", None),
    ("LOST", None),
    ("", None),
]
PATHS = {"QUEUED": [], "INFLIGHT": ["INFLIGHT"]}
PATHS |= {"DELIVERED": ["INFLIGHT", "DELIVERED"], "DEAD": ["INFLIGHT", "DEAD"]}


async def job_in(world: World, state: str) -> str:
    await world.broadcast()
    job: str = (await world.queued())[-1]["ID"]
    for step in PATHS[state]:
        await world.move(job, step)
    return job


@pytest.mark.parametrize("state", TABLE)
async def test_every_cell_of_the_table_over_http(world: World, state: str) -> None:
    for (asked, extra), expected in zip(ASKED, TABLE[state], strict=True):
        job = await job_in(world, state)
        before = await world.job(job)
        await world.move(job, asked, expected, extra=extra)
        after = await world.job(job)
        if expected == 202 and asked != state:
            assert after["state"] == asked
            assert after["retries"] == before["retries"] + (state == "DEAD")
        else:
            assert after == before, "refused or already there: nothing may change"


async def test_the_list_has_the_specified_shape(world: World) -> None:
    await world.broadcast(
        '{"a": 1}',
        Content_Type="application/json",
        X_Broker_Message_ID="m-1",
        X_Broker_Message_Priority="7",
        X_Broker_Metadata_Headers="X-Tenant, X-None",
        X_Tenant="t1",
    )
    job = (await world.queued())[0]
    assert job.pop("ID").isdigit()
    assert job == {
        "Priority": 7,
        "IncrementalTimeout": 0,
        "Message": {
            "MessageID": "m-1",
            "Payload": '{"a": 1}',
            "Headers": {"X-Tenant": "t1"},
            "ContentType": "application/json",
        },
    }


async def test_higher_priorities_come_first_and_older_ones_within_a_priority(world: World) -> None:
    for number, priority in enumerate([0, 5, 0, 9, 5]):
        await world.broadcast(f"{number}", X_Broker_Message_Priority=str(priority))
    listed = [job["Message"]["Payload"] for job in await world.queued()]
    assert listed == ["3", "1", "4", "0", "2"]


async def test_the_limit_is_25_by_default_and_clipped_to_100(world: World) -> None:
    for number in range(101):
        await world.broadcast(str(number))
    assert len(await world.queued()) == 25
    assert len(await world.queued(101)) == 100
    assert len(await world.queued(100_000)) == 100
    assert len(await world.queued(7)) == 7
    assert await world.queued(0) == []


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", "", "1e3", "٣"])
@pytest.mark.one_database
async def test_a_limit_that_is_no_number_is_refused(world: World, limit: str) -> None:
    response = await world.http.get(
        "/channel/c/consumer/k/queued-jobs", params={"limit": limit}, headers=PULL
    )
    assert response.status_code == 400
    assert "limit" in response.text


LADDER = [
    ("none", "k", {}, 404),
    ("c", "k", {"X-Broker-Channel-Token": "wrong"}, 403),
    ("c", "k", {"X-Broker-Channel-Token": ""}, 403),
    ("c", "none", {}, 401),
    ("c", "k", {"X-Broker-Consumer-Token": "wrong"}, 403),
    ("c", "pushed", {"X-Broker-Consumer-Token": "t"}, 412),
]


@pytest.mark.parametrize(("channel", "consumer", "headers", "status"), LADDER)
@pytest.mark.one_database
async def test_who_asks_is_checked_in_the_specified_order(
    world: World, channel: str, consumer: str, headers: dict[str, str], status: int
) -> None:
    await world.consumer("pushed", callbackUrl="http://127.0.0.1/", token="t")
    base = f"/channel/{channel}/consumer/{consumer}"
    for method, path in [("GET", "/queued-jobs?limit=x"), ("GET", "/job/1"), ("POST", "/job/1")]:
        response = await world.http.request(
            method, base + path, headers={**PULL, **headers}, content=b"no json"
        )
        assert response.status_code == status, response.text


async def test_a_job_of_another_consumer_is_401_and_an_unknown_one_404(world: World) -> None:
    await world.consumer("other", type="pull", token="kt")
    await world.broadcast()
    job = (await world.queued(consumer="other"))[0]["ID"]
    await world.move(job, "INFLIGHT", 401)
    await world.move("999", "INFLIGHT", 404)
    await world.move("0x1", "INFLIGHT", 404)
    assert await world.state(job, "other") == "QUEUED"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"NextState": "DELIVERED",}',
        b"[]",
        b'"INFLIGHT"',
        b'{"NextState": 1}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": -1}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": 1.5}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": "1"}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": true}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": 99999999999}',
        b"\xff",
    ],
)
@pytest.mark.one_database
async def test_a_body_that_cannot_be_understood_is_400(world: World, body: bytes) -> None:
    job = await job_in(world, "QUEUED")
    response = await world.http.post(
        f"/channel/c/consumer/k/job/{job}",
        content=body,
        headers={**PULL, "Accept": "application/json"},
    )
    assert response.status_code == 400
    assert set(response.json()) == {"code", "message", "field"}
    assert await world.state(job) == "QUEUED"


@pytest.mark.one_database
async def test_keys_are_taken_in_any_case_and_unknown_ones_ignored(world: World) -> None:
    job = await job_in(world, "QUEUED")
    body = {"nextstate": "INFLIGHT", "INCREMENTALTIMEOUT": 0, "Extra": [1]}
    response = await world.http.post(f"/channel/c/consumer/k/job/{job}", json=body, headers=PULL)
    assert response.status_code == 202
    assert response.content == b""


@pytest.mark.one_database
async def test_errors_are_plain_text_unless_json_is_accepted(world: World) -> None:
    plain = await world.http.get("/channel/none/consumer/k/queued-jobs")
    assert plain.headers["content-type"].startswith("text/plain")
    as_json = await world.http.get(
        "/channel/none/consumer/k/queued-jobs", headers={"Accept": "application/json"}
    )
    assert as_json.json() == {
        "code": "not_found",
        "message": "there is no such channel",
        "field": "channelId",
    }


async def test_a_job_not_finished_in_time_is_queued_again_with_one_retry_more(world: World) -> None:
    slow, quick = await job_in(world, "QUEUED"), await job_in(world, "QUEUED")
    await world.move(slow, "INFLIGHT", extra=10)
    await world.move(quick, "INFLIGHT")
    await world.sweep(32.2)
    assert [await world.state(slow), await world.state(quick)] == ["INFLIGHT", "INFLIGHT"]
    await world.sweep(0.1)
    assert [await world.state(slow), await world.state(quick)] == ["INFLIGHT", "QUEUED"]
    await world.sweep(9.9)
    assert await world.state(slow) == "INFLIGHT"
    await world.sweep(0.1)
    assert await world.state(slow) == "QUEUED"
    detail = await world.job(slow)
    assert (detail["retries"], detail["last_error"]) == (1, "the lease expired")
    assert [attempt["kind"] for attempt in detail["attempts"]] == ["expired"]


async def test_asking_for_inflight_again_does_not_extend_the_time(world: World) -> None:
    job = await job_in(world, "INFLIGHT")
    world.clock.advance(30)
    await world.move(job, "INFLIGHT")
    await world.sweep(2.3)
    assert await world.state(job) == "QUEUED"


async def test_an_incremental_timeout_holds_for_one_claim_only(world: World) -> None:
    job = await job_in(world, "QUEUED")
    await world.move(job, "INFLIGHT", extra=1000)
    await world.sweep(1033)
    listed = await world.queued()
    assert listed[0]["IncrementalTimeout"] == 0
    await world.move(job, "INFLIGHT")
    await world.sweep(32.3)
    assert await world.state(job) == "QUEUED"


async def test_a_job_that_times_out_once_too_often_is_dead_at_once(world: World) -> None:
    since = (await world.http.get("/channel/c/consumer/k")).headers["last-modified"]
    await world.consumer("k", since=since, maxRetries="2")
    job = await job_in(world, "QUEUED")
    for expected in ("QUEUED", "QUEUED", "DEAD"):
        await world.move(job, "INFLIGHT")
        await world.sweep(33)
        assert await world.state(job) == expected
    # Taken from the dead letters it counts as a retry, and is dead again when it times out.
    await world.move(job, "INFLIGHT")
    assert (await world.job(job))["retries"] == 3
    await world.sweep(33)
    assert await world.state(job) == "DEAD"


async def test_the_acceptance_script_of_pull_consumption(world: World) -> None:
    await world.consumer("other", type="pull", token="kt")
    for number in range(40):
        await world.broadcast(str(number))
    first: list[dict[str, Any]] = await world.queued(25)
    assert len(first) == 25
    for job in first:
        await world.move(job["ID"], "INFLIGHT", extra=10)
    assert len(await world.queued(25, "other")) == 25
    assert len(await world.queued(25)) == 15
    await world.move(first[0]["ID"], "DELIVERED")
    await world.move(first[0]["ID"], "INFLIGHT", 400)
    await world.sweep(40)
    assert len(await world.queued(40)) == 15
    await world.sweep(5)
    assert len(await world.queued(40)) == 39


async def test_a_job_read_shows_where_everything_is(world: World) -> None:
    job = await job_in(world, "INFLIGHT")
    path = f"/channel/c/consumer/k/job/{job}"
    body = (await world.http.get(path, headers=PULL)).json()
    assert body["Status"] == "INFLIGHT"
    assert body["JobRequeueURL"] == ""
    for name in ("MessageURL", "ChannelURL", "ConsumerURL", "ProducerURL"):
        assert (await world.http.get(body[name])).status_code == 200
    await world.move(job, "DEAD")
    body = (await world.http.get(path, headers=PULL)).json()
    assert body["JobRequeueURL"] == f"{path}/requeue-dead-job"


async def test_jobs_of_one_key_that_are_requeued_together_are_handed_out_in_turn(
    world: World,
) -> None:
    for _ in range(3):
        await world.broadcast(X_Broker_Ordering_Key="a")
    died = []
    for _ in range(3):
        (job,) = await world.claim(5)
        died.append(job["id"])
        await world.lease("fail", jobs=[{**held(job)[0], "dead": True}])
    await world.http.post("/channel/c/consumer/k/dlq", data={"requeue": "kt"})
    again = []
    for _ in range(3):
        (job,) = await world.claim(5)
        again.append(job["id"])
        await world.lease("complete", jobs=held(job))
    assert again == died
