"""How a query in a group reads its batches, and removes what is read: together; without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.api.streams import PurgeRequest
from headrace.client import connect
from headrace.spark.grouped import query as grouped_query
from headrace.spark.options import parse_options
from headrace.spark.reading.gets import DirectGets
from headrace.spark.slices import Slice
from headrace.spark.tasks.read_slice import read_slice

from .grouped_world import KEYS, Place, a_place, make_elastic, until_left

pytestmark = pytest.mark.usefixtures("links_end")


@pytest.fixture
async def place(server_url: str) -> AsyncIterator[Place]:
    async with (
        connect(server_url) as connection,
        a_place(connection.jetstream(), server_url) as place,
    ):
        yield place


async def test_tasks_of_one_range_read_it_once_and_have_what_each_would_have_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_elastic(place, ["spark"])
    await place.publish(6)
    await until_left(place, KEYS * 6)
    engine = place.engine(minMessagesPerTask="10", maxTasks="2")
    assert await asyncio.to_thread(engine.next_batch)
    assert engine.planned is not None
    pieces = engine.query.plan(*engine.planned)
    asked: list[tuple[int, int]] = []
    ask = DirectGets.ask

    def noted(gets: DirectGets, first: int, messages: int, size: int) -> None:
        asked.append((first, messages))
        ask(gets, first, messages, size)

    monkeypatch.setattr(DirectGets, "ask", noted)
    options = parse_options(engine.raw, streaming=True)

    def read(piece: Slice) -> list[dict[str, Any]]:
        batches = read_slice(options, ("sequence", "subject", "data"), piece)
        return [row for batch in batches for row in batch.to_pylist()]

    together = [await asyncio.to_thread(read, piece) for piece in pieces]
    assert sum(messages for _, messages in asked) == KEYS * 6, "each message once"
    alone = [piece._replace(route="", tasks=0, shares=()) for piece in pieces]
    assert [await asyncio.to_thread(read, piece) for piece in alone] == together
    assert sum(messages for _, messages in asked) == 3 * KEYS * 6
    assert sorted(row["sequence"] for rows in together for row in rows) == [*range(1, KEYS * 6 + 1)]
    engine.query.close()


async def test_what_all_partitions_have_read_is_removed_with_one_request(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_elastic(place, ["spark"])
    purges: list[PurgeRequest] = []

    def noted(**fields: Any) -> PurgeRequest:
        purges.append(PurgeRequest(**fields))
        return purges[-1]

    monkeypatch.setattr(grouped_query, "PurgeRequest", noted)
    engine = place.engine()
    await place.publish(2)
    await until_left(place, KEYS * 2)
    assert await asyncio.to_thread(engine.batch)
    await place.publish(1)
    await until_left(place, KEYS * 3)
    assert await asyncio.to_thread(engine.next_batch)
    assert purges == [PurgeRequest(seq=KEYS * 2 + 1)]
    assert await place.left() == KEYS
    engine.query.close()


async def test_of_partitions_that_somebody_else_has_nothing_is_removed(place: Place) -> None:
    await make_elastic(place, ["other", "spark"])
    engine = place.engine(member="spark")
    await place.publish(3)
    await until_left(place, KEYS * 3)
    assert await asyncio.to_thread(engine.batch)
    assert not await asyncio.to_thread(engine.next_batch)
    assert await place.left() == KEYS * 3 - len(place.log) > 0
    engine.query.close()
