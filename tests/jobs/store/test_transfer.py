"""All that a database of jobs holds goes into a file and into a database of either kind, or nothing does."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.errors import ConfigurationError
from headrace.jobs.errors import DatabaseUnavailableError
from headrace.jobs.store import Database, open_database, sqlite, transfer
from headrace.jobs.store.tables import WHOLE
from headrace.jobs.store.transfer import export_to, freeze, import_from, unfreeze
from jobs_world import World, held


async def full(world: World) -> None:
    """Something in every table, and jobs in each state, held in each way."""
    await world.consumer("h", callbackUrl="http://127.0.0.1:1/", token="ht")
    for number in range(9):
        key = "a" if number % 3 == 0 else ""
        once = '{"by": ["payload"]}' if number == 8 else ""
        payload = bytes([number, 0, 255])
        await world.broadcast(payload, X_Broker_Ordering_Key=key, X_Broker_Unique=once)
    await world.broadcast(
        X_Broker_Message_ID="later", X_Broker_Scheduled_For="2999-01-01T00:00:00.5Z"
    )
    schedule = {"cron": "@daily", "message": {"payload": "AP8=", "encoding": "base64"}}
    await world.http.put("/v2/channel/c/schedule/s", json=schedule)
    await world.http.patch("/v2/channel/c/consumer/k", json={"settings": {"outcomes": True}})
    await world.http.post("/v2/keys", json={"name": "ci", "scopes": ["publish"]})
    done, dead, tried, *_ = await world.claim(5)
    await world.lease("complete", jobs=held(done))
    await world.lease("fail", jobs=[{**held(dead)[0], "dead": True, "reason": "no\n\u00e4"}])
    await world.lease("fail", jobs=held(tried))
    await world.http.post("/v2/channel/c/jobs/cancel", json={"consumer": "h", "states": ["QUEUED"]})
    await world.http.post("/v2/channel/c/consumer/k/token", json={"token": "k2"})
    await world.runtime.database.write(
        lambda tx: tx.run("begin_feed", channel_id="c", feed_id="f", stream="S")
    )
    await world.runtime.database.write(
        lambda tx: tx.run(
            "insert_removed_range", first=90, last=95, now=3, folder="date=2000-01-01"
        )
    )


async def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table that is carried."""

    def read(tx: Any) -> dict[str, list[dict[str, Any]]]:
        found = {
            table: [dict(row) for row in tx.all(f"whole_page_{table}", after=0, n=10_000)]
            for table in WHOLE
        }
        counts = {
            (row["consumer_seq"], row["state"]): int(row["n"]) for row in tx.all("job_counts")
        }
        found["counts"] = [{"of": key, "n": n} for key, n in sorted(counts.items()) if n]
        found["meta"] = [dict(tx.one("get_meta", key="cursor_key"))]
        found["last"] = [dict(tx.one(f"whole_last_{table}")) for table in WHOLE if table[-1] != "s"]
        return found

    return await database.read(read)


def test_every_table_is_carried_or_said_not_to_be() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.migrate(connection)
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    made = {name for (name,) in rows} - {"sqlite_sequence"}
    assert made - {"counter", "leader", "meta", "push_calls", "push_lane", "push_node"} == set(
        WHOLE
    )
    for table, columns in WHOLE.items():
        info = connection.execute(f"PRAGMA table_info({table})").fetchall()
        assert {name for _, name, *_ in info} == set(columns), table
    connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def target(request: pytest.FixtureRequest, postgres: Any, tmp_path: Path) -> Any:
    """An empty database of each kind, beside the one that is exported."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'target.db'}"
    else:
        name = f"target{random.randrange(10**9)}"
        url = postgres.create(name)
    opened = open_database(url, threads=2)
    await opened.start()
    yield opened
    await opened.close()


async def test_everything_arrives_and_goes_on_where_it_was(
    world: World, target: Database, tmp_path: Path
) -> None:
    await full(world)
    before = await everything(world.runtime.database)
    assert all(before.values()), "something in every table"
    carried = await export_to(world.runtime.database, tmp_path / "all.jsonl")
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert await import_from(target, tmp_path / "all.jsonl") == carried
    assert await everything(target) == before
    with pytest.raises(ConfigurationError, match="not empty: it has rows, 1 in producer"):
        await import_from(target, tmp_path / "all.jsonl")
    with pytest.raises(ConfigurationError, match="exists"):
        await export_to(target, tmp_path / "all.jsonl")
    second = await export_to(target, tmp_path / "again.jsonl")
    assert second == carried
    first_lines, again = (
        (tmp_path / name).read_bytes().splitlines() for name in ("all.jsonl", "again.jsonl")
    )
    assert first_lines[1:-1] == again[1:-1]

    def publish(tx: Any) -> int:
        row = tx.one("insert_producer", producer_id="next", name="n", token_hash="x$y", now=1)
        return int(row["seq"])

    assert await target.write(publish) == before["last"][0]["last"] + 1


async def test_an_exported_database_refuses_changes_until_that_is_ended(
    world: World, tmp_path: Path
) -> None:
    await world.broadcast()
    (job,) = await world.claim()
    database = world.runtime.database
    await freeze(database)
    await freeze(database)
    with pytest.raises(DatabaseUnavailableError, match="read-only since it was exported"):
        await database.write(lambda tx: tx.run("put_meta", key="k", value="v"))
    await world.broadcast(expect=503)
    await world.lease("complete", 503, jobs=held(job))
    ready = await world.http.get("/health/ready")
    assert (ready.status_code, "read-only" in ready.text) == (503, True)
    assert (await world.http.get("/_status")).status_code == 200
    await export_to(database, tmp_path / "all.jsonl")
    await unfreeze(database)
    await world.lease("complete", jobs=held(job))


@pytest.mark.one_database
async def test_what_is_damaged_cut_or_interrupted_leaves_nothing(
    world: World, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(world)
    good = tmp_path / "good.jsonl"
    await export_to(world.runtime.database, good)
    lines = good.read_bytes().splitlines(keepends=True)
    target = open_database(f"sqlite:///{tmp_path / 'target.db'}")
    await target.start()
    head = json.loads(lines[0])
    damaged = {
        "its end is missing": lines[:-1],
        "is no export of jobs": [b"\n"],
        "or is damaged": [*lines[:2], lines[2][:-9], b"\n", *lines[3:]],
        "was changed": [line.replace(b'"kt"', b'"xt"') for line in lines],
        "rows of 'nothing'": [lines[0], b'{"table":"nothing","rows":[[1]]}\n'],
        "schema 1000": [json.dumps({**head, "schema": 1000}).encode() + b"\n"],
    }
    for number, (said, changed) in enumerate(damaged.items()):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b"".join(changed))
        with pytest.raises(ConfigurationError, match=said):
            await import_from(target, path)
    with pytest.raises(ConfigurationError, match="No such file"):
        await import_from(target, tmp_path / "none.jsonl")
    begun: asyncio.Queue[None] = asyncio.Queue()
    loop, store_page, pages = asyncio.get_running_loop(), transfer._store_page, 0

    def slow(*args: Any) -> None:
        nonlocal pages
        pages += 1
        store_page(*args)
        loop.call_soon_threadsafe(begun.put_nowait, None)
        stopped.wait(10)

    stopped = threading.Event()
    monkeypatch.setattr(transfer, "_store_page", slow)
    task = asyncio.create_task(import_from(target, good))
    await begun.get()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    stopped.set()
    monkeypatch.undo()
    assert not any((await everything_of(target)).values())
    assert pages == 1
    await import_from(target, good)
    await target.close()


async def everything_of(database: Database) -> dict[str, int]:
    return await database.write(
        lambda tx: {table: int(tx.one(f"whole_count_{table}")["n"]) for table in WHOLE}  # type: ignore[index]
    )


@pytest.mark.one_database
async def test_the_commands_move_a_service_to_another_database(
    world: World, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*words: str, expect: int = 0) -> str:
        assert await asyncio.to_thread(main, ["jobs", *words]) == expect
        said = capsys.readouterr()
        return said.out + said.err

    await full(world)
    file, other = str(tmp_path / "all.jsonl"), f"sqlite:///{tmp_path / 'other.db'}"
    said = await run("export", file, "--database", database_url)
    assert "read-only from now on" in said
    assert "jobs DEAD" in said
    await world.broadcast(expect=503)
    stored = json.loads(await run("import", file, "--database", other, "--json"))
    assert stored["rows"]["message"] == 10
    assert "not empty" in await run("import", file, "--database", other, expect=1)
    assert "exists" in await run("export", file, "--database", database_url, expect=1)
    await world.broadcast()
    assert "goes on" in await run(
        "export", f"{file}2", "--database", database_url, "--keep-writable"
    )
    await run("export", f"{file}3", "--database", database_url)
    assert "takes changes again" in await run("unfreeze", "--database", database_url)
    await world.broadcast()
