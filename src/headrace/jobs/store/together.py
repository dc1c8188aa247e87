"""Requests of one kind that arrive while some are under way share the next transaction, and its statements.

A transaction costs a sync and several answers of the server, whatever is in it, and a statement for many
rows costs little more than one for a single row. So a request that finds others under way waits for them, and
goes with all that arrive meanwhile: alone nobody waits, and under load the groups grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ..errors import JobsError
from .base import GroupWork, Outcome, Tx

__all__ = ["Together"]

T = TypeVar("T")
_GROUPS: Final = (
    2  # of a kind, under way at once: one is prepared while the other waits for the disk
)
_ITEMS_MAX: Final = 64


class _Write(Protocol):
    """How a database runs a function in a transaction."""

    def __call__(self, work: Callable[[Tx], T], /) -> Awaitable[T]: ...


@dataclass(slots=True)
class _Kind:
    """The requests of one kind that wait, and how many groups of them are under way."""

    waiting: list[tuple[Any, asyncio.Future[Any]]]
    groups: int = 0


class Together:
    """Collects requests by kind, and has each group done by one call. Used from the event loop only."""

    def __init__(self, write: _Write) -> None:
        self._write = write
        self._kinds: dict[GroupWork, _Kind] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, work: GroupWork, item: Any) -> Any:
        """What became of ``item``, when its transaction is durable. Cancelling leaves the group as it is."""
        kind = self._kinds.setdefault(work, _Kind([]))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        kind.waiting.append((item, future))
        if kind.groups < _GROUPS:
            kind.groups += 1
            task = asyncio.create_task(self._drain(work, kind))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _drain(self, work: GroupWork, kind: _Kind) -> None:
        try:
            while kind.waiting:
                group, kind.waiting = kind.waiting[:_ITEMS_MAX], kind.waiting[_ITEMS_MAX:]
                group = [(item, future) for item, future in group if not future.cancelled()]
                outcomes = await self._outcomes(work, [item for item, _ in group])
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    if future.cancelled():
                        continue
                    if outcome.error is None:
                        future.set_result(outcome.value)
                    else:
                        future.set_exception(outcome.error)
        finally:
            kind.groups -= 1

    async def _outcomes(self, work: GroupWork, items: Sequence[Any]) -> Sequence[Outcome]:
        if not items:
            return []
        try:
            return await self._write(lambda tx: work(tx, items))
        except JobsError as error:
            return [Outcome(error=error)] * len(items)  # none is stored, or nobody knows
        except Exception as error:
            if len(items) == 1:
                return [Outcome(error=error)]
            # One of them cannot be stored, and has rolled the others back: each for itself.
            return [found for item in items for found in await self._outcomes(work, [item])]
