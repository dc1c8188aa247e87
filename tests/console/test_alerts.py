"""The console's alerts are what ``headrace doctor`` says, on both servers and in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from console_browser import check, go
from console_world import World
from headrace.console import alerts
from headrace.doctor import look_at_streams
from headrace.findings.finding import Findings
from headrace.groups import PartitioningFilter, elastic
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions import consumers
from headrace.jobs.store import Tx

pytestmark = pytest.mark.timeout(180)

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)


async def spoil(world: World) -> None:
    """A work queue that nobody reads, and a consumer that is paused."""
    await world.js.create_stream(name="WORK", subjects=("work.*",), retention="workqueue")
    orders = await world.js.create_stream(name="ORDERS", subjects=("orders.*",))
    consumer = await orders.create_consumer(durable_name="late")
    await consumer.pause(3600.0)
    await world.js.publish("work.1", b"1")
    await world.js.publish("orders.1", b"1")
    await world.console.sources.watcher.refresh()


async def test_they_are_what_the_doctor_says_of_streams_and_consumers(world: World) -> None:
    await spoil(world)
    seen = await world.get("/alerts")
    assert (seen["problems"], seen["notes"], seen["unseen"]) == (1, 1, 0)
    findings = Findings()
    await look_at_streams(findings, world.js)
    said = {(each["grade"], each["what"], each["mend"]) for each in findings.document()}
    assert {(each["grade"], each["what"], each["mend"]) for each in seen["alerts"]} == said
    problem, note = seen["alerts"]
    assert problem["what"] == "stream WORK" and "no consumer" in problem["text"]
    assert note["what"] == "consumer ORDERS > late" and note["text"].startswith("paused for")


async def test_what_is_mended_is_told_no_more(world: World) -> None:
    await spoil(world)
    assert (await world.get("/alerts"))["problems"] == 1
    stream = await world.js.stream("WORK")
    await stream.create_consumer(durable_name="worker")
    await (await world.js.consumer("ORDERS", "late")).resume()
    await world.console.sources.watcher.refresh()
    assert (await world.get("/alerts"))["alerts"] == []


async def test_a_group_whose_messages_reach_nobody_is_told(world: World) -> None:
    orders = await world.js.create_stream(name="ORDERS", subjects=("orders.*",))
    keys = [PartitioningFilter("orders.*", (1,))]
    await elastic.create(world.js, "ORDERS", "g", max_members=2, partitioning_filters=keys)
    await orders.update(subjects=("others.*",))
    seen = await world.get("/alerts")
    (group,) = [each for each in seen["alerts"] if each["what"] == "group ORDERS > g"]
    assert group["grade"] == "problem" and "orders.*" in group["text"]


async def test_groups_are_asked_about_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    now = 0.0

    async def look(*arguments: Any) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(alerts, "look_at_groups", look)
    found = alerts.Alerts(world.js, world.console.sources.watcher, lambda: now)
    await found.document()
    now = alerts.GROUPS_EVERY_S - 0.1
    await found.document()
    assert looks == 1
    now = alerts.GROUPS_EVERY_S
    await found.document()
    assert looks == 2


async def test_more_than_are_shown_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spoil(world)
    monkeypatch.setattr(alerts, "ALERTS_MAX", 1)
    seen = await world.get("/alerts")
    assert [each["grade"] for each in seen["alerts"]] == ["problem"], "problems come first"
    assert (seen["problems"], seen["notes"]) == (1, 1)


async def test_of_a_stream_whose_consumers_were_not_looked_at_nothing_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spoil(world)
    await (await world.js.stream("WORK")).create_consumer(durable_name="worker")
    monkeypatch.setattr("headrace.console.watcher.CONSUMERS_ASKED", 0)
    await world.console.sources.watcher.refresh()
    seen = await world.get("/alerts")
    assert (seen["alerts"], seen["unseen"]) == ([], 2)


@OURS
async def test_what_fails_in_the_job_service_is_told_until_it_is_mended(
    make_world: Callable[..., Any],
    service: httpx2.AsyncClient,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alerts, "GROUPS_EVERY_S", 0.0)
    world: World = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    assert (await world.get("/alerts"))["alerts"] == []

    def disable(tx: Tx) -> None:
        consumer = consumers.find_consumer(tx, "c", "k")
        tx.run("disable_consumer", seq=consumer.seq, now=tx.now_us(), reason="410 Gone")

    await runtime.database.write(disable)
    (told,) = (await world.get("/alerts"))["alerts"]
    assert (told["name"], told["what"]) == ("endpoint-disabled", "jobs of c > k")
    page = (await world.http.get("/metrics")).text
    assert 'headrace_console_finding{finding="endpoint-disabled",severity="problem"' in page
    assert told["mend"].startswith("headrace jobs enable c k ")
    admin = {"Authorization": "Bearer admin"}
    path = "/v2/channel/c/consumer/k"
    enabled = await service.patch(path, json={"enable": True}, headers=admin)
    assert enabled.status_code == 200, enabled.text
    assert (await world.get("/alerts"))["alerts"] == []


@OURS
async def test_a_job_service_that_cannot_be_asked_is_told(
    make_world: Callable[..., Any], service: httpx2.AsyncClient
) -> None:
    world: World = await make_world(http=service, jobs="http://jobs", jobs_token="wrong")
    (told,) = (await world.get("/alerts"))["alerts"]
    assert (told["name"], told["grade"]) == ("jobs-unreachable", "problem")


@OURS
async def test_alerts_lead_to_what_is_wrong_in_a_browser(
    make_world: Callable[..., Any], page: Any
) -> None:
    from playwright.async_api import expect

    world: World = await make_world()
    await spoil(world)
    await page.goto(world.console.url)
    await go(page, "alerts", "Alerts")
    rows = page.get_by_role("table", name="alerts").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("headrace consumer create WORK NAME")
    await page.get_by_role("link", name="consumer ORDERS > late").click()
    await page.locator("main h2", has_text="late").wait_for()
    stream = await world.js.stream("WORK")
    await stream.delete()
    await go(page, "alerts", "Alerts")
    await expect(rows).to_have_count(1, timeout=30_000)
    check(page)
