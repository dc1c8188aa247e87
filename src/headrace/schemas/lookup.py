"""Codecs by the ids and the subjects of a registry: kept, each fetched once at a time, and waited for.

A registry that is away, or refuses us, says nothing of messages. So whoever asks waits until it answers, and
that is said once. What a subject's latest version was is used on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple, Protocol

from ..errors import ConfigurationError, HeadraceError
from .codecs import Codec
from .errors import LookupEndedError, NoSchemaError, RegistryAwayError
from .limits import SCHEMAS_KEPT_MAX

LATEST_FOR_S: Final = 60.0
"""How long a version is taken for a subject's latest."""
PAUSE_FIRST_S: Final = 0.2
PAUSE_MAX_S: Final = 5.0
TOLD_EVERY_S: Final = 1.0
"""How often who waits is told so."""

_log = logging.getLogger("headrace.schemas")


class FoundSchema(NamedTuple):
    """A schema, and its id as messages name it."""

    id: str
    text: bytes


class Source(Protocol):
    """Where schemas are. Both raise HeadraceError where that cannot be told now."""

    async def of_id(self, schema_id: str) -> bytes:
        """The schema of this id. Raises NoSchemaError: there is none."""
        ...

    async def latest(self, subject: str) -> FoundSchema:
        """The latest version of a subject."""
        ...


class Key(NamedTuple):
    """What a schema is found by."""

    by: Literal["id", "subject"]
    name: str


class Known(NamedTuple):
    """A codec, and the id of its schema. ``error`` says why the schema of this id cannot be used."""

    id: str
    codec: Codec | None
    error: str
    until: float


class Lookup:
    """Codecs of one registry, for one event loop.

    Args:
        source: asked for what is not known.
        make: makes a codec of a schema; raises NoSchemaError.
        label: of the registry, for the log.
    """

    def __init__(
        self,
        source: Source,
        make: Callable[[bytes], Codec],
        label: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        kept_max: int = SCHEMAS_KEPT_MAX,
        told_every: float = TOLD_EVERY_S,
    ) -> None:
        self._source = source
        self._make = make
        self._label = label
        self._clock = clock
        self._sleep = sleep
        self._kept_max = kept_max
        self._told_every = told_every
        self._kept: dict[Key, Known] = {}
        self._flights: dict[Key, asyncio.Task[Known]] = {}
        self._is_away = False
        self._is_over = False

    def kept(self, key: Key) -> Known | None:
        """What is known without asking. Any thread may call this."""
        found = self._kept.get(key)
        return None if found is None or found.until < self._clock() else found

    async def get(self, key: Key, waiting: Callable[[], object] = lambda: None) -> Known:
        """The codec of this key; ``waiting`` is called again and again until it is there.

        Raises NoSchemaError: there is none of this id. LookupEndedError.
        """
        while (found := self.kept(key)) is None:
            if self._is_over:
                raise LookupEndedError(f"{self._label} is not asked any more")
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = asyncio.ensure_future(self._fetch(key))
                flight.add_done_callback(lambda done: self._landed(key, done))
            await asyncio.wait([flight], timeout=self._told_every)
            if not flight.done():
                waiting()
            elif not flight.cancelled():
                return flight.result()
        return found

    def end(self) -> None:
        """Ask no more; who waits hears LookupEndedError."""
        self._is_over = True
        for flight in list(self._flights.values()):
            flight.cancel()

    def _landed(self, key: Key, flight: asyncio.Task[Known]) -> None:
        self._flights.pop(key, None)
        if not flight.cancelled():
            flight.exception()  # those who wait hear it, if anybody does

    async def _fetch(self, key: Key) -> Known:
        pause = PAUSE_FIRST_S
        while True:
            try:
                found = await self._ask(key)
            except HeadraceError as error:
                self._say(error)
                old = self._kept.get(key)
                if old is not None:
                    return self._keep(key, old)
                await self._sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
            else:
                if self._is_away:
                    self._is_away = False
                    _log.info("%s answers again", self._label)
                return self._keep(key, found)

    async def _ask(self, key: Key) -> Known:
        if key.by == "id":
            text = await self._source.of_id(key.name)
            try:
                return Known(key.name, self._make(text), "", 0.0)
            except NoSchemaError as error:
                return Known(key.name, None, str(error), 0.0)
        found = await self._source.latest(key.name)
        try:
            return Known(found.id, self._make(found.text), "", 0.0)
        except NoSchemaError as error:
            raise ConfigurationError(
                f"{self._label}: {key.name!r} cannot be used: {error}"
            ) from None

    def _keep(self, key: Key, known: Known) -> Known:
        until = float("inf") if key.by == "id" else self._clock() + LATEST_FOR_S
        self._kept.pop(key, None)
        found = self._kept[key] = known._replace(until=until)
        while len(self._kept) > self._kept_max:
            del self._kept[next(iter(self._kept))]
        return found

    def _say(self, error: HeadraceError) -> None:
        if self._is_away:
            return
        self._is_away = True
        level = logging.WARNING if isinstance(error, RegistryAwayError) else logging.ERROR
        _log.log(level, "%s cannot be asked, messages wait: %s", self._label, error)
