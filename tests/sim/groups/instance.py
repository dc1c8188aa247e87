"""One instance of a member: a process with a connection and a membership, and the handler in it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from headrace.errors import DisconnectedError, HeadraceError, NoRespondersError, RequestTimeoutError
from sim.groups.client import connect
from sim.groups.ledger import Run
from sim.groups.loop import Process
from sim.groups.threads import block

if TYPE_CHECKING:
    from headrace.client.jetstream_context import JetStream
    from sim.groups.world import World

__all__ = ["Instance"]

UNREACHABLE = (DisconnectedError, NoRespondersError, RequestTimeoutError)
"""What whoever joins may be told, and then joins again."""


COSTLY_SHARE = 0.6
"""Of a lease: a handler that blocks the loop for less costs no pin."""


class HandlerBrokeError(Exception):
    """What a handler raises that fails."""


class _Later:
    """A call to be awaited. Whoever is killed before that leaves nothing that Python would miss."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self._call, self._arguments = call, arguments

    def __await__(self) -> Generator[Any, Any, None]:
        return self._call(*self._arguments).__await__()


class Instance:
    """Lives until it is killed or leaves. Another life is another instance."""

    def __init__(self, world: World, member: str, number: int) -> None:
        self.world = world
        self.member = member
        self.number = number
        self.name = f"{member}/{number}"
        self.rng = random.Random(world.rng.getrandbits(64))
        self.process = Process(world.universe, self.name)
        self.membership: Any = None
        self.has_left = False
        self.has_joined = False
        self.is_leaving = False
        self.process.create_task(self._live())
        world.universe.note("instance", self.name)

    @property
    def is_alive(self) -> bool:
        return not (self.process.is_dead or self.has_left)

    def leave(self) -> None:
        """Gracefully."""
        if not self.is_leaving:
            self.is_leaving = True
            self.world.universe.note("leaves", self.name)
            self.process.call_soon(self._begin_to_leave)

    def _begin_to_leave(self) -> None:
        if self.has_joined:
            self.process.create_task(self.membership.leave())

    async def _live(self) -> None:
        world = self.world
        connection = await connect(self.process, world.network, world.host, self.rng)
        js: JetStream = connection.jetstream()
        await world.is_made.wait_in(self.process)
        while not self.is_leaving:
            self.membership = world.join(js, self)
            try:
                async with self.membership:
                    self.has_joined = True
                    if self.is_leaving:
                        await self.membership.leave()
                    await self.membership.wait()
            except HeadraceError as error:
                if self.has_joined or not isinstance(error, UNREACHABLE):
                    world.ended(self, error)
                await asyncio.sleep(world.pause)
            else:
                assert self.is_leaving, f"{self.name}: its membership ended by itself"
            finally:
                self.has_joined = False
        await connection.close()
        self.has_left = True
        world.universe.note("left", self.name)

    async def handle(self, message: Any) -> None:
        """The user's handler."""
        run, seconds = self._begin(message)
        try:
            if seconds:
                await self._work(seconds)
            self._complete(message, run)
            if self.rng.random() < self.world.cast.sync_share:
                await self._acknowledge(message, run)
            else:
                message.ack()
        finally:
            self.world.ledger.end(run)

    def handle_plainly(self, message: Any) -> Awaitable[None] | None:
        """The user's handler, as a plain function, on a thread."""
        run, seconds = self._begin(message)
        acknowledges = False
        try:
            if seconds:
                block(seconds)
            self._complete(message, run)
            if self.rng.random() < self.world.cast.sync_share:
                acknowledges = True
                return _Later(self._acknowledge_and_end, message, run)
            message.ack()
        finally:
            if not acknowledges:
                self.world.ledger.end(run)
        if self.rng.random() < 0.5:
            block(0.001 * self.rng.random())  # the thread is in no hurry
        return None

    def _begin(self, message: Any) -> tuple[Run, float]:
        """How long it takes."""
        world, rng, ledger = self.world, self.rng, self.world.ledger
        key, number = message.payload.decode().split()
        assert message.subject.startswith(f"o.{key}."), message.subject
        run = ledger.start(key, int(number), message.generation, self)
        if not message.is_owned:
            world.universe.failures.append(f"begun, and not owned: {run}")
        seconds = world.cast.handler_seconds * (0.5 + rng.random())
        if rng.random() < world.cast.slow_share:
            seconds += world.cast.ack_wait * (0.5 + rng.random())
            ledger.counts["slow handler"] += 1
        return run, seconds

    async def _work(self, seconds: float) -> None:
        if self.world.cast.handler != "blocks":
            await asyncio.sleep(seconds)
            return
        ledger, costs_the_pin = self.world.ledger, seconds > COSTLY_SHARE * self.world.cast.lease
        if costs_the_pin:
            ledger.disturb(self.process)
        ledger.counts["loop blocked"] += 1
        await self.process.block(seconds)
        if costs_the_pin:
            ledger.counts["loop blocked for long"] += 1
            ledger.disturb(self.process)

    def _complete(self, message: Any, run: Run) -> None:
        ledger = self.world.ledger
        if self.rng.random() < self.world.cast.failing_share:
            ledger.counts["handler failed"] += 1
            raise HandlerBrokeError(run.key)
        if message.is_owned:
            ledger.is_told_to_be_owned(run)
        ledger.complete(run)

    async def _acknowledge_and_end(self, message: Any, run: Run) -> None:
        try:
            await self._acknowledge(message, run)
        finally:
            self.world.ledger.end(run)

    async def _acknowledge(self, message: Any, run: Run) -> None:
        try:
            await message.ack_sync()
        except (HeadraceError, TimeoutError) as error:
            self.world.ledger.counts[f"ack_sync: {type(error).__name__}"] += 1
        else:
            self.world.ledger.acknowledge(run)
