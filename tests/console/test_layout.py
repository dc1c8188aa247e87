"""How the pages lie on a phone and on a small notebook, and how they say versions, times and sizes."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from console_browser import check, go
from console_world import World
from headrace import __version__

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("server", ["headrace"], indirect=True),
]

WITHIN_MS = 60_000
LONG = "INVOICES_OF_THE_WHOLE_YEAR_BY_REGION_AND_DAY"
PHONE = {"width": 390, "height": 844}
NOTEBOOK = {"width": 1280, "height": 800}


async def fits(page: Any) -> bool:
    """Nothing of the page lies beside the window, and nothing of a table beside its frame."""
    beside = await page.evaluate(
        "[document.documentElement, ...document.querySelectorAll('.scroll')]"
        ".map((each) => each.scrollWidth - each.clientWidth)"
    )
    return bool(max(beside) <= 0)


async def on_a_phone_the_menu_leaves_the_room_to_the_page(page: Any) -> None:
    await page.set_viewport_size(PHONE)
    for path, heading in (("overview", "Overview"), ("nowhere", "No such page")):
        await go(page, path, heading)  # a long page, and one that would leave room to the menu
        menu = await page.locator("nav").bounding_box()
        assert menu["height"] < PHONE["height"] / 3
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    check(page)


async def on_a_small_notebook_tables_show_all_their_columns(shown: World, page: Any) -> None:
    stream = await shown.js.create_stream(
        name=LONG, subjects=tuple(f"invoices.{each}.*.*.>" for each in ("europe", "asia", "africa"))
    )
    await stream.create_consumer(
        durable_name=f"{LONG}_worker",
        filter_subjects=("invoices.europe.*.*.>", "invoices.asia.*.*.>"),
        priority_groups=("p",),
        priority_policy="pinned_client",
    )
    await shown.js.publish("invoices.europe.a.b.c", b"x")
    await shown.console.sources.watcher.refresh()
    await page.set_viewport_size(NOTEBOOK)
    for path, heading in (("streams", "Streams"), ("consumers", "Consumers")):
        await go(page, path, heading)
        rows = page.locator(f"main table[aria-label={path}] tbody tr")
        await expect(rows.filter(has_text=LONG).first).to_be_visible(timeout=WITHIN_MS)
        assert await fits(page), path
    check(page)


async def on_a_phone_a_shade_hints_at_the_columns_beside_the_frame(page: Any) -> None:
    await page.set_viewport_size(PHONE)
    await go(page, "streams", "Streams")
    frame = page.locator("main .scroll").first
    await expect(frame.locator("tbody tr").first).to_be_visible(timeout=WITHIN_MS)
    place = await frame.bounding_box()
    # A strip of the table's end that has no letters, which a shade alone makes another.
    strip = {"x": place["x"] + place["width"] - 6, "y": place["y"] + 2, "width": 4, "height": 3}

    async def shown_there() -> bytes:
        picture: bytes = await page.screenshot(clip=strip)
        return picture

    more_to_come = await shown_there()
    await frame.evaluate("(frame) => { frame.scrollLeft = frame.scrollWidth; }")
    assert await shown_there() != more_to_come
    check(page)


async def the_sidebar_says_headrace_s_version_and_no_key(shown: World, page: Any) -> None:
    foot = page.locator("nav .foot")
    await expect(foot).to_contain_text(f"Headrace {__version__}", timeout=WITHIN_MS)
    await expect(foot).to_contain_text("compatible with nats-server 2.14.0")
    assert shown.connection.server_info.server_id not in await foot.inner_text()


async def configurations_have_units_and_say_where_there_is_no_limit(
    shown: World, page: Any
) -> None:
    stream = await shown.js.create_stream(
        name="U", subjects=("u",), max_age=90_000, max_bytes=2**20
    )
    await stream.create_consumer(durable_name="c", ack_wait=1.5, backoff=(1, 65), max_deliver=3)
    seen = page.locator("main .panel dl").last

    async def says(name: str, value: str) -> None:
        field = seen.locator(f"xpath=./dt[text()='{name}']/following-sibling::dd[1]")
        await expect(field).to_have_text(value, timeout=WITHIN_MS)

    await go(page, "streams/U", "U")
    for name, value in {
        "max_age": "1d 1h",
        "max_bytes": "1.0 MiB",
        "max_msgs": "no limit",
        "duplicate_window": "2m",
    }.items():
        await says(name, value)
    await go(page, "streams/U/consumers/c", "c")
    for name, value in {"backoff": "1s, 1m 5s", "max_ack_pending": "1,000"}.items():
        await says(name, value)
    await go(page, "streams/ORDERS/consumers/work", "work")
    for name, value in {"ack_wait": "30s", "max_deliver": "no limit"}.items():
        await says(name, value)
    check(page)


async def a_wrong_time_is_said_without_a_word_of_how_many_messages(page: Any) -> None:
    await go(page, "streams/ORDERS/messages", "messages")
    await page.get_by_label("From a sequence or a time").fill("soon")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("main [role=alert]")).to_have_text(
        "not a time: 'soon'", timeout=WITHIN_MS
    )
    await expect(page.locator("main").get_by_text("messages, sequences")).to_have_count(0)
    await expect(page.get_by_text("No messages here.")).to_have_count(0)
    check(page)


async def test_pages_fit_and_say_what_they_show(shown: World, page: Any) -> None:
    """One console is made for all of it, which takes three times as long as each look."""
    await the_sidebar_says_headrace_s_version_and_no_key(shown, page)
    await a_wrong_time_is_said_without_a_word_of_how_many_messages(page)
    await configurations_have_units_and_say_where_there_is_no_limit(shown, page)
    await on_a_small_notebook_tables_show_all_their_columns(shown, page)
    await on_a_phone_the_menu_leaves_the_room_to_the_page(page)
    await on_a_phone_a_shade_hints_at_the_columns_beside_the_frame(page)
