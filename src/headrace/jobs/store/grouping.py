"""Operations of one kind that arrive while some are under way share the next transaction, and its statements.

A transaction costs a sync and several answers of the server, whatever is in it, and a statement for many
rows costs little more than one for a single row. So an operation that finds others of its kind under way
waits for them, and goes with all that arrive meanwhile: alone nobody waits, and under load the groups grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from .. import limits
from ..errors import DatabaseUnavailableError
from .base import GroupWork, Outcome, Tx, resolve

__all__ = ["GroupWriter"]

T = TypeVar("T")
_GROUPS: Final = (
    2  # of a kind under way at once: one is prepared while the other waits for the disk
)
_SECOND_MIN: Final = 16  # so much waits for the one that is under way before another begins
_PATIENCE_S: Final = (
    0.05  # a transaction that takes longer may wait for a lock: the others go without it
)
_GROUPS_MAX: Final = 4  # such ones among them
_WEIGHT_MAX: Final = 256  # of a group of more than one operation


class _Write(Protocol):
    """Method of a database that runs a function in a transaction."""

    def __call__(self, work: Callable[[Tx], T], /) -> Awaitable[T]: ...


@dataclass(slots=True)
class _Operation:
    """One that waits, how much it asks for, and where its outcome goes."""

    item: Any
    weight: int
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Kind:
    """The operations of one kind that wait, and how many groups of it are under way."""

    work: GroupWork
    waiting: list[_Operation] = field(default_factory=list)
    weight: int = 0
    groups: int = 0
    patience: asyncio.TimerHandle | None = None

    def take(self) -> list[_Operation]:
        """The next group: one operation, and the following ones as long as they are small together."""
        count = weight = 0
        for operation in self.waiting:
            if count and weight + operation.weight > _WEIGHT_MAX:
                break
            count += 1
            weight += operation.weight
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        self.weight -= weight
        return taken


class GroupWriter:
    """Collects operations, and has those of a kind done by one call. Used from the event loop only."""

    def __init__(self, write: _Write) -> None:
        self._write = write
        self._kinds: dict[GroupWork, _Kind] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, work: GroupWork, item: Any, weight: int = 1) -> Any:
        """Return what became of ``item``, once that is durable. Cancelling leaves the group as it is.

        Raises :class:`DatabaseUnavailableError` where too many wait already.
        """
        kind = self._kinds.get(work)
        if kind is None:
            kind = self._kinds[work] = _Kind(work)
        if len(kind.waiting) >= limits.WRITES_PENDING_MAX:
            raise DatabaseUnavailableError("too many operations are waiting for it", "busy")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        kind.waiting.append(_Operation(item, weight, future))
        kind.weight += weight
        if not kind.groups or (kind.groups < _GROUPS and kind.weight >= _SECOND_MIN):
            self._begin(kind)
        elif kind.patience is None:
            kind.patience = loop.call_later(_PATIENCE_S, self._waited, kind)
        return await future

    def _begin(self, kind: _Kind) -> None:
        kind.groups += 1
        task = asyncio.create_task(self._drain(kind))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(kind, task))

    def _ended(self, kind: _Kind, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        kind.groups -= 1
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:  # nobody is left to wait for ever
            left, kind.waiting, kind.weight = kind.waiting, [], 0
            for operation in left:
                resolve(operation.future, None, error)
        if kind.groups:
            return
        if kind.waiting:  # it came between the last look and here
            self._begin(kind)
        else:
            self._kinds.pop(kind.work, None)

    def _waited(self, kind: _Kind) -> None:
        kind.patience = None
        if kind.waiting and kind.groups < _GROUPS_MAX:
            self._begin(kind)

    async def _drain(self, kind: _Kind) -> None:
        while kind.waiting:
            taken = kind.take()
            try:
                await self._settle(kind.work, taken)
            except BaseException as error:
                for operation in taken:
                    resolve(operation.future, None, error)
                raise

    async def _settle(self, work: GroupWork, operations: Sequence[_Operation]) -> None:
        """Do these in one transaction, and tell each its outcome.

        One that cannot be stored has rolled the others back: they are done again in halves, so that it is
        soon alone.
        """
        wanted = [operation for operation in operations if not operation.future.done()]
        if not wanted:
            return
        items = [operation.item for operation in wanted]

        def together(tx: Tx) -> Sequence[Outcome]:
            outcomes = work(tx, items)
            if len(outcomes) != len(items):
                raise AssertionError(f"{len(outcomes)} outcomes of {len(items)} operations")
            return outcomes

        try:
            outcomes = await self._write(together)
        except DatabaseUnavailableError as error:  # none is stored, or nobody knows
            outcomes = [Outcome(error=error)] * len(wanted)
        except Exception as error:
            if len(wanted) > 1:
                half = len(wanted) // 2
                await self._settle(work, wanted[:half])
                await self._settle(work, wanted[half:])
                return
            outcomes = [Outcome(error=error)]
        for operation, outcome in zip(wanted, outcomes, strict=True):
            resolve(operation.future, outcome.value, outcome.error)
