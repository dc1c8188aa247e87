"""The asyncio client and the worker, on a service in memory."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import pytest

import peers
from headrace.jobs import limits
from headrace.jobs.client import (
    AsyncJobsClient,
    Fail,
    JobsError,
    LeasedJob,
    OutgoingMessage,
    Worker,
    worker,
)
from headrace.jobs.client.aio import Queue
from jobs_world import World, jobs_client
from waiting import until

PUBLISHER: dict[str, Any] = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}


@pytest.fixture
async def client(world: World) -> AsyncIterator[AsyncJobsClient]:
    async with jobs_client(world.runtime) as made:
        yield made


@pytest.fixture
def queue(client: AsyncJobsClient) -> Queue:
    return client.queue("c", "k", channel_token="ct", consumer_token="kt")


async def states(world: World) -> dict[str, int]:
    body = (await world.http.get("/v2/channel/c/consumer/k")).json()
    return {state: n for state, n in body["jobs"].items() if n}


async def until_states(world: World, expected: dict[str, int]) -> None:
    async def are_so() -> bool:
        return await states(world) == expected

    await until(are_so, f"never {expected}")


async def test_what_is_published_is_what_is_claimed(client: AsyncJobsClient, queue: Queue) -> None:
    await client.publish(
        "c",
        b"\xff{}",
        content_type="a/b",
        message_id="m",
        priority=4,
        metadata={"X-T": "1"},
        **PUBLISHER,
    )
    (job,) = await queue.claim(5)
    assert (job.payload, job.content_type, job.message_id) == (b"\xff{}", "a/b", "m")
    assert (job.priority, job.headers, job.attempt) == (4, {"X-T": "1"}, 1)
    assert [result.code for result in await queue.complete([job])] == ["ok"]
    assert [result.code for result in await queue.release([job])] == ["lease_lost"]


async def test_an_idempotent_publish_may_be_repeated(client: AsyncJobsClient) -> None:
    first = await client.publish("c", b"x", message_id="m", idempotent=True, **PUBLISHER)
    again = await client.publish("c", b"x", message_id="m", idempotent=True, **PUBLISHER)
    assert (first["replayed"], again["replayed"]) == (False, True)
    with pytest.raises(JobsError, match="422 key_reused"):
        await client.publish("c", b"y", message_id="m", idempotent=True, **PUBLISHER)


@pytest.mark.one_database
async def test_a_refusal_is_raised_in_the_services_own_words(client: AsyncJobsClient) -> None:
    with pytest.raises(JobsError) as refused:
        await client.queue("c", "k", channel_token="ct", consumer_token="x").claim()
    assert (refused.value.status, refused.value.code) == (403, "wrong_token")
    assert refused.value.field == "X-Broker-Consumer-Token"
    with pytest.raises(JobsError) as refused:
        await client.queue("c", "k", channel_token="ct", consumer_token="kt").claim(0)
    assert refused.value.field == "max"


@pytest.mark.one_database
async def test_what_cannot_be_sent_is_refused_in_words(client: AsyncJobsClient) -> None:
    for value in ("a\0b", "a\nb", "a\x7f", "\ud800"):
        with pytest.raises(JobsError, match=r"X-T has .* which no header carries") as refused:
            await client.publish("c", b"x", metadata={"X-T": value}, **PUBLISHER)
        assert (refused.value.status, refused.value.field) == (400, "X-T")
    for name in ("", "X T", "X\ud800"):
        with pytest.raises(JobsError, match="is no name of a header"):
            await client.publish("c", b"x", metadata={name: "a"}, **PUBLISHER)
    half = OutgoingMessage(payload=b"x", metadata={"X-T": "\ud800"})
    for refuses in (
        lambda: client.publish("\ud800", b"x", **PUBLISHER),
        lambda: client.publish_batch("c", [half], **PUBLISHER),
        lambda: client.publish("c", b"x", unique={"by": ["\ud800"], "within": 1}, **PUBLISHER),
        lambda: client.put_producer("p", name="\ud800"),
        lambda: client.set_events_channel("c", "\ud800"),
    ):
        with pytest.raises(JobsError, match=r"half a character|which no header carries") as refused:
            await refuses()
        assert refused.value.status == 400


async def test_nobody_there_is_said_so(free_port: int) -> None:
    async with AsyncJobsClient(f"http://127.0.0.1:{free_port}") as client:
        with pytest.raises(JobsError, match=r"^the service did not answer: "):
            await client.publish("c", b"x", **PUBLISHER)


@pytest.mark.one_database
async def test_tokens_are_not_in_anybodys_repr(client: AsyncJobsClient) -> None:
    queue = client.queue("c", "k", channel_token="sesame", consumer_token="sesame")
    assert "sesame" not in repr(vars(queue))


async def test_a_worker_works_up_to_its_concurrency_and_stops_when_told(
    world: World, queue: Queue
) -> None:
    running, most, done = 0, 0, []
    four = asyncio.Barrier(4)

    @worker(queue, concurrency=4, wait_s=1)
    async def work(job: LeasedJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await four.wait()
        running -= 1
        done.append(job.payload)

    for number in range(20):
        await world.broadcast(str(number))
    task = asyncio.create_task(work.run())
    await until_states(world, {"DELIVERED": 20})
    work.stop()
    async with asyncio.timeout(5):
        await task
    assert most == 4
    assert sorted(done, key=int) == [b"%d" % number for number in range(20)]
    assert (work.completed, work.failed, work.lost) == (20, 0, 0)


@pytest.mark.one_database
async def test_a_handler_says_how_it_failed(world: World, queue: Queue) -> None:
    async def work(job: LeasedJob) -> None:
        if job.payload == b"never":
            raise Fail("not for us", dead=True)
        if job.payload == b"later":
            raise Fail("busy", retry_in_s=1000)
        raise ValueError("broken")

    made = Worker(queue, work, wait_s=1)
    task = asyncio.create_task(made.run())
    for payload in ("never", "later", "defect"):
        await world.broadcast(payload)
    await until(lambda: made.failed >= 3, within=10)
    await until_states(world, {"DEAD": 1, "QUEUED": 2})
    made.stop()
    async with asyncio.timeout(5):
        await task
    errors = [(await world.job(job["ID"]))["last_error"] for job in await world.queued()]
    assert sorted(errors) == ["ValueError: broken", "busy"]
    assert made.failed == 3


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_a_log_that_fails_at_an_error_does_not_keep_it_from_being_reported(
    world: World, queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's formatter makes a text of each error, and this one has none."""

    def text(record: logging.LogRecord) -> bool:
        return record.exc_info is None or bool(str(record.exc_info[1]))

    async def work(job: LeasedJob) -> None:
        raise _Unspeakable

    monkeypatch.setattr(logging.getLogger("headrace.jobs.worker"), "filters", [text])
    made = Worker(queue, work, wait_s=1)
    task = asyncio.create_task(made.run())
    await world.broadcast()
    await until(lambda: made.failed >= 1)
    made.stop()
    await task
    assert "failed: _Unspeakable, whose text cannot be made" in caplog.text


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (ValueError("bad\0\ud800"), "ValueError: bad\ufffd?"),
        (Fail("\ud800\udfff\0 odd"), "??\ufffd odd"),
        (ValueError("x" * 3_000_000), "ValueError: " + "x" * (limits.REASON_CHARS_MAX - 12)),
        (_Unspeakable(), "_Unspeakable, whose text cannot be made: RuntimeError"),
        (Fail(KeyError("k")), "'k'"),  # type: ignore[arg-type]
    ],
    ids=["NUL and half a character", "the same of Fail", "long", "without text", "no string"],
)
async def test_whatever_a_handler_raises_is_reported(
    world: World, queue: Queue, raised: Exception, shown: str
) -> None:
    async def work(job: LeasedJob) -> None:
        raise raised

    made = Worker(queue, work, wait_s=1)
    task = asyncio.create_task(made.run())
    await world.broadcast()
    await until(lambda: made.failed >= 1)
    made.stop()
    async with asyncio.timeout(5):
        await task
    (job,) = await world.queued()
    assert (await world.job(job["ID"]))["last_error"] == shown


@pytest.mark.parametrize("retry_in_s", [-1, float("nan"), float("inf"), 1e9])
def test_a_delay_that_cannot_be_is_refused_where_it_is_said(retry_in_s: float) -> None:
    with pytest.raises(ValueError, match="retry_in_s is"):
        Fail("x", retry_in_s=retry_in_s)


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b'{"jobs": 5}', b'{"jobs": [{}]}', b"\xff", b"[" * 9999]
)
async def test_an_answer_of_something_in_between_is_an_error_of_the_client(body: bytes) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=body))
    async with AsyncJobsClient("http://jobs", transport=transport) as client:
        queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
        with pytest.raises(JobsError, match="no answer of a job service") as refused:
            await queue.claim(1)
    assert (refused.value.status, refused.value.code) == (0, "unreadable_answer")


@pytest.mark.one_database
async def test_a_plain_function_works_on_a_thread(world: World, queue: Queue) -> None:
    import threading

    seen = []
    made = Worker(queue, lambda job: seen.append(threading.current_thread()), wait_s=1)
    task = asyncio.create_task(made.run())
    await world.broadcast()
    await until_states(world, {"DELIVERED": 1})
    made.stop()
    async with asyncio.timeout(5):
        await task
    assert seen[0] is not threading.main_thread()


class _Callable:
    """A handler that is an object, as frameworks make them."""

    def __init__(self, ran: list[bytes]) -> None:
        self._ran = ran

    async def __call__(self, job: LeasedJob) -> None:
        await _record(self._ran, job)


async def _record(ran: list[bytes], job: LeasedJob) -> None:
    await asyncio.sleep(0)
    ran.append(job.payload)


@pytest.mark.one_database
@pytest.mark.parametrize(
    "make",
    [
        _Callable,
        lambda ran: lambda job: _record(ran, job),
        lambda ran: functools.partial(_record, ran),
        lambda ran: functools.partial(_Callable(ran)),
    ],
    ids=["object", "lambda", "partial", "partial of an object"],
)
async def test_a_job_is_completed_after_the_handler_ran_whatever_kind_of_callable_it_is(
    world: World, queue: Queue, make: Callable[[list[bytes]], Callable[[LeasedJob], Any]]
) -> None:
    ran: list[bytes] = []
    made = Worker(queue, make(ran), wait_s=1)
    task = asyncio.create_task(made.run())
    await world.broadcast("work")
    await until_states(world, {"DELIVERED": 1})
    assert ran == [b"work"]
    made.stop()
    async with asyncio.timeout(5):
        await task


@pytest.mark.one_database
async def test_a_handler_that_yields_fails_its_jobs_and_says_why(
    world: World, queue: Queue
) -> None:
    def work(job: LeasedJob) -> Iterator[None]:
        yield

    made = Worker(queue, work, wait_s=1)
    task = asyncio.create_task(made.run())
    await world.broadcast()
    await until(lambda: made.failed >= 1, within=10)
    await until_states(world, {"QUEUED": 1})
    made.stop()
    async with asyncio.timeout(5):
        await task
    assert made.completed == 0


async def test_a_long_job_is_kept_alive_and_a_lost_one_is_cancelled(
    world: World, queue: Queue
) -> None:
    cancelled = asyncio.Event()
    release = asyncio.Event()

    async def work(job: LeasedJob) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await world.broadcast()
    job = (await world.queued())[0]["ID"]
    made = Worker(queue, work, lease_s=1, wait_s=1)
    task = asyncio.create_task(made.run())
    await until_states(world, {"INFLIGHT": 1})

    async def has_moved(before: Any) -> bool:
        return bool((await world.job(job))["lease_expires_at"] != before)

    for _ in range(3):
        before = (await world.job(job))["lease_expires_at"]
        world.clock.advance(0.5)
        await until(partial(has_moved, before), "the lease is not extended")
        assert (await world.sweep()).expired == 0

    async def has_expired() -> bool:
        return (await world.sweep(2)).expired == 1

    # A heartbeat may come between the time that passes and the look.
    await until(has_expired, "the lease does not expire")
    async with asyncio.timeout(60):
        await cancelled.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.lost == 1


@pytest.mark.one_database
async def test_a_stopped_worker_finishes_what_it_has(world: World, queue: Queue) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work(job: LeasedJob) -> None:
        begun.set()
        await may_end.wait()

    made = Worker(queue, work, wait_s=30)
    task = asyncio.create_task(made.run())
    await world.broadcast()
    async with asyncio.timeout(5):
        await begun.wait()
        made.stop()
        may_end.set()
        await task
    assert await states(world) == {"DELIVERED": 1}


@pytest.mark.one_database
async def test_a_worker_whose_service_is_away_ends_as_soon_as_it_is_told_to(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Worker.__module__], "_AGAIN_S", 60.0)
    async with AsyncJobsClient(f"http://127.0.0.1:{peers.free_port()}") as client:
        made = Worker(client.queue("c", "k", channel_token="ct", consumer_token="kt"), print)
        task = asyncio.create_task(made.run())
        await until(lambda: "no jobs for now" in caplog.text, "it has not asked")
        made.stop()
        async with asyncio.timeout(20):
            await task
