"""Spans of OpenTelemetry's SDK: from a publish to the acknowledgement, in either client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import peers
from headrace import ServiceError, sync
from headrace.client import Connection, JetStreamMessage, Message, tracing
from headrace.client.spans import Spans
from headrace.embedded import Broker
from headrace.groups import GroupMessage, HandlerFailedError, elastic
from waiting import until

otel = peers.package("opentelemetry.trace")
sdk = peers.package("opentelemetry.sdk.trace")
export = peers.package("opentelemetry.sdk.trace.export")
memory = peers.package("opentelemetry.sdk.trace.export.in_memory_span_exporter")


class Recorded:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = memory.InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> Any:
        """The only one of this name."""
        (span,) = (each for each in self.exporter.get_finished_spans() if each.name == name)
        return span

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    recorded = Recorded()
    monkeypatch.setattr(otel, "get_tracer", recorded.provider.get_tracer)
    yield recorded
    recorded.provider.shutdown()


@pytest.fixture
async def connection(spans: Recorded) -> AsyncIterator[Connection]:
    async with Broker(port=-1) as broker, broker.connect(tracing=True) as connection:
        await connection.jetstream().create_stream(name="S", subjects=["orders.>"])
        yield connection


async def test_one_trace_leads_from_the_publish_to_the_acknowledgement(
    connection: Connection, spans: Recorded
) -> None:
    js = connection.jetstream()
    await js.publish("orders.17", b"two apples")
    consumer = await js.create_consumer("S", durable_name="mill")
    done = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        await connection.publish("ground.17")
        message.ack()
        done.set()

    async with consumer.consume(handle):
        await asyncio.wait_for(done.wait(), 5)
    published, processed = spans.named("publish orders.*"), spans.named("process orders.*")
    assert published.kind is otel.SpanKind.PRODUCER
    assert processed.kind is otel.SpanKind.CONSUMER
    assert processed.parent.span_id == published.context.span_id
    assert processed.context.trace_id == published.context.trace_id
    assert dict(published.attributes) == {
        "messaging.system": "nats",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.destination.name": "orders.17",
        "messaging.message.body.size": 10,
        "messaging.nats.stream": "S",
        "messaging.nats.stream_sequence": 1,
        "messaging.nats.duplicate": False,
    }
    assert processed.attributes["messaging.consumer.group.name"] == "mill"
    assert processed.attributes["messaging.nats.delivered"] == 1
    assert [event.name for event in processed.events] == ["ack"]


@pytest.mark.parametrize(
    ("answer", "events"), [("nak", ["nak"]), ("term", ["term"]), ("is_answered", [])]
)
async def test_a_loop_of_ones_own_has_a_span_for_each_message(
    connection: Connection, spans: Recorded, answer: str, events: list[str]
) -> None:
    js = connection.jetstream()
    await js.publish("orders.1")
    consumer = await js.create_consumer("S", durable_name="c")
    (message,) = await consumer.fetch(10)
    with pytest.raises(KeyError), tracing.processing(message):
        if callable(call := getattr(message, answer)):
            call()
        raise KeyError("of the program")
    span = spans.named("process orders.*")
    assert [event.name for event in span.events] == [*events, "exception"]
    assert span.status.status_code is otel.StatusCode.ERROR


async def test_an_iteration_has_a_span_for_each_turn_in_its_senders_trace(
    connection: Connection, spans: Recorded
) -> None:
    js = connection.jetstream()
    consumer = await js.create_consumer("S", durable_name="c")
    senders = []
    for number in range(3):
        with spans.provider.get_tracer("test").start_as_current_span(f"sender {number}") as sender:
            await js.publish(f"orders.{number}", b"x")
        senders.append(sender.get_span_context())
    spans.exporter.clear()
    with spans.provider.get_tracer("test").start_as_current_span("worker") as own:
        async with consumer.consume() as messages:
            async for message in messages:
                await connection.publish("ground.coffee", headers={"N": message.subject})
                if message.subject == "orders.1":
                    message.nak(60)
                else:
                    message.ack()
                assert otel.get_current_span() is not own
                if message.subject == "orders.2":
                    break
        assert otel.get_current_span() is own, "the loop is left"
    processed = [s for s in spans.exporter.get_finished_spans() if s.name.startswith("process")]
    assert [s.context.trace_id for s in processed] == [s.trace_id for s in senders]
    assert all(s.parent is not None and s.parent.is_remote for s in processed)
    assert [[event.name for event in s.events] for s in processed] == [["ack"], ["nak"], ["ack"]]
    assert [s.attributes["messaging.nats.stream_sequence"] for s in processed] == [1, 2, 3]


async def test_several_callbacks_at_once_have_spans_of_their_own(
    connection: Connection, spans: Recorded
) -> None:
    js = connection.jetstream()
    consumer = await js.create_consumer("S", durable_name="c")
    for number in range(6):
        await js.publish("orders.x", b"%d" % number)
    published = {s.context.trace_id for s in spans.exporter.get_finished_spans()}
    seen: list[int] = []

    def handle(message: JetStreamMessage) -> None:  # on a thread
        current = tracing.current()
        assert current is not None
        seen.append(int(current.trace_id, 16))
        message.ack()

    async with consumer.consume(handle, concurrency=3):
        await until(lambda: len(seen) == 6)
    assert set(seen) == published and len(published) == 6


async def test_a_request_and_who_answers_it(connection: Connection, spans: Recorded) -> None:
    def double(message: Message) -> bytes:
        if not message.payload:
            raise ServiceError(400, "empty")
        return message.payload * 2

    async with await connection.add_service("calc", version="1.0.0") as service:
        await service.add_endpoint("double", double)
        await connection.request("double", b"1")
        request, answer = spans.named("request double"), spans.named("process double")
        assert (request.kind, answer.kind) == (otel.SpanKind.CLIENT, otel.SpanKind.SERVER)
        assert answer.parent.span_id == request.context.span_id
        spans.exporter.clear()
        with pytest.raises(ServiceError):
            await connection.request("double")
        for name in ("request double", "process double"):
            assert spans.named(name).status.status_code is otel.StatusCode.ERROR


async def test_upkeep_is_a_part_of_a_trace_and_begins_none(
    connection: Connection, spans: Recorded
) -> None:
    js = connection.jetstream()
    bucket = await js.create_key_value("B")
    consumer = await (await js.stream("S")).create_consumer(durable_name="c")
    await js.publish("orders.a", b"x")
    spans.exporter.clear()
    await bucket.put("k", b"1")
    await bucket.delete("k")
    (message,) = await consumer.fetch(1)
    await message.ack_sync()
    await connection.request("$JS.API.INFO")
    assert spans.names() == []
    with spans.provider.get_tracer("mine").start_as_current_span("look"):
        await bucket.put("k", b"2")
        await connection.request("$JS.API.INFO")
    look = spans.named("look")
    for name in ("publish $KV.B.k", "request $JS.API.INFO"):
        assert spans.named(name).parent.span_id == look.context.span_id
    assert len(spans.names()) == 3


async def test_a_plain_callback_and_a_message_without_a_trace(
    connection: Connection, spans: Recorded
) -> None:
    seen: list[tracing.TraceContext | None] = []
    async with await connection.subscribe(
        "plain.>", callback=lambda m: seen.append(tracing.current())
    ):
        await connection.publish("plain.text")
        await connection.flush()
    assert spans.named("process plain.text").parent is None
    assert seen[0] is not None


async def test_without_the_option_there_is_none(spans: Recorded) -> None:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["orders.>"])
        await js.publish("orders.1")
        async with await connection.subscribe("a", callback=lambda message: None):
            await connection.publish("a")
            await connection.flush()
    assert spans.names() == []


def test_threads(spans: Recorded) -> None:
    with sync.Broker(port=-1) as broker, broker.connect(tracing=True) as connection:
        js = connection.jetstream()
        js.create_stream(name="S", subjects=["orders.>", "ground.>"])
        js.publish("orders.one")

        def handle(message: sync.JetStreamMessage) -> None:
            if message.subject == "orders.one":
                js.publish("ground.one")
            message.ack()

        consumer = js.create_consumer("S", durable_name="c")
        with consumer.consume(handle) as consumption:
            while "process ground.one" not in spans.names():
                consumer.info()
            consumption.stop()
    first, second = spans.named("publish orders.one"), spans.named("publish ground.one")
    assert second.context.trace_id == first.context.trace_id
    assert second.parent.span_id == spans.named("process orders.one").context.span_id


def test_without_opentelemetry_there_are_contexts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_otel", None)
    assert Spans.if_installed() is None

    class Received:
        raw_headers = (
            b"NATS/1.0\r\ntraceparent: " + tracing.start().traceparent.encode() + b"\r\n\r\n"
        )

    with tracing.processing(Received()):
        assert tracing.current() == tracing.context_of(Received())


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_members_handler_continues_the_trace_of_who_published(
    connection: Connection, spans: Recorded, kind: str
) -> None:
    js = connection.jetstream()
    await elastic.create(js, "S", "mill", 2, members=["a"])
    await js.publish("orders.17", b"two apples")
    inside: list[str] = []
    done = threading.Event()

    def plain(message: GroupMessage) -> None:
        active = tracing.current()
        inside.append(active.trace_id if active is not None else "")
        with tracing.processing(message):
            message.ack()
        done.set()

    async def coroutine(message: GroupMessage) -> None:
        plain(message)

    async with elastic.join(js, "S", "mill", "a", plain if kind == "plain" else coroutine):
        await until(done.is_set)
    published = spans.named("publish orders.*")
    first, second = (
        each for each in spans.exporter.get_finished_spans() if each.name == "process orders.*"
    )
    assert inside == [f"{published.context.trace_id:032x}"]
    for span in (first, second):
        assert span.parent.span_id == published.context.span_id
        assert span.attributes["messaging.nats.stream"] == "S-mill"
        assert [event.name for event in span.events] == ["ack"]


@pytest.mark.parametrize("when", ["on_start", "on_end"])
async def test_tracing_that_fails_ends_no_membership_and_hides_no_error(
    connection: Connection,
    spans: Recorded,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise OSError("the collector is full")

    monkeypatch.setattr(export.SimpleSpanProcessor, when, fail)
    js = connection.jetstream()
    await elastic.create(js, "S", "mill", 2, members=["a"])
    handled: list[bytes] = []

    async def handle(message: GroupMessage) -> None:
        with tracing.processing(message):
            handled.append(message.payload)
            message.ack()
            if message.payload == b"2":
                raise ZeroDivisionError("the handler's own")

    async with elastic.join(js, "S", "mill", "a", handle) as membership:
        for number in range(3):
            await js.publish("orders.17", b"%d" % number)
        with pytest.raises(HandlerFailedError, match="the handler's own"):
            await membership.wait()
    assert handled == [b"0", b"1", b"2"]
    assert "the collector is full" in caplog.text
