"""A message of a group: what it is without its partition, and how it is acknowledged for sure."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.api.acks import parse_ack_subject
from headrace.client.message import Headers
from headrace.errors import (
    AckUnknownError,
    DisconnectedError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
)
from headrace.groups import GroupMessage, NotConfirmedError, NotOwnedError
from headrace.groups.member.lease import Generation, Lease


class Delivered:
    """A message of the client whose ``ack_sync`` answers as told."""

    subject = "3.orders.eu.1"
    payload = b"x"

    clustered = False
    headers = Headers([("Nats-Stream-Source", "ORDERS 17 > > orders.eu.1")])
    metadata = parse_ack_subject("$JS.ACK.ORDERS-g.a.1.4.9.1.0")

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[float | None] = []

    def _is_decided_elsewhere(self) -> bool:
        return self.clustered

    async def _confirm(self, timeout: float | None, *, must_be_current: bool) -> None:
        assert must_be_current
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


LOST, SILENT = DisconnectedError("lost"), RequestTimeoutError("silent")


def test_the_partition_is_not_in_the_subject() -> None:
    made, _ = message()
    assert (made.subject, made.partition, made.generation) == ("orders.eu.1", 3, 17)
    assert made.is_owned
    assert repr(made) == "<GroupMessage 'orders.eu.1' partition 3, sequence 4: b'x'>"


def test_the_sequence_is_that_of_the_stream_it_was_published_to() -> None:
    made, delivered = message()
    assert made.sequence == 4  # of a static group: there are no copies
    made._generation.is_copied = True
    assert made.sequence == 17
    delivered.headers = Headers()
    with pytest.raises(ProtocolError, match="does not say where it comes from"):
        _ = made.sequence


async def test_a_confirmation_is_asked_for_again_while_the_partition_is_ours() -> None:
    made, delivered = message(LOST, None)
    await made.ack_sync()
    assert delivered.asked == [None] * 2


async def test_without_an_answer_it_is_in_doubt_once_the_partition_may_be_anothers() -> None:
    made, delivered = message(LOST, SILENT, SILENT, None)
    with pytest.raises(NotConfirmedError, match="may be acknowledged or not") as caught:
        await made.ack_sync()
    assert caught.value.in_doubt
    assert len(delivered.asked) == 3
    with pytest.raises(NotOwnedError, match="delivered again") as later:
        await made.ack_sync()
    assert not later.value.in_doubt
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


async def test_a_confirmation_that_comes_when_the_partition_may_be_anothers_does_not_count() -> (
    None
):
    made, delivered = message(LOST, SILENT, None)
    made._generation.lease.until = 2.9
    with pytest.raises(NotConfirmedError, match="came late; the message may be acknowledged"):
        await made.ack_sync()
    assert len(delivered.asked) == 3


@pytest.mark.parametrize("asked", [True, False])
async def test_a_server_that_was_restarted_is_not_asked_about_a_delivery_of_before(
    asked: bool,
) -> None:
    made, delivered = message(AckUnknownError("restarted", asked=asked), None)
    with pytest.raises(NotOwnedError, match="the server was restarted") as caught:
        await made.ack_sync()
    assert isinstance(caught.value, NotConfirmedError) is caught.value.in_doubt is asked
    assert len(delivered.asked) == 1
    assert not made.is_owned  # it comes again, with a reply of its own


async def test_in_a_cluster_no_answer_is_not_asked_for_again() -> None:
    made, delivered = message(SILENT, None)
    delivered.clustered = True
    with pytest.raises(NotConfirmedError):
        await made.ack_sync()
    assert len(delivered.asked) == 1
    assert not made.is_owned
