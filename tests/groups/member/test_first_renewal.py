"""Whenever its first message comes, a member that nothing happens to keeps its pin. In virtual time."""

from __future__ import annotations

from typing import Any

from sim.groups.world import World

LEASE_S = 1.5
PERCENT = [*range(0, 60, 10), *range(60, 70), *range(70, 130, 10)]
CAST: dict[str, Any] = {
    "genre": "crash",
    "kind": "static",
    "layout": "interoperable",
    "members": 1,
    "instances": 1,
    "backlog": 0,
    "keys": 1,
    "ack_wait": LEASE_S,
    "handler_seconds": 3 * LEASE_S,
    "concurrency": 1,
    "handler": "awaits",
    "slow_share": 0.0,
    "failing_share": 0.0,
    "delay": 0.01,
}


def test_a_pin_is_kept_however_old_the_pull_was_that_it_was_given_to() -> None:
    """A lease runs from the pull, which may have waited for most of it before something came."""
    lost = [percent for percent in PERCENT if not _is_kept(percent / 100 * LEASE_S)]
    assert not lost, f"lost when so much of the lease (in %) was over at its beginning: {lost}"


def _is_kept(waited: float) -> bool:
    """Whether a member that gets its first message so long after joining is active for as long as its
    handler runs, which is longer than a lease."""
    world = World(7, **CAST)
    try:
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set)
        instance = world.add("m1")
        assert world.run(2.0, lambda: instance.has_joined)
        world.run(waited)
        world.publisher.want_any()
        assert world.run(2.0, lambda: world.ledger.counts["run"] > 0), "nothing came"
        assert instance.membership.is_active
        return not world.run(1.4 * LEASE_S, lambda: not instance.membership.is_active)
    finally:
        world.universe.bury()
