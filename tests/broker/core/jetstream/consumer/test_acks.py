"""Acknowledgements that come in one chunk count as if each had come alone."""

from __future__ import annotations

import pytest

from headrace.broker.core.jetstream.consumer.acks import Acks
from jetstream_world import SECOND, Client, Received, World, publication

PULL = b"$JS.API.CONSUMER.MSG.NEXT.S.C"


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream()
    client.consumer(ack_wait=SECOND)
    for number in range(6):
        client.put(b"s.%d" % number)
    return client


def taken(client: Client, count: int = 6, name: str = "C") -> list[Received]:
    return client.pull(b"%d" % count, name=name).take()


def acks(messages: list[Received], body: bytes = b"") -> bytes:
    return b"".join([publication(message.reply, body) for message in messages])


def floor_and_pending(client: Client, name: str = "C") -> tuple[int, int]:
    info = client.info(name)
    return info["ack_floor"]["stream_seq"], info["num_ack_pending"]


@pytest.mark.parametrize("body", [b"", b"+ACK"])
def test_all_of_them(client: Client, body: bytes) -> None:
    client.send(acks(taken(client), body))
    assert floor_and_pending(client) == (6, 0)


def test_some_of_them_and_a_pull_for_the_next(client: Client) -> None:
    first = taken(client, 3)
    inbox = client.subscribe()
    client.send(acks([first[0], first[2]]) + publication(PULL, b"3", inbox.subject))
    assert [message.stream_seq for message in inbox.take()] == [4, 5, 6]
    assert floor_and_pending(client) == (1, 4)


def test_of_two_consumers_and_of_every_kind(client: Client) -> None:
    client.consumer("D", ack_wait=SECOND)
    for_c, for_d = taken(client), taken(client, name="D")
    client.send(
        acks(for_c[:2])
        + acks(for_d[:3])
        + acks(for_c[2:3], b"-NAK")
        + b"PING\r\n"
        + acks(for_c[3:])
    )
    assert floor_and_pending(client, "D") == (3, 3)
    assert floor_and_pending(client) == (2, 1)
    assert [message.stream_seq for message in taken(client)] == [3]


def test_one_that_wants_to_be_confirmed(client: Client) -> None:
    messages = taken(client)
    inbox = client.subscribe()
    confirmed = publication(messages[5].reply, b"+ACK", inbox.subject)
    client.send(acks(messages[:5]) + confirmed)
    assert [message.payload for message in inbox.take()] == [b""]
    assert floor_and_pending(client) == (6, 0)


def test_with_somebody_who_listens_to_them(client: Client) -> None:
    messages = taken(client)
    watcher = client.world.client().subscribe(b"$JS.ACK.S.C.>")
    client.send(acks(messages))
    assert [message.subject for message in watcher.take()] == [m.reply for m in messages]
    assert floor_and_pending(client) == (6, 0)


def test_some_that_are_no_acks_of_anybody(client: Client) -> None:
    messages = taken(client)
    strays = b"".join(
        publication(subject)
        for subject in (
            b"$JS.ACK.S.X.1.1.1.1.0",
            b"$JS.ACK.S.C.1.x.1.1.0",
            b"$JS.ACK.S.C.1.99.1.1.0",
        )
    )
    client.send(acks(messages[:3]) + strays + acks(messages[3:]))
    assert floor_and_pending(client) == (6, 0)
    client.send(strays + strays)
    assert not client.errors


def test_libraries_acks_go_together_and_others_one_by_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of this file are about a way of its own: it has to be taken, or they prove nothing."""
    together: list[int] = []
    real = Acks.receive_many

    def receive_many(self: Acks, stream_seqs: list[int]) -> None:
        together.append(len(stream_seqs))
        real(self, stream_seqs)

    monkeypatch.setattr(Acks, "receive_many", receive_many)
    client.send(acks(taken(client)))
    assert together == ([] if World.pedantic else [6])
    assert floor_and_pending(client) == (6, 0)


@pytest.mark.parametrize("together", [True, False])
def test_acks_of_what_was_done_before_are_the_last_activity(client: Client, together: bool) -> None:
    messages = taken(client)
    client.send(acks(messages))
    before = client.info()["ack_floor"]["last_active"]
    client.world.advance(5)
    again = acks(messages[:2]), acks(messages[2:4])
    for chunk in (b"".join(again),) if together else again:
        client.send(chunk)
    after = client.info()["ack_floor"]["last_active"]
    assert after > before
    assert floor_and_pending(client) == (6, 0)
