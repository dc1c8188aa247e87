"""Looks at a server again and again, and tells those who watch.

One look is shared by all browsers. Nobody watching: a look every ``IDLE_S``, so that curves have a past.
A look asks for the list of streams, and for the consumers of at most ``STREAMS_ASKED`` of them, at most
``TOGETHER`` questions at a time: a server with 100,000 consumers is not held up by a page about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from ..client.connection import Connection
from ..client.jetstream_context import JetStream
from ..errors import HeadraceError
from ..findings.finding import Finding
from .lags import Lags
from .look import History, Look, consumer_row, curves, overview, stream_row
from .metrics import Console
from .pipelines import PipelineReader

_LOG: Final = logging.getLogger("headrace.console")

IDLE_S: Final = 15.0
STREAMS_ASKED: Final = 500
CONSUMERS_ASKED: Final = 5_000
TOGETHER: Final = 8


class Watcher:
    """The newest look, the one before, and the history of the numbers.

    Args:
        connection, js: to the server.
        interval_s: seconds between two looks while somebody watches.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        connection: Connection,
        js: JetStream,
        interval_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._js = js
        self._interval_s = interval_s
        self._clock = clock
        self._changed = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._watching = 0
        self._looking = asyncio.Lock()
        self._lags = Lags(js, clock)
        self._pipelines = PipelineReader(js, clock)
        self.number = 0
        self.look = Look(0.0)
        self.before: Look | None = None
        self.history = History()
        self.error = ""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.refresh()
            self._wanted.clear()
            pause = self._interval_s if self._watching else max(IDLE_S, self._interval_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), pause)

    async def refresh(self) -> None:
        """Look now, and tell everybody. What fails is said in ``error``; the last look stays."""
        async with self._looking:
            try:
                look = await self._take()
                before = self.look if self.number else None
                points = curves(look, before)
            except HeadraceError as error:
                self._failed(f"The server does not answer: {str(error) or type(error).__name__}")
            except Exception as error:
                # A fault of ours, or an answer nobody foresaw: the next look may do better, so look on.
                told = f"The console failed to look at the server: {type(error).__name__}: {error}"
                self._failed(told, error)
            else:
                self.error = ""
                self.before, self.look = before, look
                self.history.add_all(look.at_s, points)
        async with self._changed:
            self.number += 1
            self._changed.notify_all()

    async def first_look(self) -> None:
        """Wait until there was a look, or until one has failed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.number > 0)

    def _failed(self, told: str, fault: Exception | None = None) -> None:
        """Tell the pages, and the log once."""
        if told != self.error:
            _LOG.log(logging.ERROR if fault else logging.WARNING, "%s", told, exc_info=fault)
        self.error = told

    async def watch(self) -> AsyncIterator[int]:
        """The number of each look, beginning with the newest. While one iterates, looks come often."""
        self._watching += 1
        self._wanted.set()
        seen = -1
        try:
            while True:
                async with self._changed:
                    while self.number == seen:
                        await self._changed.wait()
                    seen = self.number
                yield seen
        finally:
            self._watching -= 1

    @property
    def groups_problem(self) -> str:
        """Why groups are missing from the looks, or ""."""
        return self._lags.problem

    @property
    def pipelines_problem(self) -> str:
        """Why pipelines are missing from the looks, or ""."""
        return self._pipelines.problem

    def console(self, followers: int, found: Sequence[Finding] = ()) -> Console:
        """The newest look, what was ``found`` in it and how the looking goes, for scrapers."""
        look = self.look
        return Console(
            look=look,
            age_s=max(0.0, self._clock() - look.at_s) if look.at_s else 0.0,
            looks=self.number,
            healthy=bool(look.at_s) and not self.error,
            followers=followers,
            found=found,
        )

    def overview(self) -> dict[str, Any]:
        """The first page's numbers."""
        return {**overview(self.look, self.before), "error": self.error, "server": self._server()}

    def stream_rows(self) -> list[dict[str, Any]]:
        """All streams."""
        look, before = self.look, self.before
        return [stream_row(each, before, look.at_s) for each in look.streams.values()]

    def consumer_rows(self, stream: str = "") -> list[dict[str, Any]]:
        """The consumers of one stream, or all that were looked at."""
        look, before = self.look, self.before
        return [
            consumer_row(each, before, look.at_s)
            for (owner, _), each in look.consumers.items()
            if stream in ("", owner)
        ]

    def name(self) -> str:
        """The server's own name for itself."""
        return self._connection.server_info.said_name or "this server"

    def _server(self) -> dict[str, Any]:
        info = self._connection.server_info
        return {
            "name": info.said_name,
            "version": info.version,
            "headrace": info.headrace,
            "cluster": info.cluster,
            "connected": self._connection.is_connected,
        }

    async def _take(self) -> Look:
        look = Look(self._clock())
        async for info in self._js.streams():
            look.streams[info.config.name] = info
        asked = [name for name, info in look.streams.items() if info.state.consumer_count]
        asked.sort(key=lambda name: look.streams[name].state.consumer_count)
        chosen: list[str] = []
        unseen, budget = 0, CONSUMERS_ASKED
        for name in asked:
            count = look.streams[name].state.consumer_count
            if len(chosen) >= STREAMS_ASKED or count > budget:
                unseen += count
                continue
            budget -= count
            chosen.append(name)
        gate = asyncio.Semaphore(TOGETHER)

        async def ask(name: str) -> None:
            async with gate:
                async for info in self._js.consumers(name):
                    look.consumers[name, info.name] = info

        for outcome in await asyncio.gather(*map(ask, chosen), return_exceptions=True):
            # A stream that was deleted meanwhile has no consumers; anything else ends the look.
            if isinstance(outcome, BaseException) and not _is_gone(outcome):
                raise outcome
        groups = await self._lags.groups(look.streams, look.consumers)
        ages = await self._lags.ages(look.consumers)
        pipelines = await self._pipelines.read(look.streams)
        return Look(look.at_s, look.streams, look.consumers, unseen, groups, ages, pipelines)


def _is_gone(error: BaseException) -> bool:
    return getattr(error, "err_code", 0) in (10059, 10014)  # stream, consumer not found
