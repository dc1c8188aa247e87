"""Unique by arguments: of messages that are the same, one is stored, whoever publishes them at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs.client import OutgoingMessage
from headrace.jobs.errors import JobsError
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.matching.patterns import MISSING, parse_path, value_at
from headrace.jobs.matching.unique import Unique, key_of
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.retention import Keep
from jobs_world import PRODUCER, World, held, jobs_client

USER = {"by": ["payload:$.user.id"]}


async def publish(
    world: World, payload: Any, unique: Any = None, expect: int = 201, **headers: str
) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if unique is not None:
        named["X-Broker-Unique"] = json.dumps(unique)
    response = await world.http.post(
        "/v2/channel/c/messages", content=json.dumps(payload), headers={**PRODUCER, **named}
    )
    assert response.status_code == expect, response.text
    return response.json()


async def batch(world: World, *messages: dict[str, Any], expect: int = 201) -> Any:
    response = await world.http.post(
        "/v2/channel/c/messages/batch", json={"messages": messages}, headers=PRODUCER
    )
    assert response.status_code == expect, response.text
    return response.json()


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"user": {"id": number}, **more}


async def test_the_second_is_answered_with_the_id_of_the_first(world: World) -> None:
    first = await publish(world, user(7), USER)
    assert (first["duplicate"], first["jobs"]) == (False, 1)
    again = await publish(world, user(7, more=1), USER, expect=200)
    assert again == {**first, "jobs": 0, "replayed": True, "duplicate": True}
    assert (await publish(world, user(8), USER))["duplicate"] is False
    assert (await publish(world, user(7)))["duplicate"] is False
    assert len(await world.claim(10)) == 3
    location = await world.broadcast(json.dumps(user(7)), X_Broker_Unique=json.dumps(USER))
    assert location.headers["location"].endswith(first["id"])


async def test_it_is_unique_by_each_part_and_within_its_channel(world: World) -> None:
    await world.put("/channel/d", token="ct")
    parts = {"by": ["subject", "ordering_key", "content_type", "payload"]}
    said: Any = {"X_Broker_Subject": "a", "X_Broker_Ordering_Key": "k", "Content_Type": "a/b"}
    first = await publish(world, 1, parts, **said)
    assert (await publish(world, 1, parts, expect=200, **said))["id"] == first["id"]
    for name in said:
        await publish(world, 1, parts, **{**said, name: "other"})
    await publish(world, 2, parts, **said)
    elsewhere = await world.http.post(
        "/v2/channel/d/messages",
        content="1",
        headers={
            **PRODUCER,
            "X-Broker-Unique": json.dumps(parts),
            **{name.replace("_", "-"): value for name, value in said.items()},
        },
    )
    assert elsewhere.status_code == 201


async def test_it_lasts_for_a_time_and_while_the_first_has_jobs_in_these_states(
    world: World,
) -> None:
    hour = {**USER, "within": 3600}
    await publish(world, user(1), hour)
    world.clock.advance(3599)
    await publish(world, user(1), hour, expect=200)
    world.clock.advance(1)
    newer = await publish(world, user(1), hour)
    world.clock.advance(1800)
    assert (await publish(world, user(1), hour, expect=200))["id"] == newer["id"]

    waits = {**USER, "while": ["QUEUED", "INFLIGHT"]}
    await world.lease("complete", jobs=held(*await world.claim(10)))
    await publish(world, user(2), waits)
    await publish(world, user(2), waits, expect=200)
    (job,) = await world.claim(10)
    await publish(world, user(2), waits, expect=200)
    await world.lease("complete", jobs=held(job))
    await publish(world, user(2), waits)
    await publish(world, user(3), waits, X_Broker_Scheduled_For="2999-01-01T00:00:00Z")
    scheduled = await publish(world, user(3), waits, expect=200)
    assert (scheduled["scheduled"], scheduled["duplicate"]) == (True, True)


async def test_of_many_at_once_one_is_stored_whichever_process_they_go_through(
    world: World, service_on: Callable[..., Runtime]
) -> None:
    second = service_on(clock=world.clock, options=world.runtime.options)
    await second.start()
    try:
        tokens: Any = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
        async with jobs_client(second) as client:

            async def one(number: int) -> dict[str, Any]:
                if number % 3 == 0:
                    return dict(
                        await client.publish(
                            "c", json.dumps(user(5)).encode(), unique=USER, **tokens
                        )
                    )
                if number % 3 == 1:
                    many = [
                        OutgoingMessage(payload=json.dumps(user(n)).encode(), unique=USER)
                        for n in ((5, 6) if number % 2 else (6, 5))
                    ]
                    found = await client.publish_batch("c", many, **tokens)
                    return found[0 if number % 2 else 1]
                response = await world.http.post(
                    "/v2/channel/c/messages",
                    content=json.dumps(user(5)),
                    headers={**PRODUCER, "X-Broker-Unique": json.dumps(USER)},
                )
                assert response.status_code in {200, 201}, response.text
                return dict(response.json())

            answers = await asyncio.gather(*(one(number) for number in range(24)))
    finally:
        await second.close()
    assert sum(not answer["duplicate"] for answer in answers) == 1
    assert len({answer["id"] for answer in answers}) == 1
    assert len(await world.claim(50)) == 2


async def test_in_a_batch_the_first_is_stored(world: World) -> None:
    one = {"payload": json.dumps(user(1)), "unique": USER, "id": "first"}
    found = await batch(world, one, {**one, "id": "second"}, {"payload": "x"})
    assert [(m["id"], m["duplicate"]) for m in found["messages"][:2]] == [
        ("first", False),
        ("first", True),
    ]
    again = await batch(world, {**one, "id": "third"}, expect=200)
    assert again["messages"][0]["id"] == "first"
    assert len(await world.claim(10)) == 2


async def test_when_retention_has_removed_the_first_the_next_is_new(world: World) -> None:
    await publish(world, user(1), USER)
    await world.lease("complete", jobs=held(*await world.claim(1)))
    world.clock.advance(10)
    await Maintenance(world.runtime, Keep(messages_s=5)).retain()
    assert (await publish(world, user(1), USER))["duplicate"] is False


@pytest.mark.one_database
@pytest.mark.parametrize(
    "unique",
    [
        {},
        {"by": []},
        {"by": ["x"]},
        {"by": ["payload:"]},
        {"by": ["payload:$..a"]},
        {"by": ["payload:$[*]"]},
        {"by": ["payload:$[?(@.a)]"]},
        {"by": ["payload:$." + "a" * 300]},
        {"by": ["payload:$" + ".a" * 17]},
        {"by": ["subject"] * 17},
        {"by": ["subject"], "within": 0},
        {"by": ["subject"], "within": 1e300},
        {"by": ["subject"], "while": []},
        {"by": ["subject"], "while": ["SLEEPING"]},
        {"by": ["subject"], "until": 1},
    ],
)
async def test_what_cannot_be_asked_for_is_refused(world: World, unique: Any) -> None:
    refused = await publish(world, {"a": 1}, unique, expect=400)
    assert refused["field"].startswith("X-Broker-Unique")
    refused = await batch(world, {"payload": "{}", "unique": unique}, expect=400)
    assert refused["field"].startswith("messages[0]")
    assert await world.claim(1) == []


@pytest.mark.one_database
async def test_a_payload_that_is_no_json_has_no_paths(world: World) -> None:
    response = await world.http.post(
        "/v2/channel/c/messages",
        content=b"\xff[" * 9,
        headers={**PRODUCER, "X-Broker-Unique": json.dumps(USER)},
    )
    assert (response.status_code, response.json()["code"]) == (400, "invalid_unique")
    deep = await world.http.post(
        "/v2/channel/c/messages",
        content=b"[" * 100_000,
        headers={**PRODUCER, "X-Broker-Unique": json.dumps(USER)},
    )
    assert deep.status_code == 400


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
)


@given(DOCUMENTS, st.lists(st.sampled_from(["a", "b", "c", 0, 1]), min_size=1, max_size=4))
def test_a_path_finds_what_is_there(document: Any, steps: list[str | int]) -> None:
    text = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    assert parse_path(text, "path") == tuple(steps)
    expected = document
    for step in steps:
        holds = isinstance(expected, list if isinstance(step, int) else dict)
        there = holds and (step < len(expected) if isinstance(step, int) else step in expected)
        if not there:
            expected = MISSING
            break
        expected = expected[step]
    assert value_at(document, tuple(steps)) is expected


@given(DOCUMENTS, DOCUMENTS)
def test_two_payloads_are_the_same_if_the_value_at_the_path_is(one: Any, other: Any) -> None:
    def digest(document: Any) -> str:
        return key_of(
            Unique(by=("payload:$.x",)),
            "unique",
            payload=json.dumps(document).encode(),
            content_type="",
            ordering_key=None,
            headers={},
        ).digest

    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest({"x": one}) == digest({"x": other})) == same
    assert digest({"x": one}) != digest({})


@given(st.text(max_size=12))
def test_any_other_text_is_refused_as_a_path(text: str) -> None:
    try:
        steps = parse_path("$" + text, "path")
    except JobsError as error:
        assert error.status == 400
    else:
        assert steps


@pytest.mark.one_database
async def test_the_command_publishes_once(
    world: World, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del world
    monkeypatch.setenv("HEADRACE_JOBS_CHANNEL_TOKEN", "ct")
    monkeypatch.setenv("HEADRACE_JOBS_PRODUCER_TOKEN", "pt")
    words = ["jobs", "publish", "c", '{"id": 1}', "--producer", "p", "--url", address, "--json"]
    by = ["--unique-by", "payload:$.id", "--unique-within", "1h", "--unique-while", "queued"]
    said = []
    for _ in range(2):
        assert await asyncio.to_thread(main, [*words, *by]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert [one["duplicate"] for one in said] == [False, True]
    assert await asyncio.to_thread(main, [*words, "--unique-within", "1h"]) == 1
