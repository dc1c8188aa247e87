"""Streams move between our broker and nats-server, both ways, message for message."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import JetStreamApiError
from headrace.client import JetStream, connect, read_backup
from headrace.snapshots.archive import Unpacker
from headrace.snapshots.packing import FilesPacker

Factory = Callable[..., peers.ServerProcess]

SUBJECTS = ["s.>"]


async def fill(js: JetStream) -> None:
    """A stream with everything a backup has to keep."""
    stream = await js.create_stream(name="S", subjects=SUBJECTS, allow_msg_ttl=True)
    for number in range(40):
        headers = {"X-Number": str(number), "Again": "ä"} if number % 3 == 0 else None
        await js.publish(f"s.{number % 4}", b"payload %d " % number, headers=headers)
    await js.publish("s.never", b"", ttl="never")
    await js.publish("s.large", bytes(range(256)) * 1000)
    for sequence in (1, 2, 7, 8, 30, 42):  # gaps at the front, inside, at the end
        await stream.delete_message(sequence)
    worker = await js.create_consumer("S", durable_name="worker", ack_wait=600.0)
    for message in await worker.fetch(10):
        if message.metadata.stream_seq in (3, 5, 6, 12):
            await message.ack_sync()
    await js.create_consumer("S", durable_name="fresh", filter_subject="s.1")
    await js.create_consumer("S", durable_name="push", deliver_subject="to.nobody")
    none = await js.create_consumer("S", durable_name="none", ack_policy="none")
    await none.fetch(5)


async def contents(js: JetStream) -> list[Any]:
    stream = await js.stream("S")
    state = (await stream.info()).state
    found: list[Any] = [(state.messages, state.first_seq, state.last_seq, state.first_ts)]
    for sequence in range(state.first_seq, state.last_seq + 1):
        try:
            message = await stream.get_message(sequence)
        except JetStreamApiError as error:
            found.append((sequence, type(error).__name__))
        else:
            found.append(
                (sequence, message.subject, message.headers, message.payload, message.timestamp_ns)
            )
    return found


async def consumers(js: JetStream) -> dict[str, Any]:
    found = {}
    async for info in js.consumers("S"):
        delivered, floor = info.delivered, info.ack_floor
        found[info.name] = (
            (delivered.consumer_seq, delivered.stream_seq),
            (floor.consumer_seq, floor.stream_seq),
            info.num_ack_pending,
            info.num_redelivered,
            info.num_pending,
            info.config.durable_name,
            info.config.filter_subject,
            info.config.ack_policy,
            info.config.ack_wait,
        )
    return found


def as_files(directory: Path) -> None:
    """Write a backup anew, in the form of nats-server before 2.15."""
    backup = read_backup(directory)
    unpacker = Unpacker(backup.config.name)
    packer = FilesPacker(backup.about["config"], time.time_ns())
    path = directory / "stream.tar.s2"
    unpacker.feed(path.read_bytes())
    data = b""
    while (contents := unpacker.step()) is not None:
        for content in contents:
            data += b"".join(packer.add(content))
    unpacker.finish()
    path.write_bytes(data)


async def test_the_older_form(
    nats_server: Factory, headrace_server: Factory, tmp_path: Path
) -> None:
    """What we write of it nats-server reads, and so do we: all records have right checksums."""
    origin, target = headrace_server(), nats_server()
    async with connect(origin.url) as old, connect(target.url) as new:
        ours, theirs = old.jetstream(), new.jetstream()
        await fill(ours)
        before, states = await contents(ours), await consumers(ours)
        stream = await ours.stream("S")
        await stream.backup(tmp_path / "S")
        as_files(tmp_path / "S")
        await stream.delete()
        for js in (ours, theirs):
            await js.restore_stream(tmp_path / "S")
            assert await contents(js) == before
            assert await consumers(js) == states
            assert (await js.publish("s.1", b"one more")).seq == 43


@pytest.mark.parametrize("way", ["headrace to nats-server", "nats-server to headrace"])
async def test_a_stream_moves(
    way: str, nats_server: Factory, headrace_server: Factory, tmp_path: Path
) -> None:
    kinds = {"headrace": headrace_server, "nats-server": nats_server}
    first, _, second = way.partition(" to ")
    origin = kinds[first]()
    target = kinds[second]()
    async with connect(origin.url) as old, connect(target.url) as new:
        ours, theirs = old.jetstream(), new.jetstream()
        await fill(ours)
        before, states = await contents(ours), await consumers(ours)
        told: list[int] = []
        stream = await ours.stream("S")
        backup = await stream.backup(tmp_path / "S", progress=lambda now: told.append(now.nbytes))
        assert told[-1] == backup.nbytes
        assert backup.config.name == "S"
        restored = await theirs.restore_stream(tmp_path / "S")
        assert restored.name == "S"
        assert await contents(theirs) == before
        assert await consumers(theirs) == states
        ack = await theirs.publish("s.1", b"one more")
        assert ack.seq == 43


@pytest.mark.parametrize("way", ["headrace to nats-server", "nats-server to headrace"])
async def test_a_work_queue_beyond_its_limits_is_restored_whole(
    way: str, nats_server: Factory, headrace_server: Factory, tmp_path: Path
) -> None:
    kinds = {"headrace": headrace_server, "nats-server": nats_server}
    first, _, second = way.partition(" to ")
    target = kinds[second]()
    async with connect(kinds[first]().url) as old, connect(target.url) as new:
        ours, theirs = old.jetstream(), new.jetstream()
        stream = await ours.create_stream(
            name="S", subjects=SUBJECTS, retention="workqueue", discard="new"
        )
        await ours.create_consumer("S", durable_name="worker")
        for number in range(20):
            await ours.publish("s.1", b"%d" % number)
        await stream.update(max_msgs=5)
        await stream.backup(tmp_path / "S")
        restored = await theirs.restore_stream(tmp_path / "S")
        assert (await restored.info()).state.messages == 20
        worker = await theirs.consumer("S", "worker")
        with pytest.raises(JetStreamApiError, match="maximum messages exceeded"):
            await theirs.publish("s.1", b"one more")
        got = await worker.fetch(20)
        assert [message.payload for message in got] == [b"%d" % each for each in range(20)]
        for message in got:
            await message.ack_sync()
        assert (await theirs.publish("s.1", b"one more")).seq == 21


async def kinds(js: JetStream) -> None:
    """One stream of each kind that has something of its own to keep."""
    await js.create_stream(name="I", subjects=["i.>"], retention="interest")
    await js.create_stream(name="W", subjects=["w.>"], retention="workqueue")
    for name in "IW":
        consumer = await js.create_consumer(name, durable_name="c")
        for number in range(10):
            await js.publish(f"{name.lower()}.x", b"%d" % number)
        for message in (await consumer.fetch(5))[::2]:
            await message.ack_sync()
    bucket = await js.create_key_value("b", history=2)
    for number in range(5):
        await bucket.put("k", b"%d" % number)
    await bucket.delete("gone")
    await js.create_stream(name="C", subjects=["c.>"], allow_msg_counter=True)
    await js.increment("c.a", 5)
    await js.increment("c.a", 2)
    await js.create_consumer("C", name="passing", inactive_threshold=100.0)


async def pictures(js: JetStream) -> dict[str, object]:
    found: dict[str, object] = {}
    async for info in js.streams():
        state, config = info.state, info.config
        stream = await js.stream(config.name)
        members = [
            (one.name, one.delivered.stream_seq, one.ack_floor.stream_seq, one.num_ack_pending)
            async for one in stream.consumers()
        ]
        kept = (state.messages, state.first_seq, state.last_seq, config.retention, members)
        found[config.name] = kept
    return found


@pytest.mark.parametrize("way", ["headrace to nats-server", "nats-server to headrace"])
async def test_every_kind_of_stream_moves(
    way: str, nats_server: Factory, headrace_server: Factory, tmp_path: Path
) -> None:
    servers = {"headrace": headrace_server, "nats-server": nats_server}
    first, _, second = way.partition(" to ")
    async with connect(servers[first]().url) as old, connect(servers[second]().url) as new:
        ours, theirs = old.jetstream(), new.jetstream()
        await kinds(ours)
        async for name in ours.stream_names():
            await (await ours.stream(name)).backup(tmp_path / name)
            await theirs.restore_stream(tmp_path / name)
        assert await pictures(theirs) == await pictures(ours)
        left = await (await theirs.consumer("W", "c")).fetch(20, max_wait=1.0)
        assert [message.payload for message in left] == [b"5", b"6", b"7", b"8", b"9"]
        assert (await (await theirs.key_value("b")).get("k")).value == b"4"
        assert await theirs.increment("c.a") == 8
