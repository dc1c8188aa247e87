"""A channel that lives in a stream: where its consumers are and what they wait for, and what can be done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

import peers
from browser import violations
from console_browser import act, check, go
from console_world import World
from headrace.broker.server import Broker
from headrace.client import JetStream
from jobs_endpoint import Endpoint, answer
from stream_channel_world import StreamWorld, by_body, stream_world
from waiting import until

pytestmark = pytest.mark.timeout(300)

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)
PHONE = {"width": 390, "height": 844}
NOTEBOOK = {"width": 1280, "height": 800}
LONG = "invoices-of-the-whole-year-by-region-and-day"
PAGE = "jobs/c/stream/S"
TABLE = "main table[aria-label='places in the stream'] tbody tr"


@pytest.fixture
async def channel(
    server: peers.ServerProcess, js: JetStream, tmp_path: Path
) -> AsyncIterator[StreamWorld]:
    """A job service with a channel ``c`` that lives in the stream ``S`` of the console's server."""
    async with stream_world(f"sqlite:///{tmp_path / 'jobs.db'}", server.url) as made:
        yield made


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as made:
        yield made


@pytest.fixture
async def world(make_world: Callable[..., Any], channel: StreamWorld) -> World:
    """A console of both."""
    made: World = await make_world(http=channel.http, jobs="http://jobs")
    await made.console.sources.watcher.refresh()
    return made


async def fail(channel: StreamWorld, endpoint: Endpoint, name: str) -> None:
    """Let a consumer of this name deliver two messages, and give up the one between."""
    endpoint.respond = lambda call: answer(500 if call.body == b"bad" else 200)
    await channel.consumer(name, endpoint, max_retries=0)
    await channel.publish("good")
    await channel.until_done(name, last=1)
    await channel.publish("bad")
    await channel.until_counts({"DEAD": 1}, name)
    await until(lambda: channel.engine.consumers[f"c/{name}"].failing_since_us is not None)
    await channel.publish("well")
    await channel.until_done(name, last=3)

    async def is_well() -> bool:
        return (await channel.standing(name))["failing_since"] is None

    await until(is_well, "it is said to fail, and does not")


async def test_the_stream_is_told_with_the_place_of_each_consumer(
    world: World, channel: StreamWorld, endpoint: Endpoint
) -> None:
    await fail(channel, endpoint, "h")
    seen = await world.get("/job-streams/c")
    assert seen["stream"] == {"name": "S", "subject": "s.http", "filter": []}
    assert (seen["subjects"], seen["here"], seen["problem"]) == (["s.>"], True, None)
    assert (seen["first_sequence"], seen["last_sequence"]) == (1, 3)
    (one,) = seen["consumers"]
    assert (one["acknowledged"], one["lag"], one["under_way"]) == (3, 0, 0)
    assert (one["jobs"]["DEAD"], one["waits_for"]) == (1, "messages")
    assert (await world.get("/job-channels/c"))["stream"] == "S"
    published = await channel.broadcast("over HTTP")
    message = published.headers["location"].rpartition("/")[2]
    assert (await world.get(f"/jobs/c/find?message={message}"))["Payload"] == "over HTTP"


async def test_a_consumer_is_paused_resumed_and_delivers_again(
    world: World, channel: StreamWorld, endpoint: Endpoint
) -> None:
    await channel.consumer("h", endpoint)
    path = "/job-streams/c/h"
    await world.send("POST", f"{path}/pause")
    (one,) = (await world.get("/job-streams/c"))["consumers"]
    assert (one["paused"], one["waits_for"]) == (True, "resume")
    await channel.publish("a", "b")
    await world.send("POST", f"{path}/resume")
    await channel.until_done(last=2)
    assert (await world.send("POST", f"{path}/replay", 409, sequence=1))["code"] == "not_confirmed"
    await world.send("POST", f"{path}/replay", confirm="h", sequence=2)
    await endpoint.wait_for(3)
    assert by_body(endpoint) == {"a": 1, "b": 2}
    await channel.until_done(last=2)
    await world.send("POST", f"{path}/replay", confirm="h", since="2026-01-01T00:00:00Z")
    await endpoint.wait_for(5)
    for said in ({}, {"sequence": 1, "since": "2026-01-01T00:00:00Z"}, {"since": "soon"}):
        await world.send("POST", f"{path}/replay", 503, confirm="h", **said)
    assert (await world.send("POST", f"{path}/replay", 400, confirm="h", sequence="x"))["code"]
    await world.send("POST", f"{path}/enable")


@OURS
async def test_nothing_of_it_is_written_with_read_only(
    make_world: Callable[..., Any], channel: StreamWorld, endpoint: Endpoint
) -> None:
    await channel.consumer("h", endpoint)
    world = await make_world(http=channel.http, jobs="http://jobs", read_only=True)
    for verb in ("pause", "resume", "enable", "replay"):
        assert (await world.send("POST", f"/job-streams/c/h/{verb}", 403))["code"] == "read_only"
    assert (await world.get("/job-streams/c"))["consumers"][0]["paused"] is False


@OURS
async def test_a_key_that_may_not_see_the_channel_and_an_answer_of_another_form_are_said(
    make_world: Callable[..., Any], channel: StreamWorld
) -> None:
    body = {"name": "ci", "scopes": ["operate"], "channels": ["other"]}
    key = (await channel.ask("POST", "/v2/keys", 201, json=body)).json()["key"]
    world = await make_world(http=channel.http, jobs="http://jobs", jobs_token=key)
    for path in ("/job-streams/c", "/job-channels/c"):
        assert "other" in (await world.get(path, 503))["message"], path

    class Older:
        async def request(self, method: str, url: str, **keywords: Any) -> Any:
            return await channel.http.request(method, "http://jobs/health/live")

    world = await make_world(http=Older(), jobs="http://jobs")
    for path in ("/job-streams/c", "/job-channels/c"):
        assert "in a form" in (await world.get(path, 503))["message"], path


@OURS
async def test_a_stream_of_the_same_name_at_another_server_is_not_taken_for_the_channels(
    make_world: Callable[..., Any], js: JetStream, broker: Broker, tmp_path: Path
) -> None:
    await js.create_stream(name="S", subjects=("s.>",))
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with stream_world(url, broker.client_url) as channel:
        world = await make_world(http=channel.http, jobs="http://jobs")
        await world.console.sources.watcher.refresh()
        assert (await world.get("/job-streams/c"))["here"] is False
        await js.delete_stream("S")
        await world.console.sources.watcher.refresh()
        assert (await world.get("/job-streams/c"))["here"] is False


@OURS
async def test_a_channel_in_a_stream_is_seen_paused_and_replayed_in_a_browser(
    world: World, channel: StreamWorld, endpoint: Endpoint, page: Any
) -> None:
    await page.goto(world.console.url)
    await go(page, PAGE, "stream")
    await page.get_by_text("The channel has no consumers yet.").wait_for()
    await fail(channel, endpoint, "h")
    await go(page, "jobs/c", "of c")
    await page.get_by_role("link", name="Its stream").click()
    row = page.locator(TABLE)
    await row.get_by_text("new messages").wait_for()
    await row.get_by_text("delivers", exact=True).wait_for()
    assert "1 – 3" in await page.locator("main .panel dl").inner_text()
    assert await violations(page) == []

    await row.get_by_role("link", name="1", exact=True).click()  # the one that was given up
    await page.locator("main table[aria-label=jobs] tbody tr").get_by_text("DEAD").wait_for()
    assert "consumer=h&state=DEAD" in page.url
    await page.go_back()
    await row.get_by_role("link", name="3", exact=True).click()
    await page.locator(".line[data-seq='3']").wait_for()
    await page.go_back()
    await page.locator("main dl").get_by_role("link", name="S", exact=True).click()
    await page.locator("main h2", has_text="S").first.wait_for()
    await page.get_by_role("link", name="Messages").wait_for()
    await page.go_back()

    await act(page, "Pause")
    await row.get_by_text("somebody to resume it").wait_for()
    await act(page, "Replay", confirm="h", sequence="2")
    await row.get_by_text("It will deliver again, from sequence 2 on.").wait_for()
    assert await violations(page) == []
    endpoint.calls.clear()
    endpoint.respond = lambda call: answer()
    await act(page, "Resume")
    await endpoint.wait_for(2)
    await row.get_by_text("new messages").wait_for()
    assert by_body(endpoint) == {"bad": 1, "well": 1}
    await page.get_by_role("button", name="Replay …").click()
    dialog = page.locator("dialog[open]")
    await dialog.locator("[name=confirm]").fill("h")
    await dialog.locator("form button").first.click()
    await dialog.get_by_role("alert").get_by_text("a sequence, or how far back").wait_for()
    await dialog.locator("[name=back]").fill("1h")
    await dialog.locator("form button").first.click()
    await endpoint.wait_for(5)
    check(page)


@OURS
async def test_what_holds_a_consumer_up_is_said_in_words_in_a_browser(
    world: World, channel: StreamWorld, endpoint: Endpoint, page: Any
) -> None:
    await page.goto(world.console.url)
    await channel.consumer("h", endpoint)
    await go(page, PAGE, "stream")
    row = page.locator(TABLE)
    endpoint.respond = lambda call: answer(500)
    await channel.publish("bad")
    await row.get_by_text("its endpoint: every call has failed since").wait_for()
    await row.get_by_text("failing", exact=True).wait_for()
    endpoint.respond = lambda call: answer(410)
    await channel.publish("worse")
    await row.get_by_text("somebody to enable it: the endpoint answered 410 Gone").wait_for()
    assert await violations(page) == []
    endpoint.respond = lambda call: answer()
    await act(page, "Enable")
    await row.get_by_text("new messages").wait_for(timeout=60_000)
    await channel.js.delete_stream("S")
    await row.get_by_text("the broker: the broker has no stream S").wait_for()
    await page.get_by_role("alert").get_by_text("the broker has no stream S").wait_for()
    await page.get_by_text("which is not the server of this page").wait_for()
    assert await violations(page) == []
    await channel.put("/channel/d", token="dt")
    await go(page, "jobs/d", "of d")
    await page.get_by_text("Nothing is published again and again.").wait_for()
    assert await page.get_by_role("link", name="Its stream").count() == 0
    await go(page, "jobs/d/stream/S", "stream")
    await page.get_by_text("This channel lives in the database").wait_for()
    await go(page, "jobs/none/stream/S", "stream")
    await page.get_by_role("alert").get_by_text("no such channel").wait_for()
    check(page)


@OURS
async def test_a_read_only_console_shows_it_without_actions(
    make_world: Callable[..., Any], channel: StreamWorld, endpoint: Endpoint, page: Any
) -> None:
    await channel.consumer("h", endpoint)
    world = await make_world(http=channel.http, jobs="http://jobs", read_only=True)
    await page.goto(world.console.url)
    await go(page, PAGE, "stream")
    await page.locator(TABLE).get_by_text("read-only").wait_for()
    assert await page.get_by_role("button", name="Pause …").count() == 0
    check(page)


@OURS
async def test_a_job_service_that_is_away_is_said_beside_what_was_seen_before(
    make_world: Callable[..., Any], channel: StreamWorld, endpoint: Endpoint, page: Any
) -> None:
    class Service:
        is_away = False

        async def request(self, method: str, url: str, **keywords: Any) -> Any:
            if self.is_away:
                raise httpx2.ConnectError("refused")
            return await channel.http.request(method, url, **keywords)

    service = Service()
    await channel.consumer("h", endpoint)
    world = await make_world(http=service, jobs="http://jobs")
    await page.goto(world.console.url)
    await go(page, PAGE, "stream")
    row = page.locator(TABLE)
    await row.get_by_text("new messages").wait_for()
    service.is_away = True
    away = page.get_by_role("alert").get_by_text("ConnectError refused")
    await away.wait_for()
    assert await row.count() == 1
    assert await violations(page) == []
    service.is_away = False
    await away.wait_for(state="detached")
    service.is_away = True
    await go(page, "jobs/other/stream/S", "other")
    await away.wait_for()
    check(page)


@OURS
async def test_the_page_fits_a_small_notebook_and_a_phone_with_long_names(
    world: World, channel: StreamWorld, endpoint: Endpoint, page: Any
) -> None:
    subjects = tuple(f"{LONG}.{n}.>" for n in range(4))
    stream = LONG.upper()
    await channel.js.create_stream(name=stream, subjects=subjects)
    await channel.put(f"/channel/{LONG}", token="ct")
    await channel.live_in(LONG, name=stream, subject=f"{LONG}.1.x", filter=list(subjects[:3]))
    form = {"callbackUrl": endpoint.url, "token": "ht", "maxRetries": "0"}
    for name in (f"{LONG}-{LONG}", "b", "c", "d"):
        await channel.put(f"/channel/{LONG}/consumer/{name}", **form)
    endpoint.respond = lambda call: answer(500)
    since = datetime(2026, 1, 31, tzinfo=UTC).isoformat()
    for name, body in (("b", {"paused": True}), ("c", {"paused": True})):
        path = f"/v2/channel/{LONG}/consumer/{name}"
        await channel.ask("PATCH", path, json=body)
        await channel.ask("POST", f"{path}/stream/replay", json={"since": since})
    await channel.js.publish(f"{LONG}.1.x", b"x")
    await page.goto(world.console.url)
    for size in (NOTEBOOK, PHONE):
        await page.set_viewport_size(size)
        for path in (f"jobs/{LONG}/stream/{stream}", f"jobs/{LONG}", f"jobs/{LONG}/b"):
            await go(page, path, LONG)
            await page.locator("main table tbody tr, main .note").first.wait_for()
            await page.locator("main .waiting").first.wait_for(state="detached")

            async def fits() -> bool:
                beside = await page.evaluate(
                    "[document.documentElement, ...document.querySelectorAll('.scroll')]"
                    ".map((each) => each.scrollWidth - each.clientWidth)"
                )
                return bool(max(beside) <= 0)

            await until(fits, f"{path} does not fit {size}", within=20)
    await go(page, f"jobs/{LONG}/stream/{stream}", LONG)
    await page.locator(TABLE).get_by_text("It will deliver again, what came since").first.wait_for()
    check(page)
