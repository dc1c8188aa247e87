"""Both databases: the schema, the queries, the plans, transactions, failures."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import postgres_server
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError, StoreFormatError
from headrace.jobs.errors import DatabaseUnavailableError, JobsError
from headrace.jobs.store import Database, Tx, open_database, sqlite
from headrace.jobs.store.queries import load_migrations, load_queries

DIALECTS = ("sqlite", "postgres")


def test_both_dialects_have_the_same_queries_with_the_same_values() -> None:
    shared = [load_queries(dialect) for dialect in DIALECTS]
    # SQLite's clock is the machine's: no query asks for it, and its steps are followed.
    steps = {"move_leases", "move_pauses", "move_leads"}
    # SQLite finds out by any write that its disk is full, and asks it without travelling.
    assert set(shared[0]) - steps == set(shared[1]) - {"take_room"}
    for name in set(shared[0]) - steps:
        values = [
            set(re.findall(r"(?<![:\w]):([a-z_]+)", shared[0][name])),
            set(re.findall(r"%\(([a-z_]+)\)s", shared[1][name])),
        ]
        assert values[0] == values[1], name


def test_every_query_is_used_somewhere() -> None:
    root = Path(sqlite.__file__).resolve().parents[1]
    source = "".join(path.read_text() for path in root.rglob("*.py"))
    for name in load_queries("sqlite"):
        named = f'"{name}"' in source or name.startswith(
            ("page_", "insert_", "update_", "lock_", "whole_")
        )
        assert named, f"nobody uses {name}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_without_a_gap(dialect: Any) -> None:
    assert [number for number, _, _ in load_migrations(dialect)] == list(
        range(1, len(load_migrations(dialect)) + 1)
    )


async def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreFormatError, match="99"):
        await open_database(f"sqlite:///{path}").start()


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "sqlite:jobs.db", "sqlite://", "sqlite:///", "mysql://h/d", "postgresql"]
)
def test_an_address_of_another_kind_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///"):
        open_database(url)
    with pytest.raises(ConfigurationError) as refused:
        open_database("oracle://user:sesame@h/d")
    assert "sesame" not in str(refused.value)


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="none"):
        await open_database(f"sqlite:///{tmp_path}/none/jobs.db").start()


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"something else entirely, and long enough to be looked at" * 20)
    with pytest.raises(ConfigurationError, match=r"jobs\.db.*not a database"):
        await open_database(f"sqlite:///{path}").start()


async def test_a_server_that_is_not_there_is_told_without_the_password(free_port: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used") as refused:
        await open_database(f"postgresql://u:sesame@127.0.0.1:{free_port}/d").start()
    assert "sesame" not in str(refused.value)


async def test_a_refused_write_undoes_itself_and_no_other(database: Database) -> None:
    def good(tx: Tx) -> None:
        tx.run("put_meta", key="good", value="1")

    def bad(tx: Tx) -> None:
        tx.run("put_meta", key="bad", value="1")
        raise JobsError(400, "no", "no")

    results = await asyncio.gather(
        database.write(good), database.write(bad), database.write(good), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), JobsError, type(None)]
    assert await database.read(lambda tx: tx.one("get_meta", key="bad")) is None
    assert await database.read(lambda tx: tx.one("get_meta", key="good")) is not None


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), StopIteration(), SystemExit(3), asyncio.CancelledError(), MemoryError()],
)
async def test_whatever_a_write_raises_is_its_own_answer_and_the_next_ones_are_written(
    database: Database, error: BaseException
) -> None:
    def odd(tx: Tx) -> None:
        tx.run("put_meta", key="odd", value="v")
        raise error

    writes = [lambda tx: tx.run("put_meta", key="a", value="v"), odd]
    writes.append(lambda tx: tx.run("put_meta", key="b", value="v"))

    async def answer(work: Any) -> Any:
        try:
            return await database.write(work)
        except BaseException as met:
            return type(met)

    async with asyncio.timeout(20):
        answers = await asyncio.gather(*map(answer, writes))
    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    assert answers == [1, expected, 1]
    assert await database.read(lambda tx: tx.one("get_meta", key="odd")) is None
    assert await database.read(lambda tx: tx.one("get_meta", key="b")) is not None


async def test_a_row_that_nobody_can_read_fails_writes_and_does_not_end_the_writer(
    tmp_path: Path,
) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'jobs.db'}", clock=ManualClock())
    await database.start()
    await database.write(lambda tx: tx.run("put_meta", key="k", value="v"))
    follow = database._steady.follow  # type: ignore[attr-defined]

    def broken(connection: Any) -> None:
        raise ValueError("the row of the clock is odd")

    async with asyncio.timeout(20):
        database._steady.follow = broken  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="odd"):
            await database.write(lambda tx: tx.run("put_meta", key="k", value="w"))
        database._steady.follow = follow  # type: ignore[attr-defined]
        assert await database.write(lambda tx: tx.run("put_meta", key="k", value="w")) == 1
        await database.close()


async def test_what_is_written_while_a_database_closes_is_answered(database: Database) -> None:
    async with asyncio.timeout(20):
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        writing = database.write(lambda tx: tx.run("put_meta", key="k", value="v"))
        (result,) = await asyncio.gather(writing, return_exceptions=True)
        assert result == 1 or isinstance(result, DatabaseUnavailableError)
        await closing


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(DatabaseUnavailableError):
        await database.read(lambda tx: tx.run("put_meta", key="k", value="v"))
    assert await database.read(lambda tx: tx.one("get_meta", key="k")) is None


async def test_a_ring_is_heard_after_the_commit(database: Database) -> None:
    heard: asyncio.Queue[list[int]] = asyncio.Queue()
    database.on_ring(lambda consumers: heard.put_nowait(list(consumers)))

    def refused(tx: Tx) -> None:
        tx.ring([1])
        raise JobsError(400, "no", "no")

    with pytest.raises(JobsError):
        await database.write(refused)
    await database.write(lambda tx: tx.ring([7, 8]))
    async with asyncio.timeout(5):
        while (found := await heard.get()) == []:
            pass
    assert found == [7, 8]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (psycopg.OperationalError("the link is lost"), "was interrupted: OperationalError"),
        (RuntimeError("a mistake of ours"), "RuntimeError('a mistake of ours')"),
    ],
)
async def test_whatever_ends_listening_is_told_and_it_begins_anew(
    wrong: Exception,
    told: str,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("headrace.jobs.store.postgres._RECONNECT_S", 0.001)
    database = open_database(postgres_url, threads=1)
    failures, heard = [wrong], asyncio.Event()

    def hear(consumers: object) -> None:
        if failures:
            raise failures.pop()
        heard.set()

    database.on_ring(hear)
    await database.start()
    async with asyncio.timeout(20):
        await heard.wait()
    await database.close()
    said = [
        f"{each.getMessage()} {each.exc_info and each.exc_info[1]!r}" for each in caplog.records
    ]
    assert any(told in each for each in said)


async def test_a_closed_database_says_so(database_url: str) -> None:
    database = open_database(database_url)
    await database.start()
    await database.close()
    for call in (database.write, database.read):
        with pytest.raises(DatabaseUnavailableError, match="closed"):
            await call(lambda tx: None)


async def test_a_postgres_that_went_away_is_503_and_comes_back() -> None:
    server = postgres_server.PostgresServer()
    try:
        server.start()
        database = open_database(server.url(), threads=2)
        await database.start()

        def write(tx: Tx) -> int:
            return tx.run("put_meta", key="k", value="v")

        await database.write(write)
        await asyncio.to_thread(server.kill)
        for _ in range(3):  # those who find no connection are told so, too, and wait for nobody
            answers = await asyncio.gather(
                *(database.write(write) for _ in range(6)), return_exceptions=True
            )
            assert {type(answer) for answer in answers} == {DatabaseUnavailableError}
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*(database.write(write) for _ in range(6))) == [1] * 6
        await database.close()
    finally:
        server.remove()


HOT: dict[str, dict[str, Any]] = {
    "ready_jobs": {"consumer_seq": 1, "version": 4, "n": 10, "bytes": 9},
    "load_jobs": {"seqs": "[1]"},
    "promote_due": {"consumer_seq": 1, "now": 5, "n": 10},
    "messages_of": {"seqs": "[1]", "bytes": 10},
    "list_queued": {"consumer_seq": 1, "n": 25},
    "list_queued_sizes": {"consumer_seq": 1, "n": 25},
    "load_expired": {"now": 5, "n": 10},
    "delete_jobs_of_consumer": {"consumer_seq": 1, "n": 10},
    "due_messages": {"now": 5, "n": 10},
    "page_dead_after": {"consumer_seq": 1, "at": 9, "n": 25},
    "page_messages_after": {"channel_seq": 1, "at": 9, "n": 25},
    "next_upkeep_us": {},
    "waiting_jobs": {"consumers": "[1]"},
    "oldest_of_state": {"consumer_seq": 1, "state": 1004},
    "oldest_ready_us": {"consumer_seq": 1},
    "job_at": {"seq": 1},
    "blockers": {"seqs": "[1]"},
    "notices_of_jobs": {"seqs": "[1]"},
    "page_jobs_of_state_after": {
        "consumer_seq": 1,
        "state": 1001,
        "at": 9,
        "last": 9,
        "until_us": 9,
        "n": 1,
    },
    "page_jobs_of_message_after": {
        "message_seq": 1,
        "consumer_seq": 0,
        "state": 0,
        "at": 9,
        "until_us": 9,
        "n": 1,
    },
}


@pytest.mark.parametrize("name", HOT)
async def test_no_hot_query_of_sqlite_scans_or_sorts_a_table(name: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    sqlite.migrate(connection)
    query = load_queries("sqlite")[name]
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", HOT[name])]
    connection.close()
    text = "\n".join(plan)
    assert not re.search(r"SCAN (job|message|consumer|channel)\b(?! USING)", text), text
    if name in {
        "ready_jobs",
        "page_jobs_of_state_after",
        "list_queued",
        "list_queued_sizes",
        "load_expired",
        "due_messages",
    }:
        assert "TEMP B-TREE" not in text, text


@pytest.fixture(scope="module")
def planned_url(postgres: postgres_server.PostgresServer) -> str:
    """A database of its own: where others left rows, plans depend on when the server counted them."""
    import psycopg
    from psycopg.rows import dict_row

    from headrace.jobs.store.postgres import migrate

    url = postgres.create("planned")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as made:
        migrate(made)
    return url


WITH_A_LIMIT = [
    name
    for name, text in load_queries("postgres").items()
    if re.match(r"\s*(--.*\n\s*)*(DELETE|UPDATE)", text) and "FOR UPDATE SKIP LOCKED" in text
]


@pytest.mark.parametrize("name", WITH_A_LIMIT)
def test_what_a_query_changes_is_looked_up_once_so_that_its_limit_holds(
    name: str, planned_url: str
) -> None:
    """In a join the look-up may be made again for each row, and passes over those it has locked."""
    import psycopg

    values = {"consumer_seq": 1, "channel_seq": 1, "now": 9, "n": 3}
    with psycopg.connect(planned_url) as connection:
        for kind in ("hashjoin", "mergejoin", "material", "hashagg", "sort"):
            connection.execute(f"SET enable_{kind} = off".encode())
        query = load_queries("postgres")[name].encode()
        plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + query, values))
    assert "InitPlan" in plan, plan
    assert not re.search("Join|Nested Loop|SubPlan", plan), plan


def test_there_are_queries_that_change_a_few_rows_at_a_time() -> None:
    assert {"delete_dead", "delete_delivered", "promote_due"} <= set(WITH_A_LIMIT)


@pytest.mark.parametrize("name", HOT)
def test_no_hot_query_of_postgres_scans_or_sorts_a_table(name: str, planned_url: str) -> None:
    import psycopg

    with psycopg.connect(planned_url) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        connection.execute("SET enable_sort = off")
        query = load_queries("postgres")[name]
        plan = "\n".join(
            row[0] for row in connection.execute(f"EXPLAIN {query}".encode(), HOT[name])
        )
    assert not re.search(r"Seq Scan on (job|message)\b", plan), plan
    expected = {
        "ready_jobs": "job_queued",
        "load_expired": "job_leased",
        "due_messages": "message_waiting",
        "page_jobs_of_state_after": "job_by_state",
        "page_jobs_of_message_after": "job_by_message",
        "oldest_ready_us": "job_queued",
    }
    assert expected.get(name, "") in plan, plan


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_statement_alone_changes_the_state_of_jobs(dialect: Any) -> None:
    """What becomes of a job is decided by the table of states, and by nothing in SQL."""
    changing = [
        name
        for name, text in load_queries(dialect).items()
        if (found := re.search(r"UPDATE job SET(.*?)(FROM|WHERE|$)", text, re.S))
        and re.search(r"(^|,)\s*state = ", found[1])
    ]
    assert changing == ["store_jobs"]


async def test_a_new_file_of_sqlite_is_its_owners_alone_and_an_open_one_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    for told in (False, True):
        database = open_database(f"sqlite:///{path}")
        await database.start()
        await database.write(lambda tx: tx.run("put_meta", key="k", value="v"))
        modes = {found.name: found.stat().st_mode & 0o777 for found in tmp_path.iterdir()}
        await database.close()
        assert ("chmod 600" in caplog.text) is told
        if not told:
            assert set(modes.values()) == {0o600}
            assert {"jobs.db", "jobs.db-wal"} <= set(modes)
            path.chmod(0o644)


@pytest.mark.parametrize(
    ("given", "found"), [("off", "on"), ("local", "local"), ("remote_write", "remote_write")]
)
async def test_what_is_answered_is_on_disk_also_where_the_database_would_not_wait_for_it(
    postgres_url: str, given: str, found: str
) -> None:
    sign = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{sign}options={quote(f'-c synchronous_commit={given}')}"
    database = open_database(url, threads=1)
    await database.start()

    def shown(tx: Any) -> str:
        setting: str = tx._cursor.execute("SHOW synchronous_commit").fetchone()[
            "synchronous_commit"
        ]
        return setting

    assert await database.write(shown) == found
    await database.close()
