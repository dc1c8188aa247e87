"""What happens to a world: what somebody wants, and what nobody wants."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.groups import MemberMapping

if TYPE_CHECKING:
    from sim.groups.instance import Instance
    from sim.groups.world import World

__all__ = ["Faults"]

MEMBERS_MAX = 3
REFORMS_MAX = 4


class Faults:
    """See the module. Every method picks its victim by itself and returns whether it found one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.rng.getrandbits(64))
        self._is_over = False
        self._is_mapped = False
        self._members = world.cast.members
        self._partitions = world.cast.partitions
        self._reforms = 0
        unwanted = {
            "kill": self._kill,
            "freeze": self._freeze,
            "sleep": self._sleep,
            "cut": self._cut,
            "stall": self._stall,
            "hang": self._hang_broker,
            "delete": self._delete_consumer,
            "restart": self._kill_broker,
        }
        wanted = {
            "rejoin": self._rejoin,
            "step down": self._step_down,
            "add": self._add,
            "drop": self._drop,
            "map": self._map,
            "reform": self._reform,
        }
        self._unwanted = [call for name, call in unwanted.items() if name in world.cast.faults]
        self._wanted = [call for name, call in wanted.items() if name in world.cast.changes]

    # One at a time

    def happen(self) -> bool:
        """Something, wanted or not."""
        return self.rng.choice(self._wanted + self._unwanted)()

    def plan(self) -> bool:
        """Something somebody wants."""
        return self.rng.choice(self._wanted)()

    def heal(self) -> None:
        """Nothing happens any more, and each member has an instance at work."""
        world = self.world
        self._is_over = True
        world.network.refusing.clear()
        for instance in world.instances:
            if instance.process.is_frozen:
                instance.process.thaw()
        if world.host.process.is_frozen:
            world.host.process.thaw()
        if not world.host.is_up:
            self._boot()
        for member in world.members:
            if not world.living(member):
                world.add(member)

    def _count(self, what: str) -> bool:
        self.world.ledger.counts[what] += 1
        return True

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        """Something that ends by itself, unless it was ended before."""
        self.world.network.kernel.call_later(seconds, call)

    def _any(self) -> Instance | None:
        living = [each for each in self.world.living() if not each.process.is_frozen]
        return self.rng.choice(living) if living else None

    # Wanted

    def _rejoin(self) -> bool:
        """An instance leaves, and another one comes."""
        victim = self._any()
        if victim is None:
            return False
        victim.leave()
        self.world.add(victim.member)
        return self._count("left")

    def _step_down(self) -> bool:
        """The active instance of a member that has another one."""
        world = self.world
        members = [each for each in world.members if len(world.living(each)) > 1]
        if not members:
            return False
        member = self.rng.choice(members)
        world.admin.do("step down", lambda: world.admin.step_down(member))
        return True

    def _add(self) -> bool:
        """A new member, whose instances may be there before it is one."""
        world = self.world
        self._members += 1
        member = f"m{self._members}"
        if len(world.members) >= MEMBERS_MAX:
            return False
        world.members.append(member)
        world.add(member)
        self._change("member added", lambda: world.admin.add(member))
        return True

    def _drop(self) -> bool:
        """A member that goes; its instances stay, as it may be added again."""
        world = self.world
        if len(world.members) < 2:
            return False
        member = self.rng.choice(world.members)
        world.members.remove(member)
        self._change("member dropped", lambda: world.admin.drop(member))
        return True

    def _change(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Change the members, by hand where they are mapped by hand."""
        world, members = self.world, [*self.world.members]
        if self._is_mapped:
            self._is_mapped = False
            world.admin.do("mappings deleted", lambda: world.admin.unmap(members))
        else:
            world.admin.do(what, call)

    def _map(self) -> bool:
        """The partitions, dealt out by hand."""
        world, rng = self.world, self.rng
        self._is_mapped = True
        dealt: dict[str, list[int]] = {}
        for partition in range(self._partitions):
            dealt.setdefault(rng.choice(world.members), []).append(partition)
        mappings = [MemberMapping(member, tuple(each)) for member, each in dealt.items()]
        world.admin.do("mapped", lambda: world.admin.map(mappings))
        return True

    def _reform(self) -> bool:
        """Another number of partitions, and other filters with the same key."""
        world, rng = self.world, random.Random(self.rng.getrandbits(64))
        self._reforms += 1
        if self._reforms > REFORMS_MAX:
            return False
        self._partitions = partitions = rng.randrange(2, 7)
        filters = rng.randrange(3)
        world.admin.do("changed", lambda: world.admin.reform(partitions, filters, rng))
        return True

    # Unwanted

    def kill(self, victim: Instance) -> None:
        """Its process, or its whole machine, whose connections nobody hangs up."""
        world = self.world
        world.universe.note("killed", victim.name)
        world.ledger.disturb(victim.process)
        victim.process.kill()
        is_machine = self.rng.random() < 0.4
        for wire in world.network.wires_of(victim.process):
            wire.reset(tells_client=False, tells_server=not is_machine)
        self._count("machine lost" if is_machine else "process killed")

    def _kill(self) -> bool:
        victim = self._any()
        if victim is None:
            return False
        self.kill(victim)
        member = victim.member
        self._later(self.rng.choice((0.1, 1.0, 4.0)), lambda: self._replace(member))
        return True

    def _replace(self, member: str) -> None:
        if not self._is_over:
            self.world.add(member)

    def _freeze(self) -> bool:
        victim = self._any()
        if victim is None:
            return False
        world = self.world
        world.universe.note("frozen", victim.name)
        world.ledger.disturb(victim.process)
        victim.process.freeze()
        seconds = world.cast.lease * self.rng.choice((0.1, 0.5, 0.9, 1.1, 1.5, 2.5))
        self._later(seconds, lambda: self._thaw(victim))
        return self._count("frozen past the lease" if seconds > world.cast.lease else "frozen")

    def _sleep(self) -> bool:
        """Its machine sleeps, and finds none of its connections again."""
        victim = self._any()
        if victim is None:
            return False
        world = self.world
        world.universe.note("asleep", victim.name)
        world.ledger.disturb(victim.process)
        victim.process.freeze()
        for wire in world.network.wires_of(victim.process):
            wire.silence()
        seconds = world.cast.lease * self.rng.choice((0.5, 1.1, 2.0))
        self._later(seconds, lambda: self._thaw(victim))
        return self._count("asleep")

    def _thaw(self, victim: Instance) -> None:
        if victim.process.is_frozen:
            self.world.universe.note("thawed", victim.name)
            victim.process.thaw()

    def _cut(self) -> bool:
        victim = self._any()
        if victim is None:
            return False
        world = self.world
        way = self.rng.choice(("both", "client", "server", "nobody"))
        world.universe.note("cut", victim.name, way)
        world.ledger.disturb(victim.process)
        for wire in world.network.wires_of(victim.process):
            wire.reset(
                tells_client=way in ("both", "client"), tells_server=way in ("both", "server")
            )
        if self.rng.random() < 0.4:
            refusing, name = world.network.refusing, victim.name
            refusing.add(name)
            self._later(world.cast.lease * 3 * self.rng.random(), lambda: refusing.discard(name))
        return self._count(f"cut, told: {way}")

    def _stall(self) -> bool:
        victim = self._any()
        if victim is None:
            return False
        world = self.world
        world.universe.note("stalled", victim.name)
        world.ledger.disturb(victim.process)
        for wire in world.network.wires_of(victim.process):
            wire.stall(world.cast.lease * 1.5 * self.rng.random())
        return self._count("stalled")

    def _hang_broker(self) -> bool:
        world = self.world
        process = world.host.process
        if not world.host.is_up or process.is_frozen:
            return False
        world.universe.note("broker hangs")
        world.ledger.disturb()
        process.freeze()
        self._later(world.cast.lease * self.rng.choice((0.1, 0.5, 1.2)), process.thaw)
        return self._count("broker hangs")

    def _delete_consumer(self) -> bool:
        world, rng = self.world, self.rng
        world.admin.do("consumer deleted", lambda: world.admin.delete_a_consumer(rng))
        return True

    def _kill_broker(self) -> bool:
        world = self.world
        if not world.host.is_up:
            return False
        world.ledger.usurp()
        power = self.rng.random() < 0.5
        world.host.kill(power)
        self._later(self.rng.choice((0.05, 0.5, 2.0)), self._boot)
        return self._count("broker lost power" if power else "broker killed")

    def _boot(self) -> None:
        if not self.world.host.is_up:
            self.world.ledger.usurp()
            self.world.host.boot()
