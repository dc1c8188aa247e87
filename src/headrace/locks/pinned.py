"""A lock that is a pin: of several clients that pull, a consumer serves the one that is pinned.

It is a consumer group of one partition and one member, of which whoever wants it is an instance. The group's
stream holds a message that nobody ever acknowledges: who is pinned has it, and works at it while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final, Self

from ..api.consumers import ConsumerConfig
from ..errors import StreamNotFoundError
from ..groups import static
from ..groups.errors import GroupNotFoundError
from ..groups.member import Membership
from ..groups.message import owner_of
from ..groups.record.records import StaticGroup
from .tenure import LockLostError

if TYPE_CHECKING:
    from ..client import JetStream
    from ..groups.message import GroupMessage

MEMBER: Final = "runner"
PARTITION: Final = "0"


@dataclass(eq=False)
class PinLock:
    """The pin, from when it is wanted to its end; an async context manager.

    Args:
        stream: of locks; it is made if it is not there.
        name: the group, and the subject of its message.
        owner: who we are.
        seconds: how long it outlives its holder's last word at most. The pin is gone half of that after the
            last pull, but not within a second, and the message comes again half of it after the last renewal.
        replicas: of the stream, if it is made.
    """

    js: JetStream
    stream: str
    name: str
    owner: str
    seconds: float
    replicas: int = 1
    random: Random = field(default_factory=SystemRandom)
    on_trouble: Callable[[Exception], object] = lambda error: None
    _membership: Membership[StaticGroup] | None = field(default=None, init=False)
    _message: GroupMessage | None = field(default=None, init=False)
    _won: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def __aenter__(self) -> Self:
        js = self.js
        stream = await js.create_stream(
            name=self.stream, subjects=[f"{PARTITION}.*"], num_replicas=self.replicas
        )
        await static.create(js, self.stream, self.name, 1, filters=[self.name], members=[MEMBER])
        subject = f"{PARTITION}.{self.name}"
        if not (await stream.info(subjects=subject)).state.subjects:
            await js.publish(subject, self.owner.encode(), expected_last_subject_sequence=0)
        # The pin lasts as long as the time to acknowledge.
        config = ConsumerConfig(ack_wait=self.seconds / 2, max_ack_pending=1)
        self._membership = Membership(
            js,
            StaticGroup,
            self.stream,
            self.name,
            MEMBER,
            self._work,
            config=config,
            on_error=self.on_trouble,
            random=self.random,
        )
        await self._membership.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()

    def is_ours_at(self, now: float) -> bool:
        """Whether it surely is, at a time of the loop's clock."""
        return self._message is not None and owner_of(self._message).lease.holds(now)

    def holder(self) -> str:
        """Who has it, as far as is known; "" for nobody."""
        return self.owner if self._message is not None else ""

    def nobody_s(self) -> float | None:
        """None: a consumer does not say when its pinned client pulled last."""
        return None

    async def acquire(self) -> int:
        """Wait until it is ours. Returns a number that grows from one holder to the next."""
        await self._won.wait()
        assert self._message is not None
        return self._message.generation

    async def hold(self) -> None:
        """Keep it until it is lost. Raises LockLostError."""
        message = self._message
        assert message is not None
        over = self._over
        while message.is_owned and not over.is_set():
            try:
                async with asyncio.timeout(self.seconds / 20):
                    await over.wait()
            except TimeoutError:
                pass  # asked again whether it is ours
        over.set()
        if self._message is message:  # and not won again already
            self._message = None
            self._won.clear()
        raise LockLostError(self.name, "another client may be pinned")

    async def release(self) -> None:
        """Leave; another instance may be pinned at once."""
        self._over.set()
        if self._membership is not None:
            await self._membership.leave()

    async def _work(self, message: GroupMessage) -> None:
        """Runs as long as we are the pinned client."""
        over = self._over = asyncio.Event()
        self._message = message
        self._won.set()
        try:
            await over.wait()
        finally:
            over.set()
        message.nak()


async def pin_holder(js: JetStream, stream: str, name: str) -> str:
    """Somebody, if anybody is pinned; "" if not."""
    try:
        active = await static.active_members(js, stream, name)
    except (GroupNotFoundError, StreamNotFoundError):
        return ""
    return "a runner" if active else ""
