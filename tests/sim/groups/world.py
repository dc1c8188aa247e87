"""One seed's world: broker, network, group, its members' instances, and what is published."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace import ConsumerConfig
from headrace.errors import HeadraceError
from headrace.groups import ElasticGroup, StaticGroup
from headrace.groups.errors import HandlerFailedError
from headrace.groups.member import Membership, OnFailure, Retry, Stop
from sim.groups.admin import GROUP, STREAM, Admin
from sim.groups.cast import NEAR, draw, draw_far, draw_handler
from sim.groups.host import Host
from sim.groups.instance import Instance
from sim.groups.ledger import Ledger
from sim.groups.loop import SECOND, Process, Universe
from sim.groups.network import Network
from sim.groups.publisher import Publisher
from sim.groups.threads import SimulatedThreads

if TYPE_CHECKING:
    from headrace.client.jetstream_context import JetStream

__all__ = ["RACED", "Signal", "World"]

RACED = "deleted one after the other"
TOGETHER_S = 0.1
LOOKED_S = 0.5

FAILURES: dict[str, OnFailure] = {"stop": Stop(), "retry": Retry(backoff=(0.05, 0.2))}


class Signal:
    """An event that processes, each with a loop of its own, can wait for."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []

    def set(self) -> None:
        self.is_set = True
        for process, future in self._waiting:
            process.call_soon(_resolve, future)

    async def wait_in(self, process: Process) -> None:
        if not self.is_set:
            future = process.create_future()
            self._waiting.append((process, future))
            await future


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class World:
    """See the module. ``pause`` is between two attempts at whatever a client repeats, in virtual seconds."""

    pause = 0.2

    def __init__(self, seed: int, **forced: Any) -> None:
        self.rng = random.Random(seed)
        drawn = replace(draw(self.rng), **{"handler": draw_handler(seed), **forced})
        self.cast = drawn if "far" in forced else replace(drawn, far=draw_far(seed, drawn.genre))
        self.universe = Universe()
        self.network = Network(self.universe, self.rng, self.cast.delay)
        self.network.far = lambda name: NEAR if name == "publisher" else self.cast.far
        self.host = Host(self.universe, self.network, self.rng, self.cast)
        self.ledger = Ledger(self.universe, self.cast.lease)
        self.is_made = Signal()
        self.admin = Admin(self)
        self.instances: list[Instance] = []
        self.members = [f"m{number}" for number in range(1, self.cast.members + 1)]
        self.publisher = Publisher(self, [f"k{number}" for number in range(self.cast.keys)])
        self._numbers = 0
        self._deletions: dict[str, tuple[float, Process]] = {}
        self._looks: dict[tuple[Process, str], float] = {}
        self.network.on_look = self._looked
        self.network.on_deletion = self._deleted
        self.network.lease_ns = round(self.cast.lease * SECOND)
        self.network.on_slowness = self._slow

    def add(self, member: str) -> Instance:
        """Another instance of a member."""
        self._numbers += 1
        instance = Instance(self, member, self._numbers)
        self.instances.append(instance)
        return instance

    def _looked(self, process: Process, consumer: str) -> None:
        self._looks[process, consumer] = self.universe.now

    def _deleted(self, process: Process, consumer: str) -> None:
        """Two instances of a member that both have found its consumer unused may delete one after the
        other: the server deletes whatever has the name, so the second deletes what the first has made.
        The answer to its look at the one that the first deleted, and its deletion, may take their time."""
        now = self.universe.now
        at, before = self._deletions.get(consumer, (0.0, process))
        self._deletions[consumer] = (now, process)
        looked = self._looks.get((process, consumer), now)
        was_before = now - LOOKED_S < looked < at
        if before is not process and (now - at < TOGETHER_S or was_before):
            self.ledger.usurp()
            self.ledger.counts[RACED] += 1

    def _slow(self, process: Process) -> None:
        """It may not be told in time that the pin is still its own."""
        self.ledger.disturb(process)
        self.ledger.counts["held up"] += 1

    def living(self, member: str = "") -> list[Instance]:
        return [
            each
            for each in self.instances
            if each.is_alive and not each.is_leaving and member in ("", each.member)
        ]

    def ended(self, instance: Instance, error: HeadraceError) -> None:
        """A membership ended with an error."""
        self.universe.note("ended", instance.name, type(error).__name__)
        self.ledger.counts[f"ended: {type(error).__name__}"] += 1
        if not self.may_end(error):
            self.universe.failures.append(f"{instance.name} ended: {error!r}")

    def may_end(self, error: HeadraceError) -> bool:
        return isinstance(error, HandlerFailedError) and self.cast.on_failure == "stop"

    def join(self, js: JetStream, instance: Instance) -> Membership[Any]:
        """What the process of an instance does when it starts."""
        cast, counts = self.cast, self.ledger.counts
        kind: Any = StaticGroup if cast.kind == "static" else ElasticGroup

        def told(error: Exception) -> None:
            counts[f"told: {type(error).__name__}"] += 1

        return Membership(
            js,
            kind,
            STREAM,
            GROUP,
            instance.member,
            instance.handle_plainly if cast.handler == "plain" else instance.handle,
            ConsumerConfig(ack_wait=cast.ack_wait, max_ack_pending=cast.max_ack_pending),
            concurrency=cast.concurrency,
            on_failure=FAILURES[cast.on_failure],
            on_error=told,
            random=random.Random(instance.rng.getrandbits(64)),
            threads=SimulatedThreads(instance.process, random.Random(instance.name)),
        )

    # Time

    def run(self, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        return self.universe.run(self.universe.now + seconds, done)
