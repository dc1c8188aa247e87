"""Schedules: messages that are published again and again, by cron, in a time zone, with what was missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.jobs import limits
from headrace.jobs.errors import JobsError
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.schedules import parse_times
from headrace.jobs.service.publishing import scheduling
from jobs_world import World, held, jobs_client

SECOND = 1_000_000


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def text(at_us: int) -> str:
    return datetime.fromtimestamp(at_us // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def put(world: World, expect: int = 201, /, name: str = "s", **body: Any) -> Any:
    message = {"payload": "x", **body.pop("message", {})}
    response = await world.http.put(
        f"/v2/channel/c/schedule/{name}", json={"cron": "*/5 * * * *", "message": message, **body}
    )
    assert response.status_code == expect, response.text
    return response.json()


async def go_to(world: World, at: str) -> None:
    """Let the clock say ``at``; then do what maintenance does."""
    world.clock.advance((us(at) - world.runtime.now_us()) / SECOND)
    await Maintenance(world.runtime).tick()


async def published(world: World) -> list[str]:
    """The times that were carried out since the last time this was asked."""
    jobs = await world.claim(200)
    if jobs:
        await world.lease("complete", jobs=held(*jobs))
    return [job["message"]["headers"]["X-Headrace-Scheduled-At"] for job in jobs]


@pytest.fixture
async def noon(world: World) -> World:
    """It is noon of a day in winter."""
    await go_to(world, "2031-01-15T12:00:00+00:00")
    return world


async def test_a_message_is_published_at_each_time_with_all_that_was_said_of_it(
    noon: World,
) -> None:
    message = {
        "payload": "AP8=",
        "encoding": "base64",
        "content_type": "a/b",
        "priority": 3,
        "ordering_key": "k",
        "subject": "reports.daily",
        "headers": {"X-Kind": "report"},
    }
    made = await put(noon, cron="30 6 * * *", time_zone="Europe/Berlin", message=message)
    assert made["next_at"] == made["upcoming"][0] == "2031-01-16T05:30:00Z"
    assert len(made["upcoming"]) == 5
    assert (made["last_at"], made["missed"], made["paused"]) == (None, "once", False)
    assert made["message"].items() >= message.items()
    await go_to(noon, "2031-01-16T05:29:59+00:00")
    assert await noon.claim(1) == []
    await go_to(noon, "2031-01-16T05:30:00+00:00")
    (job,) = await noon.claim(10)
    assert job["message"]["payload"] == "AP8="
    assert (job["priority"], job["message"]["ordering_key"]) == (3, "k")
    assert job["message"]["content_type"] == "a/b"
    assert job["message"]["headers"] == {
        "X-Kind": "report",
        "X-Headrace-Subject": "reports.daily",
        "X-Headrace-Schedule": "s",
        "X-Headrace-Scheduled-At": "2031-01-16T05:30:00Z",
    }
    seen = (await noon.http.get("/v2/channel/c/schedule/s")).json()
    assert (seen["last_at"], seen["next_at"]) == ("2031-01-16T05:30:00Z", "2031-01-17T05:30:00Z")


async def test_the_wall_clock_of_the_zone_decides_also_where_it_is_changed(noon: World) -> None:
    made = await put(noon, cron="30 2 * * *", time_zone="Europe/Berlin")
    times = parse_times("30 2 * * *", "Europe/Berlin")
    # On 30 March 2031 there is no half past two; on 26 October there are two.
    assert [text(at) for at in times.upcoming(us("2031-03-28T12:00:00+00:00"), 3)] == [
        "2031-03-29T01:30:00Z",
        "2031-03-31T00:30:00Z",
        "2031-04-01T00:30:00Z",
    ]
    assert [text(at) for at in times.upcoming(us("2031-10-25T12:00:00+00:00"), 3)] == [
        "2031-10-26T00:30:00Z",
        "2031-10-26T01:30:00Z",
        "2031-10-27T01:30:00Z",
    ]
    assert made["next_at"] == "2031-01-16T01:30:00Z"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("once", ["2031-01-15T13:00:00Z"]),
        ("all", [f"2031-01-15T12:{minute:02}:00Z" for minute in range(5, 60, 5)]),
        ("skip", []),
    ],
)
async def test_what_becomes_of_times_that_were_missed(
    noon: World, missed: str, expected: list[str]
) -> None:
    await put(noon, missed=missed)
    await go_to(noon, "2031-01-15T13:02:00+00:00")
    last = ["2031-01-15T13:00:00Z"] if missed == "all" else []
    assert await published(noon) == expected + last
    await go_to(noon, "2031-01-15T13:05:30+00:00")
    assert await published(noon) == ["2031-01-15T13:05:00Z"]


async def test_more_than_one_transaction_takes_of_missed_times_are_all_carried_out(
    noon: World,
) -> None:
    await put(noon, cron="* * * * *", missed="all")
    await go_to(noon, "2031-01-15T16:10:00+00:00")
    found = await published(noon) + await published(noon)
    assert found == [
        f"2031-01-15T{12 + minute // 60}:{minute % 60:02}:00Z" for minute in range(1, 251)
    ]


async def test_schedules_that_have_missed_much_share_no_long_transaction(noon: World) -> None:
    for number in range(5):
        await put(noon, name=f"s{number}", cron="* * * * *", missed="all")
    noon.clock.advance(3 * 3600)
    made = []
    while True:
        fired = await noon.runtime.database.write(lambda tx: scheduling.fire_due(tx, tx.now_us()))
        if not fired.due:
            break
        made.append(sum(fired.messages.values()))
    assert sum(made) == 5 * 180
    assert max(made) < 2 * limits.SCHEDULE_RUNS_MAX


async def test_a_year_of_missed_seconds_takes_no_time(noon: World) -> None:
    await put(noon, cron="* * * * * *")
    await go_to(noon, "2032-01-15T12:00:00+00:00")
    assert await published(noon) == ["2032-01-15T12:00:00Z"]


async def test_a_time_is_carried_out_once_by_several_processes(
    noon: World, service_on: Callable[..., Runtime]
) -> None:
    for number in range(20):
        await put(noon, name=f"s{number}")
    others = [service_on(clock=noon.clock) for _ in range(2)]
    for other in others:
        await other.start()
    try:
        noon.clock.advance(300)
        runtimes = [noon.runtime, *others]
        await asyncio.gather(*(Maintenance(runtime).tick() for runtime in runtimes))
        await Maintenance(noon.runtime).tick()
    finally:
        for other in others:
            await other.close()
    assert await published(noon) == ["2031-01-15T12:05:00Z"] * 20


async def test_what_is_undone_is_carried_out_again(noon: World) -> None:
    await put(noon)
    noon.clock.advance(300)

    def undone(tx: Any) -> None:
        assert scheduling.fire_due(tx, tx.now_us()).messages == {"c": 1}
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        await noon.runtime.database.write(undone)
    await Maintenance(noon.runtime).tick()
    assert await published(noon) == ["2031-01-15T12:05:00Z"]


async def test_a_schedule_that_is_paused_or_put_anew_makes_up_for_nothing(noon: World) -> None:
    assert (await put(noon, paused=True))["next_at"] is None
    await go_to(noon, "2031-01-15T13:00:00+00:00")
    assert await published(noon) == []
    assert (await put(noon, 200))["next_at"] == "2031-01-15T13:05:00Z"
    await go_to(noon, "2031-01-15T13:05:00+00:00")
    assert await published(noon) == ["2031-01-15T13:05:00Z"]
    assert (await noon.http.delete("/v2/channel/c/schedule/s")).status_code == 204
    assert (await noon.http.delete("/v2/channel/c/schedule/s")).status_code == 404
    await go_to(noon, "2031-01-15T14:00:00+00:00")
    assert await published(noon) == []


async def test_a_channel_that_is_drained_waits_and_one_that_is_deleted_ends_it(
    noon: World,
) -> None:
    await put(noon)
    await noon.http.patch("/v2/channel/c", json={"draining": True})
    await go_to(noon, "2031-01-15T12:20:00+00:00")
    assert await published(noon) == []
    await noon.http.patch("/v2/channel/c", json={"draining": False})
    await go_to(noon, "2031-01-15T12:21:00+00:00")
    assert await published(noon) == ["2031-01-15T12:20:00Z"]
    version = (await noon.http.get("/channel/c")).headers["etag"]
    deleted = await noon.http.delete("/channel/c?discard=true", headers={"If-Match": version})
    assert deleted.status_code == 204
    for _ in range(3):
        await go_to(noon, "2031-01-15T13:00:00+00:00")

    def left(tx: Any) -> int:
        return len(tx.all("whole_page_schedule", after=0, n=10))

    assert await noon.runtime.database.read(left) == 0


async def test_filters_choose_among_what_schedules_publish(noon: World) -> None:
    wanted = {"settings": {"filter": {"subjects": ["a"]}}}
    await noon.http.patch("/v2/channel/c/consumer/k", json=wanted)
    for name in ("a", "b"):
        await put(noon, name=name, message={"subject": name})
    await go_to(noon, "2031-01-15T12:05:00+00:00")
    (job,) = await noon.claim(10)
    assert job["message"]["headers"]["X-Headrace-Schedule"] == "a"


async def test_a_zone_that_this_machine_does_not_know_stops_its_schedule_only(
    noon: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(noon, name="far", time_zone="Europe/Berlin")
    await put(noon, name="near")

    def parse(cron: str, zone: str) -> Any:
        return parse_times(cron, "Nowhere/Else" if zone == "Europe/Berlin" else zone)

    monkeypatch.setattr(scheduling, "parse_times", parse)
    await go_to(noon, "2031-01-15T12:05:00+00:00")
    assert len(await published(noon)) == 1
    events = (await noon.http.get("/v2/events")).json()["events"]
    (event,) = [one for one in events if one["kind"] == "schedule_stopped"]
    assert "far" in event["detail"]
    listed = (await noon.http.get("/v2/channel/c/schedules")).json()["schedules"]
    assert {one["id"]: one["paused"] for one in listed} == {"far": True, "near": False}


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": "every day"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "0" * 300}, "cron"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"time_zone": ""}, "time_zone"),
        ({"missed": "never"}, "missed"),
        ({"message": {"payload": ""}}, "message.payload"),
        ({"message": {"id": "m"}}, "message.id"),
        ({"message": {"scheduled_for": "2999-01-01T00:00:00Z"}}, "message.scheduled_for"),
        ({"message": {"priority": -1}}, "message.priority"),
        ({"message": {"headers": {"X-Broker-X": "1"}}}, "message.headers"),
        ({"message": {"headers": {f"X-{number}": "1" for number in range(64)}}}, "message.headers"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_by_its_field(
    world: World, body: dict[str, Any], field: str
) -> None:
    refused = await put(world, 400, **body)
    assert refused["field"] == field
    assert (await world.http.get("/v2/channel/c/schedules")).json() == {"schedules": []}


@pytest.mark.one_database
async def test_a_channel_has_so_many_schedules_and_ids_leave_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCHEDULES_MAX", 2)
    await put(world, name="a")
    await put(world, name="b" * 200)
    await put(world, 400, name="c" * 201)
    await put(world, 409, name="c")
    await put(world, 200, name="a")
    missing = await world.http.put(
        "/v2/channel/none/schedule/s", json={"cron": "@daily", "message": {"payload": "x"}}
    )
    assert missing.status_code == 404


async def test_the_client_puts_reads_lists_and_deletes(noon: World) -> None:
    async with jobs_client(noon.runtime) as client:
        made = await client.put_schedule(
            "c", "s", "@hourly", b"\0\xff", missed="all", subject="a", metadata={"X-Kind": "k"}
        )
        assert made["next_at"] == "2031-01-15T13:00:00Z"
        assert await client.schedule("c", "s") == made
        assert [one["id"] for one in await client.schedules("c")] == ["s"]
        await go_to(noon, "2031-01-15T13:00:00+00:00")
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
        (job,) = await queue.claim(10)
        assert job.payload == b"\0\xff"
        assert job.headers["X-Kind"] == "k"
        await client.delete_schedule("c", "s")
        with pytest.raises(JobsError, match="no such schedule"):
            await client.schedule("c", "s")


@pytest.mark.one_database
async def test_the_commands_make_show_and_delete(
    noon: World, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*typed: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["jobs", *typed, "--url", address])
        said = capsys.readouterr()
        return code, said.out + said.err

    assert "no schedules" in (await run("schedules", "c"))[1]
    options = ("--time-zone", "Europe/Berlin", "--missed", "skip")
    code, said = await run("schedule", "c", "daily", "0 6 * * mon-fri", "go", *options)
    assert (code, "2031-01-16T05:00:00Z" in said) == (0, True)
    said = (await run("schedules", "c"))[1]
    for word in ("daily", "0 6 * * mon-fri", "Europe/Berlin", "skip", "2031-01-16T05:00:00Z"):
        assert word in said
    code, said = await run("schedule", "c", "daily", "6 o'clock", "go")
    assert code != 0
    assert "five fields" in said
    assert "paused" in (await run("schedule", "c", "daily", "@daily", "go", "--paused"))[1]
    assert (await run("unschedule", "c", "daily"))[0] == 0
    assert "no schedules" in (await run("schedules", "c"))[1]


@given(
    st.sampled_from(["* * * * * *", "*/7 * * * *", "0 3 * * sun", "0 0 29 2 *", "30 2 * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    st.integers(0, 2**31),
    st.integers(0, 400 * 86_400),
)
def test_the_newest_missed_time_is_the_last_that_counting_finds(
    cron: str, zone: str, start_s: int, passed_s: int
) -> None:
    times = parse_times(cron, zone)
    first = times.after(start_s * SECOND)
    assert first is not None
    now = first + passed_s * SECOND
    (newest,) = times.due(first, now, "once")
    assert first <= newest <= now
    following = times.after(newest)
    assert following is not None
    assert following > now
    assert times.after(newest - SECOND) == newest
