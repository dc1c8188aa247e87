"""What a console has while it runs is let go at its end, and what failed meanwhile is not kept quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.client import Connection, JetStream
from headrace.console.settings import Settings
from headrace.console.sources import Sources
from headrace.console.watcher import Watcher


def sources_whose_watcher(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[Watcher], Awaitable[None]]
) -> Sources:
    monkeypatch.setattr(Watcher, "run", run)
    nothing: Any = object()
    return Sources(Settings(), cast("Connection", nothing), cast("JetStream", nothing))


async def test_what_ended_the_watcher_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Watcher) -> None:
        raise LookupError("nobody thought of it")

    with pytest.raises(LookupError, match="nobody thought of it"):
        async with sources_whose_watcher(monkeypatch, fail):
            await asyncio.sleep(0)


async def test_a_watcher_that_looks_is_stopped_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = asyncio.Event()

    async def look(_: Watcher) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with sources_whose_watcher(monkeypatch, look):
        await asyncio.sleep(0)
    assert ended.is_set()


async def test_who_is_cancelled_while_the_watcher_ends_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping, may_end = asyncio.Event(), asyncio.Event()

    async def end_slowly(_: Watcher) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await may_end.wait()

    async def whole_life() -> None:
        async with sources_whose_watcher(monkeypatch, end_slowly):
            await asyncio.sleep(0)

    life = asyncio.create_task(whole_life())
    await stopping.wait()
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    may_end.set()
