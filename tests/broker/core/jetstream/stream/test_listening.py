"""Thousands of subjects of one stream: heard at once, left in turns of the loop, each in little time."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from jetstream_world import Client, World
from machine import pieces

MANY = 5_000  # as many as may be in one request
TURN_MAX = 40  # pieces of work; it is some 8
SHAPES: dict[str, Callable[[int], str]] = {
    "literals": lambda number: f"x{number}.a.b.c.d",
    "wildcards within": lambda number: f"x{number}.*.a.b.c",
    "wildcards at the end": lambda number: f"x{number}.a.b.c.*",
    "everything below": lambda number: f"x{number}.a.b.c.>",
    "two shapes": lambda number: f"x.{number}." + ("*.c.d" if number % 2 else "b.c.d"),
    "many shapes": lambda number: f"x{number}" + ".*" * (number % 9),
    "eight that begin alike": lambda number: f"x.{number}.{number % 8}" + ".*" * (number % 3),
}


def subjects(shape: str, start: str = "") -> list[str]:
    return [start + SHAPES[shape](number) for number in range(MANY)]


def asked(client: Client, verb: str, document: Any) -> tuple[float, dict[str, Any]]:
    """One call, turn by turn: the processor time of the longest turn, and the answer."""
    inbox = client.subscribe()
    body = document if isinstance(document, bytes) else json.dumps(document or "").encode()
    request = b"PUB $JS.API.%b %b %d\r\n%b\r\n" % (verb.encode(), inbox.subject, len(body), body)
    steps: list[Callable[[], object]] = [lambda: client.session.receive(request), client.world.tick]
    longest = 0.0
    gc.disable()  # a pass through the objects of all tests is not what is measured
    try:
        while not inbox.messages:
            for step in steps:
                start = time.thread_time()
                step()
                longest = max(longest, time.thread_time() - start)
            steps = [client.world.hub.run_timers, client.world.tick]
    finally:
        gc.enable()
    return longest, json.loads(inbox.take()[0].payload)


@pytest.mark.parametrize("shape", SHAPES)
def test_as_many_subjects_as_may_be_are_made_changed_and_deleted_in_short_turns(shape: str) -> None:
    client = World().client()
    client.stream("S")
    filters = {"name": "C", "ack_policy": "explicit", "filter_subjects": subjects(shape)}
    took: dict[str, float] = {}
    for verb, document in {
        "STREAM.CREATE.T": {"name": "T", "subjects": subjects(shape)},
        "STREAM.UPDATE.T": {"name": "T", "subjects": subjects(shape, "y")},
        "STREAM.DELETE.T": b"",
        "CONSUMER.CREATE.S.C": {"stream_name": "S", "config": filters},
    }.items():
        took[verb], answer = asked(client, verb, document)
        assert "error" not in answer
    assert pieces(max(took.values())) < TURN_MAX, took


def test_an_update_is_answered_when_no_former_subject_is_heard_any_more() -> None:
    world = World()
    client = world.client()
    client.stream("T", subjects=subjects("literals"))
    body = json.dumps({"name": "T", "subjects": ["new.>"]}).encode()
    answer = client.request(b"$JS.API.STREAM.UPDATE.T", body)
    assert client.put(b"new.a")["seq"] == 1  # heard at once
    assert not answer.messages
    turns = 0
    while not answer.messages:
        world.hub.run_timers()
        world.tick()
        turns += 1
    assert turns >= 1
    for subject in (b"x0.a.b.c.d", b"x4999.a.b.c.d"):
        (reply,) = client.request(subject).take()
        assert reply.status.startswith("503")
    others = client.stream("O", subjects=subjects("literals")[:10])  # nobody has them now
    assert "error" not in others


def test_what_is_wanted_again_while_it_is_left_is_kept() -> None:
    world = World()
    client = world.client()
    client.stream("T", subjects=subjects("literals"))
    first = json.dumps({"name": "T", "subjects": ["new.>"]}).encode()
    again = json.dumps({"name": "T", "subjects": subjects("literals")[-2:]}).encode()
    answers = [client.request(b"$JS.API.STREAM.UPDATE.T", body) for body in (first, again)]
    world.settle()
    assert all(len(answer.take()) == 1 for answer in answers)
    assert client.put(b"x4999.a.b.c.d")["seq"] == 1
    for subject in (b"x0.a.b.c.d", b"new.a"):
        (reply,) = client.request(subject).take()
        assert reply.status.startswith("503")


def test_a_stream_that_is_deleted_while_it_leaves_subjects_hears_nothing_more() -> None:
    world = World()
    client = world.client()
    client.stream("T", subjects=subjects("literals"))
    body = json.dumps({"name": "T", "subjects": ["new.>"]}).encode()
    update = client.request(b"$JS.API.STREAM.UPDATE.T", body)
    assert client.api("STREAM.DELETE.T")["success"]
    (answer,) = update.take()
    assert json.loads(answer.payload)["error"]["err_code"] == 10059  # stream not found
    world.settle()
    assert "error" not in client.stream("O", subjects=subjects("literals"))
    assert client.put(b"x0.a.b.c.d")["stream"] == "O"
