"""A lock: a key that only its holder renews, and that goes by itself when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ..client import KeyExistsError, KeyNotFoundError
from ..client.seam import api_of
from ..errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    NoRespondersError,
    TimeoutError_,
)
from .tenure import Tenure

if TYPE_CHECKING:
    from ..client import KeyValue

__all__ = ["Held", "Lock", "LockLostError", "lead"]

TTL_MIN_S: Final = 2
AGAIN_S: Final = 0.25  # after a call that failed
AWAY: Final = (TimeoutError_, DisconnectedError, NoRespondersError)

R = TypeVar("R")

_log = logging.getLogger("headrace.locks")


class LockLostError(HeadraceError):
    """The lock is not ours any more, or not surely: somebody else may have it."""


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
            raise self._lost or LockLostError(f"lock {self.name!r} was not renewed in time")


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
        self._value = b""

    def __repr__(self) -> str:
        return f"<Lock {self._name!r} of bucket {self._bucket.bucket!r}>"

    async def __aenter__(self) -> Held:
        """Wait until it is ours. Raises ConnectionClosedError, BucketNotFoundError."""
        if self._held is not None:
            raise ConfigurationError(f"lock {self._name!r} is held already by this object")
        loop = asyncio.get_running_loop()
        self._value = f"{self._holder} {api_of(self._bucket).session.nuid.next()}".encode()
        tenure = await self._acquired(loop.time)
        self._held = held = Held(self._name, tenure, loop.time)
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._keeping = loop.create_task(self._keep(held, tenure), name=f"lock {self._name}")
        return held

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Let go of it. Raises LockLostError where it was lost meanwhile."""
        held, keeping, task = self._held, self._keeping, self._task
        assert held is not None
        assert keeping is not None
        self._held = self._keeping = self._task = None
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        if held._lost is None:
            await self._let_go(held._tenure)
            return
        ours = task is not None and task.uncancel() <= self._cancelling
        if error is None or (ours and isinstance(error, asyncio.CancelledError)):
            raise held._lost

    # Waiting for it

    async def _acquired(self, clock: Callable[[], float]) -> Tenure:
        while True:
            try:
                return await self._attempt(clock)
            except (KeyExistsError, KeyNotFoundError):
                await self._until_free()
            except AWAY:
                await asyncio.sleep(AGAIN_S)

    async def _attempt(self, clock: Callable[[], float]) -> Tenure:
        """Take it. Raises KeyExistsError: somebody else has it; KeyNotFoundError: … and has let go of it."""
        sent = clock()
        try:
            revision = await self._bucket.create(self._name, self._value, ttl=self._ttl)
        except KeyExistsError:
            entry = await self._bucket.get(self._name)
            if entry.value != self._value:
                raise
            # An attempt was stored whose answer was lost. When that was is not known: so it is renewed.
            sent = clock()
            revision = await self._bucket.update(
                self._name, self._value, entry.revision, ttl=self._ttl
            )
        return Tenure(self._ttl, sent, revision)

    async def _until_free(self) -> None:
        """Until the key is removed, or it is time to look again."""
        with suppress(TimeoutError, *AWAY):
            async with asyncio.timeout(self._ttl), await self._bucket.watch(self._name) as watch:
                async for entry in watch:
                    if entry.operation != "put":
                        return

    # Keeping it

    async def _keep(self, held: Held, tenure: Tenure) -> None:
        """Renew it until it is lost."""
        clock = asyncio.get_running_loop().time
        why = "it was not renewed in time: the server was away, or this process stood still"
        try:
            while True:
                await asyncio.sleep(tenure.next_renewal(clock()))
                if not tenure.holds(clock()):
                    break
                async with asyncio.timeout_at(tenure.until):
                    if not await self._renew(tenure, clock):
                        why = "somebody else has it, or removed it"
                        break
        except TimeoutError:
            pass  # asked for too long
        except ConnectionClosedError as error:
            why = str(error)
        except HeadraceError as error:
            why = f"it cannot be renewed: {error}"
        self._tell(held, why)

    async def _renew(self, tenure: Tenure, clock: Callable[[], float]) -> bool:
        """Whether it is still ours, as far as is known."""
        sent = clock()
        try:
            revision = await self._bucket.update(
                self._name, self._value, tenure.revision, ttl=self._ttl
            )
        except KeyExistsError:
            return await self._find_revision(tenure)
        except AWAY:
            await asyncio.sleep(AGAIN_S)
            return True
        tenure.renewed(sent, revision)
        return True

    async def _find_revision(self, tenure: Tenure) -> bool:
        """Of the key, if it has our value: a renewal was stored whose answer was lost."""
        try:
            entry = await self._bucket.get(self._name)
        except KeyNotFoundError:
            return False
        except AWAY:
            return True
        if entry.value != self._value:
            return False
        tenure.revision = entry.revision
        return True

    def _tell(self, held: Held, why: str) -> None:
        held._lost = LockLostError(f"lock {self._name!r} is lost: {why}")
        _log.warning("%s", held._lost)
        if self._task is not None:
            self._task.cancel()

    async def _let_go(self, tenure: Tenure) -> None:
        """So that the next one need not wait for ``ttl``."""
        for _ in range(2):
            try:
                await self._bucket.delete(self._name, revision=tenure.revision)
            except KeyExistsError:
                if not await self._find_revision(tenure):
                    return
            except HeadraceError as error:
                _log.info("lock %r is free in %d s at the latest: %s", self._name, self._ttl, error)
                return
            else:
                return

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
