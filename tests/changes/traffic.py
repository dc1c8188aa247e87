"""What publishes, and what handles, while everything is changed: each lane in its ledger.

``ORDERS`` is read by an elastic group and by a plain consumer, ``TASKS`` is a work queue whose workers find
it under either name, ``EVENTS`` is kept for as long as its consumer needs it, ``LOG`` is a stream with
limits and nobody who reads, ``SETTINGS`` a bucket, and the job service has one consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from changes.ledger import Kept, Lane
from changes.places import CHANNEL, PRODUCER, Server, Service, is_away
from headrace.api.consumers import ConsumerConfig
from headrace.client import (
    JetStream,
    JetStreamMessage,
    KeyNotFoundError,
    KeyValue,
)
from headrace.client.events import ErrorEvent, Event, Reconnected
from headrace.errors import HeadraceError, JetStreamApiError
from headrace.groups import GroupMessage, Membership, PartitioningFilter, elastic
from headrace.groups.record.records import ElasticGroup
from headrace.jobs.client import JobsError, LeasedJob
from jobs_endpoint import Call, answer

CUSTOMERS = [PartitioningFilter("orders.*.*", (1,))]
SETTINGS = ConsumerConfig(ack_wait=5.0, max_ack_pending=4)
QUEUE_NAMES = ("TASKS", "CHORES")
_FULL = 10077
_PAUSE_S = 0.2
_LEASE_S = 10.0


@dataclass
class Work:
    """All lanes, with what they run on."""

    js: JetStream
    server: Server
    service: Service
    random: Random
    jitter: Random
    pace_s: float = 0.12
    over: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    lanes: dict[str, Lane] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    log: asyncio.Lock = field(default_factory=asyncio.Lock)
    values: dict[str, bytes] = field(default_factory=dict)
    doubtful: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, Membership[ElasticGroup]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    ack_waits: tuple[float, ...] = (3.0, 5.0, 10.0, 20.0)
    tell: Callable[[str], None] = lambda _: None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    pushed: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, keeps_order in (
            *(("group", True), ("audit", False), ("queue", False)),
            *(("events", False), ("jobs", False), ("ships", True)),
        ):
            self.lanes[name] = Lane(name, keeps_order, wrong=self.wrong)

    def say(self, text: str, *names: str) -> None:
        """A line that somebody could read, about these lanes or all."""
        now = time.monotonic()
        for name in names or self.lanes:
            self.lanes[name].say(text, now)

    async def rest(self, seconds: float) -> None:
        """Let so long pass, or until it is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)

    def on_event(self, event: Event) -> None:
        """What a connection tells."""
        if isinstance(event, ErrorEvent):
            self.say(f"{type(event).__name__}: {event.error}")
        else:
            self.say(repr(event))
        if isinstance(event, Reconnected):
            for name in ("audit", "queue", "events"):
                self.lanes[name].explain_until(time.monotonic() + max(self.ack_waits))

    # Publishing

    async def publish(self, subject: str, *names: str) -> None:
        """One message after the other on a subject, each until it is stored."""
        lanes = [self.lanes[name] for name in names]
        while not self.over.is_set():
            if self.quiet.is_set():
                return
            numbers = {lane.begin(subject) for lane in lanes}
            (number,) = numbers
            if not await self._stored(subject, number, *names):
                return
            now = time.monotonic()
            for lane in lanes:
                lane.store(subject, number, now)
            await self.rest(self.jitter.uniform(0.5, 1.5) * self.pace_s)

    async def _stored(self, subject: str, number: int, *names: str) -> bool:
        while not self.over.is_set():
            try:
                text = b"%d" % number
                await self.js.publish(subject, text, msg_id=f"{subject} {number}", timeout=2.0)
                return True
            except HeadraceError as error:
                self.say(f"{subject}: {error}", *names)
                await self.rest(_PAUSE_S)
        return False

    async def fill_log(self) -> None:
        """The stream with limits: what it takes is noted, what it refuses must be for a reason."""
        number = 0
        while not self.quiet.is_set():
            subject = f"log.{number % 5}"
            async with self.log:
                while not self.over.is_set():
                    try:
                        ack = await self.js.publish(
                            subject, b"x" * 50, msg_id=f"log {number}", timeout=2.0
                        )
                        self.kept.store(ack.seq, subject)
                        break
                    except JetStreamApiError as error:
                        if error.err_code == _FULL:
                            if odd := self.kept.refuse():
                                self.wrong.append(f"log: {odd}")
                            break
                        await self.rest(_PAUSE_S)
                    except HeadraceError:
                        await self.rest(_PAUSE_S)
            number += 1
            await self.rest(self.pace_s)

    async def fill_bucket(self) -> None:
        """Values of eight keys; of one that was not answered either may be there."""
        number = 0
        while not self.quiet.is_set():
            key, value = f"key.{number % 8}", b"%d" % number
            number += 1
            async with self.log:
                self.doubtful[key] = value
                try:
                    bucket: KeyValue = await self.js.key_value("SETTINGS")
                    await bucket.put(key, value)
                    self.values[key] = value
                    del self.doubtful[key]
                except JetStreamApiError:
                    del self.doubtful[key]  # refused: what was there stays
                except HeadraceError:
                    await self.rest(_PAUSE_S)
            await self.rest(self.pace_s)

    async def order_jobs(self, key: str) -> None:
        """Jobs, one after the other, each until the service has it."""
        lane = self.lanes["jobs"]
        async with self.service.client() as client:
            while not self.quiet.is_set():
                number = lane.begin(key)
                while not self.over.is_set():
                    try:
                        await client.publish(
                            CHANNEL,
                            f"{key} {number}".encode(),
                            message_id=f"{key}-{number}",
                            idempotent=True,
                            **PRODUCER,
                        )
                        lane.store(key, number, time.monotonic())
                        break
                    except JobsError as error:
                        if not is_away(error):
                            raise
                        self.say(str(error), "jobs")
                        await self.rest(_PAUSE_S)
                await self.rest(self.jitter.uniform(1, 3) * self.pace_s)

    # Handling

    async def handle(
        self, name: str, message: JetStreamMessage | GroupMessage, subject: str = ""
    ) -> None:
        """Note it, work a little, acknowledge, and note whether that is confirmed."""
        lane, key, number = self.lanes[name], subject or message.subject, int(message.payload)
        meta = message.metadata
        at = f"{time.monotonic():.2f} s"
        how = f", as delivery {meta.delivered} of {meta.stream_seq} in {meta.stream} at {at}"
        lane.handle(key, number, time.monotonic(), how)
        await asyncio.sleep(self.jitter.uniform(0, 0.002))
        try:
            await message.ack_sync()
        except HeadraceError as error:
            self.say(f"{key} {number}: {error}", name)
            return
        lane.confirm(key, number)

    async def of_group(self, message: GroupMessage) -> None:
        await self.handle("group", message)

    async def read(self, lane: str, consumer: str, *streams: str, abreast: int = 1) -> None:
        """A worker that looks its consumer up again whenever it is gone, under each of the names."""

        async def handle(message: JetStreamMessage) -> None:
            await self.handle(lane, message)

        def report(error: Exception) -> None:
            self.say(f"{consumer}: {error}", lane)

        while not self.over.is_set():
            for stream in streams:
                try:
                    found = await (await self.js.stream(stream)).consumer(consumer)
                    consumption = found.consume(
                        handle,
                        concurrency=abreast,
                        order_by=lambda message: message.subject,
                        on_error=report,
                        max_messages=50,
                    )
                    async with consumption:
                        await consumption.wait()
                except HeadraceError as error:
                    report(error)
            await self.rest(_PAUSE_S)

    async def join(self, member: str) -> None:
        """An instance of a member at work, one that is registered once it is."""

        def report(error: Exception) -> None:
            self.say(f"member {member}: {error}", "group")

        joined = elastic.join(
            self.js, "ORDERS", "billing", member, self.of_group, SETTINGS, on_error=report
        )
        self.members[member] = await joined.start()
        self.tasks.append(asyncio.create_task(self._watch(member, joined)))

    async def leave(self, member: str) -> None:
        """The member's instance ends by our wish."""
        if (joined := self.members.pop(member, None)) is not None:
            try:
                await joined.leave()
            except HeadraceError as error:
                self.say(f"member {member} left: {error}", "group")

    async def _watch(self, member: str, joined: Membership[ElasticGroup]) -> None:
        """A member that ends by itself ends for no reason that there is here."""
        why: HeadraceError | None = None
        try:
            await joined.wait()
        except HeadraceError as error:
            why = error
        if self.members.get(member) is joined and not self.over.is_set():
            self.wrong.append(f"ended: member {member}: {why!r}")

    async def work_jobs(self) -> None:
        """Claim, handle, complete; while the consumer is pushed to, wait until it is not."""
        lane = self.lanes["jobs"]
        async with self.service.client() as client:
            while not self.over.is_set():
                queue = client.queue(
                    CHANNEL,
                    self.service.consumer,
                    channel_token="ct",
                    consumer_token=self.service.token,
                )
                held: list[LeasedJob] = []
                try:
                    held = list(await queue.claim(10, lease_s=_LEASE_S, wait_s=1.0))
                    for job in held:
                        key, number = job.payload.decode().split()
                        lane.handle(key, int(number), time.monotonic())
                    results = await queue.complete(held) if held else []
                except JobsError as error:
                    self.say(str(error), "jobs")
                    if not is_away(error) and error.status not in {401, 403, 404, 412}:
                        raise
                    await self.rest(_PAUSE_S)
                    continue
                for job, result in zip(held, results, strict=True):
                    if result.status == 200:
                        key, number = job.payload.decode().split()
                        lane.confirm(key, int(number))

    def pushed_job(self, call: Call) -> bytes:
        """A job that is pushed: in one life of the service it must not come twice."""
        key, number = call.body.decode().split()
        lane, life = self.lanes["jobs"], self.service.life
        if self.pushed.get((key, int(number))) == life:
            lane.confirm(key, int(number))  # so that it is told
        self.pushed[key, int(number)] = life
        lane.handle(key, int(number), time.monotonic())
        return answer()

    # What there must be

    async def check_kept(self) -> None:
        """The stream with limits, and the bucket, hold what they have to. Called with ``log`` held."""
        info = await (await self.js.stream("LOG")).info(deleted=True)
        gone = {*info.state.deleted}
        state = info.state
        there = [n for n in range(state.first_seq, state.last_seq + 1) if n not in gone]
        there = there if state.messages else []
        if there != (expected := [sequence for sequence, _ in self.kept.held]):
            odd = {*there} ^ {*expected}
            self.wrong.append(f"log: {len(there)} and not {len(expected)}: {sorted(odd)[:20]}")
            self.kept.held = [(sequence, "?") for sequence in there]
        bucket = await self.js.key_value("SETTINGS")
        for key, value in self.values.items():
            try:
                found = (await bucket.get(key)).value
            except KeyNotFoundError:
                found = b""
            if found == self.doubtful.get(key):
                self.values[key] = self.doubtful.pop(key)
            elif found != value:
                self.wrong.append(f"bucket: {key} is {found!r} and not {value!r}")
                self.values[key] = found


async def set_up(js: JetStream) -> None:
    """Streams, consumers, bucket and group."""
    await js.create_stream(name="ORDERS", subjects=["orders.*.*"], allow_direct=True)
    await js.create_stream(
        name="TASKS", subjects=["tasks.*"], retention="workqueue", discard="new", allow_direct=True
    )
    await js.create_stream(name="EVENTS", subjects=["events.*"], allow_direct=True)
    await js.create_stream(name="LOG", subjects=["log.*"], allow_direct=True)
    await js.create_key_value("SETTINGS", history=5)
    for stream, consumer in (("ORDERS", "audit"), ("TASKS", "work"), ("EVENTS", "watch")):
        await js.create_consumer(stream, durable_name=consumer, ack_wait=5.0, max_ack_pending=50)
    await elastic.create(
        js, "ORDERS", "billing", 4, partitioning_filters=CUSTOMERS, members=["ann", "bob"]
    )


@contextlib.asynccontextmanager
async def flowing(work: Work, *more: Awaitable[None]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Everything publishes and handles; the tasks, of which none may end before it is over."""
    tasks: list[Awaitable[None]] = [
        *(work.publish(f"orders.{key % 3}.{key}", "group", "audit") for key in range(6)),
        *(work.publish(f"tasks.{key}", "queue") for key in range(4)),
        *(work.publish(f"events.{key}", "events") for key in range(4)),
        *(work.order_jobs(f"job{key}") for key in range(2)),
        *(work.fill_log(), work.fill_bucket(), work.work_jobs()),
        work.read("audit", "audit", "ORDERS"),
        work.read("queue", "work", *QUEUE_NAMES, abreast=3),
        work.read("events", "watch", "EVENTS", abreast=2),
        *more,
    ]
    begun = [asyncio.ensure_future(task) for task in tasks]
    try:
        yield begun
    finally:
        work.over.set()
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


def changed(config: ConsumerConfig, **values: Any) -> ConsumerConfig:
    """A consumer's configuration with other values."""
    return msgspec.structs.replace(config, **values)
