"""Who may stay connected (`headrace.web.connections`), on a clock of the test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.web.connections import ConnectionLimits, Stage, Waiting, address_of


class World:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.now = 0.0
        self.dropped: list[int] = []
        self.waiting: Waiting[int] = Waiting(limits, lambda: self.now, self.dropped.append)


def test_the_connection_that_has_waited_longest_makes_room() -> None:
    world = World(ConnectionLimits(3))
    for each in (1, 2, 3):
        world.now += 1
        assert world.waiting.opened(each, "")
    world.waiting.answer(1)
    world.waiting.wait(2, Stage.BODY)
    assert world.waiting.opened(4, "")
    assert world.dropped == [3]
    assert len(world.waiting) == 3


def test_where_nobody_waits_a_newcomer_is_refused_and_leaves_no_trace() -> None:
    world = World(ConnectionLimits(2))
    for each in (1, 2):
        world.waiting.opened(each, f"10.0.1.{each}")
        world.waiting.answer(each)
    assert not world.waiting.opened(3, "10.0.0.2")
    world.waiting.closed(3)
    world.waiting.closed(1)
    assert world.waiting.opened(3, "10.0.0.2")
    assert world.dropped == []


def test_one_address_closes_its_own_connections_and_not_its_neighbours() -> None:
    world = World(ConnectionLimits(10, address_share=0.3))
    world.waiting.opened(0, "10.0.0.9")
    for each in range(1, 7):
        world.now += 1
        assert world.waiting.opened(each, "10.0.0.1")
    assert world.dropped == [1, 2, 3]
    for each in (4, 5, 6):
        world.waiting.answer(each)
    assert not world.waiting.opened(7, "10.0.0.1")
    assert world.waiting.opened(8, "10.0.0.9")
    assert world.dropped == [1, 2, 3]


def test_each_stage_has_its_own_patience() -> None:
    world = World(ConnectionLimits(9, handshake_s=2, head_s=5, body_s=10))
    world.waiting.opened(1, "", Stage.HANDSHAKE)
    world.waiting.opened(2, "")
    world.waiting.opened(3, "")
    world.waiting.wait(3, Stage.BODY)
    world.waiting.opened(4, "")
    world.waiting.answer(4)
    for world.now in (1.9, 2.0, 4.9, 5.0, 9.9, 10.0, 1000.0):
        world.waiting.sweep()
    assert world.dropped == [1, 2, 3]
    assert len(world.waiting) == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("owhac"), st.integers(0, 3))))
def test_there_are_never_more_than_the_limits_allow(steps: list[tuple[int, str, int]]) -> None:
    limits = ConnectionLimits(8)
    world = World(limits)
    alive: dict[int, str] = {}

    def drop(connection: int) -> None:
        del alive[connection]

    waiting: Waiting[int] = Waiting(limits, lambda: world.now, drop)
    for connection, step, number in steps:
        world.now += number
        if step == "o" and connection not in alive:
            address = ["", "a", "b", "c"][number]
            if waiting.opened(connection, address):
                alive[connection] = address
        elif step == "w":
            waiting.wait(connection, Stage.HEAD)
        elif step == "h":
            waiting.sweep()
        elif step == "a":
            waiting.answer(connection)
        elif connection in alive:
            waiting.closed(connection)
            del alive[connection]
        assert len(waiting) == len(alive) <= limits.connections_max
        for name in "abc":
            assert list(alive.values()).count(name) <= limits.address_max
    waiting.drop_all()
    assert not alive
    assert not len(waiting)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("127.0.0.1", 5), ""),
        (("::1", 5, 0, 0), ""),
        (("::ffff:127.0.0.1", 5, 0, 0), ""),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8::1:2", 5, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_an_address_is_counted_by_who_may_have_it(peer: object, address: str) -> None:
    assert address_of(peer) == address
