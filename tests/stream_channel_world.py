"""A service with a channel ``c`` that lives in the stream ``S`` of a broker, and endpoints it pushes to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from headrace.client import Connection, JetStream, connect
from headrace.jobs.broker import Streams
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.push.engine import PushEngine
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.service.definitions.consumers import find_consumer
from headrace.jobs.store import open_database
from headrace.jobs.streams.looking import remove_forgotten
from jobs_contract import ContractTransport
from jobs_endpoint import Endpoint
from jobs_world import PRODUCER
from waiting import until

__all__ = ["ACK_WAIT_S", "StreamWorld", "by_body", "stream_world"]

ACK_WAIT_S = 2.0
SUBJECTS = ("s.>",)


@dataclass
class StreamWorld:
    """The service, which ``stop`` ends and ``start`` begins again, and a client of its broker."""

    database_url: str
    broker_url: str
    options: Options
    js: JetStream
    runtime: Runtime = field(init=False)
    http: httpx2.AsyncClient = field(init=False)
    engine: PushEngine = field(init=False)
    _pushing: asyncio.Task[None] | None = None
    _removing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """One process, with push."""
        streams = Streams(self.broker_url, ACK_WAIT_S)
        database = open_database(self.database_url, threads=4)
        self.runtime = Runtime(database, self.options, streams=streams)
        await self.runtime.start()
        self._removing = asyncio.create_task(remove_forgotten(self.runtime, streams))
        transport = ContractTransport(create_app(self.runtime))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://jobs")
        self.push()

    def push(self) -> None:
        """Begin to push."""
        self.engine = PushEngine(self.runtime)
        self._pushing = asyncio.create_task(self.engine.run())

    async def stop(self) -> None:
        """Drain, and end."""
        if self._pushing is not None:
            self.engine.stop()
            async with asyncio.timeout(20):
                await self._pushing
            self._pushing = None
        if self._removing is not None:
            self._removing.cancel()
            await asyncio.gather(self._removing, return_exceptions=True)
        await self.http.aclose()
        await self.runtime.close()

    async def define(self, **stream: Any) -> None:
        """The producer, the channel, its stream."""
        await self.put("/producer/p", token="pt")
        await self.put("/channel/c", token="ct")
        await self.live_in("c", **stream)

    async def live_in(self, channel: str, expect: int = 200, **stream: Any) -> httpx2.Response:
        wanted = {"name": "S", "subject": "s.http", **stream}
        return await self.ask("PATCH", f"/v2/channel/{channel}", expect, json={"stream": wanted})

    async def put(self, path: str, expect: int = 200, /, **form: str) -> httpx2.Response:
        return await self.ask("PUT", path, expect, data=form or {"name": ""})

    async def ask(
        self, method: str, path: str, expect: int = 200, /, **given: Any
    ) -> httpx2.Response:
        response = await self.http.request(method, path, **given)
        assert response.status_code == expect, response.text
        return response

    async def consumer(self, name: str, endpoint: Endpoint, /, **settings: Any) -> None:
        """A push consumer, which delivers what is published from now on."""
        retries = settings.pop("max_retries", None)
        form = {} if retries is None else {"maxRetries": str(retries)}
        await self.put(f"/channel/c/consumer/{name}", callbackUrl=endpoint.url, token="ht", **form)
        if settings:
            await self.patch(name, settings=settings)
            await self.until_known(name)

    async def until_known(self, name: str) -> None:
        """Until the lane goes by the consumer's definition."""
        stored = await self.runtime.database.read(lambda tx: find_consumer(tx, "c", name))

        def is_known() -> bool:
            served = self.engine.consumers.get(f"c/{name}")
            return served is not None and served.updated_us == stored.updated_us

        await until(is_known, "the lane has another definition")

    async def patch(self, name: str, /, **change: Any) -> None:
        await self.ask("PATCH", f"/v2/channel/c/consumer/{name}", json=change)

    async def broadcast(
        self, payload: str = "x", expect: int = 201, /, **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask(
            *("POST", "/channel/c/broadcast", expect),
            content=payload.encode(),
            headers={**PRODUCER, **named},
        )

    async def publish(self, *payloads: object, key: str = "") -> None:
        """Publish to the stream, as those do who know of no jobs."""
        headers = {"X-Broker-Ordering-Key": key} if key else {}
        async with self.js.publisher() as publisher:
            for payload in payloads:
                await publisher.send("s.a", str(payload).encode(), headers=headers)

    async def standing(self, name: str = "h") -> dict[str, Any]:
        found: dict[str, Any] = (
            await self.ask("GET", f"/v2/channel/c/consumer/{name}/stream")
        ).json()
        return found

    async def until_done(self, name: str = "h", *, last: int = 0) -> dict[str, Any]:
        """Until all that is in the stream was delivered, or is a job."""

        async def is_done() -> dict[str, Any]:
            found = await self.standing(name)
            at = (found["lag"], found["under_way"], found["problem"])
            return found if at == (0, 0, None) and found["acknowledged"] >= last else {}

        done: dict[str, Any] = await until(
            is_done, "it never gets to the end of the stream", within=30
        )
        return done

    async def counts(self, name: str = "h") -> dict[str, int]:
        body = (await self.ask("GET", f"/v2/channel/c/consumer/{name}")).json()
        return {state: n for state, n in body["jobs"].items() if n}

    async def until_counts(self, expected: dict[str, int], name: str = "h") -> None:
        async def are() -> bool:
            return await self.counts(name) == expected

        await until(are, f"its jobs are never {expected}", within=30)

    async def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("GET", "/v2/events")).json()["events"]
        return found

    async def until_event(self, kind: str, within: float = 30) -> dict[str, Any]:
        async def has() -> dict[str, Any]:
            return next((one for one in await self.events() if one["kind"] == kind), {})

        event: dict[str, Any] = await until(has, f"no event {kind}", within=within)
        return event


@asynccontextmanager
async def stream_world(
    database_url: str, broker_url: str, *, define: bool = True, **options: Any
) -> AsyncIterator[StreamWorld]:
    """The world with its stream ``S``, subjects ``s.>``, and its channel."""
    settings = {
        "allow_networks": ("127.0.0.0/8",),
        "max_retries": 5,
        "retry_delays_s": (0.05,),
        **options,
    }
    connection: Connection
    async with connect(broker_url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=SUBJECTS)
        world = StreamWorld(database_url, broker_url, Options(**settings), js)
        await world.start()
        try:
            if define:
                await world.define()
            yield world
        finally:
            await world.stop()


def by_body(endpoint: Endpoint) -> dict[str, int]:
    """How often each payload was called."""
    found: dict[str, int] = defaultdict(int)
    for call in endpoint.calls:
        found[call.body.decode()] += 1
    return found
