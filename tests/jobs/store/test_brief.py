"""What PostgreSQL is asked by one statement is decided as by a transaction that looks first who asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest

from headrace.jobs.store.direct import SETTINGS, Statement
from headrace.jobs.store.postgres import PostgresDatabase
from jobs_world import PRODUCER, PULL, World, held
from waiting import until

pytestmark = pytest.mark.one_database


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


class Quick:
    """A service that has its connections for single statements, and knows who asks."""

    def __init__(self, world: World, database: PostgresDatabase) -> None:
        self.world, self.database = world, database
        self.transactions = 0

    async def warm(self) -> None:
        """Ask once for everything: who asks is remembered, and the connection is made."""
        await self.world.broadcast("first")
        await self.world.lease("complete", jobs=held(*await self.world.claim()))
        await until(lambda: self.database._directs, "there is no connection for statements")

    def count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write = self.database._write

        def counted(work: Callable[[Any], Any]) -> Any:
            self.transactions += 1
            return write(work)

        monkeypatch.setattr(self.database, "_write", counted)

    def pids(self) -> list[int]:
        return [direct.pid for direct in self.database._directs]


@pytest.fixture
async def quick(world: World, monkeypatch: pytest.MonkeyPatch) -> Quick:
    made = Quick(world, cast(PostgresDatabase, world.runtime.database))
    await made.warm()
    made.count(monkeypatch)
    return made


async def test_a_publish_a_claim_and_a_completion_are_a_statement_each(quick: Quick) -> None:
    world = quick.world
    await world.broadcast(b"\0\xff\xfe", X_Broker_Message_ID="m1", X_Broker_Message_Priority="3")
    (job,) = await world.claim(lease=45.0)
    assert job["message"] == {
        "id": "m1",
        "payload": "AP/+",
        "encoding": "base64",
        "content_type": "application/octet-stream",
        "headers": {},
    }
    assert (job["priority"], job["attempt"]) == (3, 1)
    result = await world.lease("complete", jobs=held(job))
    assert result["results"][0]["code"] == "ok"
    assert await world.claim() == []
    assert quick.transactions == 0
    assert await world.state(job["id"]) == "DELIVERED"
    text = world.runtime.metrics.text()
    assert 'jobs_completed_total{channel="c",consumer="k",outcome="delivered"} 2' in text


async def test_a_message_has_a_job_for_each_consumer_and_is_stored_without_any(
    quick: Quick,
) -> None:
    await quick.world.consumer("other", type="pull", token="ot")
    quick.transactions = 0
    posted = await quick.world.http.post("/v2/channel/c/messages", content="two", headers=PRODUCER)
    assert posted.json()["jobs"] == 2
    assert quick.transactions == 0
    assert [job["message"]["payload"] for job in await quick.world.claim()] == ["two"]
    await quick.world.put("/channel/d", token="ct")
    for _ in range(2):  # the first is a transaction's: nobody had published there
        quick.transactions = 0
        posted = await quick.world.http.post(
            "/v2/channel/d/messages", content="none", headers=PRODUCER
        )
        assert (posted.status_code, posted.json()["jobs"]) == (201, 0)
    assert quick.transactions == 0


async def test_an_id_that_is_taken_is_refused_and_a_repeated_one_answered_again(
    quick: Quick,
) -> None:
    world = quick.world
    await world.broadcast("a", X_Broker_Message_ID="m1")
    await world.broadcast("a", 409, X_Broker_Message_ID="m1")
    await world.broadcast("b", Idempotency_Key="m2")
    again = {**PRODUCER, "Idempotency-Key": "m2"}
    same = await world.http.post("/v2/channel/c/messages", content="b", headers=again)
    assert (same.status_code, same.json()["replayed"]) == (200, True)
    await world.broadcast("c", 422, Idempotency_Key="m2")


async def test_a_token_that_was_changed_meanwhile_is_refused_and_the_new_one_taken(
    quick: Quick,
) -> None:
    world = quick.world

    async def change(path: str, token: str) -> None:
        found = await world.http.get(path)
        await world.put(path, since=found.headers["Last-Modified"], token=token)

    await change("/producer/p", "new")
    await world.broadcast("x", 403)
    await world.broadcast("x", X_Broker_Producer_Token="new")
    await change("/channel/c", "other")
    await world.broadcast("x", 403, X_Broker_Producer_Token="new")
    await world.lease("claim", 403, max=1)
    await change("/channel/c", "ct")
    assert len(await world.claim()) == 1
    await change("/channel/c/consumer/k", "nt")
    await world.lease("claim", 403, max=1)
    headers = {**PULL, "X-Broker-Consumer-Token": "nt"}
    path = "/v2/channel/c/consumer/k/jobs/claim"
    answer = await world.http.post(path, json={"max": 1}, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("other", ["producer", "channel", "consumer"])
async def test_by_another_process_what_was_remembered_changes_as_well(
    quick: Quick, postgres_url: str, other: str
) -> None:
    """The service hears nothing of it, so only the statement can find it out."""
    world = quick.world
    column = "token" if other == "consumer" else "token_hash"
    change = f"UPDATE {other} SET {column} = 'another', updated_us = updated_us + 1"
    with psycopg.connect(postgres_url) as connection:
        connection.execute(change.encode())
    await world.broadcast("x", 201 if other == "consumer" else 403)
    await world.lease("claim", 200 if other == "producer" else 403, max=1)


async def test_a_filter_a_pause_and_a_drain_hold_from_then_on(quick: Quick) -> None:
    world = quick.world
    await world.broadcast("x")
    paused = await world.http.patch("/v2/channel/c/consumer/k", json={"paused": True})
    assert paused.status_code == 200, paused.text
    assert await world.claim() == []
    await world.http.patch("/v2/channel/c/consumer/k", json={"paused": False})
    assert len(await world.claim()) == 1
    wanted = {"settings": {"filter": {"subjects": ["a.>"]}}}
    changed = await world.http.patch("/v2/channel/c/consumer/k", json=wanted)
    assert changed.status_code == 200, changed.text
    for subject, jobs in (("b.c", 0), ("a.c", 1)):
        headers = {**PRODUCER, "X-Broker-Subject": subject}
        posted = await world.http.post("/v2/channel/c/messages", content="x", headers=headers)
        assert posted.json()["jobs"] == jobs, subject


async def test_a_retry_that_is_due_goes_before_younger_jobs(quick: Quick) -> None:
    world = quick.world
    await world.broadcast("old")
    (old,) = await world.claim()
    await world.broadcast("young")
    await world.lease("fail", jobs=[{**held(old)[0], "reason": "no", "retry_in_seconds": 10}])
    world.clock.advance(11)
    (first,), (second,) = await world.claim(), await world.claim()
    assert [job["message"]["payload"] for job in (first, second)] == ["old", "young"]
    assert first["attempt"] == 2


async def test_the_next_job_of_a_key_follows_a_completion(quick: Quick) -> None:
    world = quick.world
    for payload in ("1", "2"):
        await world.broadcast(payload, X_Broker_Ordering_Key="k")
    (first,) = await world.claim()
    assert await world.claim() == []
    await world.lease("complete", jobs=held(first))
    (second,) = await world.claim()
    assert [job["message"]["payload"] for job in (first, second)] == ["1", "2"]


async def test_a_completion_under_an_old_lease_is_refused_and_a_repeated_one_is_ok(
    quick: Quick,
) -> None:
    world = quick.world
    await world.broadcast("x")
    (job,) = await world.claim(lease=1.0)
    await world.sweep(40)
    (again,) = await world.claim()
    assert again["id"] == job["id"]
    lost = await world.lease("complete", 409, jobs=held(job))
    assert lost["results"][0]["code"] == "lease_lost"
    for _ in range(2):
        done = await world.lease("complete", jobs=held(again))
        assert done["results"][0]["code"] == "ok"


async def test_more_than_a_socket_takes_at_once_is_sent_and_read(quick: Quick) -> None:
    bodies = [bytes([number]) * 60_000 for number in range(64)]
    world = quick.world

    def post(number: int) -> Any:
        headers = {**PRODUCER, "X-Broker-Message-ID": f"m{number}"}
        return world.http.post("/channel/c/broadcast", content=bodies[number], headers=headers)

    answers = await asyncio.gather(*map(post, range(64)))
    assert {answer.status_code for answer in answers} == {201}
    assert quick.transactions == 0
    jobs = [
        job for found in await asyncio.gather(*(world.claim() for _ in bodies)) for job in found
    ]
    found = {job["message"]["id"]: job["message"]["payload"].encode() for job in jobs}
    assert found == {f"m{number}": body for number, body in enumerate(bodies)}


async def test_after_its_connection_has_ended_the_service_stores_by_another(
    quick: Quick, postgres_url: str
) -> None:
    world = quick.world
    before = quick.pids()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for pid in before:
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    await until(lambda: all(direct.is_lost for direct in quick.database._directs))
    await world.broadcast("x")
    await until(lambda: quick.pids() and not set(quick.pids()) & set(before))
    quick.transactions = 0
    await world.broadcast("y")
    assert quick.transactions == 0
    assert len(await world.queued()) == 2


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("publish_briefly", "consumer_channel_seq_consumer_id_key"),
        ("claim_briefly", "job_queued"),
        ("claim_briefly", "job_delayed"),
        ("complete_briefly", "job_pkey"),
        ("push_claim_briefly", "job_queued"),
        ("push_claim_briefly", "job_delayed"),
        ("push_note_briefly", "job_pkey"),
    ],
)
def test_a_statement_finds_its_rows_by_an_index_whatever_its_values(
    postgres_url: str, name: str, index: str
) -> None:
    statement = Statement(name)
    nothing = ", ".join(["null"] * len(statement.values))
    with psycopg.connect(postgres_url) as connection:
        # As in a database of which nothing is known yet, whatever other tests have left in its statistics.
        connection.execute("TRUNCATE job, message, consumer, channel, producer CASCADE")
        connection.execute(
            "DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relname IN"
            " ('job', 'message', 'consumer', 'channel', 'producer', 'push_lane'))"
        )
        connection.execute(SETTINGS)
        connection.execute(b"PREPARE one AS " + statement.text)
        rows = connection.execute(f"EXPLAIN EXECUTE one ({nothing})".encode()).fetchall()
        connection.execute("DEALLOCATE one")
        connection.rollback()
    plan = "\n".join(row[0] for row in rows)
    assert not re.search(r"Seq Scan on (job|message|consumer|channel)\b", plan), plan
    assert "Hash Join" not in plan, plan
    assert index in plan, plan
    assert "job_by_state" not in plan, plan


async def test_what_is_under_way_when_the_connection_ends_is_answered_503(
    quick: Quick, postgres_url: str
) -> None:
    """A lock holds the statement up, until the server ends its connection."""
    world = quick.world
    with (
        psycopg.connect(postgres_url) as locking,
        psycopg.connect(postgres_url, autocommit=True) as other,
    ):
        locking.execute("LOCK TABLE message IN EXCLUSIVE MODE")
        posting = asyncio.create_task(world.broadcast("x", 503))

        def waits() -> Any:
            return other.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = ANY(%s)",
                (quick.pids(),),
            ).fetchone()

        (pid,) = await until(waits, "no statement waits")
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        await posting
        locking.rollback()
    await world.broadcast("y")
    assert len(await world.queued()) == 1


async def test_a_statement_that_is_refused_is_tried_as_a_transaction(
    quick: Quick, postgres_url: str
) -> None:
    world = quick.world
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE message ADD CONSTRAINT odd CHECK (message_id <> 'odd')")
        try:
            odd, good = await asyncio.gather(
                world.broadcast("x", 500, X_Broker_Message_ID="odd"),
                world.broadcast("x", X_Broker_Message_ID="good"),
                return_exceptions=True,
            )
            assert "undeclared status" in str(odd)
            assert not isinstance(good, BaseException)
            assert quick.transactions > 0
        finally:
            connection.execute("ALTER TABLE message DROP CONSTRAINT odd")
    await world.broadcast("x", X_Broker_Message_ID="odd")
    assert len(await world.queued()) == 2
