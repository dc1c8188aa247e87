"""A lock: a key that only its holder renews, and that goes by itself when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ..errors import ConfigurationError
from .key import AGAIN_S, KeyLock
from .tenure import LockLostError, Tenure

if TYPE_CHECKING:
    from ..client import KeyValue

__all__ = ["Held", "Lock", "LockLostError", "lead"]

TTL_MIN_S: Final = 2

R = TypeVar("R")

_log = logging.getLogger("headrace.locks")


class Held:
    """A lock that is held.

    Attributes:
        name: of the lock.
        token: a number that grows from one holder to the next. Whoever stores it with what the holder does
            can refuse what comes late from a former one.
    """

    def __init__(self, name: str, tenure: Tenure, clock: Callable[[], float]) -> None:
        self.name = name
        self.token = tenure.token
        self._tenure = tenure
        self._clock = clock
        self._lost: LockLostError | None = None

    def __repr__(self) -> str:
        return f"<Held {self.name!r} token={self.token} is_held={self.is_held}>"

    @property
    def is_held(self) -> bool:
        """Whether it is surely ours at this moment."""
        return self._lost is None and self._tenure.holds(self._clock())

    def check(self) -> None:
        """Raise LockLostError unless it is surely ours: before what only the holder may do."""
        if not self.is_held:
            raise self._lost or LockLostError(self.name, "it was not renewed in time")


class Lock:
    """One holder at a time, of all that use the same key of the same bucket.

    ::

        async with Lock(bucket, "nightly") as held:
            ...  # held.token fences what is done here

    Entering waits until it is free. It is renewed three times in ``ttl``. When it is lost, because the server
    was away for too long, this process stood still, or somebody removed the key, the block is cancelled
    before anybody else can have it, and raises LockLostError. A process that stood still is told when it
    goes on, which may be late: that is what the token is for. Leaving lets go of it at once.

    Args:
        bucket: whose keys may have a ``ttl``, as those that our client makes. With a ``marker_ttl`` whoever
            waits is told at once when the holder's process has died; without, after ``ttl`` at the latest.
        name: the key.
        ttl: whole seconds after which it is free when its holder does not renew it; 2 or more.
        holder: shown to who looks at the bucket.
    """

    def __init__(
        self, bucket: KeyValue, name: str, *, ttl: int = 10, holder: str = "headrace"
    ) -> None:
        if not isinstance(ttl, int) or isinstance(ttl, bool) or ttl < TTL_MIN_S:
            raise ConfigurationError(
                f"ttl is {ttl!r}; accepted are whole seconds, {TTL_MIN_S} or more"
            )
        self._bucket = bucket
        self._name = name
        self._ttl = ttl
        self._holder = holder
        self._held: Held | None = None
        self._task: asyncio.Task[object] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._cancelling = 0
        self._key: KeyLock | None = None

    def __repr__(self) -> str:
        return f"<Lock {self._name!r} of bucket {self._bucket.bucket!r}>"

    async def __aenter__(self) -> Held:
        """Wait until it is ours. Raises ConnectionClosedError, BucketNotFoundError."""
        if self._held is not None:
            raise ConfigurationError(f"lock {self._name!r} is held already by this object")
        key = KeyLock(self._bucket, self._name, self._holder, self._ttl, ttl=self._ttl)
        await key.acquire()
        assert key.tenure is not None
        loop = asyncio.get_running_loop()
        self._key = key
        self._held = held = Held(self._name, key.tenure, loop.time)
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._keeping = loop.create_task(self._keep(held), name=f"lock {self._name}")
        return held

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Let go of it. Raises LockLostError where it was lost meanwhile."""
        held, keeping, task, key = self._held, self._keeping, self._task, self._key
        assert held is not None
        assert keeping is not None
        assert key is not None
        self._held = self._keeping = self._task = self._key = None
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        if held._lost is None:
            await key.release()
            return
        ours = task is not None and task.uncancel() <= self._cancelling
        if error is None or (ours and isinstance(error, asyncio.CancelledError)):
            raise held._lost

    async def _keep(self, held: Held) -> None:
        """Renew it until it is lost."""
        assert self._key is not None
        try:
            await self._key.hold()
        except LockLostError as error:
            held._lost = error
            _log.warning("%s", error)
            if self._task is not None:
                self._task.cancel()

    @property
    def held(self) -> Held | None:
        """What is held by this object, if it is."""
        return self._held

    def again(self) -> Self:
        """Another object for the same lock: one is entered by one task at a time."""
        return type(self)(self._bucket, self._name, ttl=self._ttl, holder=self._holder)


async def lead(lock: Lock, work: Callable[[Held], Awaitable[R]]) -> R:
    """Have ``work`` run while this process leads, of all that call this for the same lock.

    Where the lead is lost ``work`` is cancelled, and this stands for election again. Returns what ``work``
    returns; what it raises ends the lead, too. Cancel it to stand no more.
    """
    while True:
        try:
            async with lock as held:
                _log.info("leading %r, token %d", held.name, held.token)
                return await work(held)
        except LockLostError:
            await asyncio.sleep(AGAIN_S)
