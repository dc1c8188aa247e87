"""Connections kept between tasks: few, not for long, none that is broken, none of another process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.errors import HeadraceError
from headrace.spark.links.link import Link
from headrace.spark.links.pool import LinkPool, Statistics
from headrace.spark.options import Connection


@dataclass
class FakeLink(Link):
    """A connection that its test breaks."""

    closed: bool = False
    broken: bool = False

    def is_alive(self) -> bool:
        return not (self.closed or self.broken)

    def close(self) -> None:
        self.closed = True


@dataclass
class World:
    """A pool whose clock, process and links are the test's."""

    pool: LinkPool
    now: float = 0.0
    process: int = 1


HERE, THERE = Connection(("nats://here:4222",)), Connection(("nats://there:4222",))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    class Opens:
        @staticmethod
        def open(connection: Connection) -> FakeLink:
            return FakeLink()

    monkeypatch.setattr("headrace.spark.links.pool.Link", Opens)
    made = World(
        LinkPool(idle_max=2, idle_s=60, now=lambda: made.now, process=lambda: made.process)
    )
    yield made


def test_a_connection_is_lent_again_to_the_same_server_alone(world: World) -> None:
    link = world.pool.take(HERE)
    assert not world.pool.has_reached(HERE)
    world.pool.give_back(HERE, link)
    assert world.pool.has_reached(HERE)
    assert world.pool.take(THERE) is not link
    assert world.pool.take(HERE) is link
    assert world.pool.take(HERE) is not link
    assert world.pool.statistics == Statistics(opened=3, reused=1)


def test_a_broken_one_is_closed_and_another_one_lent(world: World) -> None:
    broken, whole = FakeLink(broken=True), FakeLink()
    world.pool.give_back(HERE, whole)
    world.pool.give_back(HERE, broken)
    assert world.pool.take(HERE) is whole
    assert broken.closed
    assert world.pool.statistics == Statistics(reused=1, broken=1)


def test_of_too_many_the_one_unused_for_longest_is_closed(world: World) -> None:
    links = [FakeLink() for _ in range(3)]
    for link in links:
        world.pool.give_back(HERE, link)
    assert [link.closed for link in links] == [True, False, False]
    assert world.pool.take(HERE) is links[2]


def test_what_nobody_used_for_a_minute_is_closed(world: World) -> None:
    old, new = FakeLink(), FakeLink()
    world.pool.give_back(HERE, old)
    world.now = 30
    world.pool.give_back(THERE, new)
    world.now = 60.5
    assert world.pool.take(HERE) is not old
    assert (old.closed, new.closed) == (True, False)
    assert world.pool.statistics == Statistics(opened=1, closed=1)


def test_a_forked_process_touches_nothing_of_its_parent(world: World) -> None:
    parents = FakeLink()
    world.pool.give_back(HERE, parents)
    world.process, world.now = 2, 1000
    assert world.pool.take(HERE) is not parents
    assert not world.pool.has_reached(HERE)
    world.pool.close()
    assert not parents.closed


def test_a_task_that_fails_leaves_no_connection_and_one_that_ends_leaves_all(world: World) -> None:
    with world.pool.lending(HERE) as connect:
        links = [connect(), connect()]
    assert not any(link.closed for link in links)
    with pytest.raises(HeadraceError), world.pool.lending(HERE) as connect:
        assert connect() is links[1]
        raise HeadraceError
    assert [link.closed for link in links] == [False, True]
    world.pool.close()
    assert links[0].closed
