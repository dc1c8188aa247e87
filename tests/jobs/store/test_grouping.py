"""Writes that arrive together share a transaction, and each has its own outcome."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.jobs import limits
from headrace.jobs.errors import DatabaseUnavailableError, JobsError
from headrace.jobs.store import Database, Outcome, Tx, open_database, postgres
from headrace.jobs.store.grouping import GroupWriter
from jobs_world import PRODUCER, World


async def test_what_waits_for_a_transaction_goes_together_with_the_next() -> None:
    sizes: list[int] = []
    go_on = asyncio.Event()

    def numbers(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    def names(tx: Tx, items: Sequence[str]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        await go_on.wait()
        outcomes = work(NO_TX)
        sizes.append(len(outcomes))
        return outcomes

    together = GroupWriter(write)
    writes = [asyncio.create_task(together.write(numbers, n)) for n in range(100)]
    other = asyncio.create_task(together.write(names, "of another kind"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writes[50].cancel()
    go_on.set()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [result for result in results if isinstance(result, int)] == [
        *range(50),
        *range(51, 100),
    ]
    assert isinstance(results[50], asyncio.CancelledError)
    assert await other == "of another kind"
    assert len(sizes) <= 4, sizes
    assert await together.write(names, "alone") == "alone"


NO_TX: Any = None


async def test_a_transaction_that_waits_for_a_lock_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.jobs.store.grouping._PATIENCE_S", 0.0)
    locked = asyncio.Event()

    def numbers(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        outcomes = work(NO_TX)
        if any(outcome.value < 3 for outcome in outcomes):
            await locked.wait()
        return outcomes

    together = GroupWriter(write)
    held = []
    for number in range(3):
        held.append(asyncio.create_task(together.write(numbers, number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await together.write(numbers, 5) == 5
    assert not any(task.done() for task in held)
    locked.set()
    assert await asyncio.gather(*held) == [0, 1, 2]


@pytest.mark.parametrize("known", [True, False])
async def test_of_a_group_each_has_its_own_outcome(database: Database, known: bool) -> None:
    """Refusals leave the others alone; so does one that the database itself rejects."""

    def store(tx: Tx, items: Sequence[str]) -> list[Outcome]:
        outcomes = []
        for item in items:
            if item == "refused":
                outcomes.append(Outcome(error=JobsError(409, "no", "no")))
                continue
            if item == "rejected":
                if known:
                    tx.run("put_meta", key="odd", value=None)
                raise LookupError("nobody expected this")
            outcomes.append(Outcome(value=tx.run("put_meta", key=item, value="v")))
        return outcomes

    items = [f"k{number}" for number in range(20)]
    items[3:3] = ["refused"]
    items[10:10] = ["rejected"]
    results = await asyncio.gather(
        *(database.write_together(store, item) for item in items), return_exceptions=True
    )
    assert [result for result in results if isinstance(result, int)] == [1] * 20
    assert isinstance(results[3], JobsError)
    assert isinstance(results[10], Exception)
    assert not isinstance(results[10], JobsError)
    for number in range(20):
        row = await database.read(lambda tx, n=number: tx.one("get_meta", key=f"k{n}"))  # type: ignore[misc]
        assert row is not None
    assert await database.read(lambda tx: tx.one("get_meta", key="odd")) is None


async def test_a_kind_that_cannot_be_stored_leaves_the_others_of_its_transaction_alone(
    database: Database,
) -> None:
    def good(tx: Tx, items: Sequence[str]) -> list[Outcome]:
        return [Outcome(value=tx.run("put_meta", key=item, value="v")) for item in items]

    def odd(tx: Tx, items: Sequence[str]) -> list[Outcome]:
        good(tx, items)
        raise LookupError("nobody expected this")

    results = await asyncio.gather(
        *(database.write_together(good, f"g{number}") for number in range(10)),
        *(database.write_together(odd, f"o{number}") for number in range(10)),
        return_exceptions=True,
    )
    assert results[:10] == [1] * 10
    assert {type(result) for result in results[10:]} == {LookupError}
    for key, there in (("g9", True), ("o0", False), ("o9", False)):
        row = await database.read(lambda tx, key=key: tx.one("get_meta", key=key))  # type: ignore[misc]
        assert (row is not None) is there


async def test_work_that_answers_too_few_leaves_nobody_waiting() -> None:
    def forgetful(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items if item != 3]

    async def write(work: Callable[[Tx], Any]) -> Any:
        return work(NO_TX)

    grouping = GroupWriter(write)
    async with asyncio.timeout(10):
        results = await asyncio.gather(
            *(grouping.write(forgetful, number) for number in range(6)), return_exceptions=True
        )
    assert [result for result in results if isinstance(result, int)] == [0, 1, 2, 4, 5]
    assert isinstance(results[3], AssertionError)


async def test_those_who_wait_for_a_group_that_is_cancelled_wait_no_more() -> None:
    def numbers(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        await asyncio.Event().wait()

    grouping = GroupWriter(write)
    waiting = [asyncio.create_task(grouping.write(numbers, number)) for number in range(6)]
    await asyncio.sleep(0)
    for task in grouping._tasks:
        task.cancel()
    async with asyncio.timeout(10):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}


async def test_much_that_is_asked_at_once_is_shared_out_among_transactions() -> None:
    sizes: list[int] = []

    def sizes_of(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        sizes.append(sum(items))
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        return work(NO_TX)

    grouping = GroupWriter(write)
    asked = [100, 100, 500, 100, 100, 100]
    results = await asyncio.gather(*(grouping.write(sizes_of, n, weight=n) for n in asked))
    assert results == asked
    assert sum(sizes) == sum(asked)
    assert all(size <= 256 or size == 500 for size in sizes), sizes


async def test_one_that_asks_again_at_once_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.jobs.store.grouping._PATIENCE_S", 3600.0)

    def numbers(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        await asyncio.sleep(0)
        return work(NO_TX)

    grouping = GroupWriter(write)
    async with asyncio.timeout(20):
        assert [await grouping.write(numbers, n) for n in range(50)] == list(range(50))


async def test_more_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITES_PENDING_MAX", 5)
    go_on = asyncio.Event()

    def numbers(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    async def write(work: Callable[[Tx], Any]) -> Any:
        await go_on.wait()
        return work(NO_TX)

    grouping = GroupWriter(write)
    asked = [asyncio.create_task(grouping.write(numbers, 0))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the first is under way
    asked += [asyncio.create_task(grouping.write(numbers, number)) for number in range(1, 8)]
    await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert results[:6] == [0, 1, 2, 3, 4, 5]
    assert {getattr(result, "code", None) for result in results[6:]} == {"busy"}


async def test_of_many_new_jobs_other_processes_are_told_together(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_s = 0.1
    monkeypatch.setattr(postgres, "_ANNOUNCE_S", pause_s)
    notices: list[str] = []
    monkeypatch.setattr(
        postgres.PostgresDatabase, "_notify", lambda self, payload: notices.append(payload)
    )
    database = open_database(postgres_url, threads=2)
    await database.start()
    begun = time.monotonic()
    for number in range(50):
        await database.write(lambda tx, number=number: tx.ring([number]))  # type: ignore[misc]
    writing_s = time.monotonic() - begun
    await database.close()
    assert len(notices) <= 2 + writing_s / pause_s
    assert sorted(seq for notice in notices for seq in json.loads(notice)["consumers"]) == list(
        range(50)
    )


async def test_broadcasts_at_once_are_answered_each_by_its_own(world: World) -> None:
    def post(number: int) -> Any:
        headers = {**PRODUCER, "X-Broker-Message-ID": f"m{number % 40}"}
        if number == 5:
            headers["X-Broker-Channel-Token"] = "wrong"
        if number == 6:
            headers["X-Broker-Producer-ID"] = "none"
        return world.http.post("/channel/c/broadcast", content=f"{number}", headers=headers)

    answers = await asyncio.gather(*(post(number) for number in range(60)))
    codes = [answer.status_code for answer in answers]
    assert (codes[5], codes[6]) == (403, 401)
    assert sorted(set(codes)) == [201, 401, 403, 409]
    assert codes.count(201) == 40, "m5 and m6 are stored by 45 and 46"
    assert len(await world.queued(100)) == codes.count(201)


async def test_messages_at_once_keep_their_bodies_headers_and_priorities(world: World) -> None:
    """Of all sizes and kinds; scheduled ones wait, and one that is sent twice is stored once."""
    bodies = [bytes([number]) * (number * 37 + 1) for number in range(40)]

    def post(number: int) -> Any:
        headers = {
            **PRODUCER,
            "Content-Type": f"text/x-{number}; charset=\xe4",
            "X-Broker-Message-Priority": str(number % 3),
            "X-Broker-Metadata-Headers": "X-Own",
            "X-Own": f"{number} \xfc",
            "Idempotency-Key": f"m{number}",
        }
        if number % 10 == 9:
            headers["X-Broker-Scheduled-For"] = "2999-01-01T00:00:00Z"
        path = "/v2/channel/c/messages"
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        return world.http.post(path, content=bodies[number], headers=encoded)

    answers = await asyncio.gather(*(post(number) for number in (*range(40), 7, 9)))
    shown = [(answer.status_code, answer.json()) for answer in answers]
    assert [code for code, _ in shown] == [201] * 40 + [200] * 2
    assert [body["scheduled"] for _, body in shown[:10]] == [False] * 9 + [True]
    assert [body["jobs"] for _, body in shown] == [0 if n % 10 == 9 else 1 for n in range(40)] + [
        0,
        0,
    ]
    held = await world.claim(100)
    numbers = [int(job["message"]["id"].removeprefix("m")) for job in held]
    assert sorted(numbers) == [number for number in range(40) if number % 10 != 9]
    priorities = [number % 3 for number in numbers]
    assert priorities == sorted(priorities, reverse=True)
    for job, number in zip(held, numbers, strict=True):
        message = job["message"]
        encoded = message["payload"].encode()
        body = base64.b64decode(encoded) if message.get("encoding") == "base64" else encoded
        assert body == bodies[number]
        assert message["content_type"] == f"text/x-{number}; charset=\xe4"
        assert message["headers"] == {"X-Own": f"{number} \xfc"}


async def test_a_group_without_a_database_is_unavailable_to_all(database: Database) -> None:
    def nothing(tx: Tx, items: Sequence[int]) -> list[Outcome]:
        return [Outcome(value=item) for item in items]

    await database.close()
    results = await asyncio.gather(
        *(database.write_together(nothing, number) for number in range(10)), return_exceptions=True
    )
    assert all(isinstance(result, DatabaseUnavailableError) for result in results)
