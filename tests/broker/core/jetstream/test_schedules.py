"""Schedules: they fire once each time, survive restarts, and end when they are replaced."""

from __future__ import annotations

import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.api.times import format_time
from headrace.broker.store import FileStorage
from jetstream_world import Client, World

SECOND = 1_000_000_000


def open_storage(fs: FaultFS) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, salts=random.Random(1))


def restart(world: World, seconds: float, *, clean: bool = True) -> Client:
    storage = world.storage
    assert isinstance(storage, FileStorage)
    fs = storage._fs
    assert isinstance(fs, FaultFS)

    def reopen() -> FileStorage:
        world.clock.advance(seconds)
        return open_storage(fs.kill())

    if clean:
        world.restart(reopen)
    else:
        world.storage = reopen()
        world.clients.clear()
        world._start()
    return world.client()


def at(client: Client, seconds: float) -> str:
    return "@at " + format_time(client.world.clock.now_ns() + round(seconds * SECOND))


def plan(client: Client, pattern: str, subject: bytes = b"s.plan", **more: str) -> dict[str, Any]:
    headers = {"Nats_Schedule": pattern, "Nats_Schedule_Target": "s.out", **more}
    return client.put(subject, b"work", **headers)


def subjects(client: Client) -> dict[str, int]:
    info = client.api("STREAM.INFO.S", {"subjects_filter": ">"})
    found: dict[str, int] = info["state"].get("subjects", {})
    return found


@pytest.fixture
def client() -> Client:
    client = World(open_storage(FaultFS())).client()
    client.stream(allow_msg_schedules=True)
    return client


def test_a_message_appears_at_its_time_and_the_schedule_is_gone(client: Client) -> None:
    client.consumer(filter_subject="s.out")
    plan(client, at(client, 5), K="v")
    pull = client.pull({"batch": 1, "expires": 60 * SECOND})
    client.world.advance(4.9)
    assert subjects(client) == {"s.plan": 1}
    client.world.advance(0.5)
    (message,) = pull.take()
    assert message.payload == b"work"
    assert message.header == {"K": "v", "Nats-Scheduler": "s.plan", "Nats-Schedule-Next": "purge"}
    assert subjects(client) == {"s.out": 1}


def test_a_repeating_schedule_stays_and_says_when_it_fires_next(client: Client) -> None:
    plan(client, "@every 10s")
    client.world.advance(35)
    assert subjects(client) == {"s.plan": 1, "s.out": 3}
    client.put(b"s.plan", b"over")
    client.world.advance(35)
    assert subjects(client) == {"s.plan": 2, "s.out": 3}


def test_a_wall_clock_that_is_set_forward_is_noticed(client: Client) -> None:
    plan(client, at(client, 3000))
    client.world.clock.jump(3600)
    client.world.advance(59)
    assert subjects(client) == {"s.plan": 1}
    client.world.advance(62)  # it was looked at, and has lasted
    assert subjects(client) == {"s.out": 1}


def test_a_purged_schedule_does_not_fire(client: Client) -> None:
    plan(client, at(client, 5))
    client.api("STREAM.PURGE.S", {"filter": "s.plan"})
    client.world.advance(10)
    assert subjects(client) == {}


def test_the_transform_of_the_stream_applies_to_what_is_made() -> None:
    client = World().client()
    client.stream(
        subjects=["s.*", "t.*"],
        allow_msg_schedules=True,
        subject_transform={"src": "s.out", "dest": "t.out"},
    )
    plan(client, at(client, 1))
    client.world.advance(2)
    assert subjects(client) == {"t.out": 1}


@pytest.mark.parametrize("clean", [True, False])
def test_schedules_survive_a_restart(client: Client, clean: bool) -> None:
    plan(client, at(client, 5))
    plan(client, at(client, 60), subject=b"s.late")
    again = restart(client.world, 20, clean=clean)
    again.world.advance(0.5)
    assert subjects(again) == {"s.out": 1, "s.late": 1}
    again.world.advance(60)
    assert subjects(again) == {"s.out": 2}


def test_a_repeating_schedule_goes_on_in_step_after_a_restart(client: Client) -> None:
    plan(client, "@every 10s")
    client.world.advance(11)
    assert subjects(client)["s.out"] == 1
    again = restart(client.world, 5)
    again.world.advance(3)
    assert subjects(again)["s.out"] == 1
    again.world.advance(2)
    assert subjects(again)["s.out"] == 2
    late = restart(again.world, 95)  # what was missed is made up for once
    late.world.advance(0.5)
    assert subjects(late)["s.out"] == 3
    late.world.advance(11)
    assert subjects(late)["s.out"] == 4


def test_a_firing_that_is_on_disk_is_not_repeated_though_the_schedule_still_is(
    client: Client,
) -> None:
    plan(client, at(client, 60))
    world = client.world
    # As a crash between the record of the message and that of the removal would leave it.
    headers = b"NATS/1.0\r\nNats-Scheduler: s.plan\r\nNats-Schedule-Next: purge\r\n\r\n"
    store = world.storage.open_stream("S")
    store.append(b"s.out", headers, b"work", world.clock.now_ns())
    world.storage.flush(lambda error: None)
    again = restart(world, 1, clean=False)
    assert subjects(again) == {"s.out": 1}
    again.world.advance(61)
    assert subjects(again) == {"s.out": 1}


def test_a_full_disk_delays_a_firing_and_loses_none(client: Client) -> None:
    storage = client.world.storage
    assert isinstance(storage, FileStorage)
    fs = storage._fs
    assert isinstance(fs, FaultFS)
    plan(client, at(client, 5), K="v" * 100)
    fs.capacity = 1
    client.world.advance(8)
    fs.capacity = None
    client.world.advance(3)
    client.put(b"s.y")
    client.world.advance(3)
    assert subjects(client) == {"s.out": 1, "s.y": 1}
