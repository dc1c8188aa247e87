"""Messages that a test makes: what a handler reads in them, and what they remember."""

from __future__ import annotations

import msgspec
import pytest

from headrace import ConfigurationError, JetStreamMessage
from headrace.groups import GroupMessage
from headrace.testing import made_group_message, made_message


class Order(msgspec.Struct):
    customer: str


async def test_a_handler_is_called_with_a_made_message_which_has_the_answers() -> None:
    async def bill(message: JetStreamMessage) -> None:
        await message.in_progress()
        if message.metadata.delivered > 3:
            message.term("tried often")
        elif message.payload == b"later":
            message.nak(10)
        else:
            await message.ack_sync()

    message = made_message(b"two apples", subject="orders.1", headers={"Kind": "fruit"})
    await bill(message)
    assert message.answers == ["in_progress()", "ack_sync()"]
    assert (message.subject, message.headers["Kind"]) == ("orders.1", "fruit")
    later = made_message("later")
    assert later.payload == b"later"
    await bill(later)
    assert later.answers == ["in_progress()", "nak(10)"]
    await bill(often := made_message(delivered=4, sequence=7, stream="ORDERS"))
    assert often.answers == ["in_progress()", "term('tried often')"]
    assert often.metadata[:4] == ("ORDERS", "test", 4, 7)
    assert "sequence 7 of 'ORDERS', delivered 4 times" in repr(often)


async def test_only_the_first_final_answer_counts_as_with_a_server() -> None:
    message = made_message()
    message.nak()
    message.ack()
    message.in_progress()
    await message.term()
    assert message.answers == ["nak()"]
    assert message.is_answered
    assert not made_message().answers  # each has its own


async def test_a_member_handler_is_called_with_a_message_of_its_group() -> None:
    async def book(message: GroupMessage) -> tuple[str, int, int, int]:
        await message.ack_sync()
        return message.subject, message.partition, message.generation, message.sequence

    message = made_group_message(
        {"a": 1}, subject="orders.eve", partition=3, generation=9, sequence=5
    )
    assert await book(message) == ("orders.eve", 3, 9, 5)
    assert message.is_owned
    assert message.is_answered
    assert message.payload == b'{"a":1}'


def test_a_model_is_written_as_json() -> None:
    assert made_message(Order("eve")).payload == b'{"customer":"eve"}'
    assert made_message(memoryview(b"ab")).payload == b"ab"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"subject": "orders.*"}, r"subject is 'orders\.\*'; accepted is a subject without"),
        ({"subject": ""}, r"subject is ''"),
        ({"payload": object()}, r"accepted are bytes, text, and what is written as JSON"),
    ],
)
def test_what_no_message_has_is_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        made_message(**arguments)  # type: ignore[arg-type]


def test_a_partition_is_a_number() -> None:
    with pytest.raises(ConfigurationError, match="partition is -1; accepted is a number from 0"):
        made_group_message(partition=-1)
