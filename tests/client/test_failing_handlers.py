"""A handler that raises answers whoever asked; who only listens does not meddle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace import ServiceError
from headrace.client import Connection, JetStream, Message, Stream
from headrace.client.events import Event
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


def fails(message: Message) -> None:
    raise KeyError("what nobody else should read")


async def fails_later(message: Message) -> None:
    await asyncio.sleep(0)
    fails(message)


def refuses(message: Message) -> None:
    raise ServiceError(404, "no such\nthing", b"more")


@pytest.mark.parametrize("handler", [fails, fails_later, lambda message: fails_later(message)])
async def test_the_requester_learns_of_an_error_at_once_and_not_of_its_text(
    connection: Connection, handler: Any
) -> None:
    events: list[Event] = []
    listening = asyncio.create_task(collect(connection, events))
    async with await connection.subscribe("fails", callback=handler):
        for _ in range(2):
            with pytest.raises(ServiceError) as caught:
                await connection.request("fails", b"x", timeout=30)
            assert (caught.value.code, caught.value.description) == (500, "KeyError")
    await until(lambda: len(events) == 2, "both errors are events, too")
    assert "what nobody else should read" in str(events[0])
    listening.cancel()


async def collect(connection: Connection, events: list[Event]) -> None:
    async for event in connection.events():
        events.append(event)  # noqa: PERF401 - it is read meanwhile


async def test_what_is_raised_to_be_told_is_told(connection: Connection) -> None:
    async with await connection.subscribe("refuses.*", queue="q", callback=refuses):
        with pytest.raises(ServiceError, match=r"no such thing \(code 404\)") as caught:
            await connection.request("refuses.x", timeout=30)
    assert caught.value.payload == b"more"


async def test_a_long_description_is_cut(connection: Connection) -> None:
    def long(message: Message) -> None:
        raise ServiceError(400, "x" * 2000)

    async with await connection.subscribe("long", callback=long):
        with pytest.raises(ServiceError) as caught:
            await connection.request("long", timeout=30)
    assert caught.value.description == "x" * 1024


async def test_a_listener_to_everything_answers_nobody(
    connection: Connection, js: JetStream, stream: Stream
) -> None:
    async with await connection.subscribe(f"{stream.name}.>", callback=fails):
        assert (await js.publish(f"{stream.name}.a", b"x")).seq == 1
    quiet = await connection.subscribe(f"{stream.name}.a", callback=fails, answer_errors=False)
    assert (await js.publish(f"{stream.name}.a", b"x")).seq == 2
    await quiet.unsubscribe()


async def test_a_message_that_asks_nothing_is_not_answered(connection: Connection) -> None:
    seen = asyncio.Event()

    def once(message: Message) -> None:
        seen.set()
        raise ServiceError(400, "no")

    async with await connection.subscribe("quiet", callback=once):
        await connection.publish("quiet", b"x")
        await asyncio.wait_for(seen.wait(), 5)
        await connection.flush()


async def test_a_push_consumer_is_not_answered_with_errors(
    connection: Connection, js: JetStream, stream: Stream
) -> None:
    """Its reply subject is the ack subject: an answer would acknowledge."""
    consumer = await stream.create_consumer(durable_name="p", deliver_subject="deliver.here")
    await js.publish(f"{stream.name}.a", b"x")
    seen = asyncio.Event()

    def once(message: Any) -> None:
        seen.set()
        raise KeyError

    async with await consumer.listen(once):
        await asyncio.wait_for(seen.wait(), 5)
        await connection.flush()
        assert (await consumer.info()).num_ack_pending == 1


async def test_a_malformed_code_is_500(connection: Connection) -> None:
    async def answer(message: Message) -> None:
        await message.respond(
            headers={"Nats-Service-Error": "odd", "Nats-Service-Error-Code": "many"}
        )

    async with await connection.subscribe("odd", callback=answer):
        with pytest.raises(ServiceError, match=r"odd \(code 500\)"):
            await connection.request("odd", timeout=30)
