"""Every page and every action in a real browser, with an attack in every text a stranger may choose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from console_browser import act, check, go
from console_world import ATTACK, SUBJECT_ATTACK, World, kill_a_job
from headrace.client import JetStream
from headrace.console import subjects
from headrace.console.routes import buckets
from headrace.groups import elastic
from headrace.jobs.runtime.runtime import Runtime
from portions import portion
from waiting import until

pytestmark = pytest.mark.timeout(180)

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)
THEIRS = pytest.mark.parametrize("server", ["nats-server"], indirect=True)
"""Where the page is the same and the server's answers are tested elsewhere, one server will do."""

BROWSED = portion(100_000, few=30_000)
SCROLLED = portion(20_000, few=6_000)  # of these one after the other
LINES_MAX = 120  # in the page at any time, however many there are
PAUSE_MS_MAX = 1_500  # between two frames, on a machine that is busy with other tests


CURVES = {
    "overview": 2,
    "streams/ORDERS": 2,
    "streams/ORDERS/consumers/work": 2,
    "groups/elastic/ORDERS/g": 3,
    "pipelines": 4,
    "spark": 2,
}
"""How many each page has."""


async def unharmed(page: Any) -> None:
    """No text became markup or ran, on this page."""
    assert await page.evaluate("window.attacked") is None
    assert await page.locator("main img, main script, main iframe, main svg").count() == 0
    check(page)


async def curves(page: Any, count: int) -> None:
    """They are drawn when the numbers of the past have come, which is after the texts."""
    from playwright.async_api import expect

    # Not by an expression to wait for: the page's policy lets nobody evaluate one a second time.
    await expect(page.locator(".plot canvas")).to_have_count(count, timeout=30_000)


@pytest.mark.parametrize(
    "server",
    [
        "headrace",
        pytest.param(
            "nats-server",
            marks=pytest.mark.slow(
                "tests/console/test_browser.py::test_streams_and_consumers_are_acted_on"
            ),
        ),
    ],
    indirect=True,
)
async def test_every_page_shows_its_texts_as_text(shown: World, page: Any) -> None:
    pages = [
        ("overview", "Overview", "ORDERS"),
        ("alerts", "Alerts", "worth knowing"),
        ("streams", "Streams", SUBJECT_ATTACK.split("<", 1)[0].rstrip(".")),
        ("streams/ORDERS", "ORDERS", ATTACK),
        ("streams/ORDERS/messages", "messages", ATTACK),
        ("streams/DEAD/dead", "dead letters", ATTACK),
        ("consumers", "Consumers", "work"),
        ("streams/ORDERS/consumers/work", "work", ATTACK),
        ("groups", "groups", "elastic"),
        ("groups/elastic/ORDERS/g", "g", "Partitions"),
        ("buckets", "Buckets", ATTACK),
        ("buckets/CONF", "CONF", "other"),
        ("buckets/CONF/key", "key", ATTACK),
        ("buckets/CONF/other", "other", "12345678901234567890"),
        ("objects/FILES", "FILES", ATTACK),
        ("jobs", "Jobs", "k"),
        ("jobs/c/k", "k", ATTACK),
        ("jobs/c", "of c", ATTACK),
        ("pipelines", "Pipelines", ATTACK),
        ("spark", "Spark", "query"),
        ("connections", "Connections", "console"),
        ("accounts", "Accounts", "$G"),
        ("nowhere", "No such page", "overview"),
    ]
    for path, heading, text in pages:
        await go(page, path, heading)
        await page.locator("main", has_text=text).first.wait_for()
        await unharmed(page)
        await curves(page, CURVES.get(path, 0))
    await page.locator("nav a", has_text="Streams").click()
    await page.locator("main h2", has_text="Streams").wait_for()


@OURS
async def test_an_address_is_followed_as_soon_as_there_is_a_page(shown: World, page: Any) -> None:
    # It changes after the first render and before anybody listens, which is told by nothing.
    page.spoilt = True
    await page.add_init_script(
        """const listen = window.addEventListener;
        window.addEventListener = function (name, ...rest) {
            if (name === "hashchange") history.replaceState(null, "", "#/streams");
            return listen.call(this, name, ...rest);
        };"""
    )
    await page.reload()
    await page.locator("main h2", has_text="Streams").first.wait_for()
    check(page)


@OURS
async def test_messages_are_followed_and_read_in_every_form_and_keys_reach_everything(
    shown: World, page: Any
) -> None:
    await keys_reach_everything(page)
    await new_messages_are_followed(shown, page)
    await a_message_is_read_in_every_form(page)


async def a_message_is_read_in_every_form(page: Any) -> None:
    from playwright.async_api import expect

    await go(page, "streams/ORDERS/messages", "messages")
    await page.get_by_label("Subject or pattern").fill("in.>")
    await page.get_by_role("button", name="Show").click()
    await page.locator(".line[data-seq='31']").click()
    dialog = page.locator("dialog[open]")
    for form in ("Text", "Hex"):
        await dialog.get_by_role("tab", name=form).click()
    await dialog.locator("dd", has_text=ATTACK).wait_for()
    await unharmed(page)
    await act(page, "Delete", confirm="31")
    await page.get_by_label("From a sequence or a time").fill("12")
    await page.get_by_label("Subject or pattern").fill("")
    await page.get_by_role("button", name="Show").click()
    # The lines before it are fetched, too, above what is in view.
    await expect(page.locator(".line[data-seq='12']")).to_be_in_viewport(ratio=0.5)
    assert "from=12" in page.url
    check(page)


@OURS
async def test_a_stream_is_made_filled_searched_and_changed(
    shown: World, page: Any, tmp_path: Path
) -> None:
    from playwright.async_api import expect

    await go(page, "streams", "Streams")
    await act(page, "Create a stream", name="NOTES", subjects="notes.> memos.*")
    await page.locator("main h2", has_text="NOTES").wait_for()
    stream = await shown.js.stream("NOTES")
    assert (await stream.info()).config.subjects == ("notes.>", "memos.*")
    await go(page, "streams/NOTES/messages", "messages")
    for number in range(3):
        payload = json.dumps({"to": f"ann{number}", "text": ATTACK})
        await act(page, "Publish", subject=f"notes.{number}", payload=payload, headers="Kind: note")
    (tmp_path / "bytes").write_bytes(b"\x00\xff")
    await page.evaluate(SLOW_FILES)
    page.spoilt = True
    await page.get_by_role("button", name="Publish …").click()
    dialog = page.locator("dialog[open]")
    await dialog.locator("[name=subject]").fill("memos.file")
    await dialog.locator("[name=payload_base64]").set_input_files(tmp_path / "bytes")
    await dialog.locator("form button").first.click()
    await dialog.wait_for(state="detached")
    assert (await stream.get_message(4)).payload == b"\x00\xff"
    await page.get_by_role("button", name="Search").click()
    await page.get_by_label("Path of JSON").fill("to")
    await page.get_by_label("Text in the payload").fill("ann1")
    await page.get_by_role("button", name="Find").click()
    await page.get_by_text("1 found in 4 messages; that is all.").wait_for()
    line = page.locator(".line[data-seq='2']")
    await the_button_stays_where_it_is_pressed(page, "NOTES", 2, line.click)
    await page.locator("dialog[open] h3", has_text="Message 3").wait_for()
    step = page.get_by_role("button", name="Previous").click
    await the_button_stays_where_it_is_pressed(page, "NOTES", 2, step)
    await page.locator("dialog[open] h3", has_text="Message 3").wait_for()
    await page.get_by_role("button", name="Next", exact=True).click()
    await page.locator("dialog[open] h3", has_text="Message 4").wait_for()
    await page.get_by_role("button", name="Previous").click()
    await page.locator("dialog[open] h3", has_text="Message 3").wait_for()
    await page.get_by_role("button", name="Publish again …").click()
    await page.locator("dialog[open]").last.locator("form button").first.click()
    await page.locator(".toast", has_text="sequence 5").wait_for()
    assert (await stream.get_message(5)).payload == (await stream.get_message(3)).payload
    await unharmed(page)

    await go(page, "streams/NOTES", "NOTES")
    await page.get_by_role("button", name="Edit …").click()
    dialog = page.locator("dialog[open]")
    config = dialog.locator("[name=config]")
    settings = json.loads(await config.input_value())
    await config.fill("{")
    await dialog.get_by_role("button", name="Show what changes").click()
    await dialog.get_by_text("this is not JSON").wait_for()
    await config.fill(json.dumps({**settings, "max_msgs": 2}))
    await dialog.get_by_role("button", name="Show what changes").click()
    await dialog.get_by_text("3 of 5 messages").wait_for()
    change = dialog.get_by_role("button", name="Change", exact=True)
    await expect(change).to_be_disabled()
    await dialog.locator("[name=confirm]").fill("NOTES")
    await change.click()
    await dialog.wait_for(state="detached")
    assert (await stream.info()).state.messages == 2
    check(page)


async def the_button_stays_where_it_is_pressed(
    page: Any, stream: str, sequence: int, show: Callable[[], Awaitable[None]]
) -> None:
    """Press *Next* before the message that `show` asks for is there, and let go after it is."""
    come = asyncio.Event()

    async def late(route: Any) -> None:
        await come.wait()
        await route.continue_()

    address = f"**/streams/{stream}/messages/{sequence}"
    await page.route(address, late)
    async with page.expect_request(address):
        await show()
    button = page.get_by_role("button", name="Next", exact=True)
    await button.hover()
    await page.mouse.down()
    async with page.expect_response(address):
        come.set()
    await page.locator("dialog[open] h3", has_text=f"Message {sequence}").wait_for()
    await page.locator("dialog[open] pre").wait_for()
    await page.mouse.up()
    await page.unroute(address)


async def new_messages_are_followed(shown: World, page: Any) -> None:
    await go(page, "streams/ORDERS/messages", "messages")
    await page.get_by_role("button", name="Follow").click()
    await page.get_by_text("New messages appear here").wait_for()
    await until(lambda: shown.console.sources.followers == 2)

    async def arrived() -> bool:
        await shown.js.publish(SUBJECT_ATTACK, ATTACK.encode())
        return bool(await page.locator(".line[data-seq]").count())

    await until(arrived)
    await unharmed(page)
    await page.get_by_role("button", name="Following").click()
    await until(lambda: shown.console.sources.followers == 1)


@pytest.mark.peer
@THEIRS
async def test_streams_and_consumers_are_acted_on(shown: World, page: Any) -> None:
    js = shown.js
    pinned = await js.consumer("ORDERS", "pinned")
    await pinned.fetch(1, group="p")
    await go(page, "streams/ORDERS/consumers/pinned", "pinned")
    await act(page, "Unpin p")
    assert not (await pinned.info()).priority_groups[0].pinned_client_id
    await go(page, "streams/ORDERS/consumers/work", "work")
    await page.get_by_role("button", name="Pause …", exact=True).click()
    dialog = page.locator("dialog[open]")
    await dialog.locator("[name=span]").fill("soon")
    await dialog.locator("form button").first.click()
    await dialog.get_by_text("such as 90m").wait_for()
    await page.keyboard.press("Escape")
    await act(page, "Pause", span="10m")
    assert (await (await js.consumer("ORDERS", "work")).info()).paused
    await act(page, "Resume")
    await act(page, "Reset", confirm="work", sequence="20")
    assert (await (await js.consumer("ORDERS", "work")).info()).num_pending == 12
    await act(page, "Delete", confirm="work")
    await go(page, "streams/ORDERS", "ORDERS")
    await consumer_is_made_and_changed(page, js)
    await go(page, "streams/ORDERS", "ORDERS")
    await act(page, "Purge", confirm="ORDERS", keep="5")
    assert (await (await js.stream("ORDERS")).info()).state.messages == 5
    await act(page, "Delete", confirm="ORDERS")
    await page.locator("main h2", has_text="Streams").wait_for()
    assert "ORDERS" not in [name async for name in js.stream_names()]
    check(page)


async def consumer_is_made_and_changed(page: Any, js: JetStream) -> None:
    await act(page, "Create a consumer", name="made", filter_subjects="in.> other.*", ack_wait="2m")
    await page.locator("main h2", has_text="made").wait_for()
    consumer = await js.consumer("ORDERS", "made")
    config = (await consumer.info()).config
    assert (config.ack_wait, config.filter_subjects) == (120.0, ("in.>", "other.*"))
    await page.get_by_role("button", name="Edit …").click()
    dialog = page.locator("dialog[open]")
    document = dialog.locator("[name=config]")
    settings = json.loads(await document.input_value())
    await document.fill(json.dumps({**settings, "max_ack_pending": 7}))
    await dialog.get_by_role("button", name="Show what changes").click()
    await dialog.locator("td", has_text="max_ack_pending").wait_for()
    assert (await consumer.info()).config.max_ack_pending != 7
    await dialog.get_by_role("button", name="Change", exact=True).click()
    await dialog.wait_for(state="detached")
    assert (await consumer.info()).config.max_ack_pending == 7


@OURS
async def test_buckets_and_jobs_are_acted_on(
    shown: World, page: Any, service: httpx2.AsyncClient, runtime: Runtime, tmp_path: Path
) -> None:
    bucket = await shown.js.key_value("CONF")
    await go(page, "buckets/CONF", "CONF")
    await act(page, "Put a key", key="made.here", value=ATTACK)
    assert (await bucket.get("made.here")).value == ATTACK.encode()
    await go(page, "buckets/CONF/made.here", "made.here")
    await act(page, "Change", value="changed")
    assert (await bucket.get("made.here")).value == b"changed"
    await act(page, "Delete", confirm="made.here")
    assert "made.here" not in await bucket.keys()
    await go(page, "buckets/CONF", "CONF")
    await act(page, "Delete the bucket", confirm="CONF")
    await go(page, "objects/FILES", "FILES")
    async with page.expect_download() as expected:
        await page.locator("main td a").first.click()
    assert (await (await expected.value).path()).read_bytes() == b"content"
    await objects_are_uploaded(page, shown.js, tmp_path)
    await act(page, "Delete", confirm="big file.bin")
    await page.locator("main td", has_text="big file.bin").wait_for(state="detached")
    await act(page, "Delete", confirm=f"notes/{ATTACK}")
    await act(page, "Delete the bucket", confirm="FILES")
    await go(page, "jobs/c/k", "k")
    await act(page, "Requeue")
    await kill_a_job(service, publish=False)
    await page.locator("main td a").first.wait_for()
    await act(page, "Requeue all", confirm="k")
    await page.get_by_text("No job is dead.").wait_for()
    await unharmed(page)
    await jobs_are_found_and_cancelled(page, service)
    await unharmed(page)
    await runtime.database.write(
        lambda tx: tx.run("begin_feed", channel_id="c", feed_id="f", stream=ATTACK)
    )
    await go(page, "jobs", "Jobs")
    await act(page, "Make again", confirm="f", sequence="3")
    await page.locator("main td", has_text="It goes back to sequence 3.").wait_for()
    await unharmed(page)


async def objects_are_uploaded(page: Any, js: JetStream, folder: Path) -> None:
    """A file of some megabytes, under a name of its own; again only when it may replace the first."""
    store = await js.object_store("FILES")
    content = bytes(range(256)) * 20_000
    (folder / "big file.bin").write_bytes(content)

    async def upload(said: str, **chosen: str) -> None:
        await page.get_by_role("button", name="Upload …").click()
        dialog = page.locator("dialog[open]")
        await dialog.locator("[name=file]").set_input_files(folder / "big file.bin")
        for name, value in chosen.items():
            field = dialog.locator(f"[name={name}]")
            await (field.select_option(value) if name == "replace" else field.fill(value))
        await dialog.locator("form button").first.click()
        await page.get_by_text(said).first.wait_for()

    await upload("big file.bin stored: 4.9 MiB")
    assert await store.get("big file.bin") == content
    await upload("there is an object 'big file.bin' already")
    await page.keyboard.press("Escape")
    content = b"smaller"
    (folder / "big file.bin").write_bytes(content)
    await upload("big file.bin stored: 7 B", replace="yes")
    await upload(f"{ATTACK}2 stored: 7 B", name=f"notes/{ATTACK}2")
    assert [await store.get(name) for name in ("big file.bin", f"notes/{ATTACK}2")] == [content] * 2
    await page.locator(".toast").wait_for(state="detached")
    await unharmed(page)


async def jobs_are_found_and_cancelled(page: Any, service: httpx2.AsyncClient) -> None:
    from playwright.async_api import expect

    jobs = [await kill_a_job(service) for _ in range(3)]
    await service.post("/channel/c/consumer/k/dlq", data={"requeue": "kt"})
    await go(page, "jobs", "Jobs")
    await page.get_by_role("link", name="c", exact=True).first.click()
    await page.locator("main h2", has_text="of c").wait_for()
    await page.get_by_label("State").select_option("QUEUED")
    await page.get_by_label("Older than").fill("soon")
    await page.get_by_role("button", name="Find").click()
    await page.get_by_text("such as 90m").wait_for()
    await page.get_by_label("Older than").fill("")
    await page.get_by_label("Consumer").fill("k")
    await page.get_by_role("button", name="Find").click()
    rows = page.locator("main table[aria-label=jobs] tbody tr")
    await expect(rows.first).to_contain_text("QUEUED")
    waiting = await rows.count()
    await act(page, "Cancel")
    await expect(rows).to_have_count(waiting - 1)
    await act(page, "Cancel all that match", confirm="c")
    await page.get_by_text("No such jobs.").wait_for()
    await page.get_by_label("State").select_option("DEAD")
    await page.get_by_role("button", name="Find").click()
    await expect(rows.first).to_contain_text("cancelled")
    await expect(page.get_by_role("button", name="Cancel all that match …")).to_have_count(0)
    await page.get_by_role("link", name=jobs[0], exact=True).click()
    await page.get_by_role("heading", name="Attempts").wait_for()
    await page.locator("main table[aria-label=attempts]", has_text="broken").wait_for()


@OURS
async def test_a_member_s_instance_steps_down(shown: World, page: Any) -> None:
    pins: list[int] = []

    async def handle(message: Any) -> None:
        pins.append(message.generation)
        message.ack()

    async with elastic.join(shown.js, "ORDERS", "g", "a", handle):
        await until(lambda: pins)
        before = pins[-1]
        await go(page, "groups/elastic/ORDERS/g", "g")
        await act(page, "Step down a")

        async def changed() -> bool:
            await shown.js.publish("orders.0", b"")
            await shown.js.publish("orders.1", b"")
            await shown.js.publish("orders.2", b"")
            return pins[-1] != before

        await until(changed)
    check(page)


async def keys_reach_everything(page: Any) -> None:
    await page.locator("main h2", has_text="Overview").wait_for()
    await page.keyboard.press("?")
    await page.locator("dialog[open]", has_text="filter the table").wait_for()
    await page.keyboard.press("Escape")
    await page.locator("dialog[open]").wait_for(state="detached")
    for key, heading in (("s", "Streams"), ("b", "Buckets"), ("j", "Jobs"), ("o", "Overview")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await page.locator("main h2", has_text=heading).wait_for()
    await go(page, "streams", "Streams")
    await page.get_by_label("streams of buckets, too").check()
    await page.get_by_label("Filter streams").wait_for()
    await page.locator("main h2").click()
    await page.keyboard.press("/")
    await page.keyboard.type("ORDERS-g")
    await until(lambda: _rows(page, 1))
    await page.get_by_role("button", name="Dark").click()
    await page.locator("html[data-theme=dark]").wait_for()
    check(page)


async def _rows(page: Any, count: int) -> bool:
    return bool(await page.locator("tbody tr").count() == count)


@OURS
async def test_the_password_is_asked_for_and_left(
    make_world: Callable[..., Any], page: Any
) -> None:
    world = await make_world(password="correct horse")
    await page.goto(world.console.url)
    await page.get_by_label("Password").fill("wrong horse")
    await page.get_by_role("button", name="Open").click()
    await page.get_by_text("that is not the password").wait_for()
    await page.get_by_label("Password").fill("correct horse")
    await page.get_by_role("button", name="Open").click()
    await page.locator("main h2", has_text="Overview").wait_for()
    assert await page.evaluate("document.cookie") == "", "scripts cannot read the cookie"
    await page.get_by_role("button", name="Log out").click()
    await page.get_by_label("Password").wait_for()


@OURS
async def test_what_cannot_be_reached_is_said_and_comes_back(
    make_world: Callable[..., Any], page: Any
) -> None:
    world = await make_world()
    await page.goto(world.console.url)
    await page.locator("main h2", has_text="Overview").wait_for()
    await world.connection.close()
    await page.get_by_text("The server does not answer").wait_for()
    check(page)


@OURS
async def test_a_long_list_of_keys_is_shown_in_parts(
    world: World, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await world.js.create_key_value("B")
    for number in range(7):
        await bucket.put(f"user.{number}", b"x")
    for module in (subjects, buckets):
        monkeypatch.setattr(module, "SHOWN", 3)
    await page.goto(f"{world.console.url}/#/buckets/B")
    for shown, button in (("0 1 2", "More"), ("3 4 5", "More"), ("6", "Back"), ("3 4 5", "Back")):
        *_, last = (f"user.{n}" for n in shown.split())
        await page.locator("main td", has_text=last).wait_for()
        assert await page.locator("main tbody tr").count() == len(shown.split())
        await page.get_by_role("button", name=button, exact=True).click()
    monkeypatch.setattr(subjects, "LISTED_MAX", 6)
    await page.get_by_role("button", name="Show", exact=True).click()
    await page.get_by_text("give a pattern to see other keys").wait_for()
    await page.get_by_label("Pattern of keys").fill("user.6")
    await page.get_by_role("button", name="Show", exact=True).click()
    await page.locator("main p", has_text="1 key;").wait_for()
    check(page)


@OURS
async def test_many_messages_are_browsed_without_a_stall(
    world: World, page: Any, server: Any
) -> None:
    stream = await world.js.create_stream(
        name="BIG", subjects=("big.>",), storage="memory", allow_direct=True
    )
    async with world.js.publisher() as publisher:
        await publisher.send_many((f"big.{n % 10}", b"message %d" % n) for n in range(BROWSED))
    assert (await stream.info()).state.messages == BROWSED
    await page.goto(f"{world.console.url}/#/streams/BIG/messages")
    await page.locator(f".line[data-seq='{BROWSED}']").wait_for()
    browsed = await page.evaluate(BROWSE, {"until": BROWSED - SCROLLED})
    assert browsed["reached"], browsed
    assert browsed["lines"] <= LINES_MAX
    assert browsed["pause"] <= PAUSE_MS_MAX, browsed
    await page.get_by_label("From a sequence or a time").fill(f"{BROWSED // 2}")
    await page.get_by_role("button", name="Show").click()
    await page.locator(f".line[data-seq='{BROWSED // 2}']").wait_for()
    check(page)


SLOW_FILES = """() => {
  // A large file, which is published before it has been read.
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) { setTimeout(() => read.call(this, file), 500); };
}"""

BROWSE = """async ({ until }) => {
  // Scrolls upwards as fast as messages come, and measures the longest pause between two frames.
  const list = document.querySelector(".list");
  let pause = 0, lines = 0, before = performance.now();
  const deadline = before + 90000;
  for (;;) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    pause = Math.max(pause, now - before);
    before = now;
    const shown = [...list.querySelectorAll("[data-seq]")].map((line) => Number(line.dataset.seq));
    lines = Math.max(lines, shown.length);
    if (shown.some((seq) => seq <= until)) return { reached: true, pause, lines };
    if (now > deadline) return { reached: false, pause, lines, least: Math.min(...shown) };
    list.scrollTop = Math.max(0, list.scrollTop - 20000);
  }
}"""
