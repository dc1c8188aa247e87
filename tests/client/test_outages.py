"""What publish, request and the others do while the server is away: nothing is sent behind their caller."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import chaos
import peers
from headrace import sync
from headrace.client import (
    Connection,
    JetStream,
    KeyValue,
    Message,
    ObjectStore,
    PublishFailure,
    connect,
)
from headrace.client.events import ErrorEvent, Event
from headrace.errors import (
    BufferFullError,
    ConnectionClosedError,
    DisconnectedError,
    DisconnectedUnknownError,
    HeadraceError,
    OutcomeUnknownError,
    RequestTimeoutError,
    TimeoutUnknownError,
    UnsentError,
)
from listening import Listening
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

QUICKLY: dict[str, Any] = {"reconnect_wait": 0.005, "reconnect_wait_max": 0.01}
SOON_S = 0.05

Call = Callable[[JetStream], Awaitable[object]]

# Looked up while the server is there.
BUCKETS: dict[JetStream, KeyValue] = {}
OBJECTS: dict[JetStream, ObjectStore] = {}


@pytest.fixture
async def proxy(reference_server: peers.ServerProcess) -> AsyncIterator[chaos.ChaosProxy]:
    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme) as proxy:
        yield proxy


async def away(proxy: chaos.ChaosProxy, *connections: Connection | sync.Connection) -> None:
    await proxy.go_away()
    await until(lambda: not any(each.is_connected for each in connections))


async def back(proxy: chaos.ChaosProxy, *connections: Connection) -> None:
    await proxy.come_back()
    await until(lambda: all(each.is_connected for each in connections))
    for each in connections:
        await each.flush()


async def _batch(js: JetStream) -> object:
    batch = js.batch()
    batch.add("away.batch", b"1")
    batch.add("away.batch", b"2")
    return await batch.commit()


async def _windowed(js: JetStream) -> None:
    async with asyncio.timeout(js._api.timeout), js.publisher() as publisher:
        await publisher.send("away.windowed", b"1")


async def _fast(js: JetStream) -> None:
    async with asyncio.timeout(js._api.timeout), js.publisher(fast=True) as publisher:
        await publisher.send("away.fast", b"1")


async def _core(js: JetStream) -> None:
    await js.connection.request("away.core", b"1", timeout=js._api.timeout)


async def _put(js: JetStream) -> object:
    return await BUCKETS[js].put("key", b"1")


async def _create(js: JetStream) -> object:
    return await BUCKETS[js].create("key", b"1")


async def _update(js: JetStream) -> object:
    return await BUCKETS[js].update("key", b"1", 0)


async def _object(js: JetStream) -> object:
    return await OBJECTS[js].put("thing", b"1" * 1000)


CALLS: dict[str, Call] = {
    "js.publish": lambda js: js.publish("away.publish", b"1"),
    "js.publish with an id": lambda js: js.publish("away.publish", b"1", msg_id="one"),
    "request": _core,
    "atomic batch": _batch,
    "windowed publisher": _windowed,
    "fast publisher": _fast,
    "kv put": _put,
    "kv create": _create,
    "kv update": _update,
    "object put": _object,
    "a call of the API": lambda js: js.create_stream(name="LATE", subjects=["late"]),
    "a read": lambda js: js.account_info(),
}


@pytest.fixture
async def context(
    proxy: chaos.ChaosProxy, connection: Connection, request: pytest.FixtureRequest
) -> AsyncIterator[JetStream]:
    """A context over the proxy, with all that the calls need; it gives up soon."""
    refuses = getattr(request, "param", False)
    seconds = 5.0 if refuses else SOON_S
    steady = connection.jetstream()
    async with connect(proxy.url, fail_while_disconnected=refuses, **QUICKLY) as hurt:
        await steady.create_stream(
            name="AWAY",
            subjects=["away.>"],
            storage="memory",
            allow_atomic=True,
            allow_batched=True,
        )
        await steady.create_key_value("AWAY", storage="memory")
        await steady.create_object_store("AWAY", storage="memory")
        js = hurt.jetstream(timeout=seconds)
        BUCKETS[js] = await hurt.jetstream().key_value("AWAY")
        BUCKETS[js]._api.timeout = seconds
        OBJECTS[js] = await hurt.jetstream().object_store("AWAY")
        OBJECTS[js]._api.timeout = seconds
        yield js
        BUCKETS.clear()
        OBJECTS.clear()
    async for name in steady.stream_names(subject="late"):
        await steady.delete_stream(name)
    await steady.delete_stream("AWAY")
    await steady.delete_key_value("AWAY")
    await steady.delete_object_store("AWAY")


async def stored(connection: Connection) -> int:
    """Messages in all the streams a call may have changed, and 100 for a new one."""
    js = connection.jetstream()
    names = [name async for name in js.stream_names()]
    count = 100 * ("LATE" in names)
    for name in ("AWAY", "KV_AWAY", "OBJ_AWAY"):
        count += (await (await js.stream(name)).info()).state.messages
    return count


@pytest.mark.parametrize("name", CALLS)
async def test_what_timed_out_while_the_server_is_away_is_not_sent_when_it_is_back(
    name: str, proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    listener = await connection.subscribe("away.core")
    await connection.flush()
    await away(proxy, context.connection)
    for _ in range(3):
        with pytest.raises((HeadraceError, TimeoutError)) as caught:
            await CALLS[name](context)
        assert not isinstance(caught.value, OutcomeUnknownError)
        if isinstance(caught.value, HeadraceError):
            assert isinstance(caught.value, RequestTimeoutError)
            assert "not sent" in str(caught.value)
            assert f"disconnected from {context.connection.server} for 0." in str(caught.value)
    assert context.connection.unsent_bytes == 0
    await back(proxy, context.connection)
    assert await stored(connection) == 0
    assert listener.pending_messages == 0
    await listener.unsubscribe()


@pytest.mark.parametrize("name", CALLS)
async def test_what_was_cancelled_while_the_server_is_away_is_not_sent_when_it_is_back(
    name: str, proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    listener = await connection.subscribe("away.core")
    await connection.flush()
    await away(proxy, context.connection)
    calls = [asyncio.ensure_future(CALLS[name](context)) for _ in range(3)]
    await asyncio.wait(calls, timeout=SOON_S / 5)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert context.connection.unsent_bytes == 0
    await back(proxy, context.connection)
    assert await stored(connection) == 0
    assert listener.pending_messages == 0
    await listener.unsubscribe()


@pytest.mark.parametrize("context", [True], indirect=True)
@pytest.mark.parametrize("name", CALLS)
async def test_on_request_everything_fails_at_once_while_the_server_is_away(
    name: str, proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    await away(proxy, context.connection)
    with pytest.raises(DisconnectedError, match=r"not sent.*fail_while_disconnected") as caught:
        async with asyncio.timeout(1):
            await CALLS[name](context)
    assert not isinstance(caught.value, OutcomeUnknownError)
    with pytest.raises(DisconnectedError, match="not sent"):
        await context.connection.publish("away.core")
    await back(proxy, context.connection)
    assert await stored(connection) == 0
    await context.connection.publish("away.core")
    if name != "kv update":  # of what is not there
        await CALLS[name](context)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("js.publish", "had it a msg_id, sent again it is stored once"),
        ("js.publish with an id", "with its msg_id, sent again it is stored once"),
        ("request", "may have been acted on or not"),
        ("atomic batch", "all of it may be stored, or nothing"),
        ("kv put", "may have been acted on or not"),
        ("a call of the API", "may have been acted on or not"),
    ],
)
async def test_what_was_sent_and_not_answered_says_that_its_outcome_is_unknown(
    name: str, says: str, proxy: chaos.ChaosProxy, context: JetStream
) -> None:
    proxy.swallow()
    with pytest.raises(TimeoutUnknownError, match=says) as timed_out:
        await CALLS[name](context)
    assert isinstance(timed_out.value, OutcomeUnknownError)
    assert isinstance(timed_out.value, TimeoutError)
    context._api.timeout = BUCKETS[context]._api.timeout = 5.0
    call = asyncio.ensure_future(CALLS[name](context))
    await asyncio.wait([call], timeout=SOON_S / 5)
    await away(proxy, context.connection)
    with pytest.raises(DisconnectedUnknownError, match=says) as lost:
        await call
    assert isinstance(lost.value, OutcomeUnknownError)
    assert isinstance(lost.value, DisconnectedError)
    await back(proxy, context.connection)


async def test_publishers_tell_what_may_be_stored_from_what_was_not_sent(
    proxy: chaos.ChaosProxy, context: JetStream
) -> None:
    for fast in (False, True):
        failures: list[PublishFailure] = []
        publisher = context.publisher(fast=fast, retries=0, on_failure=failures.append)
        async with publisher:
            await publisher.send("away.sure", b"0")
            await publisher.flush()
            proxy.swallow()
            await publisher.send("away.maybe", b"1")
            await asyncio.sleep(0)
            await away(proxy, context.connection)
            assert [type(each.error) for each in failures] == [DisconnectedUnknownError]
            await publisher.send("away.never", b"2")
            publisher.close()
        assert [type(each.error) for each in failures[1:]] == [ConnectionClosedError]
        assert str(failures[1].error).endswith("; it was not sent")
        await back(proxy, context.connection)
        stream = await context.stream("AWAY")
        stored = (await stream.info(subjects=">")).state.subjects
        assert stored == {"away.sure": 1 + fast}


async def test_what_was_not_written_to_a_server_that_takes_nothing_is_withdrawn(
    context: JetStream, connection: Connection
) -> None:
    session = context.connection._session
    assert session.link is not None
    session.link.pause_writing()
    with pytest.raises(RequestTimeoutError, match=r"not sent.*takes no output"):
        await context.publish("away.publish", b"1")
    publishing = asyncio.ensure_future(context.publish("away.publish", b"1", timeout=5))
    await asyncio.sleep(0)
    session.link.abort(DisconnectedError("by the test"))
    with pytest.raises(DisconnectedError, match="before this was sent") as caught:
        await publishing
    assert not isinstance(caught.value, OutcomeUnknownError)
    await until(lambda: context.connection.is_connected)
    await context.connection.flush()
    assert await stored(connection) == 0


async def test_a_publish_that_was_cancelled_while_it_waited_for_room_is_not_sent(
    reference_server: peers.ServerProcess, connection: Connection
) -> None:
    listener = await connection.subscribe("room")
    await connection.flush()
    async with connect(reference_server.url, outbound_bytes=10) as full:
        link = full._session.link
        assert link is not None
        link.pause_writing()
        await full.publish("room", b"1" * 20)  # it is the first that is too much
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S / 5):
                await full.publish("room", b"2")
        link.resume_writing()
        await full.publish("room", b"3")
        await full.flush()
    await connection.flush()
    assert [(await listener.next(2)).payload for _ in range(2)] == [b"1" * 20, b"3"]
    assert listener.pending_messages == 0


async def test_published_messages_wait_in_their_buffer_and_come_in_order(
    proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    listener = await connection.subscribe("waits")
    await connection.flush()
    await away(proxy, context.connection)
    for number in range(100):
        asking = asyncio.ensure_future(context.connection.request("waits", b"no", timeout=9))
        await asyncio.sleep(0)
        await context.connection.publish("waits", b"%d" % number)
        asking.cancel()
    await back(proxy, context.connection)
    assert [int((await listener.next(2)).payload) for _ in range(100)] == list(range(100))
    await connection.flush()
    assert listener.pending_messages == 0


async def test_blocking_calls_are_withdrawn_and_refused_alike(
    proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    def publish(js: Any) -> None:
        js.publish("away.publish", b"1", timeout=SOON_S)

    def send(js: Any) -> None:
        with js.publisher() as publisher:
            publisher.send("away.windowed", b"1")

    waits = await asyncio.to_thread(sync.connect, proxy.url, **QUICKLY)
    refuses = await asyncio.to_thread(
        sync.connect, proxy.url, fail_while_disconnected=True, **QUICKLY
    )
    try:
        await away(proxy, context.connection, waits, refuses)
        for _ in range(3):
            with pytest.raises(RequestTimeoutError, match=r"not sent.*disconnected from"):
                await asyncio.to_thread(publish, waits.jetstream())
        for call in (publish, send):
            with pytest.raises(DisconnectedError, match="not sent"):
                await asyncio.to_thread(call, refuses.jetstream())
        await back(proxy, context.connection)
        for each in (waits, refuses):
            await until(lambda each=each: each.is_connected)  # type: ignore[misc]
            await asyncio.to_thread(each.flush)
        assert await stored(connection) == 0
    finally:
        for each in (waits, refuses):
            await asyncio.to_thread(each.close)
        await asyncio.get_running_loop().shutdown_default_executor()


async def unsent_of(events: AsyncIterator[Event]) -> list[UnsentError]:
    errors = [event.error async for event in events if isinstance(event, ErrorEvent)]
    assert all(isinstance(error, UnsentError) for error in errors)
    return [error for error in errors if isinstance(error, UnsentError)]


async def hold(context: JetStream) -> None:
    """Messages and acknowledgements that cannot be sent."""
    for number in range(6):
        await context.connection.publish(f"held.{number % 5}", b"1")
    context.connection._session.send_answers(b"PUB $JS.ACK.S.C.1.1.1.1.0 0\r\n\r\n" * 2, 2)


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_a_connection_that_ends_while_the_server_is_away_says_at_once_what_was_not_sent(
    end: str, proxy: chaos.ChaosProxy, context: JetStream
) -> None:
    connection = context.connection
    taken: list[bytes] = []
    subscription = await connection.subscribe("taken", callback=lambda m: taken.append(m.payload))
    events = connection.events()
    await away(proxy, connection)
    await hold(context)
    asking = asyncio.ensure_future(context.publish("away.publish", timeout=9))
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await getattr(connection, end)()
    assert connection.is_closed
    (unsent,) = await unsent_of(events)
    assert (unsent.count, unsent.subjects) == (6, ("held.0", "held.1", "held.2"))
    assert "disconnected from" in str(unsent)
    assert str(unsent).endswith(
        "not sent are 6 message(s) on 'held.0', 'held.1', 'held.2' and 2 more and 2 acknowledgement(s)"
    )
    with pytest.raises(ConnectionClosedError):
        await asking
    assert subscription.pending_messages == 0


async def test_a_drain_whose_link_is_lost_meanwhile_does_not_wait_for_another(
    proxy: chaos.ChaosProxy, context: JetStream
) -> None:
    connection = context.connection
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slowly(message: Message) -> None:
        begun.set()
        await may_end.wait()
        await connection.publish("held.late", message.payload)

    await connection.subscribe("slow", callback=slowly)
    await connection.publish("slow", b"1")
    await begun.wait()
    events = connection.events()
    draining = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)
    await away(proxy, connection)
    may_end.set()
    async with asyncio.timeout(1):
        await draining
    assert [error.subjects for error in await unsent_of(events)] == [("held.late",)]


async def test_a_blocking_drain_ends_at_once_while_the_server_is_away(
    proxy: chaos.ChaosProxy, caplog: pytest.LogCaptureFixture
) -> None:
    blocking = await asyncio.to_thread(sync.connect, proxy.url, **QUICKLY)
    await away(proxy, blocking)
    await asyncio.to_thread(blocking.publish, "held", b"1")
    async with asyncio.timeout(1):
        await asyncio.to_thread(blocking.drain)
    assert "not sent are 1 message(s) on 'held'" in caplog.text  # as nobody listens
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_service_stops_at_once_while_the_server_is_away(
    proxy: chaos.ChaosProxy, context: JetStream
) -> None:
    service = await context.connection.add_service("calc", version="1.0.0")
    await service.add_endpoint("double", lambda message: message.payload * 2)
    await away(proxy, context.connection)
    async with asyncio.timeout(1):
        await service.stop()
        await context.connection.drain()


async def test_what_a_silent_server_did_not_take_is_told(
    reference_server: peers.ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.net.session.CLOSE_TIMEOUT_S", SOON_S)
    reached = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":100000000,"headers":true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reached.wait()

    async with Listening(deaf) as server:
        connection = await connect(server.url)
        events = connection.events()
        await connection.publish("large", b"x" * 20_000_000)
        await connection.close()
        (unsent,) = await unsent_of(events)
        assert re.search(r"did not take the last \d{7,8} bytes within 0\.05 s", str(unsent))
        reached.set()


async def test_what_waits_for_the_next_connection_is_done_when_it_is_there(
    proxy: chaos.ChaosProxy, context: JetStream, connection: Connection
) -> None:
    hurt, steady = context.connection, connection.jetstream()
    await steady.publish("away.acked", b"1")
    patient = hurt.jetstream()  # what the others give up soon comes while the server is there
    consumer = await patient.create_consumer("AWAY", durable_name="c", ack_wait=60)
    (message,) = await consumer.fetch(1, max_wait=20)
    await away(proxy, hurt)
    subscription = await hurt.subscribe("meanwhile")
    message.ack()
    with pytest.raises(TimeoutError, match="did not answer a PING"):
        await hurt.flush(SOON_S)
    flushing = asyncio.ensure_future(hurt.flush(5))
    async with context.publisher(fast=True) as fast, context.publisher() as publisher:
        await publisher.send("away.windowed", b"1")
        await fast.send("away.fast", b"1")
        assert publisher.in_flight == fast.in_flight == 1
        await back(proxy, hurt)
    assert publisher.acked == fast.acked == 1
    await flushing
    await connection.publish("meanwhile", b"here")
    assert (await subscription.next(2)).payload == b"here"
    info = await (await steady.consumer("AWAY", "c")).info()
    assert info.num_ack_pending == 0


async def test_a_full_buffer_is_said(proxy: chaos.ChaosProxy) -> None:
    async with connect(proxy.url, reconnect_buffer_bytes=1_000, **QUICKLY) as small:
        await away(proxy, small)
        await small.publish("waits", b"x" * 900)
        with pytest.raises(BufferFullError, match="reconnect_buffer_bytes allows 1000"):
            await small.publish("waits", b"x" * 900)
        await back(proxy, small)
