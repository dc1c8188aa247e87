"""Large writes of a process: one at a time, however many ask, so that small ones go in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.jobs import limits
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import Tx
from jobs_world import PRODUCER, World


@pytest.mark.one_database
async def test_one_large_piece_of_work_is_under_way_at_a_time(runtime: Runtime) -> None:
    under_way: list[int] = []

    async def large(number: int) -> None:
        def work(tx: Tx) -> None:
            under_way.append(number)
            tx.now_us()
            assert under_way[-1] == number

        await runtime.in_turn(work)

    write, queued, most = runtime.database.write, 0, 0

    async def counted(work: Callable[[Tx], Any]) -> Any:
        nonlocal queued, most
        queued += 1
        most = max(most, queued)
        try:
            return await write(work)
        finally:
            queued -= 1

    runtime.database.write = counted  # type: ignore[method-assign]
    await asyncio.gather(*(large(number) for number in range(8)))
    assert (sorted(under_way), most) == ([*range(8)], 1)


@pytest.mark.one_database
async def test_one_that_fails_lets_the_next_begin(runtime: Runtime) -> None:
    def failing(_: Tx) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await runtime.in_turn(failing)
    async with asyncio.timeout(10):
        assert await runtime.in_turn(lambda tx: 1) == 1


@pytest.mark.one_database
async def test_a_large_publication_waits_for_its_turn_and_a_small_one_does_not(
    world: World,
) -> None:
    async def batch(count: int) -> None:
        answer = await world.http.post(
            "/v2/channel/c/messages/batch",
            json={"messages": [{"payload": "x"}] * count},
            headers=PRODUCER,
        )
        assert answer.status_code == 201, answer.text

    async with world.runtime._turn:
        large = asyncio.create_task(batch(limits.BATCH_MAX))
        await batch(limits.TURN_ROWS)
        assert await world.payloads() == ["x"] * limits.TURN_ROWS
        assert not large.done()
    await large
