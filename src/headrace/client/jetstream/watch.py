"""Watching a bucket: what is there now, and then what changes. For key-values and for objects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, Self, TypeVar

from ...errors import DisconnectedError, JetStreamApiError, NoRespondersError, TimeoutError_
from .message import JetStreamMessage
from .ordered import OrderedConsumer, OrderedConsumption

T = TypeVar("T")

SILENCE_S: Final = 2.0  # after so long without an entry we ask whether there still is one
_UNREACHABLE: Final = (JetStreamApiError, NoRespondersError, TimeoutError_, DisconnectedError)


class Watch(Generic[T]):
    """Entries as they change: ``async with await kv.watch() as watch: async for entry in watch``."""

    def __init__(
        self,
        ordered: OrderedConsumer,
        messages: OrderedConsumption,
        pending: int,
        read: Callable[[JetStreamMessage], T],
        wanted: Callable[[T], bool],
    ) -> None:
        self._ordered = ordered
        self._messages = messages
        self._held: deque[JetStreamMessage] = deque()  # taken, and not handed out yet
        self._pending = pending
        self._resets = ordered.resets  # when that was counted
        self._read = read
        self._wanted = wanted

    def __repr__(self) -> str:
        return f"<Watch of stream {self._ordered.stream_name!r}>"

    @classmethod
    async def _begin(
        cls,
        ordered: OrderedConsumer,
        read: Callable[[JetStreamMessage], T],
        wanted: Callable[[T], bool],
        *,
        updates_only: bool,
        on_error: Callable[[Exception], object] | None,
    ) -> Self:
        """Watch through ``ordered``; with ``updates_only`` nothing counts as there already."""
        pending = 0
        if not updates_only:
            info = ordered.cached_info or await ordered.info()  # of its creation
            pending = info.num_pending + info.delivered.consumer_seq
        return cls(ordered, ordered.consume(on_error=on_error), pending, read, wanted)

    async def initial(self) -> AsyncIterator[T]:
        """What was there when the watch began; afterwards iterate the watch itself for changes."""
        while await self._something_initial():
            entry = self._next()
            if self._wanted(entry):
                yield entry

    async def _something_initial(self) -> bool:
        """Wait for a message of what was there; False when there is no more of it."""
        while self._pending > 0 and not self._held:
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._receive()
            except StopAsyncIteration:
                return False
            except TimeoutError:
                await self._count_again()
        return self._pending > 0

    async def _initial_batch(self) -> list[T]:
        """Some of what was there, for callers on other threads; empty when there is no more."""
        entries: list[T] = []
        while not entries and await self._something_initial():
            while self._held and self._pending > 0:
                entry = self._next()
                if self._wanted(entry):
                    entries.append(entry)
        return entries

    async def _next_batch(self) -> list[T]:
        """What has come, at least one entry; empty at the end."""
        entries: list[T] = []
        while not entries:
            if not self._held:
                try:
                    await self._receive()
                except StopAsyncIteration:
                    return []
            while self._held:
                entry = self._next()
                if self._wanted(entry):
                    entries.append(entry)
        return entries

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._held:
                await self._receive()
            entry = self._next()
            if self._wanted(entry):
                return entry

    async def _receive(self) -> None:
        """Wait for messages. Raises StopAsyncIteration at the end."""
        self._held.extend(await self._messages.next_batch())
        if not self._held:
            raise StopAsyncIteration
        if self._resets != self._ordered.resets:
            self._count_anew(len(self._held))

    def _count_anew(self, taken: int) -> None:
        """There is another consumer, and not only the last revisions come from it: count what is there."""
        ordered = self._ordered
        self._resets = ordered.resets
        info = ordered.cached_info
        if self._pending > 0 and info is not None:
            there = info.num_pending + info.delivered.consumer_seq  # when it was made
            self._pending = there - ordered._consumer_seq + taken

    def _next(self) -> T:
        message = self._held.popleft()
        self._pending = min(self._pending - 1, message.metadata.pending)
        return self._read(message)

    async def _count_again(self) -> None:
        """Nothing has come for a while: it is late, or it was removed before it could be delivered.

        In the latter case the watch goes on with another consumer: nats-server's (2.15) is stuck where
        its list of last messages was purged.
        """
        try:
            info = await self._ordered.info()
        except _UNREACHABLE:
            return  # nor does the server answer: go on waiting, as every consumer does
        under_way = max(0, info.delivered.consumer_seq - self._ordered._consumer_seq)
        self._pending = min(self._pending, info.num_pending + under_way)
        if not self._pending:
            self._messages._restart()

    async def stop(self) -> None:
        """End it."""
        await self._messages.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
