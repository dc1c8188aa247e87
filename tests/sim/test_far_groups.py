"""How long keys are silent when a group changes, its members' links are far, and messages keep coming.

In virtual time, so every bound is exact: no longer than half a second and four round trips after a planned
change (five, where the group gets fewer partitions), or eight over a link that is longer than 150 ms, than
two times to acknowledge and a lease after a crash. Jitter counts as part of the round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.groups import elastic
from headrace.groups.member.consumer.consuming import Consuming
from portions import some
from sim.groups.admin import GROUP, STREAM
from sim.groups.faults import Faults
from sim.groups.network import Far
from sim.groups.world import World

EVENTS = ("add", "step down", "drop", "change", "shrink")
CAST: dict[str, Any] = {
    "genre": "planned",
    "kind": "elastic",
    "partitions": 6,
    "members": 2,
    "instances": 2,
    "keys": 12,
    "backlog": 0,
    "ack_wait": 5.0,
    "max_ack_pending": 1000,
    "concurrency": 1,
    "handler": "awaits",
    "handler_seconds": 0.0005,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "sync_share": 0.0,
    "delay": 0.0005,
}
LINKS = [Far(each) for each in (0.0, 0.002, 0.01, 0.04, 0.15)]
CROOKED = [
    Far(0.04, jitter=0.02),
    Far(0.04, to_server_share=0.9),
    Far(0.04, to_server_share=0.1),
    Far(0.15, jitter=0.05, to_server_share=0.8),
    Far(0.3),
]
LONG_S = 0.15
CASES = [
    *((far, "interoperable") for far in [*LINKS, *CROOKED]),
    *((far, "per_partition") for far in [*LINKS, *CROOKED]),
]
CRASHED = [
    (far, layout)
    for layout in ("interoperable", "per_partition")
    for far in (LINKS[3], LINKS[0], CROOKED[0])
]
EVERY_S = 0.01


def bound_s(event: str, far: Far) -> float:
    if event == "crash":
        return 3 * float(CAST["ack_wait"])
    round_trip = far.round_trip + 2 * far.jitter
    if round_trip > LONG_S:
        return 8 * round_trip
    return 0.5 + (5 if event == "shrink" else 4) * round_trip


class Silences:
    """A group at work, and how long its keys were silent at an event."""

    def __init__(self, seed: int, **cast: Any) -> None:
        self.world = world = World(seed, **CAST, **cast)
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(10.0, lambda: world.is_made.is_set)
        self.usual_s = 0.02 + cast["far"].round_trip + 2 * cast["far"].jitter
        for member in (*world.members, "m3"):
            for _ in range(world.cast.instances):
                world.add(member)
        self._publish()
        world.run(1.0)
        assert world.run(10.0, lambda: world.ledger.oldest_wait() < 3 * self.usual_s)

    def _publish(self) -> None:
        self.world.publisher.want_any()
        self.world.network.kernel.call_later(EVERY_S, self._publish)

    def of(self, event: str) -> float:
        """The longest wait from the event on."""
        world, admin = self.world, self.world.admin
        world.ledger.longest_wait = 0.0
        if event == "add":
            admin.do(event, lambda: admin.add("m3"))
        elif event == "drop":
            admin.do(event, lambda: admin.drop("m3"))
        elif event == "step down":
            admin.do(event, lambda: admin.step_down("m1"))
        elif event == "change":
            admin.do(event, lambda: elastic.change(admin.js, STREAM, GROUP, max_members=7))
        elif event == "shrink":
            admin.do(event, lambda: elastic.change(admin.js, STREAM, GROUP, max_members=4))
        else:
            active = [each for each in world.living("m1") if each.membership.is_active]
            Faults(world).kill(active[0])
        assert world.run(20.0, lambda: not admin.busy)
        world.run(1.0)
        assert world.run(20.0, lambda: world.ledger.oldest_wait() < 3 * self.usual_s)
        return world.ledger.longest_wait


@pytest.fixture
def silences() -> Iterator[Any]:
    begun: list[Silences] = []

    def begin(seed: int, **cast: Any) -> Silences:
        begun.append(Silences(seed, **cast))
        return begun[-1]

    yield begin
    for each in begun:
        each.world.universe.bury()


@pytest.mark.parametrize(("far", "layout"), some(CASES, 3, 1), ids=str)
def test_planned_changes_are_silent_for_half_a_second_and_four_round_trips(
    silences: Any, far: Far, layout: str
) -> None:
    group = silences(0, far=far, layout=layout)
    found = {event: round(group.of(event), 3) for event in EVENTS}
    assert all(found[event] <= bound_s(event, far) for event in EVENTS), found


def test_who_stands_by_pulls_no_more_once_its_member_is_to_let_go(silences: Any) -> None:
    """A pull on a way that is long would reach the next consumer of that name, and pin who leaves."""
    group = silences(1, far=CROOKED[3], layout="per_partition")
    found = {event: round(group.of(event), 3) for event in EVENTS}
    assert all(found[event] <= bound_s(event, CROOKED[3]) for event in EVENTS), found


@pytest.mark.parametrize(("far", "layout"), some(CRASHED, 3), ids=str)
def test_a_crash_is_silent_for_two_times_to_acknowledge_and_a_lease(
    silences: Any, far: Far, layout: str
) -> None:
    group = silences(0, far=far, layout=layout)
    assert group.of("crash") <= bound_s("crash", far)


@pytest.mark.slow("tests/sim/test_far_groups.py")
@pytest.mark.parametrize("far", [LINKS[3]], ids=str)
def test_who_judges_an_old_look_waits_for_a_time_to_acknowledge(
    silences: Any, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As members did that took nothing in between a look and what they made of it."""

    async def judge_first(consuming: Any, takeover: Any, info: Any, seconds: float) -> bool:
        if takeover.is_complete(info, consuming._unanswered()):
            return True
        try:
            async with asyncio.timeout(seconds):
                while messages := await consuming._consumption.next_batch():
                    takeover.add_all(messages)
        except TimeoutError:
            pass
        return False

    group = silences(0, far=far, layout="interoperable")
    monkeypatch.setattr(Consuming, "_has_come", judge_first)
    found = {event: group.of(event) for event in EVENTS}
    assert any(found[event] > bound_s(event, far) for event in EVENTS), found
