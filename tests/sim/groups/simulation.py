"""One seed, from an empty broker to the end of all work."""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sim.groups.faults import Faults
from sim.groups.world import RACED, World

__all__ = ["Simulation", "simulate", "simulate_many"]

_COLLECT_EVERY = 20


def simulate_many(seeds: Iterable[int], **forced: Any) -> Counter[str]:
    """Play seeds one after the other; garbage is collected between them."""
    counts: Counter[str] = Counter()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number, seed in enumerate(seeds):
            counts += simulate(seed, **forced)
            if number % _COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return counts


def simulate(seed: int, **forced: Any) -> Counter[str]:
    """Play a seed; returns what happened how often. AssertionError names the seed.

    ``forced`` are fields of its cast, instead of what the seed would have them.
    """
    simulation = Simulation(seed, **forced)
    try:
        simulation.play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}{_again(seed, forced)}") from error
    finally:
        simulation.world.universe.bury()
    return simulation.world.ledger.counts


def _again(seed: int, forced: dict[str, Any]) -> str:
    """How to play it again."""
    story = f"python tests/sim/groups/story.py {seed}"
    if forced:
        return f'\nagain, step by step: {story} "{forced}"'
    test = "make test PYTEST_ARGS=tests/sim/test_groups.py"
    again = f"HEADRACE_GROUP_SEED={seed} HEADRACE_GROUP_SEEDS=1 {test}"
    return f"\nagain: {again}; step by step: {story}"


class Simulation:
    """See the module."""

    def __init__(self, seed: int, **forced: Any) -> None:
        self.world = World(seed, **forced)
        self.rng = random.Random(self.world.rng.getrandbits(64))
        self.faults = Faults(self.world)

    def play(self) -> None:
        self._begin()
        if self.world.cast.genre == "planned":
            self._planned()
        elif self.world.cast.genre == "crash":
            self._crash()
        else:
            self._wild()
        self._finish()

    def _begin(self) -> None:
        world = self.world
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set), "the group is not made"
        for _ in range(world.cast.backlog):
            world.publisher.want_of_each()
        for member in world.members:
            for _ in range(world.cast.instances):
                if self.rng.random() < 0.3:
                    world.run(self.rng.random())
                world.add(member)
        if world.cast.genre == "wild":
            return  # it may begin before anybody has joined, and with all that work to be done
        assert world.run(2.0, lambda: all(each.has_joined for each in world.instances)), (
            "no joining"
        )
        self._wait_for_all(world.cast.lease * 2 + 2)

    def _planned(self) -> None:
        """Changes that somebody wants, and nothing else happens."""
        world, rng = self.world, self.rng
        for _ in range(rng.choice((1, 2, 3))):
            self.faults.plan()
            assert world.run(2.0, lambda: not world.admin.busy), "an admin gets no answer"
            world.publisher.want_of_each()
            asked = world.universe.now
            self._wait_for_all(1.0)
            world.ledger.counts["planned change"] += 1
            world.universe.note("planned change took", round(world.universe.now - asked, 4))
        again = world.ledger.repeated()
        assert not again or world.ledger.counts[RACED], (
            f"handled again after planned changes: {again}"
        )

    def _crash(self) -> None:
        """One instance goes without a word, and another of the same member stands by."""
        world, rng = self.world, self.rng
        for _ in range(rng.randrange(4)):
            world.publisher.want_any()
            world.run(rng.random() * 0.1)
        victim = rng.choice(world.living())
        self.faults.kill(victim)
        world.publisher.want_of_each()
        self._wait_for_all(2 * world.cast.lease)
        world.ledger.counts["crash replaced"] += 1

    def _wild(self) -> None:
        world, rng = self.world, self.rng
        for _ in range(rng.randrange(5, 16)):
            if rng.random() < 0.1:
                world.publisher.want_of_each()
            elif rng.random() < 0.5:
                world.publisher.want_any()
            for _ in range(rng.choice((0, 1, 1, 2))):
                self.faults.happen()
            world.run(rng.choice((0.01, 0.1, 0.3, 0.6)) * (0.5 + rng.random()))

    def _work_seconds(self) -> float:
        """What the handlers themselves take for what is not handled yet, one after the other. The broker may
        have been away, and much of it is published only now."""
        world, cast = self.world, self.world.cast
        each = 1.5 * cast.handler_seconds + 10 * cast.delay
        slow = 1.5 * cast.ack_wait * (cast.slow_share * 3 + cast.failing_share)
        left = len(world.ledger.missing()) + world.publisher.unconfirmed + cast.keys
        return 0.1 + left * (each + slow)

    def _wait_for_all(self, seconds: float) -> None:
        """Until all that was published is handled."""
        world = self.world
        seconds += self._work_seconds()

        def is_done() -> bool:
            return world.publisher.is_idle and world.ledger.is_done

        assert world.run(seconds, is_done), (
            f"not handled in {seconds:.2f} s: {world.ledger.missing()}"
        )

    def _finish(self) -> None:
        """The faults are over: everything is handled, and acknowledged; then all leave."""
        world = self.world
        self.faults.heal()
        world.publisher.want_of_each()
        self._wait_for_all(6 * world.cast.lease + 10)
        left: list[list[str]] = []

        async def look() -> None:
            left.append(await world.admin.left_over())

        for _ in range(12):
            world.admin.do("look", look)
            self._wait_for_admin()
            if not left[-1]:
                break
            world.run(world.cast.lease)
        assert not left[-1], f"never acknowledged: {left[-1]}"
        self._all_leave()

    def _wait_for_admin(self) -> None:
        """Until it has done all it was asked for. It does one thing after the other, and a change waits for
        members; one that is given up is asked for again with twice the patience, so it ends or is found."""
        world = self.world
        while world.admin.busy:
            before = world.admin.ended

            def has_ended(before: int = before) -> bool:
                return world.admin.ended > before

            assert world.run(10.0, has_ended), "the broker does not answer"

    def _all_leave(self) -> None:
        world = self.world
        for instance in world.living():
            instance.leave()

        def are_gone() -> bool:
            return not any(each.is_alive for each in world.instances)

        assert world.run(5.0, are_gone), "somebody cannot leave"


def trace(seed: int) -> str:
    """A seed with the hash of all that happened in it, at which time and to whom."""
    simulation = Simulation(seed)
    universe = simulation.world.universe
    try:
        simulation.play()
    except AssertionError as error:
        return f"{seed} {universe.trace_hash:08x} {universe.events} {error}"
    finally:
        universe.bury()
    return f"{seed} {universe.trace_hash:08x} {universe.events}"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(trace(int(argument)))
