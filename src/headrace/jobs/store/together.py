"""Requests that arrive while some are under way share the next transaction; those of a kind share statements.

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
from .brief import Brief, Done, Memory, Part, Remembered

__all__ = ["Together"]

T = TypeVar("T")
_GROUPS: Final = 2  # under way at once: one is prepared while the other waits for the disk
_SECOND_MIN: Final = (
    16  # so many wait for the one that is under way before another begins beside it
)
_PATIENCE_S: Final = (
    0.05  # a transaction that takes longer may wait for a lock: the others go without it
)
_GROUPS_MAX: Final = 4  # such ones among them
_ITEMS_MAX: Final = 64


class _Write(Protocol):
    """How a database runs a function in a transaction."""

    def __call__(self, work: Callable[[Tx], T], /) -> Awaitable[T]: ...


_Briefly = Callable[[Sequence[Part]], Awaitable[Sequence[Done] | None]]
"""How a database runs statements in a transaction of their own; None if it has done nothing."""


@dataclass(slots=True)
class _Request:
    """One that waits, and where its outcome goes."""

    work: GroupWork
    item: Any
    future: asyncio.Future[Any]


class Together:
    """Collects requests, and has those of a kind done by one call. Used from the event loop only.

    With ``briefly``, what one statement can do goes that way, by what is in ``memory``.
    """

    def __init__(
        self, write: _Write, briefly: _Briefly | None = None, memory: Memory | None = None
    ) -> None:
        self._write = write
        self._briefly = briefly
        self._remembered = Remembered({} if memory is None else memory)
        self._waiting: list[_Request] = []
        self._groups = 0
        self._patience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, work: GroupWork, item: Any) -> Any:
        """What became of ``item``, when its transaction is durable. Cancelling leaves the group as it is."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(work, item, future))
        if not self._groups or (self._groups < _GROUPS and len(self._waiting) >= _SECOND_MIN):
            self._begin()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(_PATIENCE_S, self._waited)
        return await future

    def _begin(self) -> None:
        self._groups += 1
        task = asyncio.create_task(self._drain())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _waited(self) -> None:
        self._patience = None
        if self._waiting and self._groups < _GROUPS_MAX:
            self._begin()

    async def _drain(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:_ITEMS_MAX], self._waiting[_ITEMS_MAX:]
                kinds: dict[GroupWork, list[_Request]] = {}
                for request in taken:
                    if not request.future.cancelled():
                        kinds.setdefault(request.work, []).append(request)
                # In one order in all transactions, so that few of them wait for each other in a circle.
                ordered = sorted(kinds.values(), key=lambda kind: _name(kind[0].work))
                await self._settle(await self._settle_briefly(ordered))
        finally:
            self._groups -= 1

    async def _settle_briefly(
        self, kinds: Sequence[Sequence[_Request]]
    ) -> Sequence[Sequence[_Request]]:
        """Do what one statement of each kind can, in one transaction. Returns the requests that are left."""
        if self._briefly is None:
            return kinds
        asked = [
            (kind, part)
            for kind in kinds
            if isinstance(work := kind[0].work, Brief)
            for part in work.parts(self._remembered, [request.item for request in kind])
        ]
        if not asked:
            return kinds
        try:
            found = await self._briefly([part for _, part in asked])
        except Exception as error:  # nobody knows whether they are stored
            found = [Done(dict.fromkeys(part.places, Outcome(error=error))) for _, part in asked]
        if found is None:
            return kinds
        for (kind, _), done in zip(asked, found, strict=True):
            for place, outcome in done.outcomes.items():
                _tell(kind[place].future, outcome)
        left = [[request for request in kind if not request.future.done()] for kind in kinds]
        return [kind for kind in left if kind]

    async def _settle(self, kinds: Sequence[Sequence[_Request]]) -> None:
        """Do these requests in one transaction, and tell each its outcome."""
        if not kinds:
            return

        def work(tx: Tx) -> list[Sequence[Outcome]]:
            return [kind[0].work(tx, [request.item for request in kind]) for kind in kinds]

        try:
            found = await self._write(work)
        except JobsError as error:  # none is stored, or nobody knows
            found = [[Outcome(error=error)] * len(kind) for kind in kinds]
        except Exception as error:
            # One of them cannot be stored, and has rolled the others back: each kind, then each for itself.
            if len(kinds) > 1:
                for kind in kinds:
                    await self._settle([kind])
                return
            if len(kinds[0]) > 1:
                for request in kinds[0]:
                    await self._settle([[request]])
                return
            found = [[Outcome(error=error)]]
        for kind, outcomes in zip(kinds, found, strict=True):
            for request, outcome in zip(kind, outcomes, strict=True):
                _tell(request.future, outcome)


def _name(work: GroupWork) -> str:
    return work.name if isinstance(work, Brief) else work.__qualname__


def _tell(future: asyncio.Future[Any], outcome: Outcome) -> None:
    if future.cancelled():
        return
    if outcome.error is None:
        future.set_result(outcome.value)
    else:
        future.set_exception(outcome.error)
