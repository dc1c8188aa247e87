"""What a delivery costs while many stand by for the pin: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.broker.core.jetstream.consumer.backlog import Backlog
from headrace.broker.core.jetstream.consumer.delivery_pass import Sender
from headrace.broker.core.jetstream.consumer.pull_recipients import PullRecipients
from jetstream_world import SECOND, Client, Inbox, World
from sim.whole.coverage import Path, entered, watched

MANY = 100
STANDS_BY = {"group": "A", "batch": 500, "expires": 600 * SECOND, "idle_heartbeat": 60 * SECOND}


def pool(standing_by: int, **config: Any) -> tuple[Client, Inbox]:
    """A client with the pin and a pull that goes on, and others that came after it."""
    client = World().client()
    client.stream(retention="workqueue")
    client.consumer(
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=300 * SECOND,
        **config,
    )
    pinned = client.pull({**STANDS_BY, "batch": 10_000})
    for _ in range(standing_by):
        client.world.client().pull(STANDS_BY)
    client.publish(b"s.a")
    (message,) = pinned.messages
    client.ack(message)
    assert client.info()["num_waiting"] == 1 + standing_by
    return client, pinned


@contextmanager
def counting_calls() -> Iterator[Callable[[], int]]:
    """How many functions were called, those of the interpreter included."""
    count = 0

    def called(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield lambda: count
    finally:
        sys.setprofile(before)


def work_of_messages(standing_by: int) -> int:
    """Calls from the publish of ten messages to their acknowledgements, one at a time."""
    client, pinned = pool(standing_by, max_ack_pending=1)
    pinned.take()
    with counting_calls() as calls:
        for _ in range(10):
            client.publish(b"s.a")
            (message,) = pinned.take()
            client.ack(message)
    return calls()


def test_a_message_is_as_much_work_with_many_standing_by_as_with_none() -> None:
    alone = work_of_messages(0)
    assert alone > 1_000
    assert work_of_messages(MANY) <= 1.05 * alone


def test_nothing_is_read_for_those_who_stand_by(monkeypatch: pytest.MonkeyPatch) -> None:
    client, pinned = pool(MANY)
    pin = pinned.take()[0].header["Nats-Pin-Id"]
    pinned.close()
    read: list[int] = []
    read_rows = Backlog.read

    def reading(backlog: Backlog, max_messages: int, max_bytes: int) -> Any:
        rows = read_rows(backlog, max_messages, max_bytes)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(Backlog, "read", reading)
    for _ in range(50):
        client.publish(b"s.a")
    taken = [client.pull({"group": "A", "batch": 1, "id": pin}).take() for _ in range(10)]
    client.pull(STANDS_BY)
    assert [message.stream_seq for (message,) in taken] == [*range(2, 12)]
    assert read == [1] * 11  # the first for the pull nobody listens to any more


def test_the_pinned_client_gets_its_messages_in_batches_and_in_turn_among_its_pulls() -> None:
    client, pinned = pool(MANY)
    pin = pinned.take()[0].header["Nats-Pin-Id"]
    client.api("CONSUMER.PAUSE.S.C", {"pause_until": "2099-01-01T00:00:00Z"})
    for _ in range(9):
        client.publish(b"s.a", b"x", Sort="y")
    second = client.pull({**STANDS_BY, "id": pin})
    paths = {
        "in turn": Path(PullRecipients, "_send_in_turn", entered),
        "at once": Path(Sender, "send_stored", entered),
    }
    with watched(paths) as seen:
        client.api("CONSUMER.PAUSE.S.C", {})
        assert seen == {"in turn": 1}
        got = [pinned.take(), second.take()]
        assert [[m.stream_seq for m in inbox] for inbox in got] == [[2, 4, 6, 8, 10], [3, 5, 7, 9]]
        for message in [*got[0], *got[1]]:
            assert message.header == {"Sort": "y", "Nats-Pin-Id": pin}
        second.close()
        client.publish(b"s.a")
        assert seen["at once"] == 1
    assert [(m.stream_seq, m.header) for m in pinned.take()] == [(11, {"Nats-Pin-Id": pin})]


def test_those_who_came_first_are_pinned_first_and_those_who_had_the_pin_end() -> None:
    client, first = pool(3, ack_wait=SECOND)
    (one,) = first.take()
    second = client.pull(STANDS_BY)
    stale = client.pull({**STANDS_BY, "id": one.header["Nats-Pin-Id"]})
    client.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    client.publish(b"s.a")
    assert [m.status for m in [*first.take(), *stale.take()]] == ["423 Nats-Wrong-Pin-Id"] * 2
    assert not second.messages
    assert client.info()["num_waiting"] == 4


def test_a_receiver_that_has_enough_does_not_keep_the_pin_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stood aside when the pin was given, and is one of those who stand by from then on."""
    client, pinned = pool(0)
    client.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    pinned.close()
    slow = client.world.client()
    full = slow.pull(STANDS_BY)
    ready = client.pull(STANDS_BY)
    client.api("CONSUMER.PAUSE.S.C", {"pause_until": "2099-01-01T00:00:00Z"})
    for _ in range(20):
        client.publish(b"s.a")
    output = slow.session.output
    monkeypatch.setattr(type(output), "blocked", property(lambda one: one is output))
    client.api("CONSUMER.PAUSE.S.C", {})
    assert not full.messages
    assert [message.stream_seq for message in ready.messages] == [*range(2, 22)]


def work_of_a_change(standing_by: int) -> int:
    """Calls from the loss of the pin to the first message of the next client."""
    client, pinned = pool(standing_by)
    pinned.take()
    with counting_calls() as calls:
        client.api("CONSUMER.UNPIN.S.C", {"group": "A"})
        client.publish(b"s.a")
    assert [m.status for m in pinned.take()] == ["423 Nats-Wrong-Pin-Id"]
    return calls()


def test_a_change_of_the_pin_is_as_much_work_with_many_standing_by_as_with_two() -> None:
    assert work_of_a_change(MANY) <= 1.05 * work_of_a_change(2)
