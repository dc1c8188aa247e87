"""A commit removes a few directories only, however many streams are deleted; order stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.broker.core.jetstream.tick.flush_barrier import (
    DIRECTORIES_PER_COMMIT,
    STREAMS_PER_COMMIT,
)
from headrace.errors import StoreFullError
from jetstream_world import Client, HeldStorage, World

MANY = 3 * DIRECTORIES_PER_COMMIT


class CountingStorage(HeldStorage):
    """Tells how many streams were deleted, and how many made, for each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.staged = self.staged_new = 0
        self.per_flush: list[int] = []
        self.new_per_flush: list[int] = []

    def create_stream(self, name: str, *, memory: bool = False) -> Any:
        self.staged_new += 1
        return super().create_stream(name, memory=memory)

    def delete_stream(self, name: str) -> None:
        self.staged += 1
        super().delete_stream(name)

    def flush(self, done) -> None:  # type: ignore[no-untyped-def]
        self.per_flush.append(self.staged)
        self.new_per_flush.append(self.staged_new)
        self.staged = self.staged_new = 0
        super().flush(done)


def frame(subject: str, body: bytes = b"", reply: bytes = b"answers") -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply, len(body), body)


def create(number: int, reply: bytes = b"answers", **config: object) -> bytes:
    body = {"name": f"S{number}", "subjects": [f"s.{number}"], **config}
    return frame(f"$JS.API.STREAM.CREATE.S{number}", json.dumps(body).encode(), reply)


def delete(number: int) -> bytes:
    return frame(f"$JS.API.STREAM.DELETE.S{number}")


def kinds(client: Client, answers: object) -> list[str]:
    found = []
    for answer in answers.take():  # type: ignore[attr-defined]
        document = json.loads(answer.payload)
        found.append(document.get("type", "ack").rpartition(".")[2])
        assert "error" not in document, document
    return found


def made(world: World) -> Client:
    """A client that has made so many streams, with one commit."""
    client = world.client()
    answers = client.subscribe(b"made")
    client.send(b"".join(create(number, b"made") for number in range(MANY)))
    world.settle()
    assert kinds(client, answers) == ["stream_create_response"] * MANY
    return client


def test_deletions_beyond_a_few_wait_for_the_next_commit_and_so_does_what_follows() -> None:
    storage = CountingStorage()
    world = World(storage)
    client, other = made(world), world.client()
    answers = client.subscribe(b"answers")
    # Each message goes to the stream made anew just before it: that it is taken proves the order.
    client.send(b"".join(delete(n) + create(n) + frame(f"s.{n}", b"x") for n in range(MANY)))
    # Somebody else is answered meanwhile; one stream waits to be made anew.
    assert other.api("INFO")["streams"] == MANY - 1
    world.settle()
    told = ["stream_delete_response", "stream_create_response", "ack"] * MANY
    assert sorted(kinds(client, answers)) == sorted(told)
    client.send(b"".join(map(delete, range(MANY))))
    assert other.api("INFO")["streams"] > 0
    world.settle()
    assert kinds(client, answers) == ["stream_delete_response"] * MANY
    assert max(storage.per_flush) == DIRECTORIES_PER_COMMIT  # it was full, and never more
    assert other.api("INFO")["streams"] == 0


def test_who_waits_for_a_commit_is_not_read_and_goes_on_after_it() -> None:
    storage = CountingStorage()
    world = World(storage)
    client, other = made(world), world.client()
    answers, theirs = client.subscribe(b"answers"), other.subscribe(b"theirs")
    storage.hold = True
    client.send(b"".join(map(delete, range(MANY))))
    world.settle()
    assert client.session.holds_input  # the shell reads no more of it
    assert not client.session.wants_slice  # and gives it no turn that it could not use
    other.send(frame("$JS.API.STREAM.NAMES", b"", b"theirs"))
    left = json.loads(theirs.take()[0].payload)["streams"]
    assert len(left) >= MANY - 2 * DIRECTORIES_PER_COMMIT
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
        world.settle()
    assert len(kinds(client, answers)) == MANY
    assert not client.session.holds_input


def test_a_client_that_hangs_up_while_it_waits_stops_nobody_else() -> None:
    storage = CountingStorage()
    world = World(storage)
    client, other = made(world), world.client()
    storage.hold = True
    client.send(b"".join(map(delete, range(MANY))))
    world.settle()
    answers = other.subscribe(b"theirs")
    other.send(frame(f"$JS.API.STREAM.DELETE.S{MANY - 1}", b"", b"theirs"))
    client.session.disconnected()
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
        world.settle()
    assert kinds(other, answers) == ["stream_delete_response"]
    assert not other.session.holds_input


def test_calls_that_wait_are_answered_when_the_commit_before_fails() -> None:
    storage = CountingStorage()
    world = World(storage)
    client = made(world)
    answers = client.subscribe(b"answers")
    storage.hold = True
    client.send(b"".join(map(delete, range(MANY))))
    storage.fail = StoreFullError("full")
    storage.release()
    storage.fail, storage.hold = None, False
    world.tick()
    world.settle()
    while storage.held:
        storage.release()
        world.tick()
        world.settle()
    assert len(answers.take()) == MANY  # each of them, with an error or without
    assert not client.session.holds_input


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_streams_made_beyond_a_commit_s_wait_for_the_next_one(kind: str) -> None:
    """A loop that makes them all the time would leave the commit thread none."""
    storage = CountingStorage()
    world = World(storage)
    client, many = world.client(), 3 * STREAMS_PER_COMMIT
    answers = client.subscribe(b"answers")
    client.send(b"".join(create(n, storage=kind) for n in range(many)))
    client.send(b"".join(map(delete, range(many))))
    world.settle()
    told = ["stream_create_response", "stream_delete_response"]
    assert sorted(kinds(client, answers)) == sorted(told * many)
    assert max(storage.new_per_flush) == STREAMS_PER_COMMIT
    few = DIRECTORIES_PER_COMMIT if kind == "file" else STREAMS_PER_COMMIT
    assert max(storage.per_flush) == few


def test_some_streams_are_made_with_one_commit_and_wait_for_nothing() -> None:
    storage = CountingStorage()
    world = World(storage)
    client = world.client()
    answers = client.subscribe(b"answers")
    storage.hold = True
    client.send(b"".join(create(n) for n in range(MANY)))
    world.settle()
    assert not client.session.holds_input
    while storage.held:
        storage.release()
        world.tick()
        world.settle()
    assert kinds(client, answers) == ["stream_create_response"] * MANY
