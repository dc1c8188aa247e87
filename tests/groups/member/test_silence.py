"""A server that is silent is told of once, however many consumers a member has. In virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.member.shared import Silence
from sim.groups import client
from sim.groups.world import World

TOLD = "told: HeartbeatMissedError"
CAST: dict[str, Any] = {
    "genre": "crash",
    "kind": "elastic",
    "layout": "per_partition",
    "partitions": 8,
    "members": 1,
    "instances": 1,
    "backlog": 0,
    "keys": 4,
    "ack_wait": 1.0,
    "max_ack_pending": 50,
    "concurrency": 1,
    "handler": "awaits",
    "handler_seconds": 0.01,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "sync_share": 0.0,
    "delay": 0.0005,
}


@pytest.fixture(autouse=True)
def patient_pings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The link is kept for longer than the silence lasts."""
    options = replace(client.OPTIONS, ping_interval=60.0, ping_timeout=60.0)
    monkeypatch.setattr(client, "OPTIONS", options)
    yield


def test_each_silence_of_the_server_is_told_of_once() -> None:
    world = World(5, **CAST)
    counts = world.ledger.counts
    try:
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set)
        instance = world.add(world.members[0])
        world.publisher.want_of_each()
        assert world.run(5.0, lambda: world.publisher.is_idle and world.ledger.is_done)
        assert instance.membership.is_active
        assert counts[TOLD] == 0
        for silences in (1, 2):
            process = world.host.process
            process.freeze()
            world.run(3.5)  # eight consumers miss three heartbeats each
            process.thaw()
            assert counts[TOLD] == silences
            world.run(6.0)
    finally:
        world.universe.bury()


def test_misses_close_together_are_one_silence() -> None:
    silence = Silence(2.0)
    times = [10.0, 10.0, 11.0, 12.5, 14.0, 17.0, 18.0]
    assert [time for time in times if silence.is_news(time)] == [10.0, 17.0]
