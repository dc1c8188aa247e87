"""Messages and acks that were on their way for long, in virtual time.

Such messages are ours for less time than the pin is. Such acks may reach the server when the next owner has
been given the messages.
"""

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
        first = begin(world)
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


def test_what_is_acknowledged_late_is_not_handled_again_by_the_next_owner() -> None:
    """It was delivered to the next owner again, which waits for the rest when the acks come."""
    world = World(11, **CAST)
    try:
        first = begin(world)
        publish(world, 5)
        world.run(0.4)
        publish(world, 5)  # these are delivered again later than the others
        world.run(0.02)
        second = world.add("m1")
        assert world.run(0.1, lambda: second.has_joined)
        stall(world, first, 1.2)  # of ACK_WAIT_S, which began 0.5 s ago for the first five
        world.admin.do("step down", lambda: world.admin.step_down("m1"))
        assert world.run(4 * ACK_WAIT_S, lambda: second.membership.is_active), "nobody took over"
        assert world.run(10 * ACK_WAIT_S, lambda: world.ledger.completed["k0"] == 10)
        assert world.ledger.latest["k0"].instance is second
        assert world.ledger.repeated() == []
    finally:
        world.universe.bury()


def begin(world: World) -> Any:
    """The broker, the group, and the first instance of its member."""
    world.host.boot()
    world.admin.do("make", world.admin.make)
    assert world.run(5.0, lambda: world.is_made.is_set)
    first = world.add("m1")
    assert world.run(2.0, lambda: first.has_joined)
    return first


def publish(world: World, count: int) -> None:
    for _ in range(count):
        world.publisher.want_any()


def stall(world: World, instance: Any, seconds: float) -> None:
    world.ledger.disturb(instance.process)
    for wire in world.network.wires_of(instance.process):
        wire.stall(seconds)
