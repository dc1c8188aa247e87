"""A worker at work: from the connection to the last acknowledgement."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult

from ..client.connection import connect
from ..client.health import WELL, Health, unwell
from ..client.metrics import MetricsServer
from ..client.metrics import prometheus as of_connections
from ..client.net.options import Options
from ..errors import ConnectionClosedError, DisconnectedError, HeadraceError, RequestTimeoutError
from ..groups import elastic, static
from ..handling.dead_letter_headers import id_of_message
from ..web.pages import NUMBERS, Page, plain
from .app import ConsumerSource, GroupSource, Source, Worker
from .handling import handler_of
from .metrics import Row, SourceNumbers, prometheus
from .schema_conversion import Lookups, Reading, Writing
from .typed import takes_of

if TYPE_CHECKING:
    from ..client import Consumer, Consumption, JetStream
    from ..client.connection import Connection
    from ..groups.member import Membership

__all__ = ["Running", "run"]


STOP_TIMEOUT_S: Final = 25.0  # below the 30 s after which a container is killed
LOOK_EVERY_S: Final = 5.0  # at what waits in the server
AFTER_CLOSE_S: Final = 5.0  # what closing takes beside waiting for handlers, at most
AWAY: Final = (RequestTimeoutError, DisconnectedError)
AGAIN_S: Final = 0.5  # after a beginning that failed because the server was away

_log = logging.getLogger("headrace.worker")


class At:
    """A source at work."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.consumer: Consumer | None = None
        self.consumption: Consumption | None = None
        self.membership: Membership[Any] | None = None
        self.lag: int | None = None
        self.unacknowledged: int | None = None
        self.error: BaseException | None = None

    def health(self) -> Health:
        """Whether its messages can come."""
        if self.error is not None:
            return unwell(f"{self.source.label}: {self.error}")
        if self.consumption is not None:
            return self.consumption.health()
        if self.membership is not None:
            return WELL
        return unwell(f"{self.source.label}: has not begun")

    def row(self) -> Row:
        """Its numbers."""
        source, consumption = self.source, self.consumption
        stats = None if consumption is None else consumption.stats()
        kind = "group" if isinstance(source, GroupSource) else "consumer"
        numbers = SourceNumbers(
            is_well=bool(self.health()),
            buffered=None if stats is None else stats.buffered,
            retries=None if stats is None else stats.retries,
            dead_letters=None if stats is None else stats.dead_letters,
            lag=self.lag,
            unacknowledged=self.unacknowledged,
        )
        return Row((("stream", source.stream), (kind, source.name)), source.tally, numbers)

    async def wait(self) -> None:
        """Until it has ended. Raises why, if that was nobody's wish."""
        if self.consumption is not None:
            await self.consumption.wait()
        elif self.membership is not None:
            await self.membership.wait()


class Running:
    """What is known of a worker while it runs.

    Attributes:
        connection: None before the first one.
        sources: as they work.
        is_ending: whether it was told to end.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.connection: Connection | None = None
        self.sources = [At(source) for source in worker.sources]
        self.is_ending = False
        self.lookups = Lookups()

    def live(self) -> Health:
        """Whether it is worth to be kept: unwell where a source has failed for good."""
        failed = [each for each in self.sources if each.error is not None]
        return failed[0].health() if failed else WELL

    def ready(self) -> Health:
        """Whether messages of all sources can come."""
        if self.is_ending:
            return unwell("the worker is ending")
        if self.connection is None:
            return unwell("the worker is not connected yet")
        healths = [self.connection.health(), *(each.health() for each in self.sources)]
        return next((health for health in healths if not health), WELL)

    def rows(self) -> list[Row]:
        """The numbers of all sources."""
        return [each.row() for each in self.sources]

    # Beginning

    async def begin(self, each: At, js: JetStream) -> None:
        """Have it take messages. Waits while the server is away. Raises HeadraceError: it cannot."""
        while True:
            try:
                await self._begin(each, js)
            except AWAY as error:
                _log.warning("%s: the server is away, waiting: %s", each.source.label, error)
                await asyncio.sleep(AGAIN_S)
            else:
                _log.info("%s: taking messages", each.source.label)
                return

    async def _begin(self, each: At, js: JetStream) -> None:
        source = each.source
        publish = partial(_publish, js, source) if source.publish else None
        reading = writing = None
        if source.schema is not None:
            lookup = self.lookups.of(source.schema, js)
            reading = Reading(source.schema, lookup, takes_of(source.wants, source.schema.format))
        if source.returns is not None:
            writing = Writing(source.returns, self.lookups.of(source.returns, js))
        handler = handler_of(
            source.function,
            source.wants,
            self.worker.hooks,
            source.tally,
            publish,
            reading=reading,
            writing=writing,
        )
        if isinstance(source, ConsumerSource):
            if source.config is None:
                each.consumer = await js.consumer(source.stream, source.name)
            else:
                each.consumer = await js.create_or_update_consumer(
                    source.stream, source.config, durable_name=source.name
                )
            each.consumption = each.consumer.consume(
                handler,
                concurrency=source.concurrency,
                order_by=source.key,
                on_failure=source.on_failure,
                **source.priority,
            )
        elif isinstance(source, GroupSource):
            verbs: Any = elastic if source.kind == "elastic" else static
            each.membership = await verbs.join(
                js,
                source.stream,
                source.name,
                source.member,
                handler,
                source.config,
                concurrency=source.concurrency,
                key=source.key,
                on_failure=source.on_failure,
            ).start()

    # While it runs

    async def look(self) -> None:
        """At what waits in the server, again and again."""
        while True:
            for each in self.sources:
                if each.consumer is not None and each.error is None:
                    try:
                        info = await each.consumer.info()
                    except HeadraceError:
                        each.lag = each.unacknowledged = None  # nobody knows
                    else:
                        each.lag, each.unacknowledged = info.num_pending, info.num_ack_pending
            await asyncio.sleep(LOOK_EVERY_S)

    async def until_failed(self) -> None:
        """Until a source ends that nobody wanted to end. Raises why."""
        waits = {asyncio.ensure_future(each.wait()): each for each in self.sources}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception() or ConnectionClosedError("it has ended")
                waits[task].error = error
                _log.error("%s: takes no messages any more: %s", waits[task].source.label, error)
                raise error
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def run(
    worker: Worker,
    over: asyncio.Event,
    *,
    servers: str = "",
    options: Options | None = None,
    domain: str = "",
    prefix: str = "",
    stop_timeout: float = STOP_TIMEOUT_S,
    beside: Sequence[Callable[[Running], AbstractAsyncContextManager[object]]] = (),
) -> None:
    """Run a worker until ``over`` is set; then it ends within ``stop_timeout`` seconds.

    No handler begins any more, those that run may end, what they answered is sent, what was ahead of them
    goes back at once. A handler that runs for too long is cancelled, and its message comes again.

    Args:
        options: of the connection; its name is the worker's unless it has one.
        domain, prefix: of JetStream.
        beside: entered with what runs, as async context managers, before the first message.

    Raises:
        HeadraceError: it cannot begin, or a source failed: its consumer is gone, its policy is to stop.
    """
    running = Running(worker)
    given = options or Options()
    settings = replace(
        given,
        name=given.name or worker.name,
        tracing=given.tracing or worker.tracing,
        retry_first_connect=True,
        close_timeout=max(stop_timeout - AFTER_CLOSE_S, stop_timeout / 2),
    )
    async with AsyncExitStack() as stack:
        for enter in beside:
            await stack.enter_async_context(enter(running))
        stop = asyncio.ensure_future(over.wait())
        stack.callback(stop.cancel)
        where = servers or worker.servers
        connecting = asyncio.ensure_future(_connected(where, settings))
        await asyncio.wait([connecting, stop], return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            return
        connection = running.connection = connecting.result()
        js = connection.jetstream(domain=domain, prefix=prefix)
        if worker.lifespan is not None:
            await stack.enter_async_context(worker.lifespan(connection))
        async with connection:  # left first: handlers may use what the lifespan made
            await _work(running, js, stop)
    _log.info("worker %s has ended", worker.name)


async def _connected(servers: str, options: Options) -> Connection:
    return await (connect(servers, options=options) if servers else connect(options=options))


async def _work(running: Running, js: JetStream, stop: asyncio.Future[Any]) -> None:
    async def work() -> None:
        for each in running.sources:
            await running.begin(each, js)
        await running.until_failed()

    working = asyncio.ensure_future(work())
    looking = asyncio.ensure_future(running.look())
    try:
        await asyncio.wait([working, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.is_ending = True
        running.lookups.end()
        looking.cancel()
        failed = working.done()
        working.cancel()
        await asyncio.gather(looking, working, return_exceptions=True)
    if failed:
        working.result()
    _log.info("worker %s is ending: what runs is let end", running.worker.name)


async def _publish(
    js: JetStream, source: Source, message: Any, body: bytes, headers: dict[str, str] | None
) -> None:
    """Once for each message: the id is made of it, and the stream keeps one of an id."""
    msg_id = id_of_message(message.metadata, source.name)
    await js.publish(source.publish, body, headers=headers, msg_id=msg_id)


class Pages(MetricsServer):
    """Serves them while it is entered.

    Args:
        running: the worker.
        host, port: where to listen; port 0 is any free one.
    """

    def __init__(self, running: Running, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__({}, host=host, port=port)
        self._running = running

    def _page(self, url: SplitResult) -> Page:
        running, path = self._running, url.path
        if path == "/healthz":
            return _probe(running.live())
        if path == "/readyz":
            return _probe(running.ready())
        if path == "/metrics":
            text = prometheus(running.rows())
            if running.connection is not None:
                labels = {"connection": running.worker.name}
                text += of_connections([(running.connection.stats(), labels)])
            return Page(200, NUMBERS, text.encode())
        return plain(404, "there are /healthz, /readyz and /metrics\n")


def _probe(health: Health) -> Page:
    told = {"status": "ok" if health else "unavailable", "reason": health.reason}
    return Page(200 if health else 503, "application/json", json.dumps(told).encode() + b"\n")
