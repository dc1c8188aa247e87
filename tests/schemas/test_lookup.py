from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

import pytest

from headrace.errors import ConfigurationError
from headrace.schemas.codecs import Codec, JsonCodec
from headrace.schemas.errors import LookupEndedError, NoSchemaError, RegistryAwayError
from headrace.schemas.lookup import LATEST_FOR_S, PAUSE_MAX_S, FoundSchema, Key, Lookup
from waiting import until

SEVEN = Key("id", "7")
LATEST = Key("subject", "orders-value")


class World:
    """A registry, and a clock that goes by pauses alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.faults: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self.texts = {"7": b'{"type": "integer"}'}
        self.pauses: list[float] = []

    def lookup(self, kept_max: int = 10, told_every: float = 10.0) -> Lookup:
        def make(text: bytes) -> Codec:
            return JsonCodec(text)

        return Lookup(
            self,
            make,
            "the registry",
            clock=lambda: self.now,
            sleep=self._sleep,
            kept_max=kept_max,
            told_every=told_every,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def _answer(self, name: str) -> bytes:
        self.asked.append(name)
        if self.gate is not None:
            await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        if name not in self.texts:
            raise NoSchemaError(f"no schema {name}")
        return self.texts[name]

    async def of_id(self, schema_id: str) -> bytes:
        return await self._answer(schema_id)

    async def latest(self, subject: str) -> FoundSchema:
        return FoundSchema("7", await self._answer("7"))


async def test_many_who_want_the_same_schema_ask_once_and_it_is_kept() -> None:
    world = World()
    world.gate = asyncio.Event()
    lookup = world.lookup()
    waiting: list[Awaitable[object]] = [asyncio.ensure_future(lookup.get(SEVEN)) for _ in range(20)]
    await until(lambda: world.asked == ["7"])
    world.gate.set()
    first, *others = await asyncio.gather(*waiting)
    assert all(each is first for each in others)
    assert await lookup.get(SEVEN) is first
    assert world.asked == ["7"]


async def test_one_who_gives_up_takes_nothing_from_the_others() -> None:
    world = World()
    world.gate = asyncio.Event()
    lookup = world.lookup()
    gone, left = (asyncio.ensure_future(lookup.get(SEVEN)) for _ in range(2))
    await until(lambda: bool(world.asked))
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    world.gate.set()
    assert (await left).id == "7"
    assert world.asked == ["7"]


async def test_no_more_are_kept_than_may_be() -> None:
    world = World()
    world.texts = {str(number): b"{}" for number in range(30)}
    lookup = world.lookup(kept_max=10)
    for number in range(30):
        await lookup.get(Key("id", str(number)))
    assert lookup.kept(Key("id", "19")) is None
    assert lookup.kept(Key("id", "20")) is not None


async def test_a_registry_that_is_away_or_refuses_is_asked_until_it_answers_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace.schemas")
    world = World()
    world.faults = [RegistryAwayError("no answer")] * 8 + [ConfigurationError("login")]
    assert (await world.lookup().get(SEVEN)).codec is not None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "messages wait" in caplog.text
    assert max(world.pauses) == PAUSE_MAX_S
    assert world.pauses == sorted(world.pauses)


async def test_who_waits_is_told_so_again_and_again() -> None:
    world = World()
    world.gate = asyncio.Event()
    told = asyncio.Event()
    calls = 0

    def waiting() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            told.set()

    asking = asyncio.ensure_future(world.lookup(told_every=0.001).get(SEVEN, waiting))
    await told.wait()
    world.gate.set()
    assert (await asking).id == "7"


async def test_an_unknown_id_is_not_kept_and_an_unreadable_schema_is() -> None:
    world = World()
    world.texts["8"] = b"{"
    lookup = world.lookup()
    for _ in range(2):
        with pytest.raises(NoSchemaError, match="no schema 9"):
            await lookup.get(Key("id", "9"))
        assert "no JSON" in (await lookup.get(Key("id", "8"))).error
    assert world.asked == ["9", "8", "9"]


async def test_the_latest_version_is_looked_up_again_and_used_on_while_the_registry_is_away() -> (
    None
):
    world = World()
    lookup = world.lookup()
    first = await lookup.get(LATEST)
    world.now += LATEST_FOR_S + 1
    world.faults = [RegistryAwayError("no answer")]
    assert (await lookup.get(LATEST)).codec is first.codec
    assert world.pauses == []
    world.now += LATEST_FOR_S + 1
    assert (await lookup.get(LATEST)).codec is not first.codec
    assert len(world.asked) == 3


async def test_a_latest_version_that_cannot_be_read_is_waited_for_and_not_held_against_messages() -> (
    None
):
    world = World()
    world.texts["7"] = b"{"
    lookup = world.lookup()
    asking = asyncio.ensure_future(lookup.get(LATEST))
    await until(lambda: len(world.asked) > 3)
    world.texts["7"] = b"{}"
    assert (await asking).codec is not None


async def test_an_end_lets_nobody_wait() -> None:
    world = World()
    world.gate = asyncio.Event()
    lookup = world.lookup()
    asking = asyncio.ensure_future(lookup.get(SEVEN))
    await until(lambda: bool(world.asked))
    lookup.end()
    with pytest.raises(LookupEndedError):
        await asking
    with pytest.raises(LookupEndedError):
        await lookup.get(SEVEN)
