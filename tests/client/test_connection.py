"""The asyncio connection against the reference server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import peers
from headrace.client import Connection, Message, connect
from headrace.client.events import Closed, Disconnected, Event, Reconnected
from headrace.errors import (
    AuthorizationError,
    BufferFullError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    DisconnectedError,
    InvalidSubjectError,
    LimitExceededError,
    NoRespondersError,
    RequestTimeoutError,
)
from headrace.wire.encode import pub
from headrace.wire.headers import encode_headers

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def test_what_is_published_arrives_with_subject_reply_headers_and_payload(
    connection: Connection,
) -> None:
    subscription = await connection.subscribe("greet.*")
    await connection.publish(
        "greet.joe", b"hello", headers={"A": "1", "B": ["2", "3"]}, reply="answer.here"
    )
    message = await subscription.next(2)
    assert (message.subject, message.reply, message.payload) == (
        "greet.joe",
        "answer.here",
        b"hello",
    )
    assert message.headers.get_all("B") == ["2", "3"]
    await connection.publish("greet.jim")
    assert (await subscription.next(2)).headers.get("A") is None


async def test_messages_keep_their_order_and_none_is_lost(connection: Connection) -> None:
    subscription = await connection.subscribe("many")
    for number in range(20_000):
        await connection.publish("many", b"%d" % number)
    received: list[int] = []
    while len(received) < 20_000:
        received += [int(m.payload) for m in await subscription.next_batch(5_000)]
    assert received == list(range(20_000))


async def test_a_queue_group_shares_messages(connection: Connection) -> None:
    one = await connection.subscribe("work", queue="group")
    two = await connection.subscribe("work", queue="group")
    for _ in range(200):
        await connection.publish("work")
    await connection.flush()
    assert one.pending_messages + two.pending_messages == 200


async def test_a_request_gets_its_own_answer(connection: Connection) -> None:
    async def double(message: Message) -> None:
        await message.respond(message.payload * 2)

    await connection.subscribe("double", callback=double)
    answers = await asyncio.gather(
        *(connection.request("double", b"%d" % number) for number in range(50))
    )
    assert [a.payload for a in answers] == [b"%d" % number * 2 for number in range(50)]


async def test_a_request_nobody_listens_to_fails_at_once(connection: Connection) -> None:
    with pytest.raises(NoRespondersError, match=r"nobody\.home"):
        await connection.request("nobody.home", timeout=5)


async def test_an_answer_with_a_payload_is_one_whatever_its_status(connection: Connection) -> None:
    def busy(message: Message) -> None:
        block = encode_headers([], 503, "Busy")
        connection._session.outbox.put(pub(message.reply.encode(), b"", block, b"later"))

    await connection.subscribe("busy", callback=busy)
    assert (await connection.request("busy")).payload == b"later"


async def test_a_request_without_an_answer_times_out(connection: Connection) -> None:
    await connection.subscribe("silent")
    with pytest.raises(RequestTimeoutError, match=r"silent.*0\.05"):
        await connection.request("silent", timeout=0.05)
    with pytest.raises(TimeoutError):
        await connection.request("silent", timeout=0.05)


async def test_a_plain_callback_is_called_in_order_and_its_errors_are_events(
    reference_server: peers.ServerProcess,
) -> None:
    events: list[Event] = []
    seen: list[bytes] = []

    def callback(message: Message) -> None:
        seen.append(message.payload)
        if message.payload == b"1":
            raise ValueError("no ones")

    async with connect(reference_server.url, on_event=events.append) as connection:
        await connection.subscribe("cb", callback=callback)
        for number in range(3):
            await connection.publish("cb", b"%d" % number)
        await connection.flush()
    assert seen == [b"0", b"1", b"2"]
    assert [str(e.error) for e in events if hasattr(e, "error")] == ["no ones"]


async def test_a_subscription_ends_after_its_maximum(connection: Connection) -> None:
    subscription = await connection.subscribe("limited")
    await subscription.unsubscribe(3)
    for number in range(5):
        await connection.publish("limited", b"%d" % number)
    assert [m.payload async for m in subscription] == [b"0", b"1", b"2"]


async def test_an_unsubscribed_subscription_gives_what_it_has_and_ends(
    connection: Connection,
) -> None:
    subscription = await connection.subscribe("ends")
    await connection.publish("ends", b"1")
    await connection.flush()
    await subscription.unsubscribe()
    await connection.publish("ends", b"2")
    await connection.flush()
    assert [m.payload async for m in subscription] == [b"1"]


async def test_draining_loses_nothing_that_was_received(
    reference_server: peers.ServerProcess,
) -> None:
    seen = []

    async def slowly(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.payload)

    connection = await connect(reference_server.url)
    await connection.subscribe("drained", callback=slowly)
    for number in range(500):
        await connection.publish("drained", b"%d" % number)
    await connection.drain()
    assert len(seen) == 500
    assert connection.is_closed
    with pytest.raises(ConnectionClosedError):
        await connection.publish("drained")


async def test_more_than_the_pending_limit_is_dropped_counted_and_reported(
    reference_server: peers.ServerProcess,
) -> None:
    events: list[Event] = []
    async with connect(reference_server.url, on_event=events.append) as connection:
        subscription = await connection.subscribe("flood", pending_messages=10)
        for number in range(30):
            await connection.publish("flood", b"%d" % number)
        await connection.flush()
        assert subscription.pending_messages == 10
        assert subscription.dropped == 20
        assert "pending_messages=10" in str([e for e in events if hasattr(e, "error")])


async def test_bad_arguments_are_refused_before_anything_is_sent(connection: Connection) -> None:
    with pytest.raises(InvalidSubjectError):
        await connection.publish("has space")
    with pytest.raises(InvalidSubjectError):
        await connection.publish("wild.*")
    with pytest.raises(InvalidSubjectError):
        await connection.subscribe("a..b")
    with pytest.raises(LimitExceededError, match=str(connection.max_payload)):
        await connection.publish("big", b"x" * (connection.max_payload + 1))
    await connection.flush()


async def test_closing_ends_every_wait(reference_server: peers.ServerProcess) -> None:
    connection = await connect(reference_server.url)
    subscription = await connection.subscribe("quiet")
    await connection.subscribe("never")
    waiting = asyncio.create_task(subscription.next())
    asking = asyncio.create_task(connection.request("never", timeout=30))
    await connection.flush()
    await connection.close()
    with pytest.raises(ConnectionClosedError):
        await waiting
    with pytest.raises(ConnectionClosedError):
        await asking
    await connection.close()


async def test_wrong_credentials_are_an_authorization_error_without_the_password(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(config="authorization { user: me, password: sesame }")
    with pytest.raises(AuthorizationError) as caught:
        await connect(server.url, user="me", password="wr0ng")
    assert "wr0ng" not in str(caught.value)
    async with connect(f"nats://me:sesame@127.0.0.1:{server.port}") as connection:
        await connection.flush()
    async with connect(server.url, user="me", password="sesame") as connection:
        await connection.flush()


async def test_a_token_is_accepted(nats_server: Callable[..., peers.ServerProcess]) -> None:
    server = nats_server(config="authorization { token: s3cret }")
    async with connect(server.url, token="s3cret") as connection:
        await connection.flush()


async def test_no_server_is_an_error_that_names_each_one(free_port: int) -> None:
    with pytest.raises(ConnectFailedError, match=f":{free_port}"):
        await connect(f"nats://127.0.0.1:{free_port}")


async def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ConfigurationError, match="colour"):
        connect(colour="red")  # type: ignore[call-arg]


async def test_a_restarted_server_is_found_again_and_subscriptions_are_restored(
    nats_server: Callable[..., peers.ServerProcess], free_port: int
) -> None:
    server = nats_server(port=free_port, jetstream=False)
    events: list[Event] = []
    lost, back = asyncio.Event(), asyncio.Event()

    def note(event: Event) -> None:
        events.append(event)
        if isinstance(event, Disconnected):
            lost.set()
        if isinstance(event, Reconnected):
            back.set()

    async with connect(
        server.url, on_event=note, reconnect_wait=0.02, reconnect_wait_max=0.05
    ) as connection:
        subscription = await connection.subscribe("news")
        await connection.publish("news", b"before")
        assert (await subscription.next(2)).payload == b"before"
        server.kill()
        await asyncio.wait_for(lost.wait(), 5)
        await connection.publish("news", b"meanwhile")
        nats_server(port=free_port, jetstream=False)
        await asyncio.wait_for(back.wait(), 5)
        assert (await subscription.next(2)).payload == b"meanwhile"
        assert connection.reconnects == 1
    assert isinstance(events[-1], Closed)


async def test_publishing_while_disconnected_is_bounded_and_waiters_are_told(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(jetstream=False)
    async with connect(server.url, reconnect_buffer_bytes=1_000) as connection:
        await connection.subscribe("never")
        asking = asyncio.create_task(connection.request("never", timeout=30))
        await connection.flush()
        server.kill()
        with pytest.raises(DisconnectedError):
            await asking
        with pytest.raises(BufferFullError, match="reconnect_buffer_bytes"):
            for _ in range(100):
                await connection.publish("buffered", b"x" * 100)


async def test_without_reconnect_a_lost_connection_is_closed(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(jetstream=False)
    connection = await connect(server.url, reconnect=False)
    subscription = await connection.subscribe("over")
    server.kill()
    assert [m async for m in subscription] == []
    assert connection.is_closed
    await connection.close()


async def test_giving_up_reconnecting_closes_with_the_reasons(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(jetstream=False)
    connection = await connect(
        server.url, max_reconnect_attempts=2, reconnect_wait=0.01, reconnect_wait_max=0.01
    )
    closed = asyncio.create_task(_last_event(connection))
    await asyncio.sleep(0)
    server.kill()
    event = await asyncio.wait_for(closed, 5)
    assert isinstance(event, Closed)
    assert "2 attempts" in str(event.reason)


async def _last_event(connection: Connection) -> Event:
    return [event async for event in connection.events()][-1]
