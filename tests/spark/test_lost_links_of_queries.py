"""A driver's connection, lost at reads and writes in turn, while its query shares a group.

The suite plays a part of them; ``make faults`` each one.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

import pytest

from headrace.client import connect
from headrace.groups import elastic, static
from headrace.spark.grouped.holding import give_back
from headrace.spark.links.link import Link, Reply
from waiting import until

from .grouped_world import (
    GROUP,
    KEYS,
    Engine,
    Place,
    a_place,
    make_elastic,
    partitioned,
    until_left,
)
from .losses import Losses

pytestmark = pytest.mark.usefixtures("links_end")

EVERY = 1 if os.environ.get("HEADRACE_EVERY_LOSS") else 29
LAYOUTS = ["interoperable", "per_partition"]


@pytest.fixture(autouse=True)
def _quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.links.outages.PAUSE_FIRST_S", 0.0005)
    monkeypatch.setattr("headrace.spark.grouped.query.LOOK_S", 0.0005)


async def run_all(engine: Engine, losses: Losses) -> None:
    """Batches until there is no more to read, and a last look that releases what was committed."""

    def run() -> None:
        with losses:
            while engine.batch():
                pass

    await asyncio.to_thread(run)


async def held(place: Place, stream: str) -> dict[str, bool]:
    """The consumers that a query holds, and whether each is paused."""
    infos = [info async for info in place.js.consumers(stream)]
    return {
        info.name: info.paused for info in infos if "headrace.role" in str(info.config.metadata)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_an_elastic_member_reads_releases_and_gives_back_wherever_its_connection_is_lost(
    server_url: str, losses: Losses, layout: str
) -> None:
    async with connect(server_url) as connection:
        js = connection.jetstream()
        for at in losses.rounds(100, every=EVERY):
            async with a_place(js, server_url) as place:
                work = f"{place.stream}-{GROUP}"
                await make_elastic(place, ["spark", "b"], layout)
                with losses:
                    engine = await asyncio.to_thread(
                        place.engine, member="spark", pollTimeout="1ms"
                    )
                await place.publish(2)
                await until_left(place, 2 * KEYS)
                await run_all(engine, losses)
                assert 0 < len(place.log) < 2 * KEYS, at
                await elastic.drop_members(js, place.stream, GROUP, ["b"])
                await run_all(engine, losses)
                place.check()
                assert await place.left() == 0, at
                assert all((await held(place, work)).values()), at
                await elastic.add_members(js, place.stream, GROUP, ["b"])
                await elastic.drop_members(js, place.stream, GROUP, ["spark"])
                await run_all(engine, losses)
                assert await held(place, work) == {}, at


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_static_member_is_taken_over_and_given_back_wherever_a_connection_is_lost(
    server_url: str, losses: Losses, layout: Any
) -> None:
    async with connect(server_url) as connection:
        js = connection.jetstream()
        for at in losses.rounds(60, every=EVERY):
            async with a_place(js, server_url) as place:
                stream = place.stream
                source = await js.stream(stream)
                await source.update(subject_transform=partitioned(stream))
                await static.create(js, stream, GROUP, max_members=6, members=["x"], layout=layout)
                await place.publish(1)
                async with static.join(js, stream, GROUP, "x", place.handler("x")):
                    await until(partial(getattr, place, "is_done"))
                await place.publish(2)
                with losses:
                    engine = await asyncio.to_thread(
                        place.engine, member="x", groupKind="static", pollTimeout="1ms"
                    )
                await run_all(engine, losses)
                assert place.handled_by("query") == 2 * KEYS, at
                place.check()
                paused = await held(place, stream)
                assert paused, at
                assert all(paused.values()), at
                engine.query.close()
                await asyncio.to_thread(_give_back, place, losses)
                infos = [info async for info in js.consumers(stream)]
                assert not any(info.paused for info in infos), at
                assert await held(place, stream) == {}, at


@pytest.mark.parametrize("way", ["before", "after"])
async def test_a_static_consumer_is_put_to_sleep_and_woken_though_the_request_or_its_answer_is_lost(
    server_url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    request = Link.request
    is_to_be_lost = True

    def lossy(link: Link, subject: str, payload: bytes = b"") -> Reply:
        nonlocal is_to_be_lost
        if ".PAUSE." in subject and is_to_be_lost:
            is_to_be_lost = False
            if way == "after":
                request(link, subject, payload)
            link.close()
        return request(link, subject, payload)

    monkeypatch.setattr(Link, "request", lossy)
    async with (
        connect(server_url) as connection,
        a_place(js := connection.jetstream(), server_url) as place,
    ):
        stream = place.stream
        await (await js.stream(stream)).update(subject_transform=partitioned(stream))
        await static.create(js, stream, GROUP, max_members=6, members=["x"])
        async with static.join(js, stream, GROUP, "x", place.handler("x")):
            await place.publish(1)
            await until(lambda: place.is_done)
        engine = await asyncio.to_thread(
            place.engine, member="x", groupKind="static", pollTimeout="1ms"
        )
        assert not await asyncio.to_thread(engine.batch)
        assert not is_to_be_lost
        assert await held(place, stream) == {f"{GROUP}-x": True}
        engine.query.close()
        is_to_be_lost = True
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(
                lambda: give_back(stream, GROUP, "x", kind="static", servers=server_url)
            )
        assert list(await held(place, stream)) == [f"{GROUP}-x"], "it can be given back again"
        await asyncio.to_thread(
            lambda: give_back(stream, GROUP, "x", kind="static", servers=server_url)
        )
        assert await held(place, stream) == {}
        assert not any([info.paused async for info in js.consumers(stream)])


def _give_back(place: Place, losses: Losses) -> None:
    """By a call, and by another one if that fails."""
    for _ in range(2):
        try:
            with losses:
                give_back(place.stream, GROUP, "x", kind="static", servers=place.url)
        except ConnectionError:
            continue
        return
