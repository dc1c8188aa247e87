"""The power goes while streams are copied: afterwards every copy equals what it was copied from.

One origin with gaps feeds a source, a mirror, and a small work queue that refuses what does not fit,
whose messages are taken out again as they are acknowledged.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from faultfs import FaultFS, PowerCut
from headrace import Broker, JetStream, StreamSource
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from headrace.message import StoredMessage
from jetstream_world import Client, World
from portions import portion, some
from waiting import until

MESSAGES = 120
ROOM = 7
TURNS = 400


def start(fs: FaultFS) -> World:
    storage = FileStorage(
        "/store",
        fs=fs,
        clock=ManualClock(),
        threaded=False,
        segment_bytes=8192,
        salts=random.Random(7),
    )
    return World(storage)


def make(world: World) -> Client:
    client = world.client()
    client.stream("S")
    for number in range(MESSAGES):
        client.publish(f"s.{number % 3}".encode(), b"%d" % number)
        if number % 5 == 0:
            client.api("STREAM.MSG.DELETE.S", {"seq": number + 1})
    return client


def copy(client: Client) -> None:
    """Everything that copies; some of it may be there already."""
    rule = {"src": "s.*", "dest": "{{partition(4,1)}}.{{wildcard(1)}}"}
    configs: list[dict[str, Any]] = [
        {"name": "T", "sources": [{"name": "S"}]},
        {"name": "M", "mirror": {"name": "S", "filter_subject": "s.1"}},
        {
            "name": "Q",
            "sources": [{"name": "S", "subject_transforms": [rule]}],
            "retention": "workqueue",
            "discard": "new",
            "max_msgs": ROOM,
        },
    ]
    for config in configs:
        answer = client.api(f"STREAM.CREATE.{config['name']}", config)
        assert "error" not in answer, answer
    client.consumer("W", "Q")


def work(client: Client, sourced: dict[int, int]) -> None:
    """Take the queue's messages until there are no more; notes which message of the origin each is."""
    for _ in range(TURNS):
        client.world.settle()
        messages = client.pull({"batch": 3, "no_wait": True}, "W", "Q").take()
        if not messages[0].reply:
            return
        for message in messages:
            if message.reply:
                sequence = int(message.header["Nats-Stream-Source"].split(" ")[1])
                assert sourced.setdefault(message.stream_seq, sequence) == sequence
                client.ack(message)
    raise AssertionError("the queue never became empty")


def everything(world: World, name: str) -> list[StoredMessage]:
    stream = world.hub.engine.registry.streams[name]  # type: ignore[union-attr]
    return stream.store.read(0, None, 1 << 20, 1 << 30, stream.store.last_seq)


def check(world: World, sourced: dict[int, int]) -> None:
    origin = everything(world, "S")
    assert len(origin) == MESSAGES - MESSAGES // 5
    expected = [(m.subject, m.payload) for m in origin]
    assert [(m.subject, m.payload) for m in everything(world, "T")] == expected
    assert everything(world, "M") == [m for m in origin if m.subject == b"s.1"]
    assert everything(world, "Q") == []
    places = [sourced[sequence] for sequence in sorted(sourced)]
    assert places == [m.sequence for m in origin]


def interrupted(operation: int, rng: random.Random) -> None:
    fs = FaultFS()
    world = start(fs)
    client = make(world)
    sourced: dict[int, int] = {}
    fs.fail(fs.operations + operation, rng.choice(["crash", "crash after"]))
    try:
        copy(client)
        work(client, sourced)
    except PowerCut:
        world = start(fs.power_cut(rng) if rng.random() < 0.7 else fs.kill())
        client = world.client()
        copy(client)
        client.world.advance(31)  # what was delivered and not acknowledged comes again
        work(client, sourced)
    check(world, sourced)


def test_without_a_power_cut_the_copies_are_complete() -> None:
    interrupted(1 << 30, random.Random(1))


@pytest.mark.parametrize("block", range(3))
def test_copies_are_complete_and_without_repetition_whenever_the_power_goes(block: int) -> None:
    for seed in range(block * 8, block * 8 + portion(8, 3)):
        rng = random.Random(seed)
        interrupted(rng.randrange(1, 1400), rng)


def test_copies_are_complete_after_a_disk_that_was_full_for_a_moment() -> None:
    """Whatever operation is refused: it is taken back, tried again, and neither lost nor repeated."""
    tried_again = 0
    for operation in some(range(1, 300, 13), 3):
        fs = FaultFS()
        world = start(fs)
        client = make(world)
        fs.fail(fs.operations + operation, "enospc")
        sourced: dict[int, int] = {}
        try:
            copy(client)
        except AssertionError:  # a creation was refused, and said so
            if world.storage.failed is None:
                copy(client)
        if world.storage.failed is not None:
            continue  # it was no write but a sync, after which nothing can be said of the disk
        tried_again += 1
        world.advance(5)
        work(client, sourced)
        if world.storage.failed is None:
            world.advance(31)
            work(client, sourced)
            check(world, sourced)
    assert tried_again > 3


async def test_a_mirror_whose_end_is_damaged_goes_on_behind_it_and_says_what_it_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sequences are the origin's, and none is given twice; made anew it has all of them."""

    async def has(js: JetStream, last_seq: int) -> None:
        mirror = await js.stream("M")

        async def is_there() -> bool:
            return (await mirror.info()).state.last_seq == last_seq

        await until(is_there, "it does not go on")

    async with Broker(store_dir=tmp_path) as broker, broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s"])
        await js.create_stream(name="M", mirror=StreamSource(name="S"))
        for number in range(10):
            await js.publish("s", b"%d" % number)
        await has(js, 10)
    (segment,) = (tmp_path / "streams" / "M").glob("*.seg")
    written = len(segment.read_bytes().rstrip(b"\0"))
    os.truncate(segment, written - 40)  # more than the last message
    async with Broker(store_dir=tmp_path) as broker, broker.connect() as connection:
        js = connection.jetstream()
        for number in range(10, 15):
            await js.publish("s", b"%d" % number)
        await has(js, 15)
        mirror = await js.stream("M")
        state = (await mirror.info()).state
        lost = state.lost.msgs if state.lost is not None else ()
        assert lost and lost[-1] == 10
        assert "the end is missing" in caplog.text
        for sequence in range(lost[-1] + 1, 16):
            assert (await mirror.get_message(sequence)).payload == b"%d" % (sequence - 1)
        await js.delete_stream("M")
        await js.create_stream(name="M", mirror=StreamSource(name="S"))
        await has(js, 15)
        assert (await (await js.stream("M")).info()).state.messages == 15
