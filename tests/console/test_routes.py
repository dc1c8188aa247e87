"""What the pages are told, and what their actions do, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from console_world import SUBJECT_ATTACK, fill, kill_a_job
from headrace.console.look import is_stuck
from headrace.groups import PartitioningFilter, elastic
from headrace.jobs.runtime.runtime import Runtime
from waiting import until


async def test_an_empty_server_has_nothing_and_says_so(world: Any) -> None:
    seen = await world.get("/overview?now=1")
    assert (seen["streams"], seen["consumers"], seen["messages"], seen["error"]) == (0, 0, 0, "")
    for path, name in (
        ("/streams", "streams"),
        ("/consumers", "consumers"),
        ("/groups", "groups"),
        ("/buckets", "buckets"),
        ("/objects", "buckets"),
        ("/spark", "queries"),
        ("/pipelines", "pipelines"),
    ):
        assert (await world.get(path))[name] == []


async def test_the_overview_counts_and_names_who_is_behind(world: Any) -> None:
    await fill(world.js)
    seen = await world.get("/overview?now=1")
    assert seen["streams"] == 3
    assert seen["consumers"] == 2
    assert seen["pending"] == 62
    assert {each["name"] for each in seen["slow"]} == {"work", "pinned"}
    assert not any(each["stuck"] for each in seen["slow"])  # not yet: it is five minutes
    watcher = world.console.sources.watcher
    later = [is_stuck(each, watcher.look.at_s + 301) for each in watcher.look.consumers.values()]
    assert later == [True, True]
    history = await world.get("/history?of=consumer/ORDERS/work")
    assert history["lag"][-1] == 31
    assert len(history["time"]) == len(history["lag"])


async def test_a_stream_is_shown_purged_and_deleted_only_by_its_name(world: Any) -> None:
    await fill(world.js)
    await world.get("/overview?now=1")
    seen = await world.get("/streams/ORDERS")
    assert seen["row"]["messages"] == 31
    assert seen["config"]["allow_direct"] is True
    assert {each["name"] for each in seen["consumers"]} == {"work", "pinned"}
    subjects = await world.get("/streams/ORDERS/subjects?filter=orders.*")
    assert subjects["matching"] == 3
    refused = await world.send("POST", "/streams/ORDERS/purge", 409, confirm="ORDER", keep=1)
    assert refused["code"] == "not_confirmed"
    done = await world.send(
        "POST", "/streams/ORDERS/purge", confirm="ORDERS", subject="orders.1", keep=4
    )
    assert done["purged"] == 6
    assert (await world.send("POST", "/streams/ORDERS/purge", 400, confirm="ORDERS", keep="x"))[
        "code"
    ]
    await world.send("DELETE", "/streams/ORDERS", 409)
    await world.send("DELETE", "/streams/ORDERS", confirm="ORDERS")
    assert "ORDERS" not in [each["name"] for each in (await world.get("/streams"))["streams"]]
    assert (await world.get("/streams/ORDERS", 404))["message"] == "stream not found"


@pytest.mark.parametrize("direct", [True, False])
async def test_messages_are_paged_both_ways_whatever_is_missing(world: Any, direct: bool) -> None:
    stream = await world.js.create_stream(name="S", subjects=("s.>",), allow_direct=direct)
    for number in range(1, 61):
        await world.js.publish(f"s.{number % 2}", b"%d" % number)
    for gone in (*range(20, 30), 60):
        await stream.delete_message(gone)
    left = [number for number in range(1, 60) if not 20 <= number < 30]

    async def page(query: str) -> list[int]:
        return [
            each["seq"] for each in (await world.get(f"/streams/S/messages?{query}"))["messages"]
        ]

    assert await page("count=5") == left[:5]
    assert await page("from=18&count=4") == [18, 19, 30, 31]
    assert await page("newest=1&count=3") == [57, 58, 59]
    assert await page("before=31&count=3") == [18, 19, 30]
    assert await page("before=1&count=3") == []
    assert await page("from=61") == []
    assert await page("subject=s.1&before=31&count=3") == [15, 17, 19]
    seen: list[int] = []
    while found := await page(f"before={seen[0] if seen else 60}&count=7"):
        seen = [*found, *seen]
    assert seen == left


@pytest.mark.parametrize("direct", [True, False])
async def test_markers_of_sinks_are_shown_when_they_are_asked_for(world: Any, direct: bool) -> None:
    await world.js.create_stream(name="S", subjects=("s", "_sink.>"), allow_direct=direct)
    rows = (1, 2, 60, 61)
    for number in range(1, 62):
        if number in rows:
            await world.js.publish("s", b"row")
        else:
            await world.js.publish("_sink.S.a.0", b"{}", headers={"Headrace-Marker": "rows"})

    async def page(query: str) -> list[int]:
        found = await world.get(f"/streams/S/messages?{query}")
        return [each["seq"] for each in found["messages"]]

    assert await page("from=3&count=20") == [60, 61]
    assert await page("before=60&count=20") == [1, 2]
    assert await page("newest=1&count=3") == [2, 60, 61]
    assert await page("newest=1&count=3&markers=1") == [59, 60, 61]


async def test_a_time_finds_the_first_message_after_it(world: Any) -> None:
    await world.js.create_stream(name="S", subjects=("s",), allow_direct=True)
    await world.js.publish("s", b"1")
    second = await world.js.publish("s", b"2")
    stored = await (await world.js.stream("S")).get_message(second.seq)
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(stored.timestamp_ns // 1000 / 1e6, UTC).isoformat()
    found = await world.http.get("/api/streams/S/messages", params={"time": moment})
    assert found.json()["messages"][-1]["seq"] == second.seq
    refused = await world.get("/streams/S/messages?time=soon", 400)
    assert refused["message"] == "not a time: 'soon'"


async def test_a_message_is_shown_whole_and_deleted(world: Any) -> None:
    await fill(world.js)
    seen = await world.get("/streams/ORDERS/messages/31")
    assert seen["subject"] == SUBJECT_ATTACK
    assert seen["headers"][0][0] == "X-Note"
    assert seen["payload"]["kind"] == "text"
    await world.send("DELETE", "/streams/ORDERS/messages/31", 409, confirm="30")
    await world.send("DELETE", "/streams/ORDERS/messages/31", confirm="31")
    assert (await world.get("/streams/ORDERS/messages/31", 404))["message"] == "no message found"
    await world.get("/streams/ORDERS/messages/x", 400)


async def test_consumers_are_paused_resumed_reset_unpinned_and_deleted(world: Any) -> None:
    await fill(world.js)
    path = "/streams/ORDERS/consumers/work"
    await world.send("POST", f"{path}/pause", seconds=60)
    seen = await world.get(path)
    assert seen["row"]["paused"]
    assert 0 < seen["pause_remaining_s"] <= 60
    await world.send("POST", f"{path}/pause", 400, seconds=0)
    await world.send("POST", f"{path}/resume")
    assert not (await world.get(path))["row"]["paused"]
    consumer = await world.js.consumer("ORDERS", "work")
    for message in await consumer.fetch(5):
        await message.ack_sync()
    assert (await world.get(path))["row"]["pending"] == 26
    await world.send("POST", f"{path}/reset", 409, sequence=1)
    await world.send("POST", f"{path}/reset", confirm="work", sequence=1)
    assert (await world.get(path))["row"]["pending"] == 31
    pinned = await world.js.consumer("ORDERS", "pinned")
    await pinned.fetch(1, group="p")
    path = "/streams/ORDERS/consumers/pinned"
    (pin,) = (await world.get(path))["row"]["pins"]
    assert pin["group"] == "p"
    assert pin["client"]
    await world.send("POST", f"{path}/unpin", group="p")
    (pin,) = (await world.get(path))["row"]["pins"]
    assert not pin["client"]
    await world.send("DELETE", path, confirm="pinned")
    assert [each["name"] for each in (await world.get("/consumers"))["consumers"]] == ["work"]


async def test_groups_show_who_has_which_partition_and_step_down(world: Any) -> None:
    js = world.js
    await js.create_stream(name="ORDERS", subjects=("orders.>",))
    await elastic.create(
        js,
        "ORDERS",
        "g",
        max_members=3,
        partitioning_filters=[PartitioningFilter("orders.*", (1,))],
    )
    await elastic.add_members(js, "ORDERS", "g", ["a", "b"])
    await world.get("/overview?now=1")
    (row,) = (await world.get("/groups"))["groups"]
    assert (row["kind"], row["members"], row["partitions"]) == ("elastic", ["a", "b"], 3)

    async def handle(message: Any) -> None:
        message.ack()

    async with elastic.join(js, "ORDERS", "g", "a", handle):

        async def active() -> str:
            for key in range(9):  # whoever gets a message is pinned
                await js.publish(f"orders.{key}")
            seen = await world.get("/groups/elastic/ORDERS/g")
            return str(seen["members"][0]["instance"])

        before = await until(active)
        await world.send("POST", "/groups/elastic/ORDERS/g/step-down", member="a")
        await until(lambda: _other(active, before), "the instance did not step down")
    await world.get("/groups/sideways/ORDERS/g", 404)
    assert (await world.get("/groups/elastic/ORDERS/none", 404))["code"]


async def _other(active: Callable[[], Any], before: str) -> bool:
    return await active() not in ("", before)


async def test_keys_have_a_history_and_are_changed_only_if_nobody_else_did(world: Any) -> None:
    await fill(world.js)
    await world.get("/overview?now=1")
    assert [each["bucket"] for each in (await world.get("/buckets"))["buckets"]] == ["CONF"]
    assert [each["key"] for each in (await world.get("/buckets/CONF/keys"))["keys"]] == [
        "key",
        "other",
    ]
    path = "/buckets/CONF/keys/key"
    first = (await world.get(path))["revisions"][0]
    done = await world.send("PUT", path, value="new", revision=first["revision"])
    await world.send("PUT", path, 502, value="late", revision=first["revision"])
    await world.send("PUT", path, 400, value=5)
    seen = await world.get(path)
    assert seen["revisions"][0]["payload"]["text"] == "new"
    assert seen["revisions"][0]["revision"] == done["revision"]
    await world.send("DELETE", path, confirm="key")
    assert (await world.get(path))["revisions"][0]["operation"] == "delete"
    await world.send("DELETE", "/buckets/CONF", confirm="CONF")
    assert (await world.get("/buckets"))["buckets"] == []


async def test_objects_are_listed_downloaded_and_deleted(world: Any) -> None:
    await fill(world.js)
    (found,) = (await world.get("/objects/FILES"))["objects"]
    path = f"/api/objects/FILES/{quote(found['name'], safe='')}"
    response = await world.http.get(path)
    assert response.content == b"content"
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment; ")
    await world.http.request(
        "DELETE", path, json={"confirm": found["name"]}, headers={"x-headrace-console": "1"}
    )
    assert (await world.get("/objects/FILES"))["objects"] == []


async def test_looks_and_new_messages_are_told_as_they_come(world: Any) -> None:
    await fill(world.js)
    async with world.http.stream("GET", "/api/live", timeout=5) as response:
        events = _events(response)
        first = await anext(events)
        second = await anext(events)
        assert first[0] == second[0] == "look"
        assert second[1]["number"] > first[1]["number"]
    async with world.http.stream(
        "GET", "/api/streams/ORDERS/follow", params={"subject": "orders.1"}, timeout=5
    ) as response:
        events = _events(response)
        assert (await anext(events))[0] == "begin"

        async def publish() -> None:
            while True:  # the consumer begins with what is new once it is there
                await world.js.publish("orders.0", b"other")
                await world.js.publish("orders.1", b"mine")

        publishing = asyncio.create_task(publish())
        name, message = await anext(events)
        publishing.cancel()
        assert (name, message["subject"], message["preview"]) == ("message", "orders.1", "mine")
    await until(lambda: world.console.sources.followers == 0)


async def test_why_new_messages_are_told_no_more_is_told(world: Any) -> None:
    await fill(world.js)
    async with world.http.stream("GET", "/api/streams/ORDERS/follow", timeout=20) as response:
        events = _events(response)
        assert (await anext(events))[0] == "begin"
        await world.js.delete_stream("ORDERS")
        name, told = await anext(events)
    assert name == "end"
    assert "stream not found" in told["error"]


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, msgspec.json.decode(line[6:])


async def test_connections_need_the_monitoring_port_or_the_system_account(
    make_world: Callable[..., Any], server: Any
) -> None:
    world = await make_world()
    refused = await world.get("/connections", 503)
    assert "--monitoring http://127.0.0.1:8222" in refused["message"]
    assert (await world.get("/account"))["streams"] == 0
    world = await make_world(monitoring=f"http://127.0.0.1:{server.monitoring_port}")
    seen = await world.get("/connections?sort=msgs_to")
    assert "console" in [each.get("name") for each in seen["connections"]]
    assert (await world.get("/server"))["version"]
    await world.get("/connections?sort=luck", 400)


async def test_jobs_are_shown_and_dead_ones_sent_back(
    make_world: Callable[..., Any], service: httpx2.AsyncClient
) -> None:
    world = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    job = await kill_a_job(service)
    (row,) = (await world.get("/jobs"))["status"]["consumers"]
    assert row["jobs"]["DEAD"] == 1
    (dead,) = (await world.get("/jobs/c/k/dead"))["jobs"]
    assert dead["job"] == job
    shown = await world.get(f"/jobs/c/k/job/{job}")
    assert shown["state"] == "DEAD"
    assert (await world.get(f"/jobs/c/find?message={shown['message']}"))["Payload"]
    await world.send("POST", f"/jobs/c/k/job/{job}/requeue")
    assert (await world.get(f"/jobs/c/k/job/{job}"))["state"] == "QUEUED"
    await kill_a_job(service, publish=False)
    await world.send("POST", "/jobs/c/k/requeue", 409)
    await world.send("POST", "/jobs/c/k/requeue", confirm="k")
    assert (await world.get("/jobs/c/k/dead"))["jobs"] == []
    assert "kt" not in str(await world.get("/jobs"))


async def test_feeds_of_jobs_are_shown_and_go_back_if_their_name_is_typed(
    make_world: Callable[..., Any], service: httpx2.AsyncClient, runtime: Runtime
) -> None:
    world = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    assert (await world.get("/jobs"))["feeds"] == []
    await runtime.database.write(
        lambda tx: tx.run("begin_feed", channel_id="c", feed_id="f", stream="S")
    )
    (shown,) = (await world.get("/jobs"))["feeds"]
    assert (shown["channel"], shown["feed"], shown["state"]) == ("c", "f", "away")
    await world.send("POST", "/job-feeds/c/f/again", 409, sequence=2)
    await world.send("POST", "/job-feeds/c/f/again", confirm="f", sequence=2)
    (shown,) = (await world.get("/jobs"))["feeds"]
    assert (shown["again_sequence"], shown["again_since"]) == (2, None)
    since = "2026-01-31T00:00:00Z"
    await world.send("POST", "/job-feeds/c/f/again", confirm="f", since=since)
    assert (await world.get("/jobs"))["feeds"][0]["again_since"] == since


async def test_jobs_are_found_and_cancelled_one_and_many(
    make_world: Callable[..., Any], service: httpx2.AsyncClient
) -> None:
    world = await make_world(http=service, jobs="http://jobs", jobs_token="admin")
    dead = await kill_a_job(service)
    for _ in range(30):
        await kill_a_job(service)
    await world.send("POST", "/jobs/c/k/requeue", confirm="k")
    page = await world.get("/jobs/c/list?state=QUEUED&consumer=k")
    assert len(page["jobs"]) == 25
    second = await world.get(f"/jobs/c/list?state=QUEUED&consumer=k&next={page['pages']['next']}")
    assert [job["id"] for job in second["jobs"]][-1] == dead
    assert "no such consumer" in (await world.get("/jobs/c/list?consumer=none", 503))["message"]
    one = {"waiting": 1, "running": 0, "consumers": {"k": 1}, "dry_run": False}
    assert await world.send("POST", "/jobs/c/cancel", job=dead) == one
    await world.send("POST", "/jobs/c/cancel", 409, consumer="k")
    many = await world.send("POST", "/jobs/c/cancel", consumer="k", confirm="c")
    assert many["waiting"] == 30
    assert (await world.get("/jobs/c/list?state=QUEUED"))["jobs"] == []


async def test_without_a_job_service_the_page_says_how_to_name_one(world: Any) -> None:
    assert "--jobs URL" in (await world.get("/jobs", 503))["message"]
