"""Whichever way a handler is called, the same follows: calls, answers, dead letters and what is told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace import Broker, ConsumerConfig, DeadLetter, Retry, Stop, sync
from headrace.client import JetStream
from headrace.errors import HandlerFailedError
from headrace.groups import PartitioningFilter, elastic
from headrace.jobs.client import Worker as JobsWorker
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from headrace.worker import Worker, run
from jobs_world import World, http_of, jobs_client
from waiting import block, until

Body = Callable[[Any], object]
DEAD = "DEAD.letters"
ATTEMPTS = 2


class Handled:
    """Calls of a handler, by payload, and what was told of it."""

    def __init__(self) -> None:
        self.calls: Counter[bytes] = Counter()
        self.lock = threading.Lock()

    def count(self, message: Any) -> int:
        """How often it was called with this message, now included."""
        with self.lock:
            self.calls[message.payload] += 1
            return self.calls[message.payload]


def done(message: Any) -> None:
    """What returns has handled a job; a message is acknowledged."""
    if hasattr(message, "ack"):
        message.ack()


def of_kind(body: Body, *, is_plain: bool) -> Callable[[Any], object]:
    async def coroutine(message: Any) -> None:
        body(message)

    return body if is_plain else coroutine


class Way(NamedTuple):
    """One way to have a handler called.

    Attributes:
        kind: who calls it.
        is_plain: whether it is a plain function.
        options: of whoever calls.
    """

    kind: str
    is_plain: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 - a table's rows


BY_KEY = {"concurrency": 3, "order_by": lambda message: message.payload}
WAYS = {
    "consume": Way("consume"),
    "consume, a plain function": Way("consume", is_plain=True),
    "consume, in one lane": Way("consume", options={"concurrency": 1}),
    "consume, by key": Way("consume", options=BY_KEY),
    "consume, a thread": Way("consume", is_plain=True, options={"concurrency": 1}),
    "consume, threads by key": Way("consume", is_plain=True, options=BY_KEY),
    "blocking consume": Way("blocking", is_plain=True),
    "blocking consume, by key": Way("blocking", is_plain=True, options=BY_KEY),
    "group": Way("group"),
    "group, several": Way("group", options={"concurrency": 3}),
    "group, a thread": Way("group", is_plain=True),
    "group, threads": Way("group", is_plain=True, options={"concurrency": 3}),
    "group, per partition": Way("group", options={"layout": "per_partition"}),
    "worker": Way("worker"),
    "worker, threads": Way("worker", is_plain=True, options={"concurrency": 2}),
    "jobs": Way("jobs"),
    "jobs, threads": Way("jobs", is_plain=True),
}
OF_STREAMS = [name for name, way in WAYS.items() if way.kind != "jobs"]


class Place:
    """Where two messages wait for a handler, ``bad`` and ``good``.

    Attributes:
        ended: what the handler's work ended with, if anything.
    """

    ended: BaseException | None = None

    async def is_done(self) -> bool:
        """Whether nothing waits any more."""
        raise NotImplementedError

    async def letters(self) -> int:
        """How many messages were given up."""
        raise NotImplementedError


class StreamPlace(Place):
    def __init__(self, js: JetStream) -> None:
        self.js = js
        self.read = ("S", "c")

    async def is_done(self) -> bool:
        info = await (await self.js.consumer(*self.read)).info()
        return info.num_ack_pending == 0 and info.num_pending == 0

    async def letters(self) -> int:
        return (await (await self.js.stream("DEAD")).info()).state.messages


class JobsPlace(Place):
    def __init__(self, world: World) -> None:
        self.world = world

    async def _states(self) -> list[str]:
        response = await self.world.http.get("/v2/channel/c/jobs")
        return [job["state"] for job in response.json()["jobs"]]

    async def is_done(self) -> bool:
        return {"DELIVERED", "DEAD"}.issuperset(await self._states())

    async def letters(self) -> int:
        return (await self._states()).count("DEAD")


@asynccontextmanager
async def at_work(way: Way, handler: Any, policy: Any, folder: Path) -> AsyncIterator[Place]:
    """Have ``handler`` called with two messages, until this is left."""
    async with AsyncExitStack() as stack:
        if way.kind == "jobs":
            yield await _jobs(stack, way, handler, folder)
            return
        broker = await stack.enter_async_context(Broker(store_dir=folder))
        connection = await stack.enter_async_context(broker.connect())
        js = connection.jetstream()
        await js.create_stream(name="DEAD", subjects=["DEAD.>"])
        await js.create_stream(name="S", subjects=["s.*"])
        place = StreamPlace(js)
        if way.kind == "group":
            options = dict(way.options)
            layout = options.pop("layout", "interoperable")
            filters = [PartitioningFilter("s.*", (1,))]
            await elastic.create(
                js, "S", "g", 1, partitioning_filters=filters, members=["a"], layout=layout
            )
            member = elastic.join(
                js,
                *("S", "g", "a", handler),
                ConsumerConfig(ack_wait=60.0, max_ack_pending=10),
                on_failure=policy,
                **options,
            )
            await stack.enter_async_context(ended_by(place, member))
            queue = await js.stream(await anext(_names(js)))
            place.read = (queue.name, (await anext(aiter(queue.consumers()))).name)
        else:
            stream = await js.stream("S")
            await stream.create_consumer(durable_name="c", ack_wait=60.0)
        if way.kind == "consume":
            consumer = await js.consumer("S", "c")
            work = consumer.consume(handler, on_failure=policy, **way.options)
            await stack.enter_async_context(ended_by(place, work))
        if way.kind == "blocking":
            made = partial(_blocking, broker.client_url, handler, policy, way.options)
            await stack.enter_async_context(ended_by(place, _OnThread(made)))
        if way.kind == "worker":
            worker = Worker("tests")
            worker.consumer("S", "c", on_failure=policy, **way.options)(handler)
            stop = asyncio.Event()
            await stack.enter_async_context(
                ended_by(place, _Run(run(worker, stop, servers=broker.client_url), stop))
            )
        for payload in (b"bad", b"good"):
            await js.publish(f"s.{payload.decode()}", payload)
        yield place


async def _names(js: JetStream) -> AsyncIterator[str]:
    async for info in js.streams():
        if info.config.name not in ("S", "DEAD") and not info.config.name.startswith("KV_"):
            yield info.config.name


@asynccontextmanager
async def ended_by(place: Place, work: Any) -> AsyncIterator[None]:
    async with work:

        async def watch() -> None:
            try:
                await work.wait()
            except Exception as error:
                place.ended = error

        watching = asyncio.create_task(watch())
        yield
    await watching


class _Run:
    """A worker until it is told to stop."""

    def __init__(self, running: Coroutine[Any, Any, object], stop: asyncio.Event) -> None:
        self._running = asyncio.create_task(running)
        self._stop = stop

    async def __aenter__(self) -> None:
        """It runs."""

    async def __aexit__(self, *exc: object) -> None:
        self._stop.set()
        await asyncio.wait([self._running])

    async def wait(self) -> None:
        await self._running


def _blocking(url: str, handler: Any, policy: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    connection = sync.connect(url)
    consumer = connection.jetstream().consumer("S", "c")
    return connection, consumer.consume(handler, on_failure=policy, **options)


class _OnThread:
    """A consume of the blocking client, which must not block the broker's loop."""

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        self._make = make

    async def __aenter__(self) -> None:
        self._connection, self._consumption = await asyncio.to_thread(self._make)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._consumption.stop)
        await asyncio.to_thread(self._connection.close)

    async def wait(self) -> None:
        await asyncio.to_thread(self._consumption.wait)


async def _jobs(stack: AsyncExitStack, way: Way, handler: Any, folder: Path) -> Place:
    options = Options(max_retries=ATTEMPTS - 1, retry_delays_s=(0.01,))
    runtime = Runtime(open_database(f"sqlite:///{folder / 'jobs.db'}", threads=2), options)
    await runtime.start()
    stack.push_async_callback(runtime.close)
    http = await stack.enter_async_context(http_of(runtime))
    world = World(http, runtime, None)  # type: ignore[arg-type]
    await world.define()
    client = await stack.enter_async_context(jobs_client(runtime))
    queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
    worker = JobsWorker(queue, handler, wait_s=0.2)
    running = asyncio.create_task(worker.run())

    async def end() -> None:
        worker.stop()
        await running

    stack.push_async_callback(end)
    await world.broadcast("bad")
    await world.broadcast("good")
    return JobsPlace(world)


class Odd(BaseException):
    """Raised by what is no error of a program, such as pytest's ``fail``."""


RAISED: dict[str, BaseException] = {
    "an error": ValueError("broken"),
    "StopIteration": StopIteration("broken"),
    "a cancellation": asyncio.CancelledError("broken"),
    "no Exception": Odd("broken"),
    "several": BaseExceptionGroup("broken", [Odd()]),
}


def told_of(caplog: pytest.LogCaptureFixture, word: str) -> int:
    """How many lines of the log tell of what was raised."""
    causes = []
    for record in caplog.records:
        error = record.exc_info[1] if record.exc_info else None
        causes.append(f"{record.getMessage()} {error!r} {error and error.__cause__!r}")
    return sum(word in each for each in causes)


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("way", WAYS)
async def test_what_fails_once_is_tried_again_and_told_once(
    way: str, raised: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handled = Handled()

    def body(message: Any) -> None:
        if handled.count(message) == 1 and message.payload == b"bad":
            raise RAISED[raised]
        done(message)

    handler = of_kind(body, is_plain=WAYS[way].is_plain)
    async with at_work(WAYS[way], handler, Retry((0.01,), attempts=ATTEMPTS), tmp_path) as place:
        await until(lambda: handled.calls.total() == 3)
        await until(place.is_done)
        assert handled.calls == {b"bad": 2, b"good": 1}
        assert await place.letters() == 0
    assert place.ended is None
    assert told_of(caplog, "broken") == 1


@pytest.mark.parametrize("way", WAYS)
async def test_what_fails_too_often_is_given_up_and_the_others_are_handled(
    way: str, tmp_path: Path
) -> None:
    handled = Handled()

    def body(message: Any) -> None:
        handled.count(message)
        if message.payload == b"bad":
            raise ValueError("broken")
        done(message)

    handler = of_kind(body, is_plain=WAYS[way].is_plain)
    policy = DeadLetter(DEAD, after=ATTEMPTS, backoff=(0.01,))
    async with at_work(WAYS[way], handler, policy, tmp_path) as place:

        async def is_put_away() -> bool:
            return await place.letters() == 1 and await place.is_done()

        await until(is_put_away)
        assert handled.calls == {b"bad": ATTEMPTS, b"good": 1}
    assert place.ended is None


@pytest.mark.parametrize("way", [name for name, way in WAYS.items() if not way.is_plain])
async def test_a_handler_that_yields_is_refused_for_each_message(way: str, tmp_path: Path) -> None:
    def plain(message: Any) -> Iterator[None]:
        done(message)
        yield

    async with at_work(WAYS[way], plain, DeadLetter(DEAD, after=1), tmp_path) as place:

        async def are_put_away() -> bool:
            return await place.letters() == 2

        await until(are_put_away)


@pytest.mark.parametrize("way", OF_STREAMS)
async def test_what_was_acknowledged_before_its_handler_failed_is_told_and_done(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handled = Handled()

    def body(message: Any) -> None:
        handled.count(message)
        done(message)
        if message.payload == b"bad":
            raise ValueError("broken")

    handler = of_kind(body, is_plain=WAYS[way].is_plain)
    async with at_work(WAYS[way], handler, Retry((0.01,)), tmp_path) as place:
        await until(lambda: handled.calls.total() == 2)
        await until(place.is_done)
        await until(lambda: told_of(caplog, "broken") == 1)
    assert handled.calls == {b"bad": 1, b"good": 1}
    assert place.ended is None


@pytest.mark.parametrize("way", OF_STREAMS)
async def test_a_policy_that_stops_ends_the_work_with_its_error(way: str, tmp_path: Path) -> None:
    handled = Handled()

    def body(message: Any) -> None:
        handled.count(message)
        if message.payload == b"bad":
            raise ValueError("broken")
        done(message)

    handler = of_kind(body, is_plain=WAYS[way].is_plain)
    with contextlib.suppress(HandlerFailedError):
        async with at_work(WAYS[way], handler, Stop(), tmp_path) as place:
            await until(lambda: place.ended is not None)
    assert "broken" in str(place.ended)
    assert handled.calls[b"bad"] == 1


@pytest.mark.parametrize("way", [name for name, way in WAYS.items() if way.is_plain])
async def test_what_an_interrupt_does_to_a_thread_fails_its_message_alone(
    way: str, tmp_path: Path
) -> None:
    if way == "consume, a plain function":
        return  # it runs on the loop, which asyncio ends then
    handled = Handled()

    def body(message: Any) -> None:
        if handled.count(message) == 1 and message.payload == b"bad":
            raise KeyboardInterrupt
        block(0.001)
        done(message)

    async with at_work(WAYS[way], body, Retry((0.01,)), tmp_path) as place:
        await until(lambda: handled.calls.total() == 3)
        await until(place.is_done)
    assert place.ended is None
