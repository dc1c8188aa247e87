"""What compares two looks at a server, where each answer takes 40 ms and much goes on meanwhile.

Messages are published beside the server all the time; whoever looks is behind a link. Nothing is about how
long it takes: what was seen at different times must not be taken for one moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

import peers
from distances import FAR_S
from headrace.api.consumers import ConsumerConfig
from headrace.client import Connection, JetStream, JetStreamMessage, connect
from headrace.doctor import look_at_all
from headrace.findings.finding import Findings
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.groups.autoscale import Policy, autoscale
from headrace.groups.lag import measure
from headrace.locks import LockLostError
from headrace.locks.key import KeyLock, bucket_of_locks
from headrace.testing import Link
from waiting import until

pytestmark = pytest.mark.peer

LOOKS = 4
PARTITIONS = 4
KEYS = 24
AHEAD = 60
"""Messages that are published, and not handled yet, at most."""


@pytest.fixture(scope="module", params=peers.EITHER)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path_factory.mktemp("far"))


@pytest.fixture
async def near(server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    async with connect(server.url, name="beside the server") as connection:
        js = connection.jetstream()
        yield js
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)


@pytest.fixture
async def far(server: peers.ServerProcess, near: JetStream) -> AsyncIterator[Connection]:
    with Link(server.url, FAR_S) as link:
        async with connect(link.url, name="far from the server") as connection:
            yield connection


class Traffic:
    """Messages that are published all the time, and how many are handled, as the server has confirmed."""

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self.published = 0
        self.handled = 0

    async def handle(self, message: GroupMessage) -> None:
        await message.ack_sync()
        self.handled += 1

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        async def publish() -> None:
            while True:
                await self._js.publish(f"o.{self.published % KEYS}", b"%d" % self.published)
                self.published += 1
                await until(lambda: self.published - self.handled < AHEAD)

        task = asyncio.create_task(publish())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    @contextlib.asynccontextmanager
    async def handled_far(self, far: Connection) -> AsyncIterator[JetStream]:
        """A group at work behind the link, while messages come."""
        await self._js.create_stream(
            name="S", subjects=["o.*"], storage="memory", allow_direct=True
        )
        js = far.jetstream()
        by_key = [PartitioningFilter("o.*", (1,))]
        await elastic.create(js, "S", "g", PARTITIONS, partitioning_filters=by_key, members=["a"])
        joined = elastic.join(js, "S", "g", "a", self.handle, concurrency=KEYS)
        async with joined, self.flowing():
            await until(lambda: self.handled > 10)
            yield js


async def test_a_look_at_a_group_counts_nothing_twice_and_nothing_that_was_handled_before(
    near: JetStream, far: Connection
) -> None:
    traffic = Traffic(near)
    async with traffic.handled_far(far) as js:
        for _ in range(LOOKS):
            handled = traffic.handled  # and that is confirmed
            look = await measure(js, await elastic.get(js, "S", "g"))
            assert look.lag is not None
            assert 0 <= look.lag <= traffic.published + 1 - handled
            assert not look.troubles


async def test_an_autoscaler_keeps_a_group_that_keeps_up_as_it_is(
    near: JetStream, far: Connection
) -> None:
    traffic = Traffic(near)
    policy = Policy(maximum=3, up_looks=1, down_looks=100, cooldown_seconds=0, target_seconds=20)
    async with traffic.handled_far(far) as js:
        steps = autoscale(js, "S", "g", policy, ["a", "b", "c"], every=0.05)
        seen = [await anext(steps) for _ in range(LOOKS)]
        await steps.aclose()
        decisions = [step.decision for step in seen]
        assert all(each is not None and each.action == "hold" for each in decisions), seen
        last = decisions[-1]
        assert last is not None
        assert last.handled, "it saw that messages are handled"
        assert (await elastic.get(js, "S", "g")).members == ("a",)


async def test_the_doctor_finds_nothing_wrong_with_a_server_at_which_much_goes_on(
    near: JetStream, far: Connection
) -> None:
    traffic = Traffic(near)
    async with traffic.handled_far(far) as js:
        for _ in range(2):
            findings = Findings()
            await look_at_all(findings, js)
            wrong = [each for each in findings.found if each.grade == "problem"]
            assert not wrong


async def test_what_is_confirmed_has_left_the_server_and_a_drain_hands_out_what_was_under_way(
    near: JetStream, far: Connection
) -> None:
    await near.create_stream(name="S", subjects=["o.*"], retention="workqueue", storage="memory")
    traffic = Traffic(near)
    config = ConsumerConfig(durable_name="c", ack_wait=30.0)
    consumer = await far.jetstream().create_consumer("S", config)
    handled: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        if len(handled) < 3:
            await message.ack_sync()
            sequence = message.metadata.stream_seq
            with pytest.raises(Exception, match="no message found"):
                await (await near.stream("S")).get_message(sequence)
        else:
            message.ack()
        handled.append(message.metadata.stream_seq)
        traffic.handled = len(handled)

    async with traffic.flowing():
        consume = consumer.consume(handle)
        await until(lambda: len(handled) > 20)
        await consume.drain()
    await far.flush()
    info = await (await near.consumer("S", "c")).info()
    assert (info.num_ack_pending, info.num_redelivered) == (0, 0)
    assert handled == list(range(1, info.delivered.stream_seq + 1))


async def test_one_runner_at_a_time_has_the_lease_over_far_links_and_a_standby_is_given_it(
    server: peers.ServerProcess, near: JetStream
) -> None:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        leases = []
        for name in ("one", "other"):
            link = stack.enter_context(Link(server.url, FAR_S))
            connection = await stack.enter_async_context(connect(link.url))
            bucket = await bucket_of_locks(connection.jetstream(), "leases", 6.0)
            lease = KeyLock(bucket, "orders", name, 6.0, on_trouble=lambda _error: None)
            leases.append(await stack.enter_async_context(lease))
        first, second = leases
        token = await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        holding = asyncio.create_task(first.hold())
        await until(lambda: second.holder().startswith("one"))
        assert first.is_ours_at(loop.time())
        assert not second.is_ours_at(loop.time())
        await first.release()
        assert not first.is_ours_at(loop.time())
        assert await waiting > token
        with contextlib.suppress(LockLostError):
            holding.cancel()
            await asyncio.wait([holding])
        await second.release()
