"""Republishing: in order, once, and only what is on disk."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.core.jetstream.publish.republish import Republisher
from headrace.transforms import SubjectTransform
from jetstream_world import Client, HeldStorage, World


@pytest.fixture
def world() -> World:
    return World(HeldStorage())


def listener(world: World, pattern: bytes = b"out.>") -> Any:
    return world.client().subscribe(pattern)


def test_a_message_goes_out_once_it_is_on_disk(world: World) -> None:
    client, storage = world.client(), world.storage
    assert isinstance(storage, HeldStorage)
    client.stream(republish={"src": "s.*", "dest": "out.{{wildcard(1)}}"})
    inbox = listener(world)
    storage.hold = True
    client.publish(b"s.a", b"one")
    client.publish(b"s.a", b"two", K="v")
    assert inbox.take() == []
    storage.hold = False
    storage.release()
    world.tick()
    first, second = inbox.take()
    assert (first.subject, first.payload, first.header["Nats-Last-Sequence"]) == (
        b"out.a",
        b"one",
        "0",
    )
    assert (second.payload, second.header["K"]) == (b"two", "v")
    assert second.header["Nats-Sequence"] == "2"
    assert second.header["Nats-Last-Sequence"] == "1"


class Bus:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> int:
        self.sent.append(subject)
        return 1


def test_what_was_taken_back_does_not_go_out() -> None:
    republisher, bus = Republisher("S", SubjectTransform(b">", b"out.>"), False), Bus()
    for sequence in (1, 2, 3):
        republisher.note(sequence, b"out.%d" % sequence, (b"x", b"", b"", 0), 0)
    republisher.roll_back(2)
    republisher.release(1, bus)  # type: ignore[arg-type]
    assert bus.sent == [b"out.1"]
    republisher.release(9, bus)  # type: ignore[arg-type]
    assert bus.sent == [b"out.1", b"out.2"]


@pytest.mark.parametrize("dest", ["s.x", "s.>", ">"])
def test_a_stream_does_not_feed_itself(dest: str) -> None:
    client = World().client()
    error = client.stream(republish={"src": ">", "dest": dest})["error"]
    assert error["description"].endswith("for republish destination forms a cycle")


def test_a_transform_to_something_that_is_no_subject_is_silent() -> None:
    client: Client = World().client()
    client.stream(subjects=["s.*"], republish={"src": "s.*", "dest": "out.{{right(1,2)}}"})
    inbox = listener(client.world)
    client.put(b"s.abc")
    assert [message.subject for message in inbox.take()] == [b"out.bc"]
