"""Both clients of the job service do the same: every test here is told to each of them."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

import peers
from headrace.errors import ConfigurationError
from headrace.jobs.client import (
    AsyncJobsClient,
    BlockingWorker,
    Fail,
    JobsClient,
    JobsError,
    LeasedJob,
    OutgoingMessage,
    Tokens,
    Worker,
    worker,
)
from jobs_world import World

PUBLISHER = {"channel_token": "ct", "producer": "p", "producer_token": "pt"}
TOKENS = {"channel_token": "ct", "consumer_token": "kt"}
CLIENTS = [AsyncJobsClient, JobsClient]

pytestmark = pytest.mark.one_database


async def said(thing: Any, name: str, /, *args: Any, **keywords: Any) -> Any:
    """Call a method of a client or a queue, of either kind, and list what it iterates over."""
    method = getattr(thing, name)
    if isinstance(thing, AsyncJobsClient) or inspect.iscoroutinefunction(method):
        result = method(*args, **keywords)
        if inspect.isasyncgen(result):
            return [each async for each in result]
        return await result if inspect.isawaitable(result) else result

    def call() -> Any:
        result = method(*args, **keywords)
        return list(result) if isinstance(result, Iterator) else result

    return await asyncio.to_thread(call)


@pytest.fixture(params=CLIENTS, ids=["asyncio", "blocking"])
async def client(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Any]:
    made = request.param(address)
    yield made
    await said(made, "close")


@pytest.mark.parametrize("made", CLIENTS, ids=["asyncio", "blocking"])
@pytest.mark.parametrize(
    ("url", "reads"),
    [("http://127.0.0.1:1", 0), ("HTTP://127.0.0.1:1", 0), ("https://127.0.0.1:1", 1)],
)
async def test_certificates_are_read_where_tls_is_spoken_alone(
    made: Any, url: str, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    for name in ("load_verify_locations", "load_default_certs", "set_default_verify_paths"):
        monkeypatch.setattr(ssl.SSLContext, name, lambda *_, name=name, **__: read.append(name))
    client = made(url)
    trust = getattr(client, "_inner", client)._sender.settings.trust()
    await said(client, "close")
    assert len(read) == reads
    assert trust is True or (trust.check_hostname and trust.verify_mode is ssl.CERT_REQUIRED)


async def test_what_is_defined_can_be_changed(client: Any) -> None:
    await said(client, "put_producer", "q", token="qt")
    await said(client, "put_channel", "d", token="dt", name="first")
    await said(client, "put_channel", "d", name="second")
    created = await said(client, "put_consumer", "d", "h", callback_url="http://127.0.0.1:1/")
    changed = await said(client, "put_consumer", "d", "h", max_retries=3)
    assert (created["Type"], changed["Type"]) == ("push", "push")
    patched = await said(client, "patch_consumer", "d", "h", paused=True, name="the hook")
    assert (patched["paused"], patched["name"]) == (True, "the hook")
    secret = await said(client, "rotate_secret", "d", "h")
    assert secret != await said(client, "rotate_secret", "d", "h", keep_previous=False)
    token = await said(client, "rotate_token", "d", "h")
    assert await said(client, "rotate_token", "d", "h", token=token, keep_previous=False) == token
    consumers = (await said(client, "status"))["consumers"]
    assert {(one["channel"], one["consumer"]) for one in consumers} == {("c", "k"), ("d", "h")}
    assert isinstance(await said(client, "events"), list)
    with pytest.raises(JobsError) as refused:
        await said(client, "put_consumer", "nowhere", "h", callback_url="http://127.0.0.1:1/")
    assert refused.value.status == 404


async def test_a_job_is_claimed_kept_failed_requeued_and_completed(client: Any) -> None:
    queue = client.queue("c", "k", **TOKENS)
    await said(client, "publish", "c", b"1", message_id="m", metadata={"X-T": "1"}, **PUBLISHER)
    (job,) = await said(queue, "claim", 5, lease_s=20)
    assert (job.payload, job.message_id, job.headers, job.attempt) == (b"1", "m", {"X-T": "1"}, 1)
    assert [result.code for result in await said(queue, "heartbeat", [job], 60)] == ["ok"]
    await said(queue, "fail", [job], "not for us", dead=True)
    assert (await said(client, "job", "c", "k", job.id))["last_error"] == "not for us"
    (dead,) = await said(client, "dead_jobs", "c", "k")
    assert dead["LastError"] == "not for us"
    await said(client, "requeue_dead", "c", "k", consumer_token="kt")
    (job,) = await said(queue, "claim")
    await said(queue, "release", [job])
    (job,) = await said(queue, "claim")
    assert [result.code for result in await said(queue, "complete", [job])] == ["ok"]
    assert [result.code for result in await said(queue, "release", [job])] == ["lease_lost"]
    assert await said(client, "purge_dead", "c", "k", **TOKENS) == 0


async def test_text_in_metadata_arrives_and_what_no_header_carries_is_refused(client: Any) -> None:
    text = {"X-Name": "Zo\u00eb \u20ac"}
    await said(client, "publish", "c", b"1", metadata=text, **PUBLISHER)
    batch = [OutgoingMessage(payload=b"2", metadata=text)]
    await said(client, "publish_batch", "c", batch, **PUBLISHER)
    queue = client.queue("c", "k", **TOKENS)
    assert [job.headers for job in await said(queue, "claim", 9)] == [text, text]
    refused = ({"X": "a\0b"}, {"X": "a\nb"}, {"X": " a"}, {"X": "\ud800"}, {"X\u20ac": "a"})
    for metadata in refused:
        with pytest.raises(JobsError, match=r"no header carries|no name of a header"):
            await said(client, "publish", "c", b"1", metadata=metadata, **PUBLISHER)
        with pytest.raises(JobsError, match=r"no header carries|no name of a header"):
            batch = [OutgoingMessage(payload=b"2", metadata=metadata)]
            await said(client, "publish_batch", "c", batch, **PUBLISHER)


@pytest.mark.parametrize("token", ["a\ud800", "a\n", "a\0b", " a"])
async def test_an_admin_token_that_no_header_carries_is_refused_where_it_is_given(
    token: str,
) -> None:
    for made in (AsyncJobsClient, JobsClient):
        with pytest.raises(JobsError, match=r"admin_token has .* which no header carries"):
            made("http://127.0.0.1:8080", admin_token=token)


async def test_the_queue_can_be_named_in_each_call(client: Any) -> None:
    named = ("c", "k", Tokens(**TOKENS))
    for number in range(4):
        await said(client, "publish", "c", b"%d" % number, **PUBLISHER)
    jobs = await said(client, "claim", *named, 4)
    for what, more in (("heartbeat", ()), ("complete", ()), ("release", ()), ("fail", ("why",))):
        results = await said(
            client, what, *named, [jobs.pop()] if what != "heartbeat" else jobs, *more
        )
        assert {result.code for result in results} == {"ok"}, what


async def test_a_refusal_is_told_in_the_services_own_words(client: Any) -> None:
    with pytest.raises(JobsError) as refused:
        await said(client.queue("c", "k", channel_token="ct", consumer_token="x"), "claim")
    told = refused.value
    assert (told.status, told.code, told.field) == (403, "wrong_token", "X-Broker-Consumer-Token")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_nobody_there_is_said_so(kind: Any, free_port: int) -> None:
    client = kind(f"http://127.0.0.1:{free_port}")
    with pytest.raises(JobsError, match=r"^the service did not answer: "):
        await said(client, "status")
    await said(client, "close")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_closed_client_says_that_it_is_closed(kind: Any) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"jobs": [], "consumers": []})

    client = kind("http://jobs", transport=httpx2.MockTransport(answer))
    queue = client.queue("c", "k", **TOKENS)
    await said(client, "status")
    for _ in range(2):
        await said(client, "close")
    for asked in ((client, "status"), (client, "find_jobs", "c"), (queue, "claim")):
        with pytest.raises(JobsError, match=r"^the client is closed") as refused:
            await said(*asked)
        assert (refused.value.status, refused.value.code) == (0, "client_closed")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_batch_is_refused_as_a_whole_or_job_by_job(kind: Any) -> None:
    answers = [
        httpx2.Response(409, json={"results": [{"id": "1", "status": 409, "code": "lease_lost"}]}),
        httpx2.Response(409, json={"code": "paused", "message": "not now"}),
    ]
    client = kind("http://jobs", transport=httpx2.MockTransport(lambda request: answers.pop(0)))
    queue = client.queue("c", "k", **TOKENS)
    assert [result.code for result in await said(queue, "complete", [])] == ["lease_lost"]
    with pytest.raises(JobsError, match="409 paused: not now"):
        await said(queue, "complete", [])
    await said(client, "close")


@pytest.mark.parametrize("kind", CLIENTS)
async def test_an_answer_is_awaited_as_long_as_was_asked(kind: Any) -> None:
    allowed: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        allowed.append(request.extensions["timeout"]["read"])
        return httpx2.Response(200, json={"jobs": [], "deletedCount": 0, "consumers": []})

    client = kind("http://jobs", timeout_s=5, transport=httpx2.MockTransport(answer))
    await said(client, "status")
    await said(client.queue("c", "k", **TOKENS), "claim", wait_s=20)
    await said(client, "purge_dead", "c", "k", **TOKENS)
    await said(client, "close")
    assert allowed == [5, 25, 600]


# Workers


async def test_a_blocking_worker_works_on_as_many_threads_as_was_asked_until_it_is_stopped(
    world: World, address: str
) -> None:
    at_once = threading.Barrier(40)  # more than an event loop's own threads, wherever it runs
    done: list[bytes] = []
    for number in range(40):
        await world.broadcast(str(number))
    await world.broadcast("never", X_Broker_Message_Priority="9")
    with JobsClient(address) as client:

        @worker(client.queue("c", "k", **TOKENS), concurrency=41, wait_s=1)
        def work(job: LeasedJob) -> None:
            if job.payload == b"never":
                raise Fail("not for us", dead=True)
            at_once.wait(10)
            done.append(job.payload)
            work.stop()

        assert isinstance(work, BlockingWorker)
        assert (work.completed, work.failed, work.lost) == (0, 0, 0)
        await asyncio.wait_for(asyncio.to_thread(work.run), 20)
    assert sorted(done, key=int) == [b"%d" % number for number in range(40)]
    assert (work.completed, work.failed, work.lost) == (40, 1, 0)


async def test_a_blocking_worker_says_where_it_cannot_run(address: str) -> None:
    with JobsClient(address) as client:
        made = BlockingWorker(client.queue("c", "k", **TOKENS), print, wait_s=0.1)
        with pytest.raises(ConfigurationError, match="event loop"):
            made.run()
        made.stop()
        with made._lock:  # as a signal's handler finds it
            made.stop()
        await asyncio.wait_for(asyncio.to_thread(made.run), 5)


async def test_no_worker_works_on_nothing_at_once(address: str) -> None:
    async with AsyncJobsClient(address) as client:
        with pytest.raises(ConfigurationError, match="concurrency is 0"):
            Worker(client.queue("c", "k", **TOKENS), print, concurrency=0)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What OpenTelemetry's SDK recorded."""
    sdk = peers.package("opentelemetry.sdk.trace")
    export = peers.package("opentelemetry.sdk.trace.export")
    memory = peers.package("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


async def test_a_trace_goes_on_where_the_job_is_worked_on(client: Any, spans: Any) -> None:
    otel: Any = peers.package("opentelemetry.trace")
    queue = client.queue("c", "k", **TOKENS)
    with otel.get_tracer("test").start_as_current_span("order") as order:
        await said(client, "publish", "c", b"1", metadata={"X-T": "1"}, **PUBLISHER)
    seen: list[Any] = []

    def work(job: LeasedJob) -> None:
        seen.append((job.headers, otel.get_current_span().get_span_context()))
        made.stop()
        raise Fail("not today", dead=True)

    kind: Any = BlockingWorker if isinstance(client, JobsClient) else Worker
    made = kind(queue, work, wait_s=1)
    await said(made, "run")
    published, processed = (
        next(each for each in spans.get_finished_spans() if each.name == name)
        for name in ("publish c", "process c/k")
    )
    ((headers, current),) = seen
    assert headers.keys() == {"X-T", "traceparent"}
    assert published.parent.span_id == order.get_span_context().span_id
    assert processed.parent.span_id == published.context.span_id
    assert current.span_id == processed.context.span_id
    assert processed.attributes["headrace.job.attempt"] == 1
    assert processed.status.status_code is otel.StatusCode.ERROR


async def test_without_a_trace_nothing_is_added(client: Any, spans: Any) -> None:
    await said(client, "publish", "c", b"1", **PUBLISHER)
    (job,) = await said(client.queue("c", "k", **TOKENS), "claim")
    assert job.headers == {}
    assert spans.get_finished_spans() == ()
