"""Axe finds nothing wrong on any page, light or dark, and a view's address shows the same view again."""

from __future__ import annotations

from typing import Any

import pytest

from browser import EVERYTHING, violations
from console_browser import check, go
from console_world import World
from headrace.jobs.runtime.runtime import Runtime
from waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server", ["headrace"], indirect=True),
]

PAGES = (
    ("overview", "Overview"),
    ("alerts", "Alerts"),
    ("streams", "Streams"),
    ("streams/ORDERS", "ORDERS"),
    ("streams/ORDERS/messages", "messages"),
    ("streams/ORDERS/messages?view=search&text=a", "messages"),
    ("streams/DEAD/dead", "dead letters"),
    ("consumers", "Consumers"),
    ("streams/ORDERS/consumers/work", "work"),
    ("groups", "groups"),
    ("groups/elastic/ORDERS/g", "g"),
    ("buckets", "Buckets"),
    ("buckets/CONF", "CONF"),
    ("buckets/CONF/key", "key"),
    ("objects/FILES", "FILES"),
    ("jobs", "Jobs"),
    ("jobs/c", "of c"),
    ("jobs/c/k", "k"),
    ("job-keys", "API keys"),
    ("job-audit", "audit log"),
    ("pipelines", "Pipelines"),
    ("spark", "Spark"),
    ("connections", "Connections"),
    ("accounts", "Accounts"),
    ("nowhere", "No such page"),
)

DIALOGS = (
    ("streams", "Streams", "Create a stream …"),
    ("streams/ORDERS", "ORDERS", "Edit …"),
    ("streams/ORDERS", "ORDERS", "Delete …"),
    ("streams/ORDERS/messages", "messages", "Publish …"),
    ("objects/FILES", "FILES", "Upload …"),
    ("streams/DEAD/dead", "dead letters", "Send all again …"),
    ("streams/DEAD/dead", "dead letters", "Look at letter 2"),
)

COLOURS = {
    **EVERYTHING,
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}
"""What else axe looks at is the same in every theme."""


@pytest.mark.parametrize(
    ("theme", "rules"),
    [
        pytest.param("light", EVERYTHING, id="light"),
        pytest.param(
            "dark",
            COLOURS,
            id="dark",
            marks=pytest.mark.slow("tests/console/test_accessibility.py"),
        ),
    ],
)
async def test_axe_finds_nothing_on_any_page_and_each_has_a_title_of_its_own(
    shown: World, runtime: Runtime, page: Any, theme: str, rules: dict[str, Any]
) -> None:
    await runtime.database.write(
        lambda tx: tx.run("begin_feed", channel_id="c", feed_id="f", stream="ORDERS")
    )
    await page.locator("main h2", has_text="Overview").wait_for()
    if await page.evaluate("document.documentElement.dataset.theme") != theme:
        await page.get_by_role("button", name=theme.title()).click()
    found = {}
    titles: set[str] = set()

    async def is_new() -> bool:
        return await page.title() not in titles

    for path, heading in PAGES:
        await go(page, path, heading)
        if "?" not in path:
            # A heading that the page before had, too, is there at once.
            await until(is_new, f"a title of {path}", within=30)
            titles.add(await page.title())
        await page.locator("main .waiting").first.wait_for(state="detached")
        if wrong := await violations(page, rules):
            found[path] = wrong
    for path, heading, button in DIALOGS:
        await go(page, path, heading)
        await page.get_by_role("button", name=button, exact=True).first.click()
        await page.locator("dialog[open]").wait_for()
        # What is behind it was looked at above.
        if wrong := await violations(page, rules, within="dialog[open]"):
            found[f"{path}: {button}"] = wrong
        await page.keyboard.press("Escape")
        await page.locator("dialog[open]").wait_for(state="detached")
    assert found == {}
    assert "ORDERS / messages · Headrace" in titles
    check(page)


async def the_address_of_a_view_shows_it_again(page: Any) -> None:
    await go(page, "streams", "Streams")
    await page.get_by_label("streams of buckets, too").check()
    await page.get_by_label("Filter streams").fill("KV_CONF")
    await page.get_by_role("button", name="Size", exact=True).click()
    rows = page.locator("main table[aria-label=streams] tbody tr")
    await until(lambda: _count(rows, 1))
    address = page.url
    assert "buckets=1" in address
    await go(page, "overview", "Overview")
    await page.goto("about:blank")
    await page.goto(address)
    await until(lambda: _count(rows, 1))
    assert await page.get_by_label("Filter streams").input_value() == "KV_CONF"
    assert await page.get_by_label("streams of buckets, too").is_checked()
    sorted_by = page.locator("main table[aria-label=streams] th[aria-sort]")
    assert "Size" in await sorted_by.inner_text()
    await page.go_back()
    check(page)


async def test_an_address_shows_a_view_a_search_and_a_place_again(shown: World, page: Any) -> None:
    await the_address_of_a_view_shows_it_again(page)
    await page.goto(shown.console.url)
    await page.locator("main h2", has_text="Overview").wait_for()
    await a_search_and_a_place_are_in_the_address(page)


async def a_search_and_a_place_are_in_the_address(page: Any) -> None:
    await go(page, "streams/ORDERS/messages", "messages")
    await page.get_by_label("From a sequence or a time").fill("12")
    await page.get_by_role("button", name="Show").click()
    await page.locator(".line[data-seq='12']").wait_for()
    place = page.url
    await page.get_by_role("button", name="Search").click()
    await page.get_by_label("Text in the payload").fill("7")
    await page.get_by_role("button", name="Find").click()
    await page.get_by_text("that is all").wait_for()
    said = await page.locator("main [role=status]").inner_text()
    search = page.url
    for address, shows in ((place, ".line[data-seq='12']"), (search, f"text={said}")):
        await page.goto("about:blank")
        await page.goto(address)
        await page.locator(shows).first.wait_for()
    assert await page.get_by_label("Text in the payload").input_value() == "7"
    await page.get_by_role("button", name="Search").click()  # back to the list, at its place
    await page.locator(".line[data-seq='12']").wait_for()
    check(page)


async def _count(rows: Any, wanted: int) -> bool:
    return bool(await rows.count() == wanted)
