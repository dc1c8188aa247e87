"""The pin of a priority group: whose refusal it is, and how it is kept."""

from __future__ import annotations

import asyncio

import pytest

from headrace.api.keywords import ConsumerFields
from headrace.client import JetStream, JetStreamMessage, Stream
from headrace.client.jetstream.pull import Pin
from headrace.wire.headers import encode_headers
from waiting import elapse, until


def learn(pin: Pin, name: str) -> None:
    pin.learn(encode_headers([("Nats-Pin-Id", name)]))


def test_the_refusal_of_a_pull_with_an_older_id_does_not_drop_the_new_one() -> None:
    said: list[str] = []
    pin = Pin(lambda error: None)
    pin.on_pinned = said.append
    pin.on_unpinned = lambda: said.append("")
    learn(pin, "A")
    assert pin.use() == "A"
    pin.lost()
    learn(pin, "B")
    pin.lost()  # of another pull with A
    assert (pin.id, said) == ("B", ["A", "", "B"])
    assert pin.use() == "B"
    pin.lost()
    assert (pin.id, said) == ("", ["A", "", "B", ""])


def test_an_error_in_what_is_called_is_reported_and_changes_nothing() -> None:
    errors: list[Exception] = []
    pin = Pin(errors.append)

    def fail(name: str) -> None:
        raise ValueError(name)

    pin.on_pinned = fail
    learn(pin, "A")
    learn(pin, "A")
    assert pin.id == "A"
    assert [str(error) for error in errors] == ["A"]


@pytest.mark.peer
async def test_a_slow_handler_keeps_a_pin_that_is_lost_quickly(
    js: JetStream, stream: Stream
) -> None:
    for number in range(4):
        await js.publish(f"{stream.name}.x", b"%d" % number)
    settings: ConsumerFields = {
        "durable_name": "c",
        "priority_policy": "pinned_client",
        "priority_groups": ["g"],
        "priority_timeout": 1.4,
        "ack_wait": 30,
    }
    first = await stream.create_consumer(**settings)
    second = await stream.consumer("c")
    unpinned: list[bool] = []
    first.on_unpinned(lambda: unpinned.append(True))

    async def slow(message: JetStreamMessage) -> None:
        await elapse(2.2, "a handler is slower than the pin lasts")
        message.ack()

    consumption = first.consume(slow, max_messages=1, group="g")
    await until(lambda: first.pin_id, within=5)
    standby = second.consume(max_messages=1, group="g")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await anext(standby)
    assert not unpinned
    await standby.stop()
    await consumption.stop()
