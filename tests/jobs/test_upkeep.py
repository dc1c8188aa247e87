"""Maintenance: who leads, schedules, retention, the archive."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.jobs.archive import Archive, read_archive
from headrace.jobs.maintenance import Maintenance
from headrace.jobs.models import rfc3339
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.processes import make_once
from headrace.jobs.service.retention import Keep
from jobs_world import PULL, World, held

DAY = 86_400.0


async def test_one_process_leads_and_another_takes_over_when_it_is_gone(
    world: World, service_on: Callable[..., Runtime], clock: ManualClock
) -> None:
    other = service_on(clock=clock)
    await other.start()
    keep = Keep(messages_s=DAY)
    first, second = Maintenance(world.runtime, keep), Maintenance(other, keep)

    async def left() -> int:
        return len((await world.http.get("/channel/c/messages")).json()["Result"])

    await first.tick()
    await finished(world, 1)
    clock.advance(2 * DAY)
    await first.tick()
    assert await left() == 0
    await finished(world, 1)
    clock.advance(2 * DAY - 5)
    await first.tick()
    await finished(world, 1)
    clock.advance(5)
    await second.tick()
    assert await left() == 1, "the first leads, and has looked"
    clock.advance(DAY)
    await second.tick()
    assert await left() == 0, "the first was silent for too long"
    await finished(world, 1)
    clock.advance(DAY + 61)
    await second.tick()
    assert await left() == 0
    await second.resign()
    await other.close()


async def test_what_is_made_once_is_the_same_for_every_process(
    world: World, service_on: Callable[..., Runtime]
) -> None:
    other = service_on()
    await other.start()
    first = await world.runtime.database.write(lambda tx: make_once(tx, "name", "first"))
    second = await other.database.write(lambda tx: make_once(tx, "name", "second"))
    assert (first, second) == ("first", "first")
    await other.close()


async def test_any_process_ends_leases(
    world: World, service_on: Callable[..., Runtime], clock: ManualClock
) -> None:
    other = service_on(clock=clock)
    await other.start()
    await Maintenance(world.runtime).tick()
    await world.broadcast()
    await world.claim(lease=5)
    clock.advance(6)
    await Maintenance(other).tick()
    assert len(await world.queued()) == 1
    await other.close()


async def test_a_scheduled_message_is_dispatched_by_the_tick_after_its_time(world: World) -> None:
    maintenance = Maintenance(world.runtime)
    at = rfc3339(world.runtime.now_us() + 130_000_000)
    for _ in range(250):
        await world.broadcast(X_Broker_Scheduled_For=at)
    world.clock.advance(130.2)
    await maintenance.tick()
    assert len(await world.queued(100)) == 100
    counts = (await world.http.get("/channel/c/messages-status")).json()["counts"]
    assert counts["SCHEDULED_DISPATCHED"]["Count"] == 250
    assert "scheduler_lag_seconds 0.2" in (await world.http.get("/metrics")).text


async def test_counts_stay_right_when_they_are_folded(world: World) -> None:
    maintenance = Maintenance(world.runtime)
    for _ in range(3):
        await world.broadcast()
        await maintenance.tick()
        world.clock.advance(6)
    jobs = await world.claim(2)
    await world.lease("complete", jobs=held(*jobs))
    await maintenance.tick()
    body = (await world.http.get("/v2/channel/c/consumer/k")).json()["jobs"]
    assert body == {"QUEUED": 1, "INFLIGHT": 0, "DELIVERED": 2, "DEAD": 0}


async def finished(world: World, count: int) -> None:
    for number in range(count):
        await world.broadcast(f"payload {number}", X_Broker_Metadata_Headers="X-T", X_T="1")
    jobs = await world.claim(count)
    await world.lease("complete", jobs=held(*jobs))


@pytest.fixture(params=[False, True], ids=["kept nowhere", "archived"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive | None:
    """What is archived is read whole and removed after that; else it goes in one transaction."""
    return Archive(tmp_path, "n") if request.param else None


async def test_only_old_messages_whose_jobs_are_finished_go(
    world: World, archive: Archive | None
) -> None:
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY), archive)
    await finished(world, 3)
    await world.broadcast("unfinished")
    await world.broadcast("dead")
    dead = [job for job in await world.claim(2) if job["message"]["payload"] == "dead"]
    await world.lease("fail", jobs=[{**held(*dead)[0], "dead": True}])
    world.clock.advance(DAY + 1)
    await world.broadcast("young")
    removed = await maintenance.retain()
    assert removed.rows["message"] == 3
    left = (await world.http.get("/channel/c/messages")).json()["Result"]
    assert len(left) == 3
    with_dead = Maintenance(world.runtime, Keep(messages_s=DAY, dead_s=DAY), archive)
    assert (await with_dead.retain()).rows["message"] == 1
    for_ever = Maintenance(world.runtime, Keep(messages_s=None), archive)
    assert (await for_ever.retain()).rows.get("message", 0) == 0
    assert (await world.http.get("/dlq-status")).json() == {"consumers": []}


@pytest.mark.parametrize(("limit", "value"), [("SWEEP_ROWS", 10), ("WINDOW_BYTES_MAX", 9)])
async def test_many_blocked_messages_do_not_hide_those_behind_them(
    world: World,
    archive: Archive | None,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    monkeypatch.setattr(f"headrace.jobs.limits.{limit}", value)
    for number in range(35):
        await world.broadcast(str(number))
    jobs = await world.claim(35)
    await world.lease("complete", jobs=held(*jobs[30:]))
    world.clock.advance(2 * DAY)
    removed = await Maintenance(world.runtime, Keep(messages_s=DAY), archive).retain()
    assert removed.rows["message"] == 5


async def test_what_goes_is_in_the_archive_first_without_any_token(
    world: World, tmp_path: Path
) -> None:
    await finished(world, 3)
    await world.broadcast(b"\xff\x00")
    await world.lease("complete", jobs=held(*await world.claim()))
    world.clock.advance(2 * DAY)
    directory = tmp_path / "archive"
    directory.mkdir()
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY), Archive(directory, "n1"))
    assert (await maintenance.retain()).rows["message"] == 4
    (part,) = directory.rglob("*.jsonl")
    assert part.parent.name == f"date={rfc3339(world.runtime.now_us() - int(2 * DAY * 1e6))[:10]}"
    lines = [json.loads(line) for line in part.read_text().splitlines()]
    assert [line["payload"] for line in lines] == ["payload 0", "payload 1", "payload 2", "/wA="]
    assert (lines[0]["channel"], lines[0]["producer"], lines[0]["headers"]) == (
        "c",
        "p",
        {"X-T": "1"},
    )
    assert lines[0]["jobs"][0]["state"] == "DELIVERED"
    manifest = json.loads((part.parent / f"_{part.stem}.json").read_text())
    assert manifest["messages"] == 4
    assert manifest["sha256"] == hashlib.sha256(part.read_bytes()).hexdigest()
    everything = "".join(path.read_text() for path in directory.rglob("*") if path.is_file())
    for secret in ("pt", "ct", "kt", "whsec"):
        assert f'"{secret}' not in everything
    assert not list(directory.rglob(".*"))


async def test_a_full_archive_stops_the_removal(world: World, tmp_path: Path) -> None:
    await finished(world, 2)
    world.clock.advance(2 * DAY)
    directory = tmp_path / "archive"
    directory.mkdir()
    archive = Archive(directory, "n1")
    directory.rmdir()
    with pytest.raises(OSError, match="archive"):
        await Maintenance(world.runtime, Keep(messages_s=DAY), archive).retain()
    assert len((await world.http.get("/channel/c/messages")).json()["Result"]) == 2
    with pytest.raises(ConfigurationError, match="archive directory"):
        Archive(directory, "n1")


async def test_old_attempts_and_events_go(world: World) -> None:
    await world.broadcast()
    jobs = await world.claim()
    await world.lease("fail", jobs=[{**held(*jobs)[0], "reason": "x"}])
    await world.runtime.database.write(
        lambda tx: tx.run(
            "insert_event",
            now=tx.now_us(),
            kind="kind",
            channel_id="c",
            consumer_id="k",
            detail="detail",
        )
    )
    assert len((await world.http.get("/v2/events")).json()["events"]) == 1
    world.clock.advance(DAY)
    removed = await Maintenance(world.runtime, Keep(attempts_s=10, events_s=10)).retain()
    assert removed.rows == {"attempt": 1, "event": 1, "audit": 0, "push_calls": 0}
    assert (await world.http.get("/v2/events")).json()["events"] == []


async def test_a_deleted_consumer_is_gone_at_once_and_its_jobs_in_slices(
    world: World, service_on: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.jobs.limits.SWEEP_ROWS", 2)
    for number in range(50):
        await world.broadcast(str(number), X_Broker_Message_ID=f"m{number}")
    path = "/channel/c/consumer/k"
    (held_before,) = await world.claim()
    version = {"If-Match": (await world.http.get(f"/v2{path}")).headers["ETag"]}
    assert (await world.http.delete(path, headers=version)).status_code == 204
    assert (await world.http.get(path)).status_code == 404
    assert (await world.http.get(f"{path}~1")).status_code == 404
    assert (await world.http.get("/channel/c/consumers")).json()["Result"] == []
    assert (await world.http.get("/job-status")).json() == {}
    assert (await world.http.get("/channel/c/message/m1")).json()["Jobs"] == []
    refused = await world.lease("complete", 401, jobs=held(held_before))
    assert refused["code"] == "unknown_consumer"

    await world.consumer("k", type="pull", token="kt")
    await world.broadcast("new")
    assert [job["message"]["payload"] for job in await world.claim(5)] == ["new"]

    await Maintenance(world.runtime).tick()
    assert 0 < await rows(world, "job") < 51, "a limited number of slices in a tick"
    other = service_on(clock=world.clock)
    await other.start()
    for _ in range(4):
        await Maintenance(other).tick()
    await other.close()
    assert await rows(world, "job") == 1
    assert await rows(world, "consumer") == 1
    counted = (await world.http.get(f"/v2{path}")).json()["jobs"]
    assert counted == {"QUEUED": 0, "INFLIGHT": 1, "DELIVERED": 0, "DEAD": 0}


async def test_what_is_old_goes_in_slices_and_leases_and_schedules_do_not_wait_for_all_of_it(
    world: World, archive: Archive | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.jobs.limits.SWEEP_ROWS", 10)
    await finished(world, 300)
    world.clock.advance(DAY + 1)
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY), archive)
    await maintenance.tick()
    left = await rows(world, "message")
    assert 100 < left < 300
    await world.broadcast("held")
    (job,) = await world.claim(1)
    world.clock.advance(3600)
    await maintenance.tick()
    assert 0 < await rows(world, "message") < left, "the next tick goes on, and stops again"
    assert [each["id"] for each in await world.claim(1)] == [job["id"]], "its lease has ended"
    for _ in range(3):
        await maintenance.tick()
    assert await rows(world, "message") == 1


async def test_leases_end_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.jobs.limits.SWEEP_ROWS", 2)
    for number in range(45):
        await world.broadcast(str(number))
    assert len(await world.claim(45)) == 45
    world.clock.advance(3600)
    maintenance = Maintenance(world.runtime)
    await maintenance.tick()
    first = await world.claim(45)
    assert 0 < len(first) < 45
    for _ in range(2):
        await maintenance.tick()
    assert len(await world.claim(45)) == 45 - len(first)


async def rows(world: World, table: str) -> int:
    def count(tx: Any) -> int:
        run = tx._connection if hasattr(tx, "_connection") else tx._cursor
        row = run.execute(f"SELECT count(*) AS n FROM {table}").fetchone()
        return int(row["n"])

    return await world.runtime.database.read(count)


@pytest.mark.one_database
async def test_the_file_of_sqlite_shrinks_after_much_was_removed(
    world: World, quick_path: Path
) -> None:
    path = quick_path / "jobs.db"
    for _ in range(12):
        await world.broadcast(b"x" * 1_000_000)
    await world.lease("complete", jobs=held(*await world.claim(50)))
    maintenance = Maintenance(world.runtime, Keep(messages_s=DAY))
    world.clock.advance(2 * DAY)
    checkpoint(world)
    before = path.stat().st_size
    for _ in range(2):
        world.clock.advance(5)
        await maintenance.tick()
    checkpoint(world)
    assert before > 12_000_000
    assert path.stat().st_size < 2_000_000


def checkpoint(world: World) -> None:
    """What SQLite does by itself after some more writes."""
    database: Any = world.runtime.database
    with contextlib.closing(sqlite3.connect(database.path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def test_a_removed_job_says_where_it_went_and_is_found_there(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "archive"
    directory.mkdir()
    archive = Archive(directory, "n1")
    await world.http.patch("/v2/channel/c/consumer/k", json={"max_retries": 1})
    for number in range(4):
        await world.broadcast(str(number), X_Broker_Message_ID=f"m{number}")
    first, kept, *others = await world.claim(4)
    await world.lease("fail", jobs=[{**held(first)[0], "reason": "busy", "retry_in_seconds": 0}])
    (again,) = await world.claim()
    await world.lease("complete", jobs=held(again, *others))
    await world.lease("fail", jobs=[{**held(kept)[0], "dead": True}])
    day = rfc3339(world.runtime.now_us())[:10]
    world.clock.advance(2 * DAY)
    await Maintenance(world.runtime, Keep(messages_s=DAY), archive).retain()
    removed_on = rfc3339(world.runtime.now_us())[:10]

    base = "/channel/c/consumer/k/job"
    for path in (f"{base}/{first['id']}", f"/v2{base}/{first['id']}"):
        gone = await world.http.get(path, headers={**PULL, "Accept": "application/json"})
        assert (gone.status_code, gone.json()["code"]) == (410, "removed")
        assert f"date={day}" in gone.text
        assert removed_on in gone.text
    assert (await world.move(others[0]["id"], "INFLIGHT", 410)).text
    one = await world.http.post(f"{base}/{first['id']}/requeue-dead-job", headers=PULL)
    assert one.status_code == 410
    assert await world.state(kept["id"]) == "DEAD"
    assert (await world.http.get(f"/v2{base}/99")).status_code == 404
    assert await rows(world, "removed_jobs") == 2, "ranges, not jobs"

    (line,) = read_archive(directory, job=first["id"])
    assert (line["message"], line["jobs"][0]["job"]) == ("m0", first["id"])
    (attempt,) = line["jobs"][0]["attempts"]
    assert (attempt["kind"], attempt["error"]) == ("pull", "busy")
    assert [line["jobs"][0]["job"] for line in read_archive(directory, message="m2")] == [
        others[0]["id"]
    ]
    assert list(read_archive(directory, message="m1")) == []
    command = ["jobs", "archive", "read", str(directory)]
    assert await asyncio.to_thread(main, [*command, "--job", first["id"]]) == 0
    assert '"busy"' in capsys.readouterr().out
    assert await asyncio.to_thread(main, [*command, "--job", kept["id"]]) == 1
    assert await asyncio.to_thread(main, command) == 1

    await world.lease("complete", 409, jobs=held(kept))
    await Maintenance(world.runtime, Keep(messages_s=DAY, dead_s=DAY)).retain()
    gone = await world.http.get(f"/v2{base}/{kept['id']}")
    assert (gone.status_code, "no archive has it" in gone.text) == (410, True)
    world.clock.advance(91 * DAY)
    await Maintenance(world.runtime, Keep(messages_s=DAY)).retain()
    assert await rows(world, "removed_jobs") == 0
    assert (await world.http.get(f"/v2{base}/{kept['id']}")).status_code == 404


def test_an_archive_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        list(read_archive(tmp_path / "none", job="1"))
    (tmp_path / "date=2026-01-01").mkdir()
    (tmp_path / "date=2026-01-01" / "part-a-1-2.jsonl").write_text('{"job":"1"}\n')
    with pytest.raises(ConfigurationError, match="line 1: not a message"):
        list(read_archive(tmp_path, job="1"))
