"""A lock that is a key of a bucket: only its holder renews it, and it goes by itself when nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from ..api.errors import Errors
from ..client import KeyExistsError, KeyNotFoundError
from ..client.seam import api_of
from ..errors import (
    BucketNotFoundError,
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from .tenure import LockLostError, Tenure

if TYPE_CHECKING:
    from ..client import JetStream, KeyValue

AGAIN_S: Final = 0.25  # after a call that failed
LOOKS_S: Final = 0.1  # between two looks at a key whose holder should have renewed it, and has not
TOKEN_CHARS: Final = 22  # of a unique id
AWAY: Final = (RequestTimeoutError, DisconnectedError, NoRespondersError)


_log = logging.getLogger("headrace.locks")


class KeyLock:
    """The key, from an attempt to get it to its end; also an async context manager that lets go of it.

    Args:
        name: the key.
        owner: who we are, for people.
        seconds: how long it outlives the last renewal.
        ttl: the same in whole seconds, given to the key; 0: the bucket removes its values after them.
        on_trouble: told of errors that are waited out; without it only those are by which the server is away.

    Attributes:
        tenure: the time of holding it, or the last one.
    """

    def __init__(
        self,
        bucket: KeyValue,
        name: str,
        owner: str,
        seconds: float,
        *,
        ttl: int = 0,
        on_trouble: Callable[[Exception], object] | None = None,
    ) -> None:
        self._bucket = bucket
        self._name = name
        self._owner = owner
        self._seconds = seconds
        self._ttl = ttl
        self._on_trouble = on_trouble
        self._clock = asyncio.get_running_loop().time
        self._value = b""
        self._holder = ""
        self._seen: tuple[int, float] = (0, 0.0)  # another's revision, and when we learned of it
        self._nobody_s: float | None = None
        self.tenure: Tenure | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()

    def holder(self) -> str:
        """Who has it, as far as is known; "" for nobody."""
        return self._holder

    def nobody_s(self) -> float | None:
        """When we got it, how long ago the holder before us had said its last word; None: not known."""
        return self._nobody_s

    def is_ours_at(self, now: float) -> bool:
        """Whether it surely is, at a time of the loop's clock."""
        return self.tenure is not None and self.tenure.holds(now)

    # Waiting for it

    async def acquire(self) -> int:
        """Wait until it is ours. Returns a number that grows from one holder to the next.

        Raises ConnectionClosedError, BucketNotFoundError.
        """
        self._seen, self._nobody_s = (0, 0.0), None
        self._value = f"{self._owner} {api_of(self._bucket).session.nuid.next()}".encode()
        while True:
            try:
                self.tenure = await self._attempt()
            except (KeyExistsError, KeyNotFoundError):
                await self._until_free()
            except HeadraceError as error:
                self._wait_out(error)
                await asyncio.sleep(AGAIN_S)
            else:
                if self.tenure.holds(self._clock()):
                    self._holder = self._owner
                    return self.tenure.token

    async def _attempt(self) -> Tenure:
        """Take it. Raises KeyExistsError: somebody else has it; KeyNotFoundError: … and has let go of it."""
        sent = self._clock()
        try:
            revision = await self._bucket.create(self._name, self._value, ttl=self._ttl)
        except KeyExistsError:
            entry = await self._bucket.get(self._name)
            if entry.value != self._value:
                self._note(entry.value, entry.revision)
                raise
            # An attempt was stored whose answer was lost. When that was is not known: so it is renewed.
            sent = self._clock()
            revision = await self._update(entry.revision)
        if self._seen[0]:
            self._nobody_s = sent - self._seen[1]
        return Tenure(self._seconds, sent, revision)

    async def _until_free(self) -> None:
        """Until the key is removed, or its holder should have renewed it and has not."""
        if self._clock() < self._late_at():
            try:
                async with (
                    asyncio.timeout_at(self._late_at()) as limit,
                    await self._bucket.watch(self._name) as watch,
                ):
                    async for entry in watch:
                        if entry.operation != "put":
                            return
                        if entry.revision > self._seen[0]:
                            self._note(entry.value, entry.revision)
                            limit.reschedule(self._late_at())
            except HeadraceError as error:
                self._wait_out(error)
            except TimeoutError:
                pass  # its holder is late
        await asyncio.sleep(LOOKS_S)

    def _note(self, value: bytes, revision: int) -> None:
        self._holder = owner_of(value)
        if revision != self._seen[0]:
            self._seen = revision, self._clock()

    def _late_at(self) -> float:
        return Tenure(self._seconds, self._seen[1], 0).until

    def _wait_out(self, error: HeadraceError) -> None:
        """Raises ``error`` if it does not pass."""
        if isinstance(error, ConnectionClosedError):
            raise error
        if self._on_trouble is not None:
            self._on_trouble(error)
        elif not isinstance(error, AWAY):
            raise error

    # Keeping it

    async def hold(self) -> None:
        """Keep it until it is lost. Raises LockLostError that says why."""
        tenure = self.tenure
        assert tenure is not None
        why = "it was not renewed in time: the server was away, or this process stood still"
        try:
            while True:
                await asyncio.sleep(tenure.next_renewal(self._clock()))
                if not tenure.holds(self._clock()):
                    break
                async with asyncio.timeout_at(tenure.until):
                    await self._renew()
        except TimeoutError:
            pass  # asked for too long
        except LockLostError as error:
            why = error.why
        except ConnectionClosedError as error:
            why = str(error)
        except HeadraceError as error:
            why = f"it cannot be renewed: {error}"
        tenure.end()
        raise LockLostError(self._name, why)

    async def _renew(self) -> None:
        """Raises LockLostError: it is another's."""
        assert self.tenure is not None
        sent = self._clock()
        try:
            revision = await self._update(self.tenure.revision)
        except KeyExistsError:
            await self._find_revision(self.tenure)
        except HeadraceError as error:
            self._wait_out(error)
            await asyncio.sleep(min(AGAIN_S, self._seconds / 20))
        else:
            self.tenure.renewed(sent, revision)

    async def _update(self, revision: int) -> int:
        return await self._bucket.update(self._name, self._value, revision, ttl=self._ttl)

    async def _find_revision(self, tenure: Tenure) -> None:
        """Of the key, if it has our value: a renewal was stored whose answer was lost. When that was is not
        known, so it is renewed again. Raises LockLostError: it is another's."""
        try:
            entry = await self._bucket.get(self._name)
        except KeyNotFoundError:
            raise LockLostError(self._name, "it ran out, or somebody removed it") from None
        except HeadraceError as error:
            self._wait_out(error)
            return
        if entry.value != self._value:
            raise LockLostError(self._name, f"{owner_of(entry.value)} has it")
        tenure.revision = entry.revision

    # Letting go of it

    async def release(self) -> None:
        """Let go of it, so that the next one need not wait. Where that fails it ends by itself."""
        tenure = self.tenure
        if tenure is None or tenure.is_over:
            return
        tenure.end()
        for _ in range(2):
            try:
                await self._bucket.delete(self._name, revision=tenure.revision)
            except KeyExistsError:
                # It may be newer than we know: a renewal is stored whose answer nobody waited for any more.
                try:
                    await self._find_revision(tenure)
                except HeadraceError:
                    return
            except KeyNotFoundError:
                return  # it ran out
            except HeadraceError as error:
                about = (self._name, self._seconds, error)
                _log.info("lock %r is free in %g s at the latest: %s", *about)
                return
            else:
                return


async def bucket_of_locks(
    js: JetStream, bucket: str, seconds: float, replicas: int = 1
) -> KeyValue:
    """Find or make a bucket that removes its values after so many seconds.

    It is not changed: whoever holds a lock there counts on the time it knows. Raises ConfigurationError: it
    has another one.
    """
    try:
        found = await js.create_key_value(bucket, ttl=seconds, history=1, num_replicas=replicas)
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NAME_EXISTS.err_code:
            raise
        found = await js.key_value(bucket)
    ttl = (await found.status()).ttl
    if ttl != seconds:
        raise ConfigurationError(
            f"bucket {bucket!r} removes values after {ttl:g} s, and the lease lasts {seconds:g} s; give all "
            "pipelines of a bucket the same seconds, or another bucket"
        )
    return found


async def key_holder(js: JetStream, bucket: str, name: str) -> str:
    """Who has a lock now; "" for nobody."""
    try:
        entry = await (await js.key_value(bucket)).get(name)
    except (BucketNotFoundError, KeyNotFoundError):
        return ""
    return owner_of(entry.value)


def owner_of(value: bytes) -> str:
    """Who is named by a key's value, which somebody else may have put there."""
    owner, _, token = value.decode(errors="replace").rpartition(" ")
    return owner if owner and len(token) == TOKEN_CHARS else "somebody else"
