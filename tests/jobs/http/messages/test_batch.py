"""Many messages are published with one request: all or none."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.jobs import limits
from headrace.jobs.client import AsyncJobsClient, JobsError, OutgoingMessage
from jobs_world import PRODUCER, World

PUBLISHER = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


async def publish(world: World, expect: int, *messages: dict[str, Any], **headers: str) -> Any:
    answer = await world.http.post(
        "/v2/channel/c/messages/batch", json={"messages": messages}, headers={**PRODUCER, **headers}
    )
    assert answer.status_code == expect, answer.text
    return answer.json()


async def stored(world: World) -> int:
    counted: int = (await world.http.get("/v2/channel/c")).json()["messages"]
    return counted


async def test_a_batch_is_stored_whole_with_everything_that_each_message_says(
    world: World,
) -> None:
    rows = [{"payload": f"{number}", "priority": number % 2} for number in range(300)]
    raw = {
        "payload": base64.b64encode(b"\xff\x00").decode(),
        "encoding": "base64",
        "content_type": "a/b",
        "id": "m",
        "headers": {"X-T": "1"},
        "ordering_key": "a",
        "priority": 9,
    }
    later = {"payload": "later", "scheduled_for": "2999-01-01T00:00:00Z"}
    answer = await publish(world, 201, *rows, raw, later, {**raw, "id": "m2"})
    assert [one["jobs"] for one in answer["messages"]] == [1] * 301 + [0, 1]
    assert answer["messages"][300]["id"] == "m"
    assert answer["messages"][301]["scheduled"] is True
    claimed = await world.claim(400)
    assert claimed[0]["message"] == {
        "id": "m", "payload": "/wA=", "encoding": "base64", "content_type": "a/b",
        "headers": {"X-T": "1"}, "ordering_key": "a",
    }  # fmt: skip
    assert len(claimed) == 301, "the second of the key waits for the first"
    assert [job["message"]["payload"] for job in claimed[1:4]] == ["1", "3", "5"]
    counters = (await world.http.get("/metrics")).text
    assert 'jobs_published_total{channel="c"} 303' in counters
    assert 'jobs_enqueued_total{channel="c"} 302' in counters


async def test_one_that_is_refused_is_named_and_none_is_stored(world: World) -> None:
    good = {"payload": "x", "ordering_key": "k"}
    await publish(world, 201, {**good, "id": "there"})
    refused: tuple[tuple[dict[str, Any], int, str], ...] = (
        ({"payload": ""}, 400, "payload"),
        ({"payload": "x", "encoding": "hex"}, 400, "encoding"),
        ({"payload": "!", "encoding": "base64"}, 400, "payload"),
        ({"payload": "x", "id": "a b"}, 400, "id"),
        ({"payload": "x", "id": "there"}, 409, "id"),
        ({"payload": "y", "id": "there", "idempotent": True}, 422, "idempotent"),
        ({"payload": "x", "idempotent": True}, 400, "id"),
        ({"payload": "x", "priority": -1}, 400, "priority"),
        ({"payload": "x", "ordering_key": "\n"}, 400, "ordering_key"),
        ({"payload": "x", "headers": {"Host": "x"}}, 400, "headers"),
        ({"payload": "x", "headers": {"X": "a\nb"}}, 400, "headers"),
        ({"payload": "x", "headers": {"X Y": "a"}}, 400, "headers"),
        ({"payload": "x", "headers": {"X": "\0"}}, 400, "headers"),
        ({"payload": "x", "headers": {"X": " a"}}, 400, "headers"),
        ({"payload": "x", "headers": {"X\u20ac": "a"}}, 400, "headers"),
        ({"payload": "x", "content_type": "a/b "}, 400, "content_type"),
        ({"payload": "x", "scheduled_for": "soon"}, 400, "scheduled_for"),
        ({"payload": "x", "scheduled_for": "2020-01-01T00:00:00Z"}, 412, "scheduled_for"),
    )
    for message, status, field in refused:
        problem = await publish(world, status, good, good, message, good)
        assert problem["field"] == f"messages[2].{field}", message
        assert await stored(world) == 1
    await publish(world, 400)
    await publish(world, 400, *[good] * 501)
    await publish(world, 403, good, **{"X-Broker-Producer-Token": "no"})
    again = await publish(world, 201, good, {**good, "id": "there", "idempotent": True})
    assert [one["replayed"] for one in again["messages"]] == [False, True]
    await publish(world, 200, {**good, "id": "there", "idempotent": True})
    assert await stored(world) == 2


@pytest.mark.one_database
async def test_a_body_that_is_too_large_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 1000)
    await publish(world, 413, {"payload": "x" * 1000})


@pytest.mark.one_database
async def test_the_client_publishes_batches(world: World, address: str) -> None:
    messages = [OutgoingMessage(payload=b"\xff", message_id=f"m{number}") for number in range(5)]
    async with AsyncJobsClient(address) as client:
        answers = await client.publish_batch("c", messages, **PUBLISHER)
        assert [one["id"] for one in answers] == [f"m{number}" for number in range(5)]
        with pytest.raises(JobsError, match="channel has a message with this id") as refused:
            await client.publish_batch("c", messages[4:], **PUBLISHER)
    assert refused.value.field == "messages[0].id"
    assert len(await world.claim(9)) == 5
