"""Broadcasting and reading messages; scheduled ones; dead letters; counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.jobs.models import Options, rfc3339
from jobs_world import PRODUCER, PULL, World, held


def at(world: World, seconds: float) -> str:
    return rfc3339(world.runtime.now_us() + round(seconds * 1e6))


@pytest.mark.parametrize("consumers", [0, 1, 2, 26])
async def test_every_consumer_of_the_channel_gets_one_job(world: World, consumers: int) -> None:
    for number in range(consumers - 1):
        await world.consumer(f"n{number}", type="pull", token="kt")
    if consumers == 0:
        since = {
            "If-Unmodified-Since": (await world.http.get("/channel/c/consumer/k")).headers[
                "last-modified"
            ]
        }
        await world.http.delete("/channel/c/consumer/k", headers=since)
    response = await world.broadcast("x", X_Broker_Message_ID="m")
    assert response.headers["location"] == "/channel/c/message/m"
    assert response.content == b""
    message = (await world.http.get("/channel/c/message/m")).json()
    assert len(message["Jobs"]) == consumers
    assert message["Status"] == "DISPATCHED"
    assert message["ProducedBy"] == "p"


async def test_consumers_of_other_channels_get_nothing(world: World) -> None:
    await world.put("/channel/d", token="dt")
    await world.put("/channel/d/consumer/k", type="pull", token="kt")
    await world.broadcast()
    response = await world.http.get(
        "/channel/d/consumer/k/queued-jobs", headers={**PULL, "X-Broker-Channel-Token": "dt"}
    )
    assert response.json() == {"Result": []}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/channel/none/broadcast", {}, 404),
        ("/channel/c/broadcast", {"X-Broker-Channel-Token": "x"}, 403),
        ("/channel/c/broadcast", {"X-Broker-Producer-ID": "none"}, 401),
        ("/channel/c/broadcast", {"X-Broker-Producer-ID": ""}, 401),
        ("/channel/c/broadcast", {"X-Broker-Producer-Token": "x"}, 403),
        ("/channel/c/broadcast", {"X-Broker-Scheduled-For": "2025/12/31 23:59:59"}, 400),
        ("/channel/c/broadcast", {"X-Broker-Scheduled-For": "2025-12-31T23:59:59"}, 400),
        ("/channel/c/broadcast", {"X-Broker-Scheduled-For": "2020-12-31T23:59:59Z"}, 412),
        ("/channel/c/broadcast", {"X-Broker-Message-ID": "a b"}, 400),
        ("/channel/c/broadcast", {"X-Broker-Message-Priority": "-1"}, 400),
        ("/channel/c/broadcast", {"X-Broker-Message-Priority": "99999999999"}, 400),
        (
            "/channel/c/broadcast",
            {
                "X-Broker-Metadata-Headers": "X-Broker-Consumer-Token",
                "X-Broker-Consumer-Token": "x",
            },
            400,
        ),
        ("/channel/c/broadcast", {"X-Broker-Metadata-Headers": "User-Agent"}, 400),
    ],
)
@pytest.mark.one_database
async def test_a_broadcast_that_may_not_be_is_refused_and_leaves_nothing(
    world: World, path: str, headers: dict[str, str], status: int
) -> None:
    response = await world.http.post(path, content=b"x", headers={**PRODUCER, **headers})
    assert response.status_code == status, response.text
    assert await world.queued() == []
    assert (await world.http.get("/channel/c/messages")).json()["Result"] == []


@pytest.mark.one_database
async def test_text_of_headers_is_utf8_and_other_bytes_are_refused(world: World) -> None:
    await world.set_filter(headers={"X-Name": ["Zo\u00eb*"]})
    text = "Zo\u00eb \u20ac\tзаказ"

    async def publish(value: bytes, name: bytes = b"X-Name") -> Any:
        headers = {
            **{key.encode(): said.encode() for key, said in PRODUCER.items()},
            b"X-Broker-Metadata-Headers": b"X-Name",
            name: value,
        }
        return await world.http.post("/v2/channel/c/messages", content=b"x", headers=headers)

    assert (await publish(text.encode())).status_code == 201
    (job,) = await world.claim()
    assert job["message"]["headers"] == {"X-Name": text}
    for name in ("X-Name", "Content-Type", "X-Broker-Ordering-Key", "X-Broker-Subject"):
        refused = await publish("Zo\u00eb".encode("latin-1"), name.encode())
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_header")
        assert refused.json()["field"] == name


@pytest.mark.one_database
async def test_a_coded_body_is_refused_and_one_that_is_said_to_be_none_is_taken(
    world: World,
) -> None:
    for path in ("/channel/c/broadcast", "/v2/channel/c/messages", "/v2/channel/c/messages/batch"):
        for coding in ("gzip", "br", "identity, gzip", "zaphod"):
            headers = {**PRODUCER, "Content-Encoding": coding, "Accept": "application/json"}
            refused = await world.http.post(path, content=b"{}", headers=headers)
            assert (refused.status_code, refused.json()["field"]) == (415, "Content-Encoding")
    assert await world.queued() == []
    await world.broadcast(Content_Encoding="identity")
    assert len(await world.queued()) == 1


@pytest.mark.one_database
async def test_a_priority_that_is_no_number_counts_as_0(world: World) -> None:
    await world.broadcast(X_Broker_Message_Priority="high")
    assert (await world.queued())[0]["Priority"] == 0


@pytest.mark.parametrize("text", ["9" * 23, "-" + "9" * 23, "+" + "9" * 5000, "2147483648", "-1"])
@pytest.mark.one_database
async def test_a_priority_beyond_the_limits_is_refused_however_long_it_is(
    world: World, text: str
) -> None:
    refused = await world.broadcast(expect=400, X_Broker_Message_Priority=text)
    assert "0 to 2147483647" in refused.text


@pytest.mark.parametrize(
    ("text", "expect", "shown"),
    [
        ("9999-12-31T23:59:59-12:00", 400, None),
        ("0001-01-01T00:00:00+14:00", 400, None),
        ("9999-12-31T23:59:59.999999Z", 201, "9999-12-31T23:59:59.999999Z"),
        ("9999-12-31T23:59:59+12:00", 201, "9999-12-31T11:59:59Z"),
        ("10000-01-01T00:00:00Z", 400, None),
    ],
)
async def test_a_schedule_at_the_end_of_time_is_kept_to_the_microsecond_or_refused(
    world: World, text: str, expect: int, shown: str | None
) -> None:
    answer = await world.broadcast(expect=expect, X_Broker_Scheduled_For=text)
    if shown is not None:
        found = (await world.http.get(answer.headers["Location"])).json()
        assert found["dispatchSchedule"] == shown
        assert (await world.http.get("/channel/c/messages-status")).json()[
            "next_scheduled_message_at"
        ] == shown


async def test_a_message_id_is_taken_once_per_channel(world: World) -> None:
    await world.broadcast(X_Broker_Message_ID="evt-1")
    await world.broadcast(X_Broker_Message_ID="evt_1")
    await world.broadcast(expect=409, X_Broker_Message_ID="evt-1")
    await world.broadcast(
        expect=409, X_Broker_Message_ID="evt-1", X_Broker_Scheduled_For=at(world, 300)
    )
    assert len(await world.queued()) == 2


async def test_an_idempotency_key_collapses_repeats_and_refuses_another_message(
    world: World,
) -> None:
    for _ in range(3):
        response = await world.broadcast("x", Idempotency_Key="key-1")
        assert response.headers["location"] == "/channel/c/message/key-1"
    await world.broadcast("y", 422, Idempotency_Key="key-1")
    await world.broadcast("x", 422, Idempotency_Key="key-1", X_Broker_Message_Priority="1")
    assert len(await world.queued()) == 1


@pytest.mark.one_database
async def test_payloads_have_a_limit_and_are_not_empty(world: World) -> None:
    limit = world.runtime.options.payload_bytes_max
    await world.broadcast(b"x" * limit)
    response = await world.broadcast(b"x" * (limit + 1), 413)
    assert str(limit) in response.text
    await world.broadcast(b"", 400)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    refused = await world.http.post("/channel/c/broadcast", content=endless(), headers=PRODUCER)
    assert refused.status_code == 413


async def test_the_list_of_messages_pages_and_keeps_its_filter(world: World) -> None:
    for number in range(30):
        await world.broadcast(X_Broker_Message_ID=f"m{number:02}")
    page = (await world.http.get("/channel/c/messages?status=102&status=x")).json()
    assert page["Result"][0] == "/channel/c/message/m29"
    assert "status=102" in page["Pages"]["next"]
    rest = (await world.http.get(page["Pages"]["next"])).json()
    assert [link[-3:] for link in rest["Result"]] == ["m04", "m03", "m02", "m01", "m00"]
    assert (await world.http.get("/channel/c/messages?status=101")).json()["Result"] == []


async def test_a_scheduled_message_is_dispatched_when_its_time_comes(world: World) -> None:
    response = await world.broadcast(
        "later", X_Broker_Message_ID="s", X_Broker_Scheduled_For=at(world, 180)
    )
    location = response.headers["location"]
    assert location == "/channel/c/scheduled-message/s"
    assert (await world.http.get("/channel/c/message/s")).status_code == 404
    assert (await world.http.get(location)).json()["status"] == "SCHEDULED"
    counts = (await world.http.get("/channel/c/messages-status")).json()
    assert counts["counts"]["SCHEDULED_SCHEDULED"]["Count"] == 1
    assert (
        counts["next_scheduled_message_at"]
        == (await world.http.get(location)).json()["dispatchSchedule"]
    )
    await world.sweep(179)
    assert await world.queued() == []
    await world.sweep(2)
    assert [job["Message"]["Payload"] for job in await world.queued()] == ["later"]
    shown = (await world.http.get(location)).json()
    assert shown["status"] == "DISPATCHED"
    assert shown["dispatchedAt"] is not None
    assert (await world.http.get("/channel/c/message/s")).json()["Status"] == "DISPATCHED"
    counts = (await world.http.get("/channel/c/messages-status")).json()["counts"]
    assert {name: count["Count"] for name, count in counts.items()} == {
        "ACKNOWLEDGED": 0,
        "DISPATCHED": 1,
        "SCHEDULED_SCHEDULED": 0,
        "SCHEDULED_DISPATCHED": 1,
    }


async def test_the_least_delay_of_a_schedule_is_the_configured_one(world: World) -> None:
    await world.broadcast(expect=412, X_Broker_Scheduled_For=at(world, 119))
    world.runtime.options = Options(schedule_min_delay_s=5)
    await world.broadcast(X_Broker_Scheduled_For=at(world, 6))


async def test_scheduled_messages_are_listed_by_status_and_can_be_cancelled(world: World) -> None:
    for number in range(27):
        await world.broadcast(
            X_Broker_Message_ID=f"s{number}", X_Broker_Scheduled_For=at(world, 200)
        )
    page = (await world.http.get("/channel/c/scheduled-messages?status=101")).json()
    assert len(page["result"]) == 25
    assert "status=101" in page["pages"]["next"]
    assert len((await world.http.get(page["pages"]["next"])).json()["result"]) == 2
    assert (await world.http.get("/channel/c/scheduled-messages?status=102")).json()["result"] == []
    path = "/channel/c/scheduled-message/s3"
    assert (await world.http.delete(path)).status_code == 204
    assert (await world.http.delete(path)).status_code == 404
    await world.sweep(300)
    assert len(await world.queued(100)) == 26
    assert (await world.http.delete("/channel/c/scheduled-message/s4")).status_code == 404


async def dead(world: World, consumer: str = "k") -> str:
    await world.broadcast()
    job = (await world.claim(consumer=consumer))[0]
    await world.lease(
        "fail", consumer=consumer, jobs=[{**held(job)[0], "dead": True, "reason": "no"}]
    )
    identity: str = job["id"]
    return identity


async def test_dead_letters_show_their_last_error_and_go_back_one_by_one(world: World) -> None:
    job = await dead(world)
    listed = (await world.http.get("/channel/c/consumer/k/dlq")).json()["DeadJobs"][0]
    assert (listed["Status"], listed["LastError"]) == ("DEAD", "no")
    assert (await world.http.post(listed["JobRequeueURL"], headers=PULL)).status_code == 202
    detail = await world.job(job)
    assert (detail["state"], detail["retries"]) == ("QUEUED", 0)
    again = await world.http.post(listed["JobRequeueURL"], headers=PULL)
    assert again.status_code == 400


async def test_dead_letters_go_back_all_at_once_with_the_consumers_token(world: World) -> None:
    for _ in range(3):
        await dead(world)
    path = "/channel/c/consumer/k/dlq"
    assert (await world.http.post(path, data={"requeue": "wrong"})).status_code == 400
    assert (await world.http.post(path, json={"requeue": "kt"})).status_code == 415
    assert (await world.http.post(path, data={"requeue": "kt"})).status_code == 202
    assert len(await world.queued()) == 3
    assert (await world.http.get(path)).json() == {"DeadJobs": [], "Pages": {}}


async def test_dead_letters_are_deleted_one_by_one_and_purged(world: World) -> None:
    first = await dead(world)
    await dead(world)
    await dead(world)
    path = f"/channel/c/consumer/k/job/{first}"
    assert (await world.http.delete(path)).status_code == 403
    assert (await world.http.delete(path, headers=PULL)).status_code == 204
    assert (await world.http.delete(path, headers=PULL)).status_code == 404
    purge = await world.http.request("DELETE", "/channel/c/consumer/k/dlq", headers=PULL)
    assert purge.json() == {"deletedCount": 2}


async def test_counts_follow_every_path_a_job_can_take(world: World) -> None:
    async def count() -> dict[str, int]:
        jobs: dict[str, int] = (await world.http.get("/v2/channel/c/consumer/k")).json()["jobs"]
        return {state: n for state, n in jobs.items() if n}

    for _ in range(4):
        await world.broadcast()
    a, b, c, _ = await world.claim(4)
    assert await count() == {"INFLIGHT": 4}
    await world.lease("complete", jobs=held(a))
    await world.lease("fail", jobs=[{**held(b)[0], "dead": True}])
    await world.lease("release", jobs=held(c))
    assert await count() == {"DELIVERED": 1, "DEAD": 1, "QUEUED": 1, "INFLIGHT": 1}
    await world.sweep(60)
    assert await count() == {"DELIVERED": 1, "DEAD": 1, "QUEUED": 2}
    status = (await world.http.get("/dlq-status")).json()["consumers"]
    assert [(one["consumerId"], one["deadCount"]) for one in status] == [("k", 1)]
    await world.http.post("/channel/c/consumer/k/dlq", data={"requeue": "kt"})
    assert await count() == {"DELIVERED": 1, "QUEUED": 3}
    assert (await world.http.get("/dlq-status")).json() == {"consumers": []}
    by_state = (await world.http.get("/job-status")).json()["c"]["k"]
    assert {entry["status"]: entry["count"] for entry in by_state} == {1001: 3, 1003: 1}
    assert all(entry["oldestItemTimestamp"] <= entry["newestItemTimestamp"] for entry in by_state)


async def test_no_secret_is_in_any_listing_or_status(world: World) -> None:
    await world.put("/channel/s", token="sesame-channel")
    await world.put("/producer/s", token="sesame-producer")
    await world.consumer("s", type="pull", token="sesame-consumer")
    await world.broadcast()
    paths = [
        "/_status",
        "/dlq-status",
        "/job-status",
        "/metrics",
        "/health/ready",
        "/openapi.json",
        "/producers",
    ]
    paths += [
        "/channels",
        "/channel/c/consumers",
        "/channel/s",
        "/producer/s",
        "/channel/c/consumer/s",
    ]
    paths += [
        "/v2/channel/c/consumer/s",
        "/v2/events",
        "/channel/c/messages",
        "/channel/c/consumer/s/dlq",
    ]
    for path in paths:
        response = await world.http.get(path)
        assert response.status_code == 200, path
        assert "sesame" not in response.text, path
        assert "whsec_" not in response.text, path
    assert "sesame" not in repr(world.runtime)
