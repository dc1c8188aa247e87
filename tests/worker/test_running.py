from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

import peers
from headrace import ConsumerConfig, DeadLetter, Retry, Stop
from headrace.client import Connection, JetStream, JetStreamMessage, Stream
from headrace.errors import ConfigurationError, HandlerFailedError, JetStreamApiError, PullError
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.worker import Delivered, Worker, current, run
from headrace.worker.running import Pages, Running
from waiting import until, until_pulling

pytestmark = pytest.mark.peer


class Order(msgspec.Struct):
    id: int


class Invoice(msgspec.Struct):
    order: int


@contextlib.asynccontextmanager
async def at_work(worker: Worker, url: str, **more: Any) -> AsyncIterator[asyncio.Event]:
    """The worker runs meanwhile, and has ended afterwards."""
    over = asyncio.Event()
    running = asyncio.create_task(run(worker, over, servers=url, **more))
    try:
        yield over
    finally:
        over.set()
        await running


async def published(js: JetStream, subject: str, *payloads: bytes) -> None:
    for payload in payloads:
        await js.publish(subject, payload)


async def test_models_come_in_and_go_out_once_and_what_does_not_fit_is_put_elsewhere_at_once(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("bills"), stream.name
    calls: list[int] = []

    @worker.consumer(
        name,
        "bills",
        config=ConsumerConfig(filter_subject=f"{name}.orders", ack_wait=2),
        on_failure=DeadLetter(f"{name}.dead", after=3, backoff=(0.01,)),
        publish=f"{name}.invoices",
    )
    async def bill(order: Order) -> Invoice:
        calls.append(order.id)
        if order.id == 2 and calls.count(2) < 2:
            raise ValueError("not now")
        return Invoice(order.id)

    async with at_work(worker, reference_server.url):
        await published(js, f"{name}.orders", b'{"id":1}', b'{"id":"x"}', b'{"id":2}')
        await until(lambda: worker.sources[0].tally.handled == 2)
        letters = await stream.get_last_message(f"{name}.dead")
    assert letters.payload == b'{"id":"x"}'
    assert "no Order" in (letters.headers["Headrace-Failure"] or "")
    assert letters.headers["Headrace-Attempts"] == "1"
    assert calls == [1, 2, 2]
    consumer = await stream.create_consumer(filter_subject=f"{name}.invoices")
    assert (await consumer.fetch(10, no_wait=True)).payloads == [b'{"order":1}', b'{"order":2}']
    info = await (await stream.consumer("bills")).info()
    assert (info.num_pending, info.num_ack_pending) == (0, 0)
    tally = worker.sources[0].tally
    assert (tally.failed, tally.misfits, tally.in_hand) == (2, 1, 0)


async def test_several_consumers_and_a_group_run_together_coroutines_on_the_loop_others_on_threads(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("all"), stream.name
    seen: dict[str, object] = {}
    filters = [PartitioningFilter(f"{name}.*", (1,))]
    await elastic.create(js, name, "g", 2, partitioning_filters=filters, members=["a"])

    one = ConsumerConfig(filter_subject=f"{name}.one")

    @worker.consumer(name, "loop", config=one, concurrency=3)
    async def on_loop(message: JetStreamMessage) -> None:
        seen["loop"] = threading.current_thread()
        assert current() is message

    @worker.consumer(name, "threads", config=one, publish=f"{name}.texts.out")
    def on_thread(message: JetStreamMessage) -> str:
        seen["thread"] = threading.current_thread()
        assert current() is not None
        return "said"

    @worker.group(name, "g", member="a")
    async def member(message: GroupMessage) -> None:
        seen["group"] = message.subject

    async with at_work(worker, reference_server.url):
        await published(js, f"{name}.one", b"x")
        await until(lambda: len(seen) == 3)
        await until(lambda: all(each.tally.handled for each in worker.sources))
        said = await until(lambda: _last(stream, f"{name}.texts.out"))
    await elastic.delete(js, name, "g")
    assert seen["loop"] is threading.main_thread() is not seen["thread"]
    assert seen["group"] == f"{name}.one"
    assert said == b"said"


async def _last(stream: Stream, subject: str) -> bytes | None:
    try:
        return (await stream.get_last_message(subject)).payload
    except JetStreamApiError:
        return None


async def test_hooks_are_around_each_handler_where_it_runs_and_see_what_it_raises(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("hooked"), stream.name
    correlation: ContextVar[str] = ContextVar("correlation")
    log: list[str] = []

    @worker.around
    @contextlib.contextmanager
    def correlated(message: Delivered) -> Iterator[None]:
        token = correlation.set(message.headers.get("Correlation-Id") or "none")
        try:
            yield
        except ValueError:
            log.append("raised")
            raise
        finally:
            correlation.reset(token)

    @worker.consumer(
        name, "c", config=ConsumerConfig(), on_failure=Retry(backoff=(0.01,)), concurrency=2
    )
    def handle(message: JetStreamMessage) -> None:
        log.append(correlation.get())
        if message.metadata.delivered == 1:
            raise ValueError("once")

    async with at_work(worker, reference_server.url):
        await js.publish(f"{name}.a", b"x", headers={"Correlation-Id": "abc"})
        await until(lambda: worker.sources[0].tally.handled == 1)
    assert log == ["abc", "raised", "abc"]


async def test_told_to_end_it_lets_the_running_handler_end_and_gives_back_the_rest_at_once(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("ends"), stream.name
    go_on, begun, ended = asyncio.Event(), list[int](), list[str]()

    @contextlib.asynccontextmanager
    async def pool(connection: Connection) -> AsyncIterator[None]:
        assert connection.is_connected
        yield
        ended.append("pool")

    worker.lifespan = pool

    @worker.consumer(name, "c", config=ConsumerConfig(ack_wait=30))
    async def handle(message: JetStreamMessage) -> None:
        begun.append(message.metadata.stream_seq)
        if len(begun) > 3:
            await go_on.wait()
        ended.append("handler")

    await published(js, f"{name}.a", *[b"x"] * 20)
    over = asyncio.Event()
    running = asyncio.create_task(run(worker, over, servers=reference_server.url))
    await until(lambda: len(begun) == 4)
    over.set()
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    async with asyncio.timeout(10):
        await running
    assert begun == [1, 2, 3, 4]
    assert ended == ["handler"] * 4 + ["pool"]
    consumer = await stream.consumer("c")
    rest = await consumer.fetch(20, max_wait=2)
    assert sorted(each.metadata.stream_seq for each in rest) == list(range(5, 21))


async def test_a_handler_that_does_not_end_is_cancelled_within_the_time(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, begun, cancelled = Worker("stuck"), asyncio.Event(), asyncio.Event()

    @worker.consumer(stream.name, "c", config=ConsumerConfig(ack_wait=30))
    async def handle(message: JetStreamMessage) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await published(js, f"{stream.name}.a", b"x")
    async with at_work(worker, reference_server.url, stop_timeout=1.0) as over:
        await begun.wait()
        over.set()
    assert cancelled.is_set()
    consumer = await stream.consumer("c")
    assert len(await consumer.fetch(1, max_wait=2)) == 1


async def test_a_worker_whose_consumer_is_gone_or_whose_policy_is_to_stop_ends_with_the_reason(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    missing = Worker("missing")
    missing.consumer(stream.name, "nobody")(lambda message: None)
    with pytest.raises(JetStreamApiError, match="consumer not found"):
        await run(missing, asyncio.Event(), servers=reference_server.url)

    stops = Worker("stops")

    @stops.consumer(stream.name, "c", config=ConsumerConfig(), on_failure=Stop())
    async def handle(message: JetStreamMessage) -> None:
        raise ValueError("never")

    await published(js, f"{stream.name}.a", b"x")
    with pytest.raises(HandlerFailedError, match="never"):
        await run(stops, asyncio.Event(), servers=reference_server.url)


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_probes_and_numbers_are_served(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker, name = Worker("pages"), stream.name
    pages: list[Pages] = []

    @contextlib.asynccontextmanager
    async def serve(running: Running) -> AsyncIterator[None]:
        async with Pages(running) as listening:
            pages.append(listening)
            yield

    @worker.consumer(
        name,
        "c",
        config=ConsumerConfig(filter_subject=f"{name}.a"),
        on_failure=DeadLetter(f"{name}.dead", after=1),
    )
    async def handle(order: Order) -> None: ...

    over = asyncio.Event()
    running = asyncio.create_task(run(worker, over, servers=reference_server.url, beside=[serve]))
    try:
        await until(lambda: pages)
        base = pages[0].url.removesuffix("/metrics")

        async def page(path: str) -> tuple[int, str]:
            return await asyncio.to_thread(fetched, base + path)

        async def is_ready() -> bool:
            return (await page("/readyz"))[0] == 200

        await until(is_ready)
        assert (await page("/healthz"))[0] == 200
        assert (await page("/nothing"))[0] == 404
        await published(js, f"{name}.a", b'{"id":1}', b"nonsense")
        await until(lambda: worker.sources[0].tally.misfits == 1)
        labels = f'{{stream="{name}",consumer="c"}}'

        async def are_counted() -> bool:
            text = (await page("/metrics"))[1]
            return f"headrace_worker_dead_letters_total{labels} 1" in text

        await until(are_counted)
        text = (await page("/metrics"))[1]
        assert f"headrace_worker_up{labels} 1" in text
        assert f"headrace_worker_misfits_total{labels} 1" in text
        assert 'headrace_client_connected{connection="pages"} 1' in text
        at = pages[0]._running.sources[0]
        at.error = ValueError("gone")  # as where a source has failed, a moment before the end
        for path in ("/readyz", "/healthz"):
            status, text = await page(path)
            assert status == 503
            assert json.loads(text) == {"status": "unavailable", "reason": f"{name}/c: gone"}
        at.error = None
    finally:
        over.set()
        await running


async def test_a_consumer_that_is_deleted_ends_its_worker(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    worker = Worker("deleted")
    handled: list[object] = []
    worker.consumer(stream.name, "c", config=ConsumerConfig())(handled.append)
    running = asyncio.create_task(run(worker, asyncio.Event(), servers=reference_server.url))
    await published(js, f"{stream.name}.a", b"x")
    await until(lambda: handled)
    await (await stream.consumer("c")).delete()
    with pytest.raises((PullError, JetStreamApiError)):
        await running


def test_what_cannot_be_declared_is_refused() -> None:
    worker = Worker()

    async def typed(order: Order) -> None: ...

    with pytest.raises(ConfigurationError, match="DeadLetter"):
        worker.consumer("S", "c")(typed)
    with pytest.raises(ConfigurationError, match="has a handler already"):
        for _ in range(2):
            worker.consumer("S", "c")(lambda message: None)
    with pytest.raises(ConfigurationError, match="stream is ''"):
        worker.consumer("", "c")(lambda message: None)
    with pytest.raises(ConfigurationError, match="elastic, static"):
        worker.group("S", "g", member="a", kind="other")(lambda message: None)  # type: ignore[arg-type]


async def test_a_helper_works_once_so_much_waits_and_a_standby_takes_over(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    """Home and helper are workers alike: of a consumer with a priority group each says what it pulls by."""
    config = ConsumerConfig(
        filter_subject=f"{stream.name}.a", priority_groups=("all",), priority_policy="overflow"
    )
    helped: list[int] = []
    helper = Worker("helper")

    @helper.consumer(stream.name, "jobs", config=config, group="all", min_pending=5)
    async def help_out(message: JetStreamMessage) -> None:
        helped.append(message.metadata.stream_seq)

    async with at_work(helper, reference_server.url):

        async def is_made() -> bool:
            return "jobs" in [name async for name in stream.consumer_names()]

        await until(is_made)
        await published(js, f"{stream.name}.a", *[b"x"] * 4)
        consumer = await js.consumer(stream.name, "jobs")
        await until_pulling(consumer)
        assert helped == []
        await published(js, f"{stream.name}.a", *[b"x"] * 4)
        await until(lambda: len(helped) >= 4)
    first = await consumer.fetch(8, max_wait=1.0, group="all")
    assert len(first) + len(helped) == 8


def test_what_no_consumer_could_take_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match="priority is 12"):
        Worker().consumer("S", "c", group="g", priority=12)
    with pytest.raises(ConfigurationError, match="unknown argument min_wait"):
        Worker().consumer("S", "c", min_wait=3)  # type: ignore[call-arg]
