"""Acknowledgements of what is pending nowhere: a consumer of that name had it before.

What nobody needs leaves the work queue.
"""

from __future__ import annotations

import pytest

from jetstream_world import Client, Received, World, publication

COUNT = 4


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream(retention="workqueue")
    client.put(b"s.other")
    for _ in range(COUNT):
        client.put(b"s.moved")
    return client


def had_before(client: Client) -> list[Received]:
    """Messages of a consumer that was made anew with another filter, and has passed them."""
    client.consumer(filter_subject="s.moved")
    messages = client.pull(b"%d" % COUNT).take()
    assert len(messages) == COUNT
    client.api("CONSUMER.DELETE.S.C")
    client.consumer(filter_subject="s.new")
    client.put(b"s.new")
    assert len(client.pull(b"1").take()) == 1
    return messages


def left(client: Client) -> int:
    count: int = client.api("STREAM.INFO.S")["state"]["messages"]
    return count


@pytest.mark.parametrize("answered", [True, False])
def test_they_leave_if_nobody_needs_them(client: Client, answered: bool) -> None:
    messages = had_before(client)
    assert left(client) == COUNT + 2
    if answered:
        for message in messages:
            assert [answer.payload for answer in client.ack(message)] == [b""]
    else:
        twice = [*messages, *messages]
        client.send(b"".join([publication(message.reply, b"+ACK") for message in twice]))
    assert left(client) == 2
    client.world.restart()
    assert left(client.world.client()) == 2


def test_they_stay_if_another_consumer_needs_them(client: Client) -> None:
    messages = had_before(client)
    client.consumer("D", filter_subject="s.moved")
    assert client.pull(b"1", name="D").take()[0].stream_seq == messages[0].stream_seq
    for message in messages:
        assert client.ack(message)
    assert left(client) == COUNT + 2
    assert len(client.pull(b"9", name="D").take()) == COUNT - 1
