"""API keys, the audit log, progress of jobs and how endpoints answer: by request, and in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from browser import violations
from console_browser import act, check, go
from console_world import ATTACK, World
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import PULL
from waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server", ["headrace"], indirect=True),
]

ADMIN = {"Authorization": "Bearer admin"}
PHONE = {"width": 390, "height": 844}
NOTEBOOK = {"width": 1280, "height": 800}
LONG = "invoices-of-the-whole-year-by-region-and-day"


@pytest.fixture
async def jobs(make_world: Callable[..., Any], service: httpx2.AsyncClient) -> World:
    made: World = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    return made


async def define_push(service: httpx2.AsyncClient, name: str = "hook") -> None:
    form = {"type": "push", "token": "ht", "callbackUrl": "https://hooks.example.com/"}
    made = await service.put(f"/channel/c/consumer/{name}", data=form, headers=ADMIN)
    assert made.status_code == 200, made.text


async def call(runtime: Runtime, *seconds: float, failed: int = 0, name: str = "hook") -> None:
    """What the service would count if it called the endpoint so, and tells the database."""
    labels = {"channel": "c", "consumer": name}
    for each in seconds:
        runtime.metrics.observe("push_attempt_duration_seconds", each, **labels)
    ok = len(seconds) - failed
    runtime.metrics.add("push_attempts_total", ok, **labels, code_class="2xx")
    runtime.metrics.add("push_attempts_total", failed, **labels, code_class="5xx")
    await Maintenance(runtime).resign()


async def run_a_job(service: httpx2.AsyncClient, note: str, done: float = 0.25) -> str:
    """Publish, claim, and say how far it is; the job's id."""
    tokens = {"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "p"}
    headers = {**tokens, "X-Broker-Producer-Token": "pt"}
    assert (
        await service.post("/channel/c/broadcast", content=b"x", headers=headers)
    ).status_code == 201
    path = "/v2/channel/c/consumer/k/jobs"
    claimed = await service.post(f"{path}/claim", json={"max": 1}, headers=PULL)
    (job,) = claimed.json()["jobs"]
    item = {"id": job["id"], "lease": job["lease"], "progress": {"done": done, "note": note}}
    told = await service.post(
        f"{path}/heartbeat", json={"jobs": [item], "lease_seconds": 600}, headers=PULL
    )
    assert told.status_code == 200, told.text
    return str(job["id"])


async def test_keys_are_made_listed_and_revoked_by_their_id(
    jobs: World, service: httpx2.AsyncClient
) -> None:
    made = await jobs.send(
        "POST", "/job-keys", name="ci", scopes=["publish"], channels=["c"], expires_in_seconds=60
    )
    with_key = {"Authorization": f"Bearer {made['key']}"}
    published = await service.post("/v2/channel/c/messages", content=b"x", headers=with_key)
    assert published.status_code == 201
    (listed,) = (await jobs.get("/job-keys"))["keys"]
    assert (listed["name"], listed["scopes"], listed["channels"]) == ("ci", ["publish"], ["c"])
    assert "key" not in listed
    path = f"/job-keys/{made['id']}"
    assert (await jobs.send("DELETE", path, 409))["code"] == "not_confirmed"
    await jobs.send("DELETE", path, confirm=made["id"])
    published = await service.post("/v2/channel/c/messages", content=b"x", headers=with_key)
    assert published.status_code == 401
    assert (await jobs.get("/job-keys"))["keys"][0]["revoked_at"]
    everywhere = await jobs.send("POST", "/job-keys", name="ops", scopes=["operate"])
    assert everywhere["channels"] == ["*"]
    assert (await jobs.send("POST", "/job-keys", 400, name="x", scopes="admin"))["code"]
    refused = await jobs.send("POST", "/job-keys", 503, name="x", scopes=["all"])
    assert refused["message"].startswith("one or more of publish, consume")


async def test_the_audit_log_is_read_in_pages_by_key_and_by_channel(jobs: World) -> None:
    made = await jobs.send("POST", "/job-keys", name="ci", scopes=["publish"])
    for number in range(30):
        await jobs.send("PUT", f"/job-schedules/c/s{number}", cron="@daily", payload="x")
    page = await jobs.get("/job-audit")
    assert len(page["entries"]) == 25
    older = await jobs.get(f"/job-audit?next={page['pages']['next']}")
    assert "POST /v2/keys" in {entry["action"] for entry in older["entries"]}
    assert len((await jobs.get("/job-audit?channel=c"))["entries"]) == 25
    assert (await jobs.get(f"/job-audit?key={made['id']}"))["entries"] == []


async def test_a_console_whose_key_is_no_administrators_says_so(
    make_world: Callable[..., Any], jobs: World, service: httpx2.AsyncClient
) -> None:
    made = await jobs.send("POST", "/job-keys", name="on call", scopes=["operate"])
    world = await make_world(http=service, jobs="http://jobs", jobs_token=made["key"])
    for path in ("/job-keys", "/job-audit"):
        assert "this needs admin" in (await world.get(path, 503))["message"]
    assert (await world.get("/jobs"))["status"]["consumers"]
    read_only = await make_world(
        http=service, jobs="http://jobs", jobs_token="admin", read_only=True
    )
    for method, path in (("POST", "/job-keys"), ("DELETE", f"/job-keys/{made['id']}")):
        assert (await read_only.send(method, path, 403))["code"] == "read_only"


async def test_how_an_endpoint_answered_is_one_point_for_each_slot(
    jobs: World, service: httpx2.AsyncClient, runtime: Runtime
) -> None:
    await define_push(service)
    path = "/job-consumers/c/hook/calls"
    nothing = await jobs.get(path)
    assert len(nothing["time"]) == 289, "a day of five minutes, with both ends"
    assert set(nothing["calls"]) == {0}
    assert set(nothing["p95_seconds"]) == {None}
    await call(runtime, 0.02, 0.02, 3.0, failed=1)
    found = await jobs.get(path)
    assert (sum(found["calls"]), sum(found["failed"])) == (3, 1)
    assert all(len(column) == len(found["time"]) for column in found.values())
    assert max(filter(None, found["p95_seconds"])) > 2.5


async def test_keys_and_the_audit_log_are_worked_with_in_a_browser(
    shown: World, service: httpx2.AsyncClient, page: Any
) -> None:
    await go(page, "jobs", "Jobs")
    await page.get_by_role("link", name="API keys").click()
    await page.get_by_text("There are no API keys.").wait_for()
    await act(page, "Make a key", name=ATTACK, scopes="publish consume", channels="c", valid="90d")
    key = await page.locator("main pre").inner_text()
    with_key = {"Authorization": f"Bearer {key}"}
    published = await service.post("/v2/channel/c/messages", content=b"x", headers=with_key)
    assert published.status_code == 201
    await page.get_by_role("button", name="I have it").click()
    await page.locator("main pre").wait_for(state="detached")
    row = page.locator("main table[aria-label=keys] tbody tr")
    assert key not in await row.inner_text()
    listed = (await service.get("/v2/keys", headers=ADMIN)).json()["keys"]
    await act(page, "Revoke", confirm=listed[0]["id"])
    await row.get_by_text("revoked", exact=True).wait_for()
    refused = await service.post("/v2/channel/c/messages", content=b"x", headers=with_key)
    assert refused.status_code == 401
    await page.get_by_role("link", name="Audit log").click()
    rows = page.locator("main table[aria-label=audit] tbody tr")
    await rows.filter(has_text="DELETE /v2/key/{keyId}").wait_for()
    await rows.filter(has_text="401 unknown_key").wait_for()
    assert "401 unknown_key" in await rows.first.inner_text(), "the newest is the first"
    assert await rows.locator(".soft").count() == 0, "the admin token is no key"
    await page.get_by_label("Channel", exact=True).fill("none")
    await page.get_by_role("button", name="Find").click()
    await page.get_by_text("Nothing was changed.").wait_for()
    assert "channel=none" in page.url
    assert await page.evaluate("window.attacked") is None
    check(page)


async def test_progress_and_an_endpoints_curves_are_seen_in_a_browser(
    shown: World, service: httpx2.AsyncClient, runtime: Runtime, page: Any
) -> None:
    job = await run_a_job(service, ATTACK)
    await go(page, "jobs", "Jobs")
    await page.locator("a[title='Jobs that run']").click()
    row = page.locator("main table[aria-label=jobs] tbody tr").filter(has_text="INFLIGHT")
    await row.get_by_text("25 %").wait_for()
    assert await row.locator("progress").get_attribute("value") == "0.25"
    assert await violations(page) == []
    await row.get_by_role("link", name=job, exact=True).click()
    await page.locator("main dd progress").wait_for()
    await page.get_by_text(ATTACK).first.wait_for()
    await define_push(service)
    await go(page, "jobs/c/hook", "hook")
    await page.get_by_text("Nothing was called in the last day.").wait_for()
    await call(runtime, *[0.02] * 9, 2.0, failed=2)
    await page.get_by_text("10 calls in the last day, 2 failed (20.0 %)").wait_for()
    for title in ("Calls and failures over time", "How long they took over time"):
        await page.get_by_role("img", name=title).locator("canvas").wait_for()
    assert await violations(page) == []
    assert await page.evaluate("window.attacked") is None
    check(page)


async def test_tables_of_jobs_fit_a_small_notebook_and_a_phone(
    shown: World, service: httpx2.AsyncClient, runtime: Runtime, page: Any
) -> None:
    await define_push(service, LONG)
    await call(runtime, 0.02, name=LONG)
    await run_a_job(service, f"{LONG} {LONG}")
    body = {"name": f"{LONG} {LONG}", "scopes": ["publish", "consume", "operate", "admin"]}
    await service.post("/v2/keys", json={**body, "channels": [LONG, f"{LONG}*"]}, headers=ADMIN)
    schedule = {"cron": "30 6 * * mon-fri", "message": {"payload": "x"}}
    path = f"/v2/channel/c/schedule/{LONG}"
    assert (await service.put(path, json=schedule, headers=ADMIN)).status_code == 201
    pages = (
        ("jobs", "Jobs"),
        ("jobs/c", "of c"),
        ("jobs/c/k", "k"),
        (f"jobs/c/{LONG}", LONG),
        ("job-keys", "API keys"),
        ("job-audit", "audit log"),
    )
    for size in (NOTEBOOK, PHONE):
        await page.set_viewport_size(size)
        for path, heading in pages:
            await go(page, path, heading)
            await page.locator("main table tbody tr, main .note, main .plot").first.wait_for()
            await page.locator("main .waiting").first.wait_for(state="detached")

            async def fits() -> bool:
                beside = await page.evaluate(
                    "[document.documentElement, ...document.querySelectorAll('.scroll')]"
                    ".map((each) => each.scrollWidth - each.clientWidth)"
                )
                return bool(max(beside) <= 0)

            await until(fits, f"{path} does not fit {size}", within=20)
    check(page)
