"""Publishes numbered messages of some keys, one after the other, each until the stream has it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from sim.groups.client import connect
from sim.groups.loop import Process

if TYPE_CHECKING:
    from sim.groups.world import World

__all__ = ["Publisher", "message_of"]


def message_of(key: str, number: int, rng: random.Random) -> tuple[str, bytes]:
    """Subject and payload. The subject's last token is no part of the key."""
    return f"o.{key}.{rng.randrange(3)}", f"{key} {number}".encode()


class Publisher:
    """Has a process of its own, which nothing happens to; its connection is as good as any."""

    def __init__(self, world: World, keys: list[str]) -> None:
        self._world = world
        self._keys = keys
        self._rng = random.Random(world.rng.getrandbits(64))
        self.process = Process(world.universe, "publisher")
        self._wanted: asyncio.Queue[str] = asyncio.Queue()
        self._unconfirmed = 0
        self.process.create_task(self._work())

    @property
    def is_idle(self) -> bool:
        """Whether the stream has everything."""
        return not self._unconfirmed

    @property
    def unconfirmed(self) -> int:
        """How many messages are wanted and not known to be stored."""
        return self._unconfirmed

    def want(self, key: str) -> None:
        """One more message of a key."""
        self._unconfirmed += 1
        self.process.call_soon(self._wanted.put_nowait, key)

    def want_of_each(self) -> None:
        for key in self._keys:
            self.want(key)

    def want_any(self) -> None:
        self.want(self._rng.choice(self._keys))

    async def _work(self) -> None:
        world = self._world
        connection = await connect(self.process, world.network, world.host, self._rng)
        js = connection.jetstream()
        await world.is_made.wait_in(self.process)
        published = dict.fromkeys(self._keys, 0)
        while True:
            key = await self._wanted.get()
            number = published[key] = published[key] + 1
            subject, payload = message_of(key, number, self._rng)
            while True:
                try:
                    await js.publish(subject, payload, msg_id=f"{key}-{number}", timeout=1.0)
                except (HeadraceError, TimeoutError):
                    world.ledger.counts["publish again"] += 1
                    await asyncio.sleep(world.pause)
                else:
                    break
            world.ledger.confirm(key, number)
            self._unconfirmed -= 1
            world.universe.note("published", key, number)
