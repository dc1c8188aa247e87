"""What tests with nats-py's buckets have to bear in mind.

nats-py takes a bucket for empty, and says that all is told, where everything has come before it asks how much
is to come. On a busy machine that is often.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import nats.js.errors

__all__ = ["listed", "told", "watching"]

TRIES = 5
PATIENCE_S = 10


async def told(watcher: Any, count: int) -> list[Any]:
    """The next words of a watcher."""
    return [await watcher.updates(timeout=PATIENCE_S) for _ in range(count)]


async def watching(watch: Callable[[], Awaitable[Any]], count: int) -> tuple[Any, list[Any]]:
    """A watcher, and what it says of so many entries, with the word that these were all."""
    for _ in range(TRIES):
        watcher = await watch()
        found = await told(watcher, count + 1)
        if found[-1] is None:
            break
        await watcher.stop()
    return watcher, found


async def listed(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a call says that lists something."""
    for _ in range(TRIES):
        with contextlib.suppress(nats.js.errors.NoKeysError):
            return await ask()
    return await ask()
