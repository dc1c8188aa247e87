"""What stands still, made with real clients: each situation, what is to be told of it, and its advice.

For the tests of findings, which hurry patience up, and for the drill, which measures it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from headrace.api import pipelines
from headrace.api.pipelines import PipelineRecord, QueryRecord
from headrace.api.roles import ROLE, SPARK_PROGRESS
from headrace.client import JetStream, JetStreamMessage
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from waiting import until

__all__ = ["SITUATIONS", "Situation", "Work", "at_work", "leave_a_watch"]

_HAND: Final = Path(__file__).with_name("hand.py")


class Work:
    """A server to make situations at. What is begun ends with ``stack``.

    Args:
        ack_wait: seconds, of the consumers that are made.
    """

    def __init__(
        self, js: JetStream, url: str, stack: contextlib.AsyncExitStack, ack_wait: float
    ) -> None:
        self.js, self.url, self.stack, self.ack_wait = js, url, stack, ack_wait
        self.hands: dict[str, asyncio.subprocess.Process] = {}

    async def start_hand(self, key: str, *arguments: str) -> None:
        """Start a client in a process of its own, and wait until it has what it is to have."""
        hand = await asyncio.create_subprocess_exec(
            sys.executable, str(_HAND), self.url, *arguments, stdout=asyncio.subprocess.PIPE
        )
        self.hands[key] = hand
        self.stack.push_async_callback(self.kill_hand, key)
        assert hand.stdout is not None
        assert await hand.stdout.readline() == b"ready\n"

    async def kill_hand(self, key: str) -> None:
        """SIGKILL: it says nothing to anybody."""
        hand = self.hands.pop(key, None)
        if hand is not None:
            hand.kill()
            await hand.communicate()

    async def command(self, *arguments: str) -> None:
        """Run one of our commands, as an advice says."""
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace",
            *arguments,
            "-s",
            self.url,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await running.communicate()
        assert running.returncode == 0, told.decode()

    async def consumer(self, stream: str, messages: int, **settings: Any) -> None:
        """A stream with messages, and its consumer ``work``."""
        made = await self.js.create_stream(name=stream, subjects=[f"{stream}.*"], allow_direct=True)
        await made.create_consumer(durable_name="work", ack_wait=self.ack_wait, **settings)
        for number in range(messages):
            await self.js.publish(f"{stream}.{number % 4}", b"%d" % number)

    async def start_worker(
        self, stream: str, handle: Callable[[JetStreamMessage], Awaitable[Any]]
    ) -> None:
        """Handle what the consumer has from now on."""
        consumer = await self.js.consumer(stream, "work")

        async def run() -> None:
            async with consumer.consume() as messages:
                async for message in messages:
                    await handle(message)

        self.begin(run())

    def begin(self, work: Any) -> None:
        """Let it run until the end."""
        task = asyncio.ensure_future(work)

        async def end() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        self.stack.push_async_callback(end)

    async def until_done(self, stream: str) -> None:
        """Until nothing waits there any more, nor is in anybody's hands."""
        consumer = await self.js.consumer(stream, "work")

        async def is_done() -> bool:
            info = await consumer.info()
            return not info.num_pending and not info.num_ack_pending

        await until(is_done, f"{stream} is not handled", within=60.0)


@dataclass(frozen=True)
class Situation:
    """Something that stands still.

    Attributes:
        finding: which of the kinds of findings is to be told.
        what: what it is told of.
        make, mend: make it, and follow the advice.
        by_broker: whether the broker's own metrics know it, too.
    """

    finding: str
    what: str
    make: Callable[[Work], Awaitable[None]]
    mend: Callable[[Work], Awaitable[None]]
    by_broker: bool = True


async def _done(message: JetStreamMessage | GroupMessage) -> None:
    await message.ack_sync()


async def _kill_a_worker(work: Work) -> None:
    await work.consumer("KILLED", 50)
    await work.start_hand("KILLED", "take", "KILLED", "work", "3")
    await work.kill_hand("KILLED")


async def _start_it_again(work: Work) -> None:
    await work.start_worker("KILLED", _done)
    await work.until_done("KILLED")


async def _hang_a_worker(work: Work) -> None:
    await work.consumer("HUNG", 50)
    await work.start_hand("HUNG", "take", "HUNG", "work", "3")


async def _restart_it(work: Work) -> None:
    await work.kill_hand("HUNG")
    await work.start_worker("HUNG", _done)
    await work.until_done("HUNG")


async def _poison(work: Work) -> None:
    """A handler that fails at one message each time, and answers all others."""
    await work.consumer("POISON", 20)

    async def handle(message: JetStreamMessage) -> None:
        if message.payload == b"7":
            await message.nak(0.05)
        else:
            await message.ack_sync()

    await work.start_worker("POISON", handle)
    consumer = await work.js.consumer("POISON", "work")

    async def came_often() -> bool:
        info = await consumer.info()
        return info.delivered.consumer_seq >= 20 + 15

    await until(came_often, "the message does not come again", within=60.0)


async def _limit_deliveries(work: Work) -> None:
    await work.command("consumer", "edit", "POISON", "work", "--max-deliver", "5", "--force")


async def _send_a_member_away(work: Work) -> None:
    js = work.js
    await js.create_stream(name="MEMBERS", subjects=["MEMBERS.*"], allow_direct=True)
    keys = [PartitioningFilter("MEMBERS.*", (1,))]
    await elastic.create(js, "MEMBERS", "g", 4, partitioning_filters=keys, members=["home", "away"])
    await work.stack.enter_async_context(elastic.join(js, "MEMBERS", "g", "home", _done))
    for number in range(40):
        await js.publish(f"MEMBERS.{number}", b"")


async def _start_the_member(work: Work) -> None:
    await work.stack.enter_async_context(elastic.join(work.js, "MEMBERS", "g", "away", _done))


async def _fail_a_query(work: Work) -> None:
    await _tell(work, "failed")


async def _run_it_again(work: Work) -> None:
    await _tell(work, "running")


async def _tell(work: Work, state: str) -> None:
    """A record as a runner writes it, which goes on saying that it is there."""
    now = time.time()
    error = "no such column: total" if state == "failed" else ""
    query = QueryRecord(state=state, since=now, error=error, failures=int(state == "failed"))
    record = PipelineRecord("shop", "mill", 1, now, now + 3600, queries={"totals": query})
    bucket = await work.js.create_or_update_key_value(pipelines.BUCKET, direct=True)
    await bucket.put(pipelines.key_of("shop", "mill", leased=True), pipelines.encode(record))


async def leave_a_watch(work: Work) -> None:
    """A watch whose client was killed, and changes that nobody sees: it removes itself, and is no finding."""
    bucket = await work.js.create_key_value("LEFT")
    await bucket.put("a", b"1")
    await work.start_hand("LEFT", "watch", "LEFT")
    await work.kill_hand("LEFT")
    for number in range(20):
        await bucket.put("a", b"%d" % number)


async def _fill_a_stream(work: Work) -> None:
    made = await work.js.create_stream(name="FULL", subjects=["FULL"], max_msgs=10, discard="new")
    for _ in range(10):
        await work.js.publish("FULL", b"")
    assert (await made.info()).state.messages == 10


async def _purge_it(work: Work) -> None:
    await work.command("stream", "purge", "FULL", "--keep", "2", "--force")


async def _come_near_a_limit(work: Work) -> None:
    await work.js.create_stream(name="NEAR", subjects=["NEAR"], max_bytes=100_000, discard="new")
    for _ in range(23):
        await work.js.publish("NEAR", bytes(4_000))


async def _raise_it(work: Work) -> None:
    await work.command("stream", "edit", "NEAR", "--max-bytes", "1MB", "--force")


SITUATIONS: Final[Mapping[str, Situation]] = MappingProxyType({
    "worker killed with messages in hand": Situation(
        "nobody-pulls", "consumer KILLED > work", _kill_a_worker, _start_it_again
    ),
    "hung worker": Situation(
        "nobody-pulls", "consumer HUNG > work", _hang_a_worker, _restart_it
    ),
    "poison message": Situation(
        "poison-message", "consumer POISON > work", _poison, _limit_deliveries
    ),
    "a member of a group away": Situation(
        "member-away", "group MEMBERS > g", _send_a_member_away, _start_the_member, False
    ),
    "a pipeline's query failed": Situation(
        "query-failed", "query shop > totals", _fail_a_query, _run_it_again, False
    ),
    "stream full": Situation("stream-full", "stream FULL", _fill_a_stream, _purge_it),
    "near a limit": Situation("stream-full", "stream NEAR", _come_near_a_limit, _raise_it),
})  # fmt: skip


@contextlib.asynccontextmanager
async def at_work(work: Work) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A worker, a group, a watch, a bucket and what shows a Spark query's progress, all at work.

    Yields what stores more, and waits until everybody has handled it.
    """
    js, seen = work.js, dict.fromkeys(("worker", "group", "watch"), 0)
    await work.consumer("BUSY", 0)

    async def handle(message: JetStreamMessage) -> None:
        await message.ack_sync()
        seen["worker"] += 1

    await work.start_worker("BUSY", handle)
    orders = await js.create_stream(name="ORDERS", subjects=["ORDERS.*"], allow_direct=True)
    keys = [PartitioningFilter("ORDERS.*", (1,))]
    await elastic.create(js, "ORDERS", "g", 4, partitioning_filters=keys, members=["a", "b"])

    async def handle_of_group(message: Any) -> None:
        await message.ack_sync()
        seen["group"] += 1

    await orders.create_consumer(durable_name="query", metadata={ROLE: SPARK_PROGRESS})
    bucket = await js.create_key_value("LIVE")

    async def watch() -> None:
        async with await bucket.watch() as changes:
            async for entry in changes:
                if entry is not None:
                    seen["watch"] = int(entry.value)  # some of them are overwritten before

    work.begin(watch())
    rounds = 0

    async def store() -> None:
        nonlocal rounds
        rounds += 1
        for number in range(40):
            await js.publish(f"BUSY.{number}", b"")
            await js.publish(f"ORDERS.{number}", b"")
            await bucket.put("key", b"%d" % (40 * (rounds - 1) + number + 1))
        await until(
            lambda: min(seen["worker"], seen["group"], seen["watch"]) >= 40 * rounds,
            "not everybody works",
            within=60.0,
        )

    async with contextlib.AsyncExitStack() as members:
        for member in "ab":
            await members.enter_async_context(
                elastic.join(js, "ORDERS", "g", member, handle_of_group)
            )
        yield store
