"""Messages of a fast batch that may be stored: published by themselves until that is known again.

The stream is a subscription that answers as the leader of a cluster does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import JetStream, Message, Publisher, PublishFailure
from headrace.client.publish.fast_publisher import parts_of
from headrace.errors import JetStreamApiError, RequestTimeoutError
from headrace.wire.encode import pub
from waiting import until

SUBJECT = "mute"
START, END = "0", "3"
TAKEN = b'{"type":"ack","seq":0,"msgs":9}'
IN_PROCESS = b'{"error":{"code":409,"err_code":10158,"description":"x"},"stream":"S","seq":0}'
REFUSED = b'{"error":{"code":400,"err_code":10054,"description":"too large"},"stream":"S","seq":0}'
MESSAGES = 5


def stored(sequence: int, *, again: bool = False) -> bytes:
    return b'{"stream":"S","seq":%d%b}' % (sequence, b',"duplicate":true' if again else b"")


class Leader:
    """Takes the first batch and says nothing more of it; ``alone`` answers what is published by itself."""

    def __init__(self, alone: Callable[[int, int], bytes | None]) -> None:
        self._alone = alone
        self.alone: list[int] = []
        self.batches: list[list[int]] = []

    async def listen(self, js: JetStream) -> None:
        self._connection = js.connection
        await js.connection.subscribe(SUBJECT, callback=self._respond)

    async def _respond(self, message: Message) -> None:
        if not message.reply.endswith(".$FI"):
            number = int(message.payload)
            self.alone.append(number)
            answer = self._alone(number, self.alone.count(number))
        else:
            place, operation = message.reply.split(".")[-3:-1]
            answer = self._of_a_batch(message, int(place), operation)
        if answer is not None:
            await self._connection.publish(message.reply, answer)

    def _of_a_batch(self, message: Message, place: int, operation: str) -> bytes | None:
        if operation == START:
            self.batches.append([])
        if message.payload:
            self.batches[-1].append(int(message.payload))
        if operation == START:
            return TAKEN
        if operation == END and len(self.batches) > 1:
            return b'{"stream":"S","seq":9,"batch":"b","count":%d}' % (place - 1)
        return None


@pytest.fixture
def clustered(js: JetStream) -> JetStream:
    """A connection that takes its server for one of several."""
    session = js.connection._session
    session.info = msgspec.structs.replace(session.info, cluster="three")
    return js.connection.jetstream(delivery_timeout=1)


async def publish(js: JetStream, leader: Leader) -> tuple[Publisher, list[PublishFailure]]:
    await leader.listen(js)
    failures: list[PublishFailure] = []
    async with (
        asyncio.timeout(20),
        js.publisher(
            fast=True, ack_timeout=0.2, deduplicate=True, on_failure=failures.append
        ) as publisher,
    ):
        await publisher.send_many((SUBJECT, b"%d" % number) for number in range(MESSAGES))
    return publisher, failures


async def test_each_is_published_by_itself_until_the_stream_stores_one_anew(
    clustered: JetStream,
) -> None:
    def answer(number: int, time: int) -> bytes:
        if number == 0 and time == 1:
            return IN_PROCESS
        return stored(number + 1, again=number < 2)

    leader = Leader(answer)
    publisher, failures = await publish(clustered, leader)
    assert leader.alone == [0, 0, 1, 2]
    assert leader.batches == [[0, 1, 2, 3, 4], [3, 4]]
    assert (publisher.acked, failures, publisher.last_sequence) == (MESSAGES, [], 9)


async def test_all_may_have_been_stored(clustered: JetStream) -> None:
    leader = Leader(lambda number, _: stored(number + 1, again=True))
    publisher, failures = await publish(clustered, leader)
    assert leader.alone == [*range(MESSAGES)]
    assert len(leader.batches) == 1
    assert (publisher.acked, failures, publisher.last_sequence) == (MESSAGES, [], MESSAGES)


async def test_one_that_is_refused_fails_alone(clustered: JetStream) -> None:
    leader = Leader(lambda number, _: REFUSED if number == 1 else stored(number + 1, again=True))
    publisher, failures = await publish(clustered, leader)
    assert [(failure.index, type(failure.error)) for failure in failures] == [
        (1, JetStreamApiError)
    ]
    assert publisher.acked == MESSAGES - 1


async def test_what_is_never_known_is_reported_as_such(clustered: JetStream) -> None:
    leader = Leader(lambda number, _: None)
    publisher, failures = await publish(clustered, leader)
    assert {*leader.alone} == {0}
    assert [failure.index for failure in failures] == [*range(MESSAGES)]
    assert all(isinstance(failure.error, RequestTimeoutError) for failure in failures)
    assert publisher.acked == 0


async def test_a_publisher_may_be_closed_meanwhile(clustered: JetStream) -> None:
    leader = Leader(lambda number, _: IN_PROCESS)
    await leader.listen(clustered)
    failures: list[PublishFailure] = []
    async with clustered.publisher(
        fast=True, ack_timeout=0.2, deduplicate=True, on_failure=failures.append
    ) as publisher:
        await publisher.send(SUBJECT, b"0")
        await until(lambda: leader.alone, "it is not published by itself")
        publisher.close()
    assert len(failures) == 1


async def test_one_server_knows_what_it_has_stored(js: JetStream) -> None:
    leader = Leader(lambda number, _: None)
    publisher, failures = await publish(js, leader)
    assert leader.alone == []
    assert leader.batches == [[0, 1, 2, 3, 4]] * 2
    assert (publisher.acked, failures) == (MESSAGES, [])


@given(st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5})?", fullmatch=True), st.binary(), st.binary())
def test_a_command_is_taken_apart(subject: str, block: bytes, payload: bytes) -> None:
    command = pub(subject.encode(), b"reply", block, payload)
    assert parts_of(command) == (subject, block, payload)
