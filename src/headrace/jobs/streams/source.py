"""What one push consumer gets of a stream: fetched in batches, handed out, acknowledged in batches.

A message stays the durable consumer's until it is finished: delivered, or a job in the database. Of what is
here the broker is told in time that it is worked on. A message that comes again, as its acknowledgement was
lost with the connection, is acknowledged again and not called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...errors import HeadraceError
from .. import limits
from ..broker import Streams, streams_of
from ..channel_stream import ORDERING_KEY
from ..ids import prefix_of
from ..matching.filters import Takes, compiled
from ..matching.payloads import document_of
from ..models import ClaimedJob, Consumer
from ..runtime.runtime import Runtime
from ..service import stream_positions
from ..service.moves import storable
from .durable import differs, find_durable, window
from .messages import message_of
from .waiting import Entry, Waiting

if TYPE_CHECKING:
    from ...client import Consumer as Durable
    from ...client import JetStreamMessage

__all__ = ["StreamSource"]

T = TypeVar("T")
Item = tuple[ClaimedJob, "JetStreamMessage"]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_RECOVERING_FETCH_S: Final = 0.5
_LOST_S: Final = 30.0


class StreamSource:
    """See the module. ``run`` until it is closed; ``wake`` is called when there is something to take."""

    def __init__(
        self, runtime: Runtime, consumer: Consumer, part: str, wake: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._consumer = self._served = consumer
        self._part = part
        self._wake = wake
        self._takes = self._compiled(consumer)
        self._waiting: Waiting[Item] = Waiting()
        self._finished: OrderedDict[int, None] = OrderedDict()  # acknowledged lately
        self._durable: Durable | None = None
        self._stir = asyncio.Event()  # room for more, another definition, or nothing under way
        self._changed = False
        self._largest = 1
        self._looked_s = 0.0
        self._noted: tuple[str, int] | None = None
        self._recovering = False
        self._running: asyncio.Task[None] | None = None

    # For the lane

    def start(self) -> None:
        """Begin to fetch."""
        self._running = asyncio.create_task(self._run(), name=f"stream-{self._consumer.seq}")

    def refresh(self, consumer: Consumer) -> None:
        """The definition was read again."""
        if consumer.updated_us != self._consumer.updated_us:
            self._changed = True
            self._stir.set()
        self._consumer, self._takes = consumer, self._compiled(consumer)

    def take(self, n: int) -> list[ClaimedJob]:
        """Up to ``n`` messages to call now, as jobs whose number is their sequence, below zero."""
        return [job for job, _ in self._waiting.take(n)]

    def untake(self, jobs: Sequence[ClaimedJob]) -> None:
        """These were taken, and nobody calls them."""
        self._waiting.untake([-job.seq for job in jobs])

    def aside(self) -> list[ClaimedJob]:
        """Messages whose keys have unfinished jobs, in order: they are to become jobs, too."""
        return [job for job, _ in self._waiting.aside(limits.BATCH_MAX)]

    def set_aside(self, asked: Sequence[ClaimedJob], moved: set[int]) -> None:
        """Of these messages, those of which the number is in ``moved`` are jobs by now."""
        self._acknowledge([-seq for seq in moved], finish=False)
        self._waiting.set_aside([-job.seq for job in asked], [-seq for seq in moved])
        self._stir.set()

    def busy(self, keys: frozenset[str] | None) -> None:
        """The keys that have unfinished jobs; None: too many to be named."""
        self._waiting.busy(keys)

    def finish(self, jobs: Sequence[ClaimedJob]) -> None:
        """These were delivered, or became jobs: the stream may forget them."""
        self._acknowledge([-job.seq for job in jobs], finish=True)
        self._stir.set()

    def hold(self, key: str) -> None:
        """A message of this key became a job: those after it wait for it."""
        self._waiting.hold(key)

    def lose(self, job: ClaimedJob) -> None:
        """Nothing could be stored of this one's call: it comes again later."""
        entry = self._waiting.get(-job.seq)
        if entry is not None:
            entry.item[1].nak(_LOST_S)
            self._waiting.finish(-job.seq)
            self._stir.set()

    async def close(self) -> None:
        """Give back what is not called, so that another process has it at once."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        for _, message in self._waiting.drop():
            message.nak(0.0)
        streams = self._runtime.streams
        if self._durable is None or streams is None:
            return
        try:
            await (await streams.jetstream()).connection.flush(timeout=limits.STREAM_CALL_S)
        except (HeadraceError, OSError) as error:
            _LOG.warning("%s: what it had comes again after a while: %s", self._part, error)

    # With the broker

    async def _run(self) -> None:
        beating = asyncio.create_task(self._beat_on(), name="stream-beat")
        parts = self._runtime.parts
        try:
            while True:
                try:
                    await self._serve(streams_of(self._runtime.streams))
                except Exception as error:
                    await asyncio.sleep(parts.failed(self._part, error))
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _serve(self, streams: Streams) -> None:
        """Fetch until the definition, or the durable consumer, changes."""
        self._changed, self._served = False, self._consumer
        js = await streams.jetstream()
        found = find_durable(js, self._runtime, self._consumer, streams.ack_wait_s, self._settle)
        durable, created = await found
        self._durable = durable
        prefix = prefix_of(durable.stream_name, created)
        await self._look(durable, created, first=True)
        while not self._changed:
            n = self._room()
            if n <= 0:
                await self._stirred(limits.STREAM_LOOK_S)
            else:
                wait_s = _RECOVERING_FETCH_S if self._recovering else limits.STREAM_FETCH_S
                batch = await self._unless_changed(durable.fetch(n, max_wait=wait_s))
                if batch is None:
                    break
                self._runtime.parts.worked(self._part)
                self._add(prefix, batch.messages)
                if batch.error is not None:
                    raise batch.error
            is_due = self._now_s() - self._looked_s >= limits.STREAM_LOOK_S
            if (is_due or self._recovering) and not await self._look(durable, created):
                return
        await self._look(durable, created)  # by the definition of before

    async def _look(self, durable: Durable, created: str, *, first: bool = False) -> bool:
        """Ask the broker where the consumer is, and note it. Returns whether it is as it should be."""
        info = await durable.info()
        self._looked_s = self._now_s()
        consumer, runtime = self._consumer, self._runtime
        labels = {"channel": consumer.channel_id, "consumer": consumer.consumer_id}
        runtime.metrics.set("jobs_stream_lag", info.num_pending, **labels)
        runtime.metrics.set("jobs_stream_under_way", info.num_ack_pending, **labels)
        if first and info.num_ack_pending > len(self._waiting):
            self._recovering = True
            self._waiting.recover()
        elif self._recovering and info.num_ack_pending <= len(self._waiting):
            self._recovering = False
            self._waiting.recovered()
            self._wake()
        is_ours = not differs(info.config, self._served, streams_of(runtime.streams).ack_wait_s)
        at = (created, info.ack_floor.stream_seq)
        if is_ours and at != self._noted:
            await runtime.database.write(lambda tx: stream_positions.move(tx, consumer, *at))
            self._noted = at
        return is_ours

    def _room(self) -> int:
        """How many messages to fetch now: none by ones and twos while there are others.

        One in any case while those are awaited that were out before.
        """
        return max(self._free(), int(self._recovering))

    def _free(self) -> int:
        most = window(self._consumer)
        free, left = most - len(self._waiting), limits.STREAM_HELD_BYTES_MAX - self._waiting.size
        if free < most // 4 or left <= 0:
            return 0
        return min(free, max(1, left // self._largest))

    def _add(self, prefix: str, messages: Sequence[JetStreamMessage]) -> None:
        unwanted = []
        for message in messages:
            seq = message.metadata.stream_seq
            if seq in self._finished:
                unwanted.append(message)
                continue
            known = self._waiting.get(seq)
            job = _job(prefix, message)
            if known is not None:
                known.item = (known.item[0], message)  # its acknowledgement is the one that counts
            elif not self._is_wanted(job):
                unwanted.append(message)
            else:
                self._waiting.add(self._entry(seq, job, message))
        if unwanted and self._durable is not None:
            self._durable.ack_all(unwanted)
        self._wake()

    def _entry(self, seq: int, job: ClaimedJob, message: JetStreamMessage) -> Entry[Item]:
        size = len(job.payload)
        self._largest = max(self._largest, size)
        return Entry(seq, job.ordering_key, size, self._now_s(), (job, message))

    def _is_wanted(self, job: ClaimedJob) -> bool:
        headers = {name.lower(): value for name, value in job.headers.items()}
        return self._takes(headers, lambda: document_of(job.payload))

    @staticmethod
    def _compiled(consumer: Consumer) -> Takes:
        wanted = consumer.settings.filter
        return (lambda *_: True) if wanted.takes_all else compiled(wanted)

    def _acknowledge(self, seqs: Sequence[int], *, finish: bool) -> None:
        entries = [entry for seq in seqs if (entry := self._waiting.get(seq)) is not None]
        if self._durable is not None and entries:
            self._durable.ack_all([entry.item[1] for entry in entries])
        for entry in entries:
            self._finished[entry.seq] = None
            if finish:
                self._waiting.finish(entry.seq)
        while len(self._finished) > 4 * window(self._consumer):
            self._finished.popitem(last=False)
        if finish:
            self._wake()

    async def _settle(self) -> None:
        """Wait until no call is under way; forget what was fetched, which will come again."""
        for _, message in self._waiting.drop():
            message.nak(0.0)
        while self._waiting:
            await self._stirred(limits.STREAM_LOOK_S)
        self._finished.clear()
        self._noted = None

    async def _beat_on(self) -> None:
        """Tell the broker what is still worked on."""
        while True:
            streams = self._runtime.streams
            wait_s = limits.STREAM_ACK_WAIT_S_DEFAULT if streams is None else streams.ack_wait_s
            await asyncio.sleep(wait_s / 3)
            before_s = self._now_s() - wait_s / 3
            try:
                for entry in self._waiting:
                    if entry.since_s <= before_s:
                        entry.item[1].in_progress()
            except (HeadraceError, OSError) as error:
                _LOG.debug("%s: the broker was not told what is worked on: %s", self._part, error)

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic_ns() / 1e9

    async def _stirred(self, most_s: float) -> None:
        self._stir.clear()
        try:
            async with asyncio.timeout(most_s):
                await self._stir.wait()
        except TimeoutError:
            return

    async def _unless_changed(self, asking: Coroutine[Any, Any, T]) -> T | None:
        """What was asked for, or None if the definition changed meanwhile."""
        asked = asyncio.ensure_future(asking)
        try:
            while not self._changed:
                self._stir.clear()
                stirred = asyncio.ensure_future(self._stir.wait())
                try:
                    await asyncio.wait({asked, stirred}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stirred.cancel()
                if asked.done():
                    return asked.result()
            return None
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)


def _job(prefix: str, message: JetStreamMessage) -> ClaimedJob:
    """The message as the first attempt of a job."""
    new, place = message_of(prefix, message), message.metadata
    key = next(
        (value for name, value in message.headers.items() if name.lower() == ORDERING_KEY.lower()),
        "",
    )
    return ClaimedJob(
        seq=-place.stream_seq,
        lease="",
        deadline_us=0,
        attempt=1,
        retries=0,
        priority=0,
        created_us=place.timestamp_ns // 1000,
        message_seq=0,
        message_id=new.message_id or "",
        payload=new.payload,
        content_type=new.content_type,
        headers=new.headers,
        ordering_key=storable(key)[: limits.ORDERING_KEY_CHARS_MAX] or None,
    )
