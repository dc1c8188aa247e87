"""Who may run a pipeline: one runner at a time holds the lease, the others wait for it.

A runner believes that it holds the lease only while it surely does: its own clock runs from the moment before
a renewal was sent, the server's from the moment it was stored, which is later. Whoever was frozen finds its
lease over and stops. What a stopped runner's Spark may still do is fenced elsewhere: Spark's log refuses a
second writer of a batch, and an exactly-once sink its rows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Final, Protocol, Self

from ...api.errors import Errors
from ...client import JetStream, KeyExistsError, KeyNotFoundError
from ...client.kv.keyvalue import KeyValue
from ...documents import read_json
from ...errors import BucketNotFoundError, ConfigurationError, HeadraceError, JetStreamApiError

RENEWALS: Final = 3
"""Renewed so often within its length, a lease survives an answer that takes two thirds of it."""

LOOKS_S: Final = 0.4
"""How often a standby looks for a lease that was given back."""
NEAR_S: Final = 0.1
"""And how often when it may have run out."""

MARGIN: Final = 0.1
"""The last tenth of a lease is not used: clocks run differently, and stopping takes a moment."""


class LeaseLostError(HeadraceError):
    """The lease is another's, or may be."""


class Lease(Protocol):
    """A lease on a pipeline; an async context manager."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def acquire(self) -> int:
        """Wait until it is ours. Returns a number that grows with every holder."""

    async def hold(self) -> None:
        """Keep it until it is lost. Raises LeaseLostError that says why."""

    async def release(self) -> None:
        """Let a standby have it at once."""

    def holder(self) -> str:
        """Who has it, as far as is known; "" for nobody."""

    def nobody_s(self) -> float | None:
        """When we got it, how long ago the holder before us had said its last word; None: not known."""

    def is_ours_at(self, now: float) -> bool:
        """Whether it surely is, at a time of the loop's clock."""


@dataclass(eq=False)
class BucketLease:
    """A lease that is a key of a bucket whose values the server removes when they are not renewed.

    Args:
        name: the key.
        owner: who we are, for people.
        seconds: how long it outlives the last renewal; the bucket's ``ttl``.
        replicas: of the bucket, if it is made.
        random: for pauses.

    Attributes:
        until: when it may be another's, by the loop's clock.
    """

    js: JetStream
    bucket: str
    name: str
    owner: str
    seconds: float
    replicas: int = 1
    random: Random = field(default_factory=SystemRandom)
    on_trouble: Callable[[Exception], object] = lambda error: None
    _kv: KeyValue | None = field(default=None, init=False)
    _value: bytes = field(default=b"", init=False)
    _revision: int = field(default=0, init=False)
    _holder: str = field(default="", init=False)
    _seen: tuple[int, float] = field(default=(0, 0.0), init=False)
    _nobody_s: float | None = field(default=None, init=False)
    until: float = field(default=float("-inf"), init=False)

    async def __aenter__(self) -> Self:
        """Find or make the bucket. Raises ConfigurationError: it exists with another ``ttl``.

        It is not changed: whoever holds a lease there counts on the time it knows.
        """
        try:
            self._kv = await self.js.create_key_value(
                self.bucket, ttl=self.seconds, history=1, num_replicas=self.replicas
            )
        except JetStreamApiError as error:
            if error.err_code != Errors.STREAM_NAME_EXISTS.err_code:
                raise
            self._kv = await self.js.key_value(self.bucket)
        ttl = (await self._kv.status()).ttl
        if ttl != self.seconds:
            raise ConfigurationError(
                f"bucket {self.bucket!r} removes values after {ttl:g} s, and the lease lasts "
                f"{self.seconds:g} s; give all pipelines of a bucket the same seconds, or another bucket"
            )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()

    def holder(self) -> str:
        return self._holder

    def nobody_s(self) -> float | None:
        return self._nobody_s

    def is_ours_at(self, now: float) -> bool:
        """Whether it surely is, at a time of the loop's clock."""
        return now < self.until

    async def acquire(self) -> int:
        self._seen, self._nobody_s = (0, 0.0), None
        while True:
            try:
                if await self._try():
                    return self._revision
            except HeadraceError as error:
                self.on_trouble(error)
            await asyncio.sleep(self._pause() * (0.5 + self.random.random()))

    def _pause(self) -> float:
        """Until the next look: a short one where the holder should have renewed the lease, and has not."""
        revision, seen = self._seen
        is_late = revision and asyncio.get_running_loop().time() - seen > self.seconds * (
            1 - MARGIN
        )
        return NEAR_S if is_late else LOOKS_S

    async def hold(self) -> None:
        loop = asyncio.get_running_loop()
        why = "no renewal was confirmed in time"
        while (left := self.until - loop.time()) > 0:
            await asyncio.sleep(min(self.seconds / RENEWALS, left))
            left = self.until - loop.time()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await self._renew()
            except LeaseLostError as error:
                why = str(error)
                break
            except (HeadraceError, TimeoutError) as error:
                self.on_trouble(error)
                await asyncio.sleep(max(0.0, min(self.seconds / 20, self.until - loop.time())))
        self.until = float("-inf")
        raise LeaseLostError(f"the lease {self.name!r} was lost: {why}")

    async def release(self) -> None:
        if self.until == float("-inf") or self._kv is None:
            return
        self.until = float("-inf")
        try:
            await self._give_back(self._kv)
        except KeyNotFoundError:
            pass  # it ran out
        except HeadraceError as error:
            self.on_trouble(error)  # it ends by itself

    async def _give_back(self, kv: KeyValue) -> None:
        """The key may be newer than we know: a renewal is stored whose answer nobody waited for any more."""
        try:
            await kv.delete(self.name, revision=self._revision)
        except KeyExistsError:
            entry = await kv.get(self.name)
            if entry.value == self._value:
                await kv.delete(self.name, revision=entry.revision)

    async def _try(self) -> bool:
        """One attempt to get it."""
        assert self._kv is not None
        if await self._is_held():
            return False
        # An attempt without an answer may have stored it all the same; it is let run out.
        token = f"{self.random.getrandbits(64):x}"
        value = json.dumps({"owner": self.owner, "token": token}).encode()
        sent = asyncio.get_running_loop().time()
        try:
            revision = await self._kv.create(self.name, value)
        except KeyExistsError:
            return False
        if self._seen[0]:
            self._nobody_s = sent - self._seen[1]
        self._value, self._revision, self._holder = value, revision, self.owner
        self.until = sent + self.seconds * (1 - MARGIN)
        return self.is_ours_at(asyncio.get_running_loop().time())

    async def _is_held(self) -> bool:
        """Whether somebody has it. A look costs the server less than an attempt."""
        assert self._kv is not None
        try:
            entry = await self._kv.get(self.name)
        except KeyNotFoundError:
            self._holder = ""
            return False
        self._holder = _owner_of(entry.value)
        if entry.revision != self._seen[0]:
            self._seen = entry.revision, asyncio.get_running_loop().time()
        return True

    async def _renew(self) -> None:
        """Raises LeaseLostError: it is another's."""
        assert self._kv is not None
        sent = asyncio.get_running_loop().time()
        try:
            self._revision = await self._kv.update(self.name, self._value, self._revision)
        except KeyExistsError:
            # An update whose answer was lost has changed the revision; whose value it is tells.
            try:
                entry = await self._kv.get(self.name)
            except KeyNotFoundError:
                raise LeaseLostError("it ran out") from None
            if entry.value != self._value:
                raise LeaseLostError(f"{_owner_of(entry.value)} has it") from None
            self._revision = entry.revision
            return  # when that was stored is not known: it is renewed again
        self.until = sent + self.seconds * (1 - MARGIN)


async def bucket_holder(js: JetStream, bucket: str, name: str) -> str:
    """Who has a lease of a bucket now; "" for nobody."""
    try:
        entry = await (await js.key_value(bucket)).get(name)
    except (BucketNotFoundError, KeyNotFoundError):
        return ""
    return _owner_of(entry.value)


def _owner_of(value: bytes) -> str:
    try:
        found = read_json(value)
    except ValueError:
        return "somebody"
    return str(found.get("owner", "somebody")) if isinstance(found, dict) else "somebody"
