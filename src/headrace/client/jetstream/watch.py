"""Watching a bucket: what is there now, and then what changes. For key-values and for objects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from ...errors import DisconnectedError, JetStreamApiError, NoRespondersError, RequestTimeoutError
from .message import JetStreamMessage
from .ordered import OrderedConsumer, OrderedConsumption, until_reachable
from .stored_message import StreamMessage, if_found

if TYPE_CHECKING:
    from .stream import Stream

T = TypeVar("T")

SILENCE_S: Final = 2.0  # after so long without an entry we ask whether there still is one
LOOKED_UP_AT_ONCE: Final = 100
_UNREACHABLE: Final = (JetStreamApiError, NoRespondersError, RequestTimeoutError, DisconnectedError)


class Watch(Generic[T]):
    """Entries as they change: ``async with await kv.watch() as watch: async for entry in watch``."""

    def __init__(
        self,
        stream: Stream,
        ordered: OrderedConsumer,
        messages: OrderedConsumption,
        pending: int,
        read: Callable[[JetStreamMessage | StreamMessage], T],
        wanted: Callable[[T], bool],
    ) -> None:
        self._ordered = ordered
        self._messages = messages
        self._held: deque[JetStreamMessage] = deque()  # taken, and not handed out yet
        self._listing: _Listing | None = _Listing(stream, ordered, pending) if pending else None
        self._found: deque[StreamMessage] = deque()  # by the listing, and not handed out yet
        self._told: dict[str, int] = {}  # the revisions of those, by subject
        self._told_last = 0  # the last of them
        self._resets = ordered.resets  # when that was counted
        self._read = read
        self._wanted = wanted

    def __repr__(self) -> str:
        return f"<Watch of stream {self._ordered.stream_name!r}>"

    @classmethod
    async def _begin(
        cls,
        stream: Stream,
        ordered: OrderedConsumer,
        read: Callable[[JetStreamMessage | StreamMessage], T],
        wanted: Callable[[T], bool],
        *,
        updates_only: bool,
        on_error: Callable[[Exception], object] | None,
    ) -> Self:
        """Watch ``stream`` through ``ordered``; with ``updates_only`` nothing counts as there already."""
        pending = 0
        if not updates_only:
            info = ordered.cached_info or await ordered.info()  # of its creation
            pending = info.num_pending + info.delivered.consumer_seq
        return cls(stream, ordered, ordered.consume(on_error=on_error), pending, read, wanted)

    async def initial(self) -> AsyncIterator[T]:
        """What was there when the watch began; afterwards iterate the watch itself for changes.

        What is written meanwhile may be among it, and a key that is written again comes again.
        """
        while await self._something_initial():
            for entry in self._next():
                yield entry

    async def _something_initial(self) -> bool:
        """Wait for a message of what was there; False when there is no more of it."""
        while not self._found:
            if (listing := self._listing) is None:
                return False
            if listing.left <= 0:
                self._found.extend(await listing.overlooked(self._messages._report))
                self._told = {each.subject: each.sequence for each in self._found}
                self._told_last = max(self._told.values(), default=0)
                self._listing = None
            elif self._held:
                return True
            else:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await self._receive()
                except StopAsyncIteration:
                    return False
                except TimeoutError:
                    await self._count_again(listing)
        return True

    async def _initial_batch(self) -> list[T]:
        """Some of what was there, for callers on other threads; empty when there is no more."""
        entries: list[T] = []
        while not entries and await self._something_initial():
            while self._found or (self._held and self._listing and self._listing.left > 0):
                entries += self._next()
        return entries

    async def _next_batch(self) -> list[T]:
        """What has come, at least one entry; empty at the end."""
        entries: list[T] = []
        while not entries:
            if not self._held and not self._found:
                try:
                    await self._receive()
                except StopAsyncIteration:
                    return []
            while self._held or self._found:
                entries += self._next()
        return entries

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._held and not self._found:
                await self._receive()
            for entry in self._next():
                return entry

    async def _receive(self) -> None:
        """Wait for messages. Raises StopAsyncIteration at the end."""
        self._held.extend(await self._messages.next_batch())
        if not self._held:
            raise StopAsyncIteration
        if self._resets != self._ordered.resets:
            self._resets = self._ordered.resets
            if self._listing is not None:
                self._listing.count_anew(len(self._held))

    def _next(self) -> tuple[T, ...]:
        """The entry of what has come first; empty if it is not wanted, or was told already."""
        message: JetStreamMessage | StreamMessage
        if self._found:
            message = self._found.popleft()
        else:
            message = self._held.popleft()
            if self._listing is not None:
                self._listing.count(message)
            if self._told and self._was_told(message):
                return ()
        entry = self._read(message)
        return (entry,) if self._wanted(entry) else ()

    def _was_told(self, message: JetStreamMessage) -> bool:
        """Whether the listing has looked up this message, or a newer one of its subject."""
        sequence = message.metadata.stream_seq
        if sequence > self._told_last:
            self._told = {}
        return sequence <= self._told.get(message.subject, 0)

    async def _count_again(self, listing: _Listing) -> None:
        """Count anew after a while without a message: it is late, or removed before it could be delivered.

        In the latter case the watch goes on with another consumer: nats-server's (2.15) is stuck where
        its list of last messages was purged.
        """
        try:
            info = await self._ordered.info()
        except _UNREACHABLE:
            return  # nor does the server answer: go on waiting, as every consumer does
        under_way = max(0, info.delivered.consumer_seq - self._ordered._consumer_seq)
        listing.lower(info.num_pending + under_way)
        if not listing.left:
            self._messages._restart()

    async def stop(self) -> None:
        """End it."""
        await self._messages.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


class _Listing:
    """How far a watch has come in what was there when it began, and whether it has seen all of it.

    Messages come in stream order, the newest of each subject. Whoever writes to a subject that has not come
    yet moves it behind others that count in its place, and a server's counts may be off by what is written
    while they are made. So the listing goes on until nothing is pending, or for as many as are pending once
    those counted have come, as it need not end while others write faster; and it is whole if nothing is
    pending and the newest message of all has come. If not, it asks which subjects it has not seen.

    Attributes:
        left: how many are to come.
    """

    def __init__(self, stream: Stream, ordered: OrderedConsumer, pending: int) -> None:
        self.left = pending
        self._stream = stream
        self._ordered = ordered
        self._is_extended = False
        self._is_drained = False  # nothing was pending behind the last one
        self._seen: set[str] = set()
        self._position = ordered._config.opt_start_seq - 1  # the sequence of the last one

    def count(self, message: JetStreamMessage) -> None:
        """Take note of a message."""
        if self.left <= 0:
            return  # of what changes: somebody iterates the watch, and never asked for the rest of the list
        self.left -= 1
        metadata = message.metadata
        self._seen.add(message.subject)
        self._position = metadata.stream_seq
        self._is_drained = not metadata.pending
        if not metadata.pending:
            self.left = 0
        elif not self.left and not self._is_extended:
            self.left, self._is_extended = metadata.pending, True

    def count_anew(self, taken: int) -> None:
        """There is another consumer, and not only the last revisions come from it: count what is there."""
        info = self._ordered.cached_info
        self._is_drained = False
        if self.left > 0 and info is not None:
            there = info.num_pending + info.delivered.consumer_seq  # when it was made
            self.left = there - self._ordered._consumer_seq + taken

    def lower(self, pending: int) -> None:
        """The server says that so many are to come, and none has come for a while."""
        self.left = min(self.left, pending)

    async def overlooked(self, report: Callable[[Exception], object]) -> list[StreamMessage]:
        """The newest message of every subject that has not come, in stream order.

        Waits for a server that cannot be reached. Raises JetStreamApiError: the stream is gone.
        """
        config = self._ordered._config
        patterns = config.filter_subjects or (config.filter_subject or ">",)
        if (
            self._is_drained
        ):  # else there is more, whatever a replica that lags behind calls the newest
            newest = await asyncio.gather(*(self._newest(each, report) for each in patterns))
            if all(each is None or each.sequence <= self._position for each in newest):
                return []
        names: set[str] = set()
        for pattern in patterns:
            info = await until_reachable(partial(self._stream.info, subjects=pattern), report)
            names |= info.state.subjects.keys()
        unseen, found = sorted(names - self._seen), list[StreamMessage]()
        for n in range(0, len(unseen), LOOKED_UP_AT_ONCE):
            some = unseen[n : n + LOOKED_UP_AT_ONCE]
            for message in await asyncio.gather(*(self._newest(each, report) for each in some)):
                # What lies before is none of what was asked for, such as older than a revision.
                if message is not None and message.sequence > self._position:
                    found.append(message)
        return sorted(found, key=lambda each: each.sequence)

    async def _newest(
        self, subject: str, report: Callable[[Exception], object]
    ) -> StreamMessage | None:
        def ask() -> Awaitable[StreamMessage | None]:
            return if_found(self._stream.get_last_message(subject))

        return await until_reachable(ask, report)
