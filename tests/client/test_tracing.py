"""Trace contexts travel with messages: our own, and OpenTelemetry's where it is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peers
from headrace.client import Connection, tracing
from headrace.client.tracing import TraceContext, context_of, current, parse, start, use
from headrace.embedded import Broker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
CONTEXT = TraceContext(TRACE, SPAN, 1, "vendor=1,other=2")


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    async with Broker(port=-1) as broker, broker.connect(tracing=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN, 1)),
        (f" 00-{TRACE}-{SPAN}-00 ", TraceContext(TRACE, SPAN, 0)),
        (f"cc-{TRACE}-{SPAN}-09-what-comes", TraceContext(TRACE, SPAN, 9)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_the_header_is_read_as_the_specification_has_it(
    text: str, found: TraceContext | None
) -> None:
    assert parse(text) == found


@given(st.text(max_size=80), st.text(max_size=600))
def test_nothing_in_the_headers_breaks_the_reader(parent: str, state: str) -> None:
    context = parse(parent, state)
    assert context is None or parse(context.traceparent) is not None
    good = parse(f"00-{TRACE}-{SPAN}-01", state)
    assert good is not None
    assert good.state in ("", state.strip())


def test_a_new_trace_and_its_children() -> None:
    context = start()
    assert parse(context.traceparent) == context
    child = context.child()
    assert child.trace_id == context.trace_id
    assert child.span_id != context.span_id
    assert child.sampled


async def test_every_way_to_publish_carries_the_active_context(connection: Connection) -> None:
    js = connection.jetstream()
    await js.create_stream(name="S", subjects=["s.>"], storage="memory")
    heard = await connection.subscribe(">")
    with use(CONTEXT):
        await connection.publish("core", headers={"A": "1"})
        await js.publish("s.one")
        async with js.publisher() as publisher:
            await publisher.send("s.window", b"x")
            await publisher.send_many([("s.many", b"x"), ("s.many", b"y")])
    await connection.publish("without")
    contexts: dict[str, list[TraceContext | None]] = {}
    while "without" not in contexts:
        message = await heard.next(2)
        if not message.subject.startswith(("$", "_")):
            contexts.setdefault(message.subject, []).append(context_of(message))
    assert contexts == {
        "core": [CONTEXT],
        "s.one": [CONTEXT],
        "s.window": [CONTEXT],
        "s.many": [CONTEXT, CONTEXT],
        "without": [None],
    }


async def test_a_receiver_goes_on_with_the_senders_trace(connection: Connection) -> None:
    service = await connection.subscribe("service")
    inbox = await connection.subscribe("answer")
    with use(CONTEXT):
        await connection.publish("service", reply="answer")
    message = await service.next(2)
    with use(context_of(message)):
        assert current() == CONTEXT
        await message.respond(b"!")
    assert current() is None
    assert context_of(await inbox.next(2)) == CONTEXT


async def test_a_context_given_by_hand_is_left_alone(connection: Connection) -> None:
    heard = await connection.subscribe("x")
    other = start()
    with use(CONTEXT):
        await connection.publish("x", headers={"traceparent": other.traceparent})
    assert context_of(await heard.next(2)) == other


async def test_nothing_is_added_unless_asked_for() -> None:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        heard = await connection.subscribe("x")
        with use(CONTEXT):
            await connection.publish("x")
        assert (await heard.next(2)).raw_headers == b""


def test_with_opentelemetry_its_current_span_is_the_context() -> None:
    otel = peers.package("opentelemetry.trace")
    span = otel.NonRecordingSpan(
        otel.SpanContext(
            int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=otel.TraceFlags(1)
        )
    )
    with otel.use_span(span):
        assert current() == TraceContext(TRACE, SPAN, 1)
        assert f"traceparent: 00-{TRACE}-{SPAN}-01".encode() in tracing.with_trace(b"")
    with use(CONTEXT):
        seen = otel.get_current_span().get_span_context()
        assert seen.is_remote
        assert f"{seen.trace_id:032x}" == TRACE
        assert seen.trace_state["vendor"] == "1"
    assert not otel.get_current_span().get_span_context().is_valid


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    importlib.reload(tracing)
    yield
    monkeypatch.undo()
    importlib.reload(tracing)


@pytest.mark.usefixtures("without_opentelemetry")
def test_without_opentelemetry_the_context_is_our_own() -> None:
    context = tracing.start()
    with tracing.use(context):
        assert tracing.current() == context
        block = tracing.with_trace(b"")
    assert tracing.current() is None
    assert context.traceparent.encode() in block
