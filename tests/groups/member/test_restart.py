"""How long a group stands still when its broker is restarted: in virtual time, from the kill on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sim.groups import client
from sim.groups.world import World

DOWN_S = 0.7
CAST: dict[str, Any] = {
    "genre": "wild",
    "kind": "elastic",
    "partitions": 4,
    "members": 2,
    "instances": 1,
    "keys": 6,
    "backlog": 0,
    "ack_wait": 2.0,
    "max_ack_pending": 50,
    "concurrency": 1,
    "handler": "awaits",
    "handler_seconds": 0.01,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "sync_share": 0.0,
    "delay": 0.0005,
    "faults": ("restart",),
}


@pytest.fixture(autouse=True)
def usual_reconnects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a connection waits where nothing is said."""
    options = replace(client.OPTIONS, reconnect_wait=0.1, reconnect_wait_max=5.0)
    monkeypatch.setattr(client, "OPTIONS", options)
    yield


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
def test_a_group_goes_on_within_a_second_and_a_half_of_a_kill(layout: str) -> None:
    took = {seed: _gap(seed, layout) for seed in range(10)}
    assert max(took.values()) <= 1.5, took


def _gap(seed: int, layout: str) -> float:
    """From the kill until all that was published meanwhile is handled."""
    world = World(seed, **CAST, layout=layout)
    try:
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set)
        for member in world.members:
            world.add(member)
        world.publisher.want_of_each()
        assert world.run(3.0, lambda: world.publisher.is_idle and world.ledger.is_done)
        world.run(0.5)
        killed = world.universe.now
        world.host.kill(power=False)
        world.publisher.want_of_each()
        world.run(DOWN_S)
        world.host.boot()
        assert world.run(15.0, lambda: world.publisher.is_idle and world.ledger.is_done)
        return world.universe.now - killed
    finally:
        world.universe.bury()
