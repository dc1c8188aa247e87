"""A delivery pass of a pull consumer: which request is served with what, and what ends the pass."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.core.jetstream.consumer import delivery_pass
from jetstream_world import SECOND, Client, Inbox, World


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream()
    return client


def fill(client: Client, count: int, size: int = 1) -> None:
    for number in range(count):
        client.put(b"s.%d" % (number % 2), b"%d" % (number % 10) * size)


def sequences(inbox: Inbox) -> list[int]:
    return [m.stream_seq for m in inbox.take() if m.reply.startswith(b"$JS.ACK")]


def test_waiting_requests_get_one_message_each_in_turn(client: Client) -> None:
    client.consumer()
    inboxes = [client.pull(b"%d" % batch) for batch in (2, 3, 1)]
    fill(client, 6)
    assert [sequences(inbox) for inbox in inboxes] == [[1, 4], [2, 5, 6], [3]]


def test_one_request_gets_all_it_asked_for_in_one_go(client: Client) -> None:
    client.consumer()
    fill(client, 6)
    assert sequences(client.pull(b"4")) == [1, 2, 3, 4]
    assert client.info()["num_pending"] == 2


def test_a_request_ends_before_a_message_that_would_be_too_many_bytes(client: Client) -> None:
    client.consumer()
    fill(client, 6, 100)
    got = client.pull({"batch": 6, "max_bytes": 400}).take()
    sizes = [sum(map(len, (m.subject, m.reply, m.headers, m.payload))) for m in got[:-1]]
    assert sum(sizes) <= 400 < sum(sizes) + min(sizes)
    assert got[-1].status.startswith("409 Message Size Exceeds MaxBytes")
    assert sequences(client.pull(b"1")) == [len(sizes) + 1]


def test_a_request_is_over_without_a_word_when_its_bytes_are_used_up_exactly(
    client: Client,
) -> None:
    client.consumer("C")
    client.consumer("D")
    fill(client, 3)
    size = sum(len(b"".join(message)) for message in client.pull(b"2").take())
    inbox = client.pull({"batch": 9, "max_bytes": size}, "D")  # replies to D are as long
    assert [message.stream_seq for message in inbox.take()] == [1, 2]
    assert client.info("D")["num_waiting"] == 0


def test_acks_pending_bound_what_goes_out_and_an_ack_makes_room(client: Client) -> None:
    client.consumer(max_ack_pending=2)
    fill(client, 5)
    inbox = client.pull(b"5")
    first = inbox.take()
    assert [m.stream_seq for m in first] == [1, 2]
    client.ack(first[1])
    assert sequences(inbox) == [3]


def test_what_comes_again_goes_before_what_is_new(client: Client) -> None:
    client.consumer()
    fill(client, 3)
    first = client.pull(b"2").take()
    client.ack(first[0], b"-NAK")
    again = client.pull(b"2").take()
    assert [m.tokens[:2] for m in again] == [(2, 1), (1, 3)]


def test_a_request_whose_inbox_nobody_hears_gets_nothing_and_is_over(client: Client) -> None:
    client.consumer()
    gone = client.pull({"batch": 3, "expires": 60 * SECOND})
    gone.close()
    fill(client, 3)
    assert client.info()["num_waiting"] == 0
    assert sequences(client.pull(b"3")) == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"headers_only": True}])
def test_a_pass_is_bounded_and_the_next_one_goes_on(
    client: Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(delivery_pass, "_PASS_MESSAGES", 4)
    client.consumer(**options)
    fill(client, 10)
    inbox = client.pull(b"10")
    passes = []
    while got := sequences(inbox):
        passes.append(got)
        client.world.hub.run_timers()
        client.world.tick()
    assert passes == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
