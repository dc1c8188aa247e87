"""What a handler can do and see, of a coroutine, of a function on a thread, and of a blocking worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.jobs.client import (
    AsyncJobsClient,
    BlockingWorker,
    JobCancelled,
    JobsClient,
    JobsError,
    Progress,
    RunningJob,
    Worker,
)
from jobs_world import World, held, jobs_client
from waiting import block, until

TOKENS = {"channel_token": "ct", "consumer_token": "kt"}

Made = Callable[..., Any]


async def found(world: World) -> dict[str, Any]:
    """The only job there is, as lists show it."""
    response = await world.http.get("/v2/channel/c/jobs")
    (job,) = response.json()["jobs"]
    shown: dict[str, Any] = job
    return shown


@pytest.fixture(params=["coroutine", "function", "blocking"])
async def working(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Made]:
    """Start a worker over the queue of ``k`` for a plain function, which two of the three run on threads."""
    started: list[tuple[Any, asyncio.Task[None]]] = []
    kind = request.param
    async with AsyncJobsClient(address) as client, contextlib.AsyncExitStack() as stack:

        def start(handler: Callable[[RunningJob], object], **options: Any) -> Any:
            options = {"wait_s": 1.0, "lease_s": 1.0, **options}
            made: Any
            if kind == "blocking":
                blocking = stack.enter_context(JobsClient(address))
                made = BlockingWorker(blocking.queue("c", "k", **TOKENS), handler, **options)
                task = asyncio.create_task(asyncio.to_thread(made.run))
            else:

                async def called(job: RunningJob) -> None:
                    handler(job)

                queue = client.queue("c", "k", **TOKENS)
                made = Worker(queue, called if kind == "coroutine" else handler, **options)
                task = asyncio.create_task(made.run())
            started.append((made, task))
            return made

        yield start
        for made, task in started:
            made.stop()
            async with asyncio.timeout(60):
                await task


@pytest.mark.one_database
async def test_what_is_around_a_handler_is_entered_where_it_runs_and_sees_what_it_raises(
    world: World, working: Made
) -> None:
    said: list[str] = []
    threads: set[int] = set()

    def around(name: str) -> Callable[[RunningJob], Any]:
        @contextmanager
        def hook(job: RunningJob) -> Iterator[None]:
            said.append(f"{name} begins {job.payload.decode()}")
            threads.add(threading.get_ident())
            try:
                yield
            except ValueError as error:
                said.append(f"{name} sees {error}")
                raise
            said.append(f"{name} ends")

        return hook

    def work(job: RunningJob) -> None:
        threads.add(threading.get_ident())
        said.append("handler")
        if job.payload == b"bad":
            raise ValueError("bad")

    made = working(work, around=[around("outer"), around("inner")], concurrency=1)
    await world.broadcast("good")
    await until(lambda: made.completed == 1, within=60)
    assert said == [
        *("outer begins good", "inner begins good", "handler", "inner ends", "outer ends")
    ]
    assert len(threads) == 1
    said.clear()
    await world.broadcast("bad")
    await until(lambda: made.failed == 1, within=60)
    assert said[-2:] == ["inner sees bad", "outer sees bad"]


@pytest.mark.one_database
async def test_what_is_around_a_handler_may_keep_an_error_and_may_refuse_the_job(
    world: World, working: Made
) -> None:
    @contextmanager
    def hook(job: RunningJob) -> Iterator[None]:
        if job.payload == b"refused":
            raise PermissionError("not this one")
        with contextlib.suppress(ValueError):
            yield

    def work(job: RunningJob) -> None:
        assert job.payload != b"refused"
        raise ValueError("kept")

    made = working(work, around=[hook])
    await world.broadcast("kept")
    await until(lambda: made.completed == 1, within=60)
    await world.broadcast("refused")
    await until(lambda: made.failed == 1, within=60)
    assert made.completed == 1


@pytest.mark.one_database
async def test_a_coroutine_may_have_an_asynchronous_context_manager_around_it(world: World) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def hook(job: RunningJob) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        said.append("before")
        yield
        await asyncio.sleep(0)
        said.append("after")

    async def work(job: RunningJob) -> None:
        said.append("work")

    async def run(handler: Any) -> Worker:
        async with jobs_client(world.runtime) as client:
            made = Worker(client.queue("c", "k", **TOKENS), handler, around=[hook], wait_s=1)
            task = asyncio.create_task(made.run())
            await world.broadcast()
            await until(lambda: made.completed + made.failed == 1, within=60)
            made.stop()
            async with asyncio.timeout(60):
                await task
        return made

    assert (await run(work)).completed == 1
    assert said == ["before", "work", "after"]
    # A function has no loop to await on, and what it returns to be awaited would escape the hook.
    assert (await run(lambda job: None)).failed == 1
    assert said == ["before", "work", "after"]


async def test_progress_is_shown_in_lists_and_of_the_job_within_a_heartbeat(
    world: World, working: Made
) -> None:
    go, ended = threading.Event(), threading.Event()

    def work(job: RunningJob) -> None:
        job.progress(0.25, "page 1 of 4")
        job.progress(0.5, "page 2 of 4")
        go.set()
        if threading.current_thread() is not threading.main_thread():
            ended.wait(60)

    made = working(work, lease_s=30.0)
    await world.broadcast()
    await until(go.is_set, within=60)
    try:

        async def shown() -> Any:
            """What was said last; a heartbeat may come before that."""
            progress = (await found(world))["progress"] or {}
            return made.completed or (progress.get("done") == 0.5 and progress)

        told = await until(shown, "nothing is told", within=60)
        if not made.completed:  # on the loop, the job ends before it can be told
            assert told["note"] == "page 2 of 4"
            job = await found(world)
            assert (await world.job(job["id"]))["progress"] == told
    finally:
        ended.set()
    await until(lambda: made.completed == 1, within=60)


async def test_progress_is_of_its_attempt_and_cannot_be_nonsense(world: World) -> None:
    await world.broadcast()
    (job,) = await world.claim()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"done": 1.5}, "jobs.progress.done"),
        ({"done": -0.1}, "jobs.progress.done"),
        ({"note": "x" * 256}, "jobs.progress.note"),
        ({}, "jobs.progress"),
    ]
    for progress, field in wrong:
        items: list[dict[str, Any]] = [{**held(job)[0], "progress": progress}]
        assert (await world.lease("heartbeat", 400, jobs=items))["field"] == field
    assert (await found(world))["progress"] is None
    note = 'half\0 "way" \u00fc \U0001f680'
    items = [{**held(job)[0], "progress": {"done": 0.5, "note": note}}]
    await world.lease("heartbeat", jobs=items)
    told = (await found(world))["progress"]
    assert (told["done"], told["note"]) == (0.5, note)
    await world.lease("heartbeat", jobs=held(job))  # says nothing new
    assert (await found(world))["progress"] == told
    failed = [{**held(job)[0], "reason": "no", "retry_in_seconds": 1}]
    await world.lease("fail", jobs=failed)
    assert (await found(world))["progress"] == told  # how far it came
    world.clock.advance(2)
    (again,) = await world.claim()
    assert (await found(world))["progress"] is None
    items = [{**held(again)[0], "progress": {"note": "from the start"}}]
    await world.lease("heartbeat", jobs=items)
    told = (await found(world))["progress"]
    assert (told["done"], told["note"]) == (None, "from the start")


async def test_whoever_has_no_worker_says_progress_with_a_heartbeat(
    world: World, address: str
) -> None:
    await world.broadcast()
    async with AsyncJobsClient(address) as client:
        queue = client.queue("c", "k", **TOKENS)
        (job,) = await queue.claim()
        (result,) = await queue.heartbeat([job], progress={job.id: Progress(0.75)})
        assert result.status == 200
        assert (await found(world))["progress"]["done"] == 0.75


@pytest.mark.parametrize(("done", "note"), [(1.01, ""), (-1, "x"), (float("nan"), "x"), (None, "")])
def test_progress_that_cannot_be_is_refused_where_it_is_said(done: float | None, note: str) -> None:
    with pytest.raises(ValueError, match="accepted"):
        Progress.made(done, note)
    assert Progress.made(1, "\ud800" + "x" * 999).note == "?" + "x" * 254


@pytest.mark.one_database
async def test_a_function_sees_that_its_job_was_cancelled_and_has_its_place_until_it_returns(
    world: World, address: str
) -> None:
    begun = threading.Event()
    release = threading.Event()
    seen: list[str] = []

    def work(job: RunningJob) -> None:
        if job.payload == b"next":
            seen.append("next")
            return
        begun.set()
        while not job.is_cancelled:
            block(0.01)
        release.wait(60)
        seen.append("cancelled")
        job.raise_if_cancelled()

    await world.broadcast("first")
    with JobsClient(address) as client:
        made = BlockingWorker(
            client.queue("c", "k", **TOKENS), work, concurrency=1, lease_s=1.0, wait_s=1.0
        )
        task = asyncio.create_task(asyncio.to_thread(made.run))
        try:
            await until(begun.is_set, within=60)
            job = (await found(world))["id"]
            await world.http.post("/v2/channel/c/jobs/cancel", json={"job": job})
            await until(lambda: made.cancelled == 1, "never told", within=60)

            async def is_dead() -> bool:
                return await world.state(job) == "DEAD"

            await until(is_dead, "it is not given back", within=60)
            await world.broadcast("next")
            assert seen == []
            release.set()
            await until(lambda: made.completed == 1, "the place is not free", within=60)
        finally:
            release.set()
            made.stop()
            async with asyncio.timeout(60):
                await task
        assert seen == ["cancelled", "next"]
        assert (made.failed, made.lost, made.cancelled) == (0, 0, 1)
        assert (await world.job(job))["last_error"] == "cancelled"


@pytest.mark.one_database
async def test_a_coroutine_is_cancelled_with_its_job_and_may_tidy_up(
    world: World, address: str
) -> None:
    begun, tidied = asyncio.Event(), asyncio.Event()

    async def work(job: RunningJob) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert job.is_cancelled
            with pytest.raises(JobCancelled, match="the job was cancelled"):
                job.raise_if_cancelled()
            tidied.set()

    await world.broadcast()
    async with AsyncJobsClient(address) as client, asyncio.timeout(60):
        made = Worker(client.queue("c", "k", **TOKENS), work, lease_s=1.0, wait_s=1.0)
        task = asyncio.create_task(made.run())
        await begun.wait()
        job = (await found(world))["id"]
        await world.http.post("/v2/channel/c/jobs/cancel", json={"job": job})
        await tidied.wait()
        made.stop()
        await task
    assert (made.completed, made.failed, made.cancelled) == (0, 0, 1)
    assert await world.state(job) == "DEAD"


@pytest.mark.one_database
@pytest.mark.parametrize(
    "raised",
    [
        SystemExit(3),
        StopIteration("odd"),
        asyncio.CancelledError("by itself"),
        BaseExceptionGroup("several", [SystemExit(1)]),
    ],
    ids=lambda raised: type(raised).__name__,
)
async def test_a_handler_that_raises_something_odd_fails_its_job_and_no_other(
    world: World, working: Made, raised: BaseException
) -> None:
    def work(job: RunningJob) -> None:
        if job.payload == b"odd":
            raise raised

    made = working(work)
    await world.broadcast("odd")
    await until(lambda: made.failed == 1, "it is not reported", within=60)
    await world.broadcast("fine")
    await until(lambda: made.completed == 1, "the worker has ended", within=60)


@pytest.mark.one_database
@pytest.mark.parametrize("raised", [KeyboardInterrupt(), GeneratorExit()], ids=repr)
async def test_a_function_that_raises_what_ends_programs_fails_its_job(
    world: World, address: str, raised: BaseException
) -> None:
    def work(job: RunningJob) -> None:
        raise raised

    await world.broadcast()
    with JobsClient(address) as client:
        made = BlockingWorker(client.queue("c", "k", **TOKENS), work, wait_s=1.0)
        task = asyncio.create_task(asyncio.to_thread(made.run))
        try:
            await until(lambda: made.failed == 1, within=60)
        finally:
            made.stop()
            async with asyncio.timeout(60):
                await task
    assert type(raised).__name__ in (await found(world))["last_error"]


@pytest.mark.one_database
async def test_what_still_runs_after_the_time_to_drain_is_given_back_undone(
    world: World, address: str
) -> None:
    begun, release = threading.Event(), threading.Event()
    seen: list[bool] = []

    def work(job: RunningJob) -> None:
        begun.set()
        release.wait(60)
        seen.append(job.is_stopping and job.is_cancelled)

    await world.broadcast()
    with JobsClient(address) as client:
        made = BlockingWorker(
            client.queue("c", "k", **TOKENS), work, lease_s=3600.0, wait_s=1.0, drain_s=0.05
        )
        task = asyncio.create_task(asyncio.to_thread(made.run))
        try:
            await until(begun.is_set, within=60)
            made.stop()
            async with asyncio.timeout(60):  # the lease is an hour
                await task
            job = await found(world)
            assert (job["state"], job["retries"]) == ("QUEUED", 0)
        finally:
            release.set()
        await until(lambda: seen == [True], "the function is not told", within=60)
    assert (made.completed, made.failed, made.lost) == (0, 0, 0)


@pytest.mark.one_database
async def test_a_cancelled_worker_gives_back_what_it_has(world: World, address: str) -> None:
    begun = asyncio.Event()

    async def work(job: RunningJob) -> None:
        begun.set()
        await asyncio.Event().wait()

    await world.broadcast()
    async with AsyncJobsClient(address) as client, asyncio.timeout(60):
        made = Worker(client.queue("c", "k", **TOKENS), work, wait_s=1.0)
        task = asyncio.create_task(made.run())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
    job = await found(world)
    assert (job["state"], job["retries"]) == ("QUEUED", 0)


@pytest.mark.one_database
@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_a_worker_whose_client_is_closed_ends_and_says_so(
    world: World, address: str, ends: str
) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def work(job: RunningJob) -> None:
        begun.set()
        await release.wait()
        if ends == "raises":
            raise ValueError("the handler gives up")

    await world.broadcast()
    async with AsyncJobsClient(address) as client, asyncio.timeout(60):
        made = Worker(client.queue("c", "k", **TOKENS), work, concurrency=1)
        task = asyncio.create_task(made.run())
        await begun.wait()
        await client.close()
        release.set()
        with pytest.raises(JobsError, match=r"^the client is closed"):
            await task


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drain_s": -1}, "drain_s is -1"),
        ({"drain_s": float("nan")}, "drain_s is nan"),
        ({"around": [3]}, "around has 3"),
        ({"concurrency": 0}, "concurrency is 0"),
    ],
)
async def test_options_that_cannot_be_are_refused_by_both_workers(options: Any, words: str) -> None:
    address = "http://127.0.0.1:9"  # nobody is asked
    async with AsyncJobsClient(address) as client:
        with pytest.raises(ConfigurationError, match=words):
            Worker(client.queue("c", "k"), print, **options)
    with JobsClient(address) as blocking, pytest.raises(ConfigurationError, match=words):
        BlockingWorker(blocking.queue("c", "k"), print, **options)
