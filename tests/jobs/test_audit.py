"""The audit log: each change with who, what, where from, and what came of it; no payloads and no secrets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.jobs import limits
from headrace.jobs.config import Config
from headrace.jobs.errors import DatabaseUnavailableError
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.server import apply_definitions, keep_of
from headrace.jobs.service import auditing
from jobs_world import FILLED, PRODUCER, PULL, World

ADMIN = {"Authorization": "Bearer sesame"}
QUEUE = "/v2/channel/c/consumer/k/jobs"


async def entries(world: World, **query: str) -> list[dict[str, Any]]:
    response = await world.http.get("/v2/audit", params=query, headers=ADMIN)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["entries"]
    return found


async def test_a_change_is_told_with_who_what_where_from_and_its_result(world: World) -> None:
    world.runtime.admin_token = "sesame"
    before = len(await entries(world))
    headers = {**ADMIN, "X-Request-ID": "req-1"}
    await world.http.patch("/v2/channel/c/consumer/k", json={"paused": True}, headers=headers)
    made = {"name": "ci", "scopes": ["admin"], "channels": ["c"]}
    key = (await world.http.post("/v2/keys", json=made, headers=ADMIN)).json()
    own = {"Authorization": f"Bearer {key['key']}"}
    await world.http.delete("/channel/c", headers={**own, "If-Match": '"0"'})
    found = await entries(world)
    assert len(found) == before + 3
    refused, minted, paused = found[:3]
    assert (
        paused.items()
        >= {
            "who": "admin token",
            "key": None,
            "action": "PATCH /v2/channel/{channelId}/consumer/{consumerId}",
            "object": "/v2/channel/c/consumer/k",
            "channel": "c",
            "address": "127.0.0.1",
            "request_id": "req-1",
            "result": "done",
            "detail": "paused",
        }.items()
    )
    assert minted["detail"] == f"key {key['id']} for admin in c"
    assert refused["who"] == f"key {key['id']} ci"
    assert refused["result"].startswith("412 ")
    assert [one["object"] for one in await entries(world, key=key["id"])] == ["/channel/c"]
    assert {one["channel"] for one in await entries(world, channel="c")} == {"c"}


async def test_nothing_of_payloads_and_secrets_is_in_it(world: World) -> None:
    await world.broadcast("payload-0815")
    await world.http.post("/v2/channel/c/consumer/k/token", json={"token": "token-0815"})
    secret = (await world.http.post("/v2/channel/c/consumer/k/secret", json={})).json()["secret"]
    key = (await world.http.post("/v2/keys", json={"name": "x", "scopes": ["publish"]})).json()
    url = {"callback_url": "http://name:password-0815@127.0.0.1/hook?token=0815", "type": "push"}
    await world.http.patch("/v2/channel/c/consumer/k", json=url)
    await world.http.put("/channel/d", data={"token": "channel-0815"})
    schedule = {"cron": "@daily", "message": {"payload": "schedule-0815"}}
    await world.http.put("/v2/channel/c/schedule/s", json=schedule)
    await world.http.get("/channels", headers={"Authorization": "Bearer wrong-0815"})
    text = str(await entries(world))
    assert "0815" not in text
    assert secret not in text
    assert key["key"].split(key["id"] + "_")[1] not in text


@pytest.mark.one_database
async def test_each_route_that_changes_something_tells_its_refusal(world: World) -> None:
    world.runtime.admin_token = "sesame"
    for endpoint in ENDPOINTS:
        if not endpoint.audited:
            continue
        path = endpoint.path.format(**FILLED)
        headers = {"Authorization": "Bearer wrong"}
        response = await world.http.request(endpoint.method, path, headers=headers)
        newest = (await entries(world))[0]
        assert newest["action"] == f"{endpoint.method} {endpoint.path}"
        assert newest["result"].startswith(str(response.status_code)), newest


@pytest.mark.one_database
async def test_what_jobs_and_messages_do_by_themselves_is_not_told(world: World) -> None:
    before = len(await entries(world))
    await world.broadcast()
    (job,) = await world.claim()
    held = {"id": job["id"], "lease": job["lease"], "dead": True}
    await world.lease("fail", jobs=[held])
    await world.http.get("/v2/channel/c/jobs")
    await world.http.post("/v2/channel/c/consumer/k/jobs/claim", json={}, headers={"X": "y"})
    assert len(await entries(world)) == before
    path = f"/channel/c/consumer/k/job/{job['id']}/requeue-dead-job"
    await world.http.post(path, headers=PULL)
    newest = (await entries(world))[0]
    assert (newest["who"], newest["result"]) == ("token of a consumer", "done")


async def test_a_change_that_is_not_stored_is_not_told_and_the_other_way_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(await entries(world))

    def fails(*_: object) -> None:
        raise DatabaseUnavailableError("gone")

    monkeypatch.setattr(auditing, "note", fails)
    await world.put("/channel/d", 503)
    monkeypatch.undo()
    assert (await world.http.get("/channel/d")).status_code == 404
    assert len(await entries(world)) == before


@pytest.mark.one_database
async def test_whoever_knocks_all_day_does_not_fill_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.runtime.admin_token = "sesame"
    most = 5
    monkeypatch.setattr(world.runtime.refusals, "_most", most)
    before = len(await entries(world))

    async def knock() -> None:
        wrong = {"Authorization": "Bearer wrong"}
        assert (await world.http.get("/channels", headers=wrong)).status_code == 403

    await asyncio.gather(*(knock() for _ in range(9)))
    assert len(await entries(world)) == before + most
    assert "jobs_audit_left_out_total 4" in (await world.http.get("/metrics")).text
    world.clock.advance(60)
    await knock()
    assert len(await entries(world)) == before + most + 1


@pytest.mark.parametrize(
    ("path", "given", "wrong", "result"),
    [
        ("/channel/c/broadcast", PRODUCER, "X-Broker-Channel-Token", "403 wrong_token"),
        ("/channel/c/broadcast", PRODUCER, "X-Broker-Producer-Token", "403 wrong_token"),
        ("/channel/c/broadcast", PRODUCER, "X-Broker-Producer-ID", "401 unknown_producer"),
        ("/v2/channel/c/messages/batch", PRODUCER, "X-Broker-Producer-Token", "403 wrong_token"),
        (f"{QUEUE}/claim", PULL, "X-Broker-Channel-Token", "403 wrong_token"),
        (f"{QUEUE}/claim", PULL, "X-Broker-Consumer-Token", "403 wrong_token"),
        (f"{QUEUE}/complete", PULL, "X-Broker-Consumer-Token", "403 wrong_token"),
    ],
)
async def test_a_wrong_token_is_told_counted_and_after_too_many_not_looked_at(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    given: dict[str, str],
    wrong: str,
    result: str,
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 3)
    before = len(await entries(world))

    async def ask(headers: dict[str, str]) -> int:
        bodies = {"claim": {}, "complete": {"jobs": [{"id": "1", "lease": "none"}]}}
        body = bodies.get(path.rpartition("/")[2], {"messages": [{"payload": "x"}]})
        answer = await world.http.post(path, json=body, headers=headers)
        return answer.status_code

    known = await ask(given)
    assert known not in (401, 403, 429)
    for _ in range(3):
        assert await ask({**given, wrong: "guess-0815"}) == int(result[:3])
    told = await entries(world)
    assert len(told) == before + 3
    assert told[0].items() >= {
        "who": "a token or key that is not known",
        "object": path,
        "channel": "c",
        "address": "127.0.0.1",
        "result": result,
        "detail": wrong,
    }.items()  # fmt: skip
    assert "0815" not in str(told)
    kind = wrong.split("-")[2].lower()
    numbers = (await world.http.get("/metrics")).text
    assert f'jobs_wrong_tokens_total{{token="{kind}"}} 3' in numbers

    await world.http.put("/channel/d", data={"token": "dt"})  # without tokens: as before
    elsewhere = await world.http.post(
        "/channel/d/broadcast", content=b"x", headers={**PRODUCER, "X-Broker-Channel-Token": "dt"}
    )
    assert elsewhere.status_code == 429, "a right guess is not told either"
    assert 1 <= int(elsewhere.headers["retry-after"]) <= 60
    assert await ask({**given, wrong: "guess"}) == 429
    assert await ask(given) == known, "what was right before goes on"
    world.clock.advance(60)
    assert await ask({**given, wrong: "guess"}) == int(result[:3])


@pytest.mark.one_database
async def test_a_wrong_token_in_a_form_is_a_guess_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 3)
    before = len(await entries(world))

    async def requeue(token: str) -> int:
        form = {"requeue": token}
        return (await world.http.post("/channel/c/consumer/k/dlq", data=form)).status_code

    assert await requeue("kt") == 202
    for _ in range(3):
        assert await requeue("guess-0815") == 400
    told = await entries(world)
    assert len(told) == before + 4
    assert told[0].items() >= {
        "who": "a token or key that is not known",
        "result": "400 wrong_token",
        "detail": "requeue",
    }.items()  # fmt: skip
    assert "0815" not in str(told)
    numbers = (await world.http.get("/metrics")).text
    assert 'jobs_wrong_tokens_total{token="consumer"} 3' in numbers
    assert await requeue("guess") == 429
    assert await requeue("kt") == 202, "what was right before goes on"
    world.clock.advance(60)
    assert await requeue("guess") == 400


@pytest.mark.one_database
async def test_a_key_that_may_not_is_no_guess(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 1)
    key = (await world.http.post("/v2/keys", json={"name": "x", "scopes": ["publish"]})).json()
    headers = {"Authorization": f"Bearer {key['key']}"}
    for _ in range(3):
        refused = await world.http.post(
            "/v2/channel/c/consumer/k/jobs/claim", json={}, headers=headers
        )
        assert refused.status_code == 403


def test_addresses_of_one_machine_are_one_and_all_are_forgotten_beyond_a_limit(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 2)
    monkeypatch.setattr(limits, "WRONG_ADDRESSES_MAX", 2)
    guesses = auditing.Guesses(clock)
    for number in range(2):
        guesses.note_wrong(f"2001:db8::{number}")
    assert guesses.wait_s("2001:db8::9", "asked") == 60
    assert guesses.wait_s("2001:db8:0:1::9", "asked") == 0
    guesses.note_right("asked")
    assert guesses.wait_s("2001:db8::9", "asked") == 0
    for number in range(2):
        guesses.note_wrong(f"192.0.2.{number}")
    assert guesses.wait_s("2001:db8::9", "else") == 0


@pytest.mark.parametrize(
    "odd", ["http://[::1", "2026-01-31T24:00:00Z", ":", "", "fe80::1%", "a" * 70_000, "\xff:"]
)
def test_what_a_proxy_names_need_not_be_an_address(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 1)
    guesses = auditing.Guesses(clock)
    guesses.note_wrong("no address")
    assert guesses.wait_s("192.0.2.1", "asked") == 0
    assert (guesses.wait_s(odd, "asked") == 60) is (odd != "fe80::1%")


def test_an_address_of_version_4_is_the_same_however_it_is_written(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRONG_TOKENS_PER_MINUTE", 1)
    guesses = auditing.Guesses(clock)
    guesses.note_wrong("::ffff:192.0.2.1")
    assert guesses.wait_s("192.0.2.1", "asked") == 60
    assert guesses.wait_s("::ffff:192.0.2.2", "asked") == 0


async def test_old_lines_are_removed_as_configured(world: World) -> None:
    await world.put("/channel/old", token="t")
    maintenance = Maintenance(world.runtime, keep_of(Config(keep_audit_days=2.0)))
    world.clock.advance(1.9 * 86_400)
    await maintenance.retain()
    assert [one for one in await entries(world) if one["channel"] == "old"]
    await world.put("/channel/new", token="t")
    world.clock.advance(0.2 * 86_400)
    await maintenance.retain()
    assert {one["channel"] for one in await entries(world)} == {"new"}


@pytest.mark.one_database
async def test_definitions_of_the_configuration_are_told_when_they_are_new(
    world: World,
) -> None:
    config = Config(producers={"shop": {"token": "t"}})
    for _ in range(2):
        await apply_definitions(world.runtime, config, world.runtime.options)
    told = [one for one in await entries(world) if one["who"] == "configuration"]
    assert len(told) == 1


async def test_pages_follow_each_other(world: World) -> None:
    for number in range(limits.PAGE_SIZE + 3):
        await world.put(f"/channel/n{number}", token="t")
    first = (await world.http.get("/v2/audit?channel=c")).json()
    assert len(first["entries"]) < limits.PAGE_SIZE
    page = (await world.http.get("/v2/audit")).json()
    assert len(page["entries"]) == limits.PAGE_SIZE
    following = (await world.http.get(page["pages"]["next"])).json()
    back = (await world.http.get(following["pages"]["previous"])).json()
    assert back["entries"] == page["entries"]
