"""What a person sees who prints what the client gives."""

from __future__ import annotations

import pytest

from headrace import Broker
from headrace.client.message import preview


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"", "b''"),
        (b"two apples", "b'two apples'"),
        (b"\x00\xff", r"b'\x00\xff'"),
        (b"x" * 40, f"b'{'x' * 40}'"),
        (b"x" * 1_234_567, f"b'{'x' * 40}'… 1,234,567 bytes"),
    ],
)
def test_a_payload_is_shown_as_it_begins(payload: bytes, shown: str) -> None:
    assert preview(payload) == shown


async def test_messages_tell_where_they_are_from_and_how_they_begin() -> None:
    async with Broker() as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        await js.publish("orders.1", b"two apples")
        consumer = await stream.create_consumer(durable_name="mill")
        (first,) = await consumer.fetch(1, max_wait=1.0)
        assert repr(first) == "<JetStreamMessage 'orders.1' sequence 1 of 'ORDERS': b'two apples'>"
        first.nak()
        (again,) = await consumer.fetch(1, max_wait=1.0)
        assert "sequence 1 of 'ORDERS', delivered 2 times: b'two apples'" in repr(again)
        subscription = await nc.subscribe("questions")
        await nc.publish("questions", b"?", reply="answers")
        await nc.publish("questions", b"!")
        asked, told = await subscription.next(1.0), await subscription.next(1.0)
        assert repr(asked) == "<Message 'questions' reply='answers': b'?'>"
        assert repr(told) == "<Message 'questions': b'!'>"
        assert repr(js) == "<JetStream over <Connection in-process connected>>"
