"""Writes that arrive together share a transaction, and each has its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.jobs.errors import DatabaseUnavailableError, JobsError
from headrace.jobs.store import Database, Tx
from headrace.jobs.store.together import Outcome, Together, Work
from jobs_world import PRODUCER, World


async def test_what_waits_for_a_transaction_goes_together_with_the_next() -> None:
    sizes: list[int] = []
    go_on = asyncio.Event()

    async def carry_out(works: Sequence[Work]) -> list[Outcome]:
        sizes.append(len(works))
        await go_on.wait()
        return [Outcome(value=work(NO_TX)) for work in works]

    together = Together(carry_out)
    writes = [asyncio.create_task(together.write(lambda _, n=n: n)) for n in range(100)]  # type: ignore[misc]
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
    assert len(sizes) <= 3, sizes
    assert await together.write(lambda _: "alone") == "alone"


NO_TX: Any = None


@pytest.mark.parametrize("known", [True, False])
async def test_of_a_group_each_has_its_own_outcome(database: Database, known: bool) -> None:
    """Refusals leave the others alone; so does one that the database itself rejects."""

    def stored(number: int) -> Work:
        return lambda tx: tx.run("put_meta", key=f"k{number}", value="v")

    def refused(tx: Tx) -> None:
        raise JobsError(409, "no", "no")

    def rejected(tx: Tx) -> None:
        if known:
            tx.run("put_meta", key="odd", value=None)
        raise LookupError("nobody expected this")

    works: list[Work] = [stored(number) for number in range(20)]
    works[3:3] = [refused]
    works[10:10] = [rejected]
    results = await asyncio.gather(
        *(database.write_together(work) for work in works), return_exceptions=True
    )
    assert [result for result in results if isinstance(result, int)] == [1] * 20
    assert isinstance(results[3], JobsError)
    assert isinstance(results[10], Exception)
    assert not isinstance(results[10], JobsError)
    for number in range(20):
        row = await database.read(lambda tx, n=number: tx.one("get_meta", key=f"k{n}"))  # type: ignore[misc]
        assert row is not None
    assert await database.read(lambda tx: tx.one("get_meta", key="odd")) is None


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


async def test_a_group_without_a_database_is_unavailable_to_all(database: Database) -> None:
    await database.close()
    results = await asyncio.gather(
        *(database.write_together(lambda tx: tx.now_us()) for _ in range(10)),
        return_exceptions=True,
    )
    assert all(isinstance(result, DatabaseUnavailableError) for result in results)
