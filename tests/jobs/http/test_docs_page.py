"""``/docs`` shows the API and tries it, in a browser; it loads nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from browser import _function_scoped_runner, _opened, _shown, chromium, page
from headrace.jobs.http import create_app
from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.runtime.runtime import Runtime
from jobs_world import World

__all__ = ["_function_scoped_runner", "_opened", "_shown", "chromium", "page"]

pytestmark = [pytest.mark.one_database, pytest.mark.timeout(300)]


async def test_the_page_and_its_files_are_there_without_a_token_and_under_a_strict_policy(
    runtime: Runtime,
) -> None:
    runtime.admin_token = "secret"
    transport = httpx2.ASGITransport(create_app(runtime))
    async with httpx2.AsyncClient(transport=transport, base_url="http://jobs") as client:
        for path, kind in (
            ("/docs", "text/html"),
            ("/docs/docs.css", "text/css"),
            ("/docs/docs.js", "text/javascript"),
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "http" not in policy
        assert (await client.post("/docs")).status_code == 405
        assert (await client.get("/docs/none")).status_code == 404


def test_its_files_name_no_other_host_and_write_no_markup() -> None:
    import headrace.jobs.http

    folder = Path(str(headrace.jobs.http.__file__)).parent / "static"
    found = sorted(folder.iterdir())
    assert [path.name for path in found] == ["docs.css", "docs.html", "docs.js"]
    for path in found:
        text = path.read_text()
        assert not re.search(
            r"https?:|//[a-z]", text.replace(" // ", " ").replace("\n// ", "\n")
        ), path
        assert "innerHTML" not in text


async def opened(page: Any, address: str) -> None:
    await page.goto(f"{address}/docs")
    await page.get_by_text("What is sent from here is carried out").wait_for()


async def test_each_operation_is_shown_and_axe_finds_nothing(
    world: World, address: str, page: Any
) -> None:
    from axe_playwright_python.async_playwright import Axe

    await opened(page, address)
    assert await page.locator("details").count() == len(ENDPOINTS)
    for details in await page.locator("details").all():
        await details.evaluate("each => { each.open = true }")
    await page.locator("details form").nth(len(ENDPOINTS) - 1).wait_for()
    violations = (await Axe().run(page)).response["violations"]
    assert [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations] == []
    await page.get_by_label("Find").fill("jobs/claim")
    assert await page.locator("details:visible").count() == 1
    assert await page.locator("section:visible").count() == 1
    await page.set_viewport_size({"width": 390, "height": 844})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.complaints == []


async def test_requests_are_tried_and_given_for_a_shell(
    world: World, address: str, page: Any
) -> None:
    world.runtime.admin_token = "secret"
    await opened(page, address)

    async def operation(method: str, path: str) -> Any:
        found = page.locator("details").filter(
            has=page.locator(f"summary:has(b:text-is('{method}')):has(code:text-is('{path}'))")
        )
        await found.locator("summary").click()
        await found.locator("form").wait_for()
        return found

    keys = await operation("POST", "/v2/keys")
    body = keys.get_by_label("Body: JSON")
    assert '"scopes"' in await body.input_value()
    await body.fill('{"name": ')
    send = keys.get_by_role("button", name="Send (changes what is there)")
    await send.click()
    await keys.get_by_role("alert").wait_for()
    await body.fill("""{"name": "it's mine", "scopes": ["publish"]}""")
    await send.click()
    await keys.get_by_role("status").get_by_text("401").wait_for()
    await page.get_by_label("Admin token or API key").fill("secret")
    await send.click()
    await keys.get_by_role("status").get_by_text("201").wait_for()
    assert "hrk_" in await keys.get_by_label("The answer", exact=True).inner_text()
    shell = await keys.get_by_label("The request for a shell").inner_text()
    assert "secret" not in shell
    assert "Bearer $HEADRACE_JOBS_ADMIN_TOKEN" in shell
    assert r"it'\''s mine" in shell

    channel = await operation("PUT", "/channel/{channelId}")
    await channel.get_by_label("channelId (needed)").fill("made here")
    await channel.get_by_label("token: kept or made when absent").fill("ct")
    await channel.get_by_role("button", name="Send (changes what is there)").click()
    await channel.get_by_role("status").get_by_text("400").wait_for()
    await channel.get_by_label("channelId (needed)").fill("made-here")
    await channel.get_by_role("button", name="Send (changes what is there)").click()
    await channel.get_by_role("status").get_by_text("200").wait_for()
    jobs = await operation("GET", "/v2/channel/{channelId}/jobs")
    await jobs.get_by_role("button", name="Send").click()
    await jobs.get_by_role("alert").get_by_text("channelId is needed").wait_for()
    await jobs.get_by_label("channelId (needed)").fill("made-here")
    await jobs.get_by_label("state: QUEUED").fill("DEAD")
    await jobs.get_by_role("button", name="Send").click()
    await jobs.get_by_role("status").get_by_text("200").wait_for()
    assert "/v2/channel/made-here/jobs?state=DEAD" in await jobs.inner_text()
    publish = await operation("POST", "/v2/channel/{channelId}/messages")
    await publish.get_by_label("channelId (needed)").fill("c")
    await publish.get_by_label("Body: as it is").fill("hello")
    for name, value in (("Channel-Token", "ct"), ("Producer-ID", "p"), ("Producer-Token", "pt")):
        await publish.get_by_label(f"X-Broker-{name}", exact=True).fill(value)
    await publish.get_by_role("button", name="Send (changes what is there)").click()
    await publish.get_by_role("status").get_by_text("201").wait_for()
    assert [job["Message"]["Payload"] for job in await world.queued()] == ["hello"]
    shell = await publish.get_by_label("The request for a shell").inner_text()
    assert '"X-Broker-Channel-Token: $CHANNEL_TOKEN"' in shell
    assert page.complaints == []
