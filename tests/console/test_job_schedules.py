"""Schedules of job channels, filters of consumers, replays and attempts: by request, and in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from browser import violations
from console_browser import act, check, go
from console_world import ATTACK, World, kill_a_job
from waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server", ["headrace"], indirect=True),
]

DAILY: dict[str, Any] = {"cron": "30 6 * * *", "time_zone": "Europe/Berlin", "payload": "wake up"}
ADMIN = {"Authorization": "Bearer admin"}


@pytest.fixture
async def jobs(make_world: Callable[..., Any], service: httpx2.AsyncClient) -> World:
    made: World = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    return made


async def test_a_schedule_is_made_changed_paused_and_deleted(jobs: World) -> None:
    path = "/job-schedules/c/daily"
    made = await jobs.send("PUT", path, new=True, **DAILY)
    assert len(made["upcoming"]) > 1
    assert (await jobs.send("PUT", path, 409, new=True, **DAILY))["code"] == "exists"
    await jobs.send("PUT", path, paused=True)
    seen = await jobs.get(path)
    assert (seen["paused"], seen["cron"], seen["message"]["payload"]) == (
        True,
        "30 6 * * *",
        "wake up",
    )
    await jobs.send("PUT", path, payload="get up", missed="all", paused=False)
    (listed,) = (await jobs.get("/job-schedules/c"))["schedules"]
    assert (listed["missed"], listed["time_zone"], listed["paused"]) == (
        "all",
        "Europe/Berlin",
        False,
    )
    assert (await jobs.get(path))["message"]["payload"] == "get up"
    told = await jobs.send("PUT", path, 503, cron="never")
    assert "five fields are accepted" in told["message"]
    await jobs.send("DELETE", path, 409)
    await jobs.send("DELETE", path, confirm="daily")
    assert (await jobs.get("/job-schedules/c"))["schedules"] == []


async def test_bytes_that_are_no_text_outlast_a_change_of_their_times(
    jobs: World, service: httpx2.AsyncClient
) -> None:
    message = {"payload": "AP8=", "encoding": "base64", "headers": {"X-Kind": "raw"}}
    body = {"cron": "@daily", "message": message}
    done = await service.put("/v2/channel/c/schedule/raw", json=body, headers=ADMIN)
    assert done.status_code == 201, done.text
    await jobs.send("PUT", "/job-schedules/c/raw", cron="@hourly")
    seen = await jobs.get("/job-schedules/c/raw")
    assert seen["cron"] == "@hourly"
    assert {name: seen["message"][name] for name in message} == message


async def test_a_filter_is_seen_and_set(jobs: World) -> None:
    path = "/job-consumers/c/k"
    seen = await jobs.get(path)
    nothing: dict[str, Any] = {"subjects": [], "headers": {}, "payload": {}}
    assert seen["settings"]["filter"] == nothing
    assert "kt" not in str(seen)
    wanted: dict[str, Any] = {
        "subjects": ["orders.eu.>"],
        "headers": {"X-Kind": ["paid*"]},
        "payload": {"$.id": ["7"]},
    }
    assert (await jobs.send("PUT", f"{path}/filter", **wanted))["filter"] == wanted
    assert (await jobs.get(path))["settings"]["filter"] == wanted
    await jobs.send("PUT", f"{path}/filter", 503, subjects=["a..b"])
    await jobs.send("PUT", f"{path}/filter")
    assert (await jobs.get(path))["settings"]["filter"] == nothing


async def test_jobs_are_replayed_one_alone_and_many_by_the_name(
    jobs: World, service: httpx2.AsyncClient
) -> None:
    ids = [await kill_a_job(service) for _ in range(3)]
    first = await jobs.get(f"/jobs/c/k/job/{ids[0]}")
    since = "2020-01-01T00:00:00Z"
    counted = await jobs.send("POST", "/jobs/c/replay", since=since, dry_run=True)
    assert (counted["dead"], counted["dry_run"]) == (3, True)
    await jobs.send("POST", "/jobs/c/replay", consumer="k", messages=[first["message"]])
    assert (await jobs.get(f"/jobs/c/k/job/{ids[0]}"))["state"] == "QUEUED"
    await jobs.send("POST", "/jobs/c/replay", 409, since=since)
    done = await jobs.send("POST", "/jobs/c/replay", since=since, confirm="c")
    assert (done["dead"], done["consumers"]) == (2, {"k": 2})


async def test_nothing_of_it_is_written_with_read_only(
    make_world: Callable[..., Any], service: httpx2.AsyncClient
) -> None:
    world = await make_world(http=service, jobs="http://jobs", jobs_token="admin", read_only=True)
    for method, path in (
        ("PUT", "/job-schedules/c/s"),
        ("DELETE", "/job-schedules/c/s"),
        ("PUT", "/job-consumers/c/k/filter"),
        ("POST", "/jobs/c/replay"),
    ):
        assert (await world.send(method, path, 403))["code"] == "read_only"


async def test_schedules_filters_and_replays_are_done_in_a_browser(
    shown: World, service: httpx2.AsyncClient, page: Any
) -> None:
    async def stored(path: str) -> Any:
        return (await service.get(path, headers=ADMIN)).json()

    await go(page, "jobs/c", "of c")
    await act(page, "Add a schedule", name="daily", cron="30 6 * * *", payload=ATTACK)
    await page.locator("main h2", has_text="daily").wait_for()
    await page.locator("main pre", has_text=ATTACK).wait_for()
    assert await violations(page) == []
    await act(page, "Pause")
    await page.get_by_role("button", name="Resume …").wait_for()
    assert (await stored("/v2/channel/c/schedule/daily"))["paused"]
    await act(page, "Change", cron="@hourly")
    seen = await stored("/v2/channel/c/schedule/daily")
    assert (seen["cron"], seen["message"]["payload"], seen["paused"]) == ("@hourly", ATTACK, True)
    await act(page, "Resume")
    await page.get_by_role("button", name="Pause …").wait_for()
    await act(page, "Delete", confirm="daily")
    await page.get_by_text("Nothing is published again and again.").wait_for()
    assert (await stored("/v2/channel/c/schedules"))["schedules"] == []

    await go(page, "jobs/c/k", "k")
    await page.get_by_text("every message of the channel").wait_for()
    await act(
        page,
        "Change the filter",
        subjects="orders.eu.>",
        headers="X-Kind=paid*\nX-Kind=due",
        payload="$.id=7",
    )
    await page.get_by_text(
        "subject orders.eu.>, and X-Kind=paid*, and X-Kind=due, and $.id=7"
    ).wait_for()
    found = (await stored("/v2/channel/c/consumer/k"))["settings"]["filter"]
    assert found == {
        "subjects": ["orders.eu.>"],
        "headers": {"X-Kind": ["paid*", "due"]},
        "payload": {"$.id": ["7"]},
    }
    assert await violations(page) == []

    await page.locator("main table[aria-label='dead jobs'] a").first.click()
    await page.locator("main td", has_text=ATTACK).first.wait_for()  # why it died
    await page.get_by_role("heading", name="What is handed out").wait_for()
    await page.locator("main pre", has_text="x").wait_for()
    assert await violations(page) == []
    await go(page, "jobs/c", "of c")
    await act(page, "Replay", confirm="c", back="2h")
    await page.locator("main td", has_text="QUEUED").first.wait_for()

    async def is_queued() -> bool:
        jobs = (await stored("/v2/channel/c/jobs"))["jobs"]
        return [each["state"] for each in jobs] == ["QUEUED"]

    await until(is_queued)
    assert await page.evaluate("window.attacked") is None
    check(page)


async def publish(service: httpx2.AsyncClient, *payloads: str) -> None:
    tokens = {"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "p"}
    for payload in payloads:
        headers = {**tokens, "X-Broker-Producer-Token": "pt"}
        made = await service.post("/channel/c/broadcast", content=payload, headers=headers)
        assert made.status_code == 201, made.text


async def test_jobs_are_searched_by_their_payloads_and_cancelled(
    jobs: World, service: httpx2.AsyncClient
) -> None:
    await publish(service, '{"id": 7, "land": "de"}', '{"id": 8, "land": "de"}', "no JSON")
    found = await jobs.get("/jobs/c/list?payload=$.id=7&payload=$.land=d*")
    assert len(found["jobs"]) == 1
    assert (await jobs.get("/jobs/c/list?payload=$.id=9"))["jobs"] == []
    wanted: dict[str, Any] = {"payload": {"$.land": ["de"]}, "states": ["QUEUED"]}
    done = await jobs.send("POST", "/jobs/c/cancel", confirm="c", **wanted)
    assert (done["waiting"], done["running"]) == (2, 0)
    left = (await jobs.get("/jobs/c/list?state=QUEUED"))["jobs"]
    assert len(left) == 1


async def test_a_search_by_payload_is_typed_kept_in_the_address_and_cancelled_in_a_browser(
    shown: World, service: httpx2.AsyncClient, page: Any
) -> None:
    await publish(service, '{"id": "a b"}', '{"id": "a c", "n": 2}', '{"id": "a c", "n": 3}')
    await go(page, "jobs/c", "of c")
    field = page.get_by_label("Payload, such as $.order.id=7")
    rows = page.locator("main table[aria-label=jobs] tbody tr")
    await field.fill("$.id")
    await page.get_by_role("button", name="Find", exact=True).click()
    await page.get_by_role("alert").get_by_text("NAME=PATTERN").wait_for()
    await field.fill("$.id=a c $.n=*")
    await page.get_by_role("button", name="Find", exact=True).click()

    async def shows_two() -> bool:
        return bool(await rows.count() == 2)

    await until(shows_two, within=30)
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await until(shows_two, within=30)
    assert await field.input_value() == "$.id=a c $.n=*"
    await act(page, "Cancel all that match", confirm="c")

    async def one_waits() -> bool:
        answer = await service.get("/v2/channel/c/jobs?state=QUEUED", headers=ADMIN)
        return len(answer.json()["jobs"]) == 1

    await until(one_waits, within=30)
    check(page)
