"""A feed of the job service: a stream, what became jobs of it, and where it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.jobs.config import FeedConfig
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service import feeds
from headrace.jobs.states import State
from headrace.jobs.store import Tx
from headrace.jobs.streams.feed import feed_channel
from jobs_world import World
from waiting import elapse, until

__all__ = ["Feeding"]


class Feeding:
    """A stream, a feed of it into the channel ``c``, and what became jobs."""

    def __init__(self, world: World, url: str, **settings: Any) -> None:
        self.world = world
        named = {"channel": "c", "stream": "ORDERS", "url": url, "batch": 4, **settings}
        self.config = FeedConfig(**named)

    @asynccontextmanager
    async def running(self, process: Runtime | None = None) -> AsyncIterator[None]:
        """While the feed runs, in this process."""
        runtime = process or self.world.runtime
        task = asyncio.create_task(feed_channel(runtime, self.config))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def payloads(self) -> list[str]:
        """Those of the jobs, in order."""

        def read(tx: Tx) -> list[str]:
            messages = {row["seq"]: row["payload"] for row in _rows(tx, "message")}
            return [bytes(messages[row["message_seq"]]).decode() for row in _rows(tx, "job")]

        return await self.world.runtime.database.read(read)

    async def rows(self, table: str) -> list[Any]:
        """All of a table, in order."""
        return await self.world.runtime.database.read(lambda tx: list(_rows(tx, table)))

    async def waiting(self, consumer: str) -> list[str]:
        """The payloads of the consumer's jobs that wait, in the order of their messages."""

        def read(tx: Tx) -> list[str]:
            messages = {row["seq"]: row["payload"] for row in _rows(tx, "message")}
            (seq,) = (row["seq"] for row in _rows(tx, "consumer") if row["consumer_id"] == consumer)
            jobs = [
                row["message_seq"]
                for row in _rows(tx, "job")
                if row["consumer_seq"] == seq and row["state"] == State.QUEUED
            ]
            return [bytes(messages[number]).decode() for number in sorted(jobs)]

        return await self.world.runtime.database.read(read)

    async def until_state(self, state: str) -> dict[str, Any]:
        """Wait until the feed is shown in this state; how it is shown."""

        async def is_in_it() -> dict[str, Any] | None:
            answer = await self.world.http.get("/v2/channel/c/feeds")
            found: list[dict[str, Any]] = answer.json()["feeds"]
            return next((each for each in found if each["state"] == state), None)

        found: dict[str, Any] | None = await until(is_in_it, f"never {state}", within=20)
        assert found is not None
        return found

    async def until_payloads(self, wanted: list[str]) -> None:
        """Wait until these are the jobs, and no others come."""

        async def are_there() -> bool:
            return len(await self.payloads()) >= len(wanted)

        await until(are_there, f"not {wanted}", within=30)
        await elapse(0.3, "what comes twice would be there now")
        assert await self.payloads() == wanted

    async def until_at(self, sequence: int) -> None:
        """Wait until the feed's place is there."""

        async def is_there() -> bool:
            found = await self.world.runtime.database.read(feeds.listed)
            return [each.place.sequence for each in found] == [sequence]

        await until(is_there, f"not at {sequence}", within=30)

    async def events(self) -> list[str]:
        """The kinds of events of feeds."""
        found = (await self.world.http.get("/v2/events")).json()["events"]
        return [each["kind"] for each in found if each["kind"].startswith("feed_")]


def _rows(tx: Tx, table: str) -> Any:
    return tx.all(f"whole_page_{table}", after=0, n=1000)
