"""Whatever a broker promises for a time, and a stop or a kill of it inside that time: the promise is kept.

The clock is moved, so an hour takes nothing. `stop` ends the broker as it should; a kill leaves its store as
it lies on the disk, and another one begins there. The time goes on meanwhile, beyond the promise or not. Of
each promise the right answer is written as what holds ``early``, before its time is over, and ``late``.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import peers
from headrace import Broker, JetStream, KeyExistsError
from headrace.client import connect
from headrace.clock import ManualClock
from headrace.errors import ConsumerNotFoundError
from portions import some
from waiting import until

TIME_S = 60.0


class Promise:
    """What is asked of a broker at the beginning, and what holds then."""

    settings: ClassVar[dict[str, Any]] = {}
    consumer: ClassVar[dict[str, Any]] = {}

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    async def begin(self, js: JetStream) -> None:
        await js.create_stream(name="S", subjects=["s.>", "plan.>"], **self.settings)
        if self.consumer:
            consumer = {"durable_name": "C", "filter_subject": "s.>"}
            await js.create_consumer("S", **{**consumer, **self.consumer})

    async def early(self, js: JetStream) -> None:
        raise NotImplementedError

    async def late(self, js: JetStream) -> None:
        raise NotImplementedError

    async def beyond(self, js: JetStream) -> None:
        """What holds where the time was over while nobody ran."""
        await self.late(js)

    async def messages(self, js: JetStream, subject: str = "s.>") -> int:
        info = await (await js.stream("S")).info(subjects=subject)
        return sum(info.state.subjects.values())

    async def deliveries(self, js: JetStream) -> list[int]:
        """How often each message that is delivered now was delivered."""
        consumer = await js.consumer("S", "C")
        return [each.metadata.delivered for each in await consumer.fetch(10, no_wait=True)]


class Id(Promise):
    """An id is known, also of a message that has left the stream."""

    settings: ClassVar = {"duplicate_window": TIME_S}

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        await js.publish("s.1", b"", msg_id="kept")
        await js.publish("s.2", b"", msg_id="gone")
        await (await js.stream("S")).purge(subject="s.2")

    async def early(self, js: JetStream) -> None:
        answers = [await js.publish("s.3", b"", msg_id=each) for each in ("kept", "gone")]
        assert [each.duplicate for each in answers] == [True, True]

    async def late(self, js: JetStream) -> None:
        answers = [await js.publish("s.3", b"", msg_id=each) for each in ("kept", "gone")]
        assert [each.duplicate for each in answers] == [False, False]


class TimeToLive(Promise):
    settings: ClassVar = {"allow_msg_ttl": True}

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        await js.publish("s.1", b"", ttl=TIME_S)
        await js.publish("s.1", b"", ttl=10 * TIME_S)

    async def early(self, js: JetStream) -> None:
        assert await self.messages(js) == 2

    async def late(self, js: JetStream) -> None:
        assert await self.messages(js) == 1


class Age(Promise):
    settings: ClassVar = {"max_age": TIME_S}

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        await js.publish("s.1", b"")

    async def early(self, js: JetStream) -> None:
        assert await self.messages(js) == 1

    async def late(self, js: JetStream) -> None:
        assert await self.messages(js) == 0


class AckWait(Promise):
    """A message in somebody's hands comes to nobody else, and then again."""

    consumer: ClassVar = {"ack_wait": TIME_S}
    again = 2

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        await js.publish("s.1", b"")
        assert await self.deliveries(js) == [1]

    async def early(self, js: JetStream) -> None:
        assert await self.deliveries(js) == []

    async def late(self, js: JetStream) -> None:
        assert await self.deliveries(js) == [self.again]


class NakDelay(AckWait):
    consumer: ClassVar = {"ack_wait": 10 * TIME_S}

    async def begin(self, js: JetStream) -> None:
        await Promise.begin(self, js)
        await js.publish("s.1", b"")
        consumer = await js.consumer("S", "C")
        (message,) = await consumer.fetch(1, no_wait=True)
        message.nak(TIME_S)
        await js.connection.flush()


class Backoff(AckWait):
    """The pause after the second delivery."""

    consumer: ClassVar = {"backoff": (5.0, TIME_S, 5.0), "max_deliver": 5, "ack_wait": 5.0}
    again = 3

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        self.clock.advance(5)
        assert await self.deliveries(js) == [2]


class Schedule(Promise):
    settings: ClassVar = {"allow_msg_schedules": True}

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        at = datetime.fromtimestamp(self.clock.now_ns() / 1e9, UTC) + timedelta(seconds=TIME_S)
        await js.schedule("plan.1", b"", target="s.1", at=at)

    async def early(self, js: JetStream) -> None:
        assert await self.messages(js) == 0

    async def late(self, js: JetStream) -> None:
        assert await self.messages(js) == 1


class Every(Schedule):
    """Again and again: a time at which nobody ran is skipped, as by nats-server."""

    async def begin(self, js: JetStream) -> None:
        await Promise.begin(self, js)
        await js.schedule("plan.1", b"", target="s.1", every=TIME_S)

    async def beyond(self, js: JetStream) -> None:
        assert await self.messages(js) == 0
        self.clock.advance(TIME_S)
        await self.late(js)


class Pause(Promise):
    consumer: ClassVar = {"ack_policy": "explicit"}

    async def begin(self, js: JetStream) -> None:
        await super().begin(js)
        await js.publish("s.1", b"")
        await (await js.consumer("S", "C")).pause(TIME_S)

    async def early(self, js: JetStream) -> None:
        assert (await (await js.consumer("S", "C")).info()).paused
        assert await self.deliveries(js) == []

    async def late(self, js: JetStream) -> None:
        assert not (await (await js.consumer("S", "C")).info()).paused
        assert await self.deliveries(js) == [1]


class Inactivity(Promise):
    """A consumer that nobody uses goes; from the beginning of a broker on the time counts anew."""

    consumer: ClassVar = {"inactive_threshold": TIME_S}

    async def early(self, js: JetStream) -> None:
        await js.consumer("S", "C")

    async def late(self, js: JetStream) -> None:
        self.clock.advance(TIME_S + 1)
        with pytest.raises(ConsumerNotFoundError):
            await js.consumer("S", "C")


class Lease(Promise):
    """What locks and leases stand on: a key of a bucket that is there for a time."""

    async def begin(self, js: JetStream) -> None:
        bucket = await js.create_key_value("LEASES", ttl=TIME_S)
        await bucket.create("leader", b"a")

    async def early(self, js: JetStream) -> None:
        bucket = await js.key_value("LEASES")
        with pytest.raises(KeyExistsError):
            await bucket.create("leader", b"b")

    async def late(self, js: JetStream) -> None:
        bucket = await js.key_value("LEASES")
        await bucket.create("leader", b"b")


class KeyLimit(Lease):
    """A key's own time to live."""

    async def begin(self, js: JetStream) -> None:
        bucket = await js.create_key_value("LEASES", message_ttl=True)
        await bucket.create("leader", b"a", ttl=TIME_S)


PROMISES = [
    *(Id, TimeToLive, Age, AckWait, NakDelay, Backoff),
    *(Schedule, Every, Pause, Inactivity, Lease, KeyLimit),
]
CELLS = [
    (promise, end, moment)
    for promise in PROMISES
    for end in ("stop", "kill")
    for moment in ("inside", "beyond")
]


@asynccontextmanager
async def running(store: Path, clock: ManualClock) -> AsyncIterator[JetStream]:
    async with Broker(clock=clock, store_dir=store) as broker, broker.connect() as connection:
        yield connection.jetstream()


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize(("promise", "end", "moment"), some(CELLS, 3))
async def test_a_promise_is_kept(
    promise: type[Promise], end: str, moment: str, tmp_path: Path
) -> None:
    clock = ManualClock(time.time_ns())  # a pause is a time of day
    asked = promise(clock)
    async with running(tmp_path / "store", clock) as js:
        await js.create_stream(name="END", subjects=["end"])
        await asked.begin(js)
        clock.advance(TIME_S / 2)
        await asked.early(js)
        await js.publish("end", b"")  # what came before is on the disk with it
        if end == "kill":
            shutil.copytree(tmp_path / "store", tmp_path / "killed")
    clock.advance(TIME_S / 4 if moment == "inside" else TIME_S)
    async with running(tmp_path / ("killed" if end == "kill" else "store"), clock) as js:
        if moment == "inside":
            await asked.early(js)
            clock.advance(TIME_S / 4 - 1)
            await asked.early(js)
        clock.advance(2)
        await (asked.late(js) if moment == "inside" else asked.beyond(js))


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path / "server", durable=True)


async def test_promises_outlive_a_kill_of_the_process(server: peers.ServerProcess) -> None:
    """By the machine's time: nothing comes before it was promised, and all of it comes."""
    in_s = 3.0
    async with connect(server.url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(
            name="S",
            subjects=["s.>", "plan.>"],
            allow_msg_ttl=True,
            allow_msg_schedules=True,
            duplicate_window=120.0,
        )
        paused = await stream.create_consumer(durable_name="PAUSED", filter_subject="s.paused")
        handed = await stream.create_consumer(
            durable_name="HANDED", filter_subject="s.handed", ack_wait=in_s
        )
        # Others are not removed with what stands here for an hour.
        await stream.create_consumer(durable_name="IDLE", inactive_threshold=3600)
        for name in ("paused", "handed"):
            await js.publish(f"s.{name}", b"")
        promised = time.time() + in_s
        await js.publish("s.short", b"", ttl=in_s)
        await js.publish("s.id", b"", msg_id="one")
        at = datetime.fromtimestamp(promised, UTC)
        await js.schedule("plan.1", b"", target="s.planned", at=at)
        assert len(await handed.fetch(1)) == 1
        await paused.pause(at)  # answered when this, and with ours the delivery, is on the disk
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start_again)
        assert (await js.publish("s.id", b"", msg_id="one")).duplicate
        await js.consumer("S", "IDLE")
        (again,) = await handed.fetch(1, max_wait=30)
        assert again.metadata.delivered in ((2,) if server.name == "headrace" else (1, 2))
        if server.name == "headrace":
            assert time.time() >= promised
        (held_back,) = await paused.fetch(1, max_wait=30)
        assert held_back.metadata.delivered == 1
        assert time.time() >= promised

        async def has(subject: str) -> bool:
            return bool((await stream.info(subjects=subject)).state.subjects)

        async def is_gone() -> bool:
            return not await has("s.short")

        await until(lambda: has("s.planned"), within=30)
        planned = await stream.get_last_message("s.planned")
        assert planned.timestamp_ns >= int(promised) * 1e9
        await until(is_gone, within=30)
        assert time.time() >= promised
