"""Answers that no JetStream gave: an error of ours, and never an acknowledgement."""

from __future__ import annotations

import pytest

from headrace.client import Connection, JetStream, Message, PublishError
from headrace.client.jetstream.stored_message import from_direct
from headrace.errors import ProtocolError
from headrace.wire.headers import encode_headers

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

ANSWERS = [
    b"",
    b"<html>",
    b"[]",
    b"{}",
    b'{"ok":true}',
    b'{"seq":5}',
    b"[" * 5000,
    b'{"a":' * 5000,
    b'{"stream":"\xff"}',
    b'{"stream":"A","seq":-1}',
    b'{"stream":["A"],"seq":1}',
    b'{"stream":"","seq":1}',
    b'{"error":5}',
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer[:12]))
async def test_it_is_no_acknowledgement(
    connection: Connection, js: JetStream, answer: bytes
) -> None:
    async def respond(message: Message) -> None:
        await message.respond(answer)

    async with await connection.subscribe("foreign.>", callback=respond):
        with pytest.raises(ProtocolError, match="not known to be stored"):
            await js.publish("foreign.answers", b"x")
        if not answer.startswith(b'{"stream"'):  # those are told by their start alone
            with pytest.raises(PublishError) as caught:
                async with js.publisher() as publisher:
                    await publisher.send("foreign.answers", b"x")
            assert isinstance(caught.value.failures[0].error, ProtocolError)
    assert connection.reconnects == 0


@pytest.mark.parametrize("answer", [a for a in ANSWERS if not a.endswith(b"}")] + [ANSWERS[8]])
async def test_a_call_of_the_api_says_that_the_answer_is_not_understood(
    connection: Connection, answer: bytes
) -> None:
    foreign = connection.jetstream(prefix="foreign.api")

    async def respond(message: Message) -> None:
        await message.respond(answer)

    async with await connection.subscribe("foreign.>", callback=respond):
        with pytest.raises(ProtocolError, match="is not understood"):
            await foreign.stream("A")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Nats-Sequence": "1"},
        {"Nats-Subject": "a", "Nats-Sequence": "x", "Nats-Time-Stamp": "y"},
    ],
)
def test_a_direct_answer_without_its_headers_is_not_understood(headers: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="direct answer is not understood"):
        from_direct(encode_headers(list(headers.items())), b"x")
