"""A message of a group: what it is without its partition, and how it is acknowledged for sure."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import DisconnectedError, NoRespondersError, TimeoutError_
from headrace.groups import GroupMessage, NotOwnedError
from headrace.groups.member.lease import Generation, Lease


class Delivered:
    """A message of the client whose ``ack_sync`` answers as told."""

    subject = "3.orders.eu.1"
    payload = b"x"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[float | None] = []

    async def ack_sync(self, timeout: float | None = None) -> None:
        self.asked.append(timeout)
        clock[0] += 1.0
        if (answer := self.answers.pop(0)) is not None:
            raise answer


clock = [0.0]


def message(*answers: Exception | None) -> tuple[GroupMessage, Delivered]:
    clock[0] = 0.0
    delivered: Any = Delivered(*answers)
    generation = Generation(17, (3,), Lease(2.5, since=0.0), lambda: clock[0])
    return GroupMessage(delivered, generation), delivered


LOST, SILENT = DisconnectedError("lost"), TimeoutError_("silent")


def test_the_partition_is_not_in_the_subject() -> None:
    made, _ = message()
    assert (made.subject, made.partition, made.generation) == ("orders.eu.1", 3, 17)
    assert made.is_owned
    assert repr(made) == "<GroupMessage '3.orders.eu.1' 1 bytes>"


async def test_a_confirmation_is_asked_for_again_while_the_partition_is_ours() -> None:
    made, delivered = message(LOST, SILENT, None)
    await made.ack_sync()
    assert delivered.asked == [None] * 3


async def test_without_an_answer_it_is_in_doubt_once_the_partition_may_be_anothers() -> None:
    made, delivered = message(LOST, SILENT, SILENT, None)
    with pytest.raises(NotOwnedError, match="may be acknowledged or not") as caught:
        await made.ack_sync()
    assert caught.value.in_doubt
    assert len(delivered.asked) == 3
    with pytest.raises(NotOwnedError, match="delivered again") as caught:
        await made.ack_sync()
    assert not caught.value.in_doubt
    assert len(delivered.asked) == 3


async def test_a_consumer_that_is_gone_ends_the_ownership() -> None:
    made, _ = message(NoRespondersError("nobody"))
    with pytest.raises(NotOwnedError, match="its consumer is gone") as caught:
        await made.ack_sync()
    assert not caught.value.in_doubt
    assert not made.is_owned


async def test_with_a_timeout_it_asks_once() -> None:
    made, delivered = message(SILENT)
    with pytest.raises(TimeoutError):
        await made.ack_sync(0.5)
    assert delivered.asked == [0.5]
