"""Statements read the rows that they are about, also by plans that PostgreSQL has made for empty tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import pairwise

import psycopg
import pytest
from psycopg.rows import dict_row

import postgres_server
from headrace.clock import ManualClock
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import leases
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.service.leases import Held
from headrace.jobs.store import Tx, open_database, sqlite
from headrace.jobs.store.postgres import BY_INDEX, migrate
from headrace.jobs.store.queries import any_plan_queries, load_queries
from jobs_world import World, claim_of, end_of
from waiting import until

pytestmark = pytest.mark.one_database

STATEMENTS = [
    name
    for name, text in load_queries("postgres").items()
    if re.search(r"\b(job|message)\b", text)
    and not name.startswith("whole_")
    and name not in any_plan_queries()
]
OF_NAMED = [name for name, text in load_queries("sqlite").items() if "json_each" in text]
SCAN = re.compile(r"(?:Seq Scan|Index (?:Only )?Scan(?: Backward)? using (\w+)) on (\w+)")
LARGE = {"job", "message"}
OF_FEW = {"message_waiting", "message_accepted", "job_leased"}
"""Indexes that have only those rows that are asked for."""
BATCH, ROUNDS = 20, 40
ADDED = 200
"""How many jobs come in each round, of which a batch is done."""
READ_MAX = 40
"""How often a row may be read of a table, or of one of its indexes, in all of its life: an average."""
ADD = """
WITH new AS (
    INSERT INTO message (channel_seq, message_id, payload, content_type, priority, headers, digest, status,
        received_us, dispatched_us)
    SELECT (SELECT seq FROM channel), {round} || '-' || i, 'x', 'text/plain', 0, '{{}}', '', 102, 0, 0
    FROM generate_series(1, {count}) AS i RETURNING seq
)
INSERT INTO job (message_seq, consumer_seq, state, hold, priority, due_us, changed_us, created_us)
SELECT seq, (SELECT seq FROM consumer), 1001, 0, 0, 0, 0, 0 FROM new
"""
READ = """
SELECT 'table ' || relname AS name, seq_tup_read AS n FROM pg_stat_user_tables
WHERE relname IN ('job', 'message')
UNION ALL
SELECT 'index ' || indexrelname, idx_tup_read FROM pg_stat_user_indexes WHERE relname IN ('job', 'message')
"""


@pytest.fixture(scope="module", autouse=True)
def unused(postgres: postgres_server.PostgresServer) -> None:
    """A database with the schema that had no row ever, so that the server knows nothing of its tables."""
    with psycopg.connect(postgres.create("unused"), autocommit=True, row_factory=dict_row) as made:
        migrate(made)


@pytest.fixture
def database_url(postgres: postgres_server.PostgresServer) -> Iterator[str]:
    """A new database whose rows the server never counts, which would make it plan again."""
    url = postgres.create("new")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as made:
        migrate(made)
        for table in ("job", "message"):
            made.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
    yield url
    postgres.drop("new")


def numbered(text: str) -> tuple[bytes, int]:
    """A query with numbered values, and how many it has."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbers = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text)
    return numbers.encode(), len(names)


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_is_planned_to_look_for_some_rows_among_all(
    name: str, postgres: postgres_server.PostgresServer
) -> None:
    text, count = numbered(load_queries("postgres")[name])
    nothing = ", ".join(["null"] * count)
    with psycopg.connect(postgres.url("unused")) as connection:
        connection.execute(BY_INDEX)
        connection.execute(b"PREPARE one AS " + text)
        execute = f"EXPLAIN EXECUTE one ({nothing})" if nothing else "EXPLAIN EXECUTE one"
        lines = [row[0] for row in connection.execute(execute.encode()).fetchall()]
    for line, following in pairwise([*lines, ""]):
        found = SCAN.search(line)
        if found and found[2] in LARGE and found[1] not in OF_FEW:
            assert "Index Cond" in following, "\n".join(lines)


@pytest.mark.parametrize("name", OF_NAMED)
def test_what_is_named_is_not_looked_for_among_all_jobs_of_a_consumer(name: str) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.migrate(connection)
    text = load_queries("sqlite")[name]
    values = dict.fromkeys(re.findall(r"(?<![:\w]):([a-z]\w*)", text))
    plan = "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values))
    connection.close()
    assert "job_by_state" not in plan, plan


@pytest.fixture
async def runtime(
    database_url: str, clock: ManualClock, options: Options
) -> AsyncIterator[Runtime]:
    """On one connection, which soon keeps the plans of all that it is asked again and again."""
    made = Runtime(open_database(database_url, threads=1, clock=clock), options, clock=clock)
    await made.start()
    yield made
    await made.close()


async def test_a_new_database_is_as_quick_with_many_jobs_as_with_none(
    world: World, database_url: str
) -> None:
    runtime, database = world.runtime, world.runtime.database
    consumer = await database.read(lambda tx: find_consumer(tx, "c", "k"))
    with psycopg.connect(database_url, autocommit=True) as adding:
        for number in range(ROUNDS):
            adding.execute(ADD.format(round=number, count=ADDED).encode())
            jobs = [
                Held(job.seq, job.lease) for job in await claim_of(runtime, consumer, BATCH, 30)
            ]
            assert len(jobs) == BATCH
            endings = [leases.completed(job) for job in jobs]
            for work in (
                partial(leases.heartbeat, items=jobs, lease_s=30),
                partial(end_of, endings=endings),
            ):
                done = await database.write(partial(work, consumer=consumer, now=runtime.now_us()))
                assert {result.code for result in done} == {"ok"}
    await runtime.close()

    def told() -> dict[str, int]:
        """A connection that ends tells the server what it has read; until then there is nothing."""
        found = read(database_url)
        return found if found["index job_pkey"] else {}

    found = await until(told)
    each = {name: round(n / (BATCH * ROUNDS), 1) for name, n in found.items()}
    assert {name: n for name, n in each.items() if n > READ_MAX} == {}


def read(url: str) -> dict[str, int]:
    """How many rows the server has read, of each table and of each index."""
    with psycopg.connect(url) as connection:
        return dict(connection.execute(READ.encode()).fetchall())


async def test_counting_goes_through_a_table_as_the_server_thinks_best_and_claims_by_an_index(
    database_url: str,
) -> None:
    """Settings are those of a statement, whichever stood before it in its transaction."""
    database = open_database(database_url, threads=1)
    await database.start()

    def settings_after(tx: Tx, query: str, **values: int) -> list[str]:
        tx.all(query, **values)
        cursor = tx._cursor  # type: ignore[attr-defined]
        rows = [
            cursor.execute(f"SHOW {name}").fetchone()[name]
            for name in ("enable_seqscan", "enable_hashjoin", "plan_cache_mode")
        ]
        return [str(row) for row in rows]

    def mixed(tx: Tx) -> list[list[str]]:
        ready = {"consumer_seq": 1, "version": 1, "n": 1, "bytes": 1}
        return [
            settings_after(tx, "ready_jobs", **ready),
            settings_after(tx, "job_counts"),
            settings_after(tx, "message_counts", channel_seq=1),
            settings_after(tx, "ready_jobs", **ready),
        ]

    by_index, any_plan = ["off", "off", "force_generic_plan"], ["on", "on", "auto"]
    try:
        for _ in range(2):
            assert await database.write(mixed) == [by_index, any_plan, any_plan, by_index]
        told = await database.read(lambda tx: settings_after(tx, "whole_count_job"))
        assert told == any_plan
    finally:
        await database.close()
