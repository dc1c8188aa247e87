"""Messages that were on their way for long are ours for less time than the pin is. In virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from sim.groups.world import World

ACK_WAIT_S = 1.5
CAST: dict[str, Any] = {
    "genre": "wild",
    "kind": "static",
    "layout": "interoperable",
    "members": 1,
    "instances": 1,
    "backlog": 0,
    "keys": 1,
    "ack_wait": ACK_WAIT_S,
    "max_ack_pending": 50,
    "handler_seconds": 0.3,
    "concurrency": 1,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "sync_share": 0.0,
    "delay": 0.001,
    "pin_handover": "immediate",
}


@pytest.mark.parametrize("late", [0.4, 0.6, 0.8])
def test_who_is_cut_off_with_late_messages_owns_nothing_when_another_is_given_them(
    late: float,
) -> None:
    """``late``: how much of the time to acknowledge them was over when they came."""
    world = World(11, **CAST)
    try:
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set)
        first = world.add("m1")
        assert world.run(2.0, lambda: first.has_joined)
        world.run(0.1)  # its first pull is there
        stall(world, first, late * ACK_WAIT_S)
        for _ in range(20):
            world.publisher.want_any()
        assert world.run(ACK_WAIT_S, lambda: world.ledger.counts["run"] > 0), "nothing came"
        second = world.add("m1")
        assert world.run(0.1, lambda: second.has_joined)
        stall(world, first, 4 * ACK_WAIT_S)  # nor does it hear that it was asked to step down
        world.admin.do("step down", lambda: world.admin.step_down("m1"))
        assert world.run(4 * ACK_WAIT_S, lambda: second.membership.is_active), "nobody took over"
        runs = world.ledger.counts["run"]
        goes_on = world.run(4 * ACK_WAIT_S, lambda: world.ledger.counts["run"] > runs + 3)
        assert goes_on, "it does not go on"
    finally:
        world.universe.bury()


def stall(world: World, instance: Any, seconds: float) -> None:
    world.ledger.disturb(instance.process)
    for wire in world.network.wires_of(instance.process):
        wire.stall(seconds)
