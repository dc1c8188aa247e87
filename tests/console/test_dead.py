"""Dead letters of a stream in the console: listed, counted, looked at, and sent again, one and many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console_browser import act, check, go, read
from console_world import ATTACK, SUBJECT_ATTACK, World, bury
from headrace.console.routes import dead, messages

pytestmark = pytest.mark.timeout(180)

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)


@pytest.fixture(params=[True, False], ids=["direct", "asked"])
async def letters(world: World, request: pytest.FixtureRequest) -> Any:
    """A message that is none, then four letters of two consumers."""
    await world.js.create_stream(name="ORDERS", subjects=("orders.>",), storage="memory")
    stream = await world.js.create_stream(
        name="DEAD", subjects=("dead.>",), storage="memory", allow_direct=request.param
    )
    await world.js.publish("dead.letters", b"no letter")
    await bury(world.js, ("orders.1", "orders.2", "orders.2"))
    await bury(world.js, ("orders.3",), "shipping")
    return stream


async def left(stream: Any) -> int:
    return int((await stream.info()).state.messages)


async def test_letters_are_listed_counted_and_looked_at(world: World, letters: Any) -> None:
    seen = await world.get("/streams/DEAD/dead")
    assert [each["seq"] for each in seen["letters"]] == [2, 3, 4, 5]
    assert (seen["looked"], seen["next"]) == (5, 0)
    first = seen["letters"][0]
    assert (first["from"], first["subject"], first["attempts"]) == ("ORDERS billing", "orders.1", 3)
    assert first["reason"] == f"ValueError('{ATTACK}')"
    of_one = await world.get("/streams/DEAD/dead?consumer=shipping&subject=dead.*&from=2")
    assert [each["seq"] for each in of_one["letters"]] == [5]
    counted = await world.get("/streams/DEAD/dead/count")
    assert counted["counts"][0] == {"from": "billing", "error": "ValueError", "letters": 3}
    assert (counted["letters"], counted["next"]) == (4, 0)
    one = await world.get("/streams/DEAD/dead/letters/3")
    assert one["headers"] == [["Customer", f"2 {ATTACK}"]]
    assert one["payload"]["text"] == f"{ATTACK} 2" and one["origin_sequence"] == 2
    assert (await world.get("/streams/DEAD/dead/letters/1", 404))["code"] == "no_letter"
    assert (await world.get("/streams/ORDERS/dead"))["letters"] == []
    for path in ("NONE/dead", "NONE/dead/count", "DEAD/dead/letters/99"):
        await world.get(f"/streams/{path}", 404)
    for path in ("dead?subject=a..b", "dead?from=x", "dead/letters/x"):
        await world.get(f"/streams/DEAD/{path}", 400)


async def test_one_letter_is_sent_again_and_removed(world: World, letters: Any) -> None:
    path = "/streams/DEAD/dead/resend"
    done = await world.send("POST", path, seq=2)
    assert done == {"resent": 1, "to": ["orders.1"], "next": 0, "until": 0}
    orders = await world.js.stream("ORDERS")
    again = await orders.get_last_message("orders.1")
    given = [each for each in again.headers.items() if not each[0].startswith("Nats-")]
    assert (again.payload, given) == (f"{ATTACK} 1".encode(), [("Customer", f"1 {ATTACK}")])
    await world.send("POST", path, seq=3, to="orders.other")
    assert (await orders.get_last_message("orders.other")).payload == f"{ATTACK} 2".encode()
    assert await left(letters) == 3
    await world.send("POST", path, 404, seq=2)
    assert (await world.send("POST", path, 404, seq=1))["code"] == "no_letter"
    refused = await world.send("POST", path, 409, seq=4, to="nobody.has.this")
    assert refused["message"].startswith("letter 4, to nobody.has.this: ")
    for wrong in ({"seq": "x"}, {"seq": -1}, {"seq": 4, "to": "a.*"}, {"seq": 4, "to": 7}):
        await world.send("POST", path, 400, **wrong)
    assert await left(letters) == 3


async def test_many_are_sent_again_part_by_part_up_to_the_last_of_the_beginning(
    world: World, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "RESENT_MAX", 2)
    path = "/streams/DEAD/dead/resend"
    unsure = await world.send("POST", path, 409)
    assert unsure["code"] == "not_confirmed" and await left(letters) == 5
    asked: dict[str, Any] = {"confirm": "DEAD", "consumer": "billing"}
    first = await world.send("POST", path, **asked)
    assert (first["resent"], first["next"], first["until"]) == (2, 4, 5)
    await bury(world.js, ("orders.9",))  # what fails again
    second = await world.send("POST", path, **{**asked, "from": 4, "until": 5})
    assert (second["resent"], second["to"], second["next"]) == (1, ["orders.2"], 0)
    seen = await world.get("/streams/DEAD/dead")
    assert [each["subject"] for each in seen["letters"]] == ["orders.3", "orders.9"]
    orders = await world.js.stream("ORDERS")
    assert await left(orders) == 3


async def test_a_letter_that_cannot_be_stored_stays_and_what_was_sent_is_said(
    world: World, letters: Any
) -> None:
    await bury(world.js, ("nobody.has.this", "orders.9"))
    refused = await world.send("POST", "/streams/DEAD/dead/resend", 409, confirm="DEAD")
    assert "letter 6, to nobody.has.this" in refused["message"]
    assert refused["message"].endswith("sent before it: 4")
    seen = await world.get("/streams/DEAD/dead")
    assert [each["seq"] for each in seen["letters"]] == [6, 7]


async def test_a_letter_of_a_stream_that_was_made_again_is_no_duplicate(world: World) -> None:
    orders = await world.js.create_stream(name="ORDERS", subjects=("orders.>",), storage="memory")
    for _ in range(2):
        stream = await world.js.create_stream(name="DEAD", subjects=("dead.>",), storage="memory")
        await bury(world.js, ("orders.1",))
        await world.send("POST", "/streams/DEAD/dead/resend", seq=1)
        await stream.delete()
    assert await left(orders) == 2


async def test_a_look_is_bounded_and_says_where_to_go_on(
    world: World, letters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "LISTED_MAX", 3)
    seen = await world.get("/streams/DEAD/dead")
    assert ([each["seq"] for each in seen["letters"]], seen["next"]) == ([2, 3, 4], 5)
    rest = await world.get("/streams/DEAD/dead?from=5")
    assert ([each["seq"] for each in rest["letters"]], rest["next"]) == ([5], 0)
    for name in ("MESSAGES_MAX", "ASKED_MAX"):
        monkeypatch.setattr(messages, name, 2)
    counted = await world.get("/streams/DEAD/dead/count")
    assert (counted["letters"], counted["looked"], counted["next"]) == (1, 2, 3)


async def test_nothing_is_sent_again_with_read_only(
    make_world: Callable[..., Any], letters: Any
) -> None:
    world: World = await make_world(read_only=True)
    refused = await world.send("POST", "/streams/DEAD/dead/resend", 403, seq=2)
    assert refused["code"] == "read_only"
    assert len((await world.get("/streams/DEAD/dead"))["letters"]) == 4


@OURS
async def test_letters_are_looked_at_and_sent_again_in_a_browser(
    shown: World, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.async_api import expect

    monkeypatch.setattr(dead, "RESENT_MAX", 1)
    orders, letters = await shown.js.stream("ORDERS"), await shown.js.stream("DEAD")
    rows = page.get_by_role("table", name="dead letters", exact=True).locator("tbody tr")
    await go(page, "streams/DEAD", "DEAD")
    await page.get_by_role("link", name="Dead letters").click()
    await page.locator("main h2", has_text="dead letters").wait_for()
    await expect(rows).to_have_count(4)
    await expect(page.get_by_role("table", name="counts of dead letters")).to_contain_text(
        "billing"
    )

    await page.get_by_role("button", name="Look at letter 2").click()
    dialog = page.locator("dialog[open]")
    await dialog.locator("dd", has_text=f"1 {ATTACK}").wait_for()
    await dialog.locator("pre", has_text=f"{ATTACK} 1").wait_for()
    await act(page, "Send letter 2 again")
    await read(page, "published 1 message again to orders.0")
    await expect(rows).to_have_count(3)
    assert (await orders.get_last_message("orders.0")).payload == f"{ATTACK} 1".encode()

    await page.get_by_role("button", name="Look at letter 5").click()
    await act(page, "Send letter 5 again", to="in.again")
    await read(page)
    await expect(rows).to_have_count(2)
    assert (await orders.get_last_message("in.again")).payload == f"{ATTACK} 1".encode()

    await bury(shown.js, (SUBJECT_ATTACK,), "shipping")
    await page.get_by_label("Consumer or group").fill("billing")
    await page.get_by_role("button", name="Show").click()
    await page.get_by_text("2 dead letters in 4 messages; that is all").wait_for()
    await act(page, "Send all again", confirm="DEAD")
    await read(page, "published 2 messages again to orders.1")
    await page.get_by_text("Stream DEAD has no such dead letter").wait_for()
    assert await left(letters) == 2, "what is no letter, and that of another consumer"
    await page.get_by_label("Consumer or group").fill("")
    await page.get_by_role("button", name="Show").click()
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="Look at letter 6").click()
    await act(page, "Delete", confirm="6")
    await expect(rows).to_have_count(0)
    assert await page.evaluate("window.attacked") is None
    check(page)


@OURS
async def test_a_read_only_console_shows_letters_and_no_button_that_sends(
    make_world: Callable[..., Any], letters: Any, page: Any
) -> None:
    from playwright.async_api import expect

    world: World = await make_world(read_only=True)
    await page.goto(f"{world.console.url}/#/streams/DEAD/dead")
    await page.get_by_role("button", name="Look at letter 2").click()
    await page.locator("dialog[open] pre", has_text=ATTACK).wait_for()
    await expect(page.get_by_role("button", name="again")).to_have_count(0)
    await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    check(page)
