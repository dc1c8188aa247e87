"""Writes that arrive while one is under way share the next transaction.

A transaction costs a sync and several answers of the server, whatever is in it. So a write that finds others
under way waits for them, with all that arrive meanwhile, and goes with these: alone nobody waits, and under
load the transactions grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..errors import JobsError
from .base import Tx

__all__ = ["Outcome", "Together", "outcome", "outcome_of"]

T = TypeVar("T")
Work = Callable[[Tx], Any]

_GROUPS: Final = (
    2  # transactions under way at once: one is prepared while the other waits for the disk
)
_WRITES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one write of a group."""

    value: Any = None
    error: BaseException | None = None


class Together:
    """Collects writes, and hands them to ``carry_out`` in groups. Used from the event loop only."""

    def __init__(self, carry_out: Callable[[Sequence[Work]], Awaitable[list[Outcome]]]) -> None:
        self._carry_out = carry_out
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, work: Callable[[Tx], T]) -> T:
        """The result of ``work``, when its transaction is durable. Cancelling leaves the group as it is."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        if len(self._tasks) < _GROUPS:
            task = asyncio.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:_WRITES_MAX], self._waiting[_WRITES_MAX:]
            group = [(work, future) for work, future in group if not future.cancelled()]
            try:
                outcomes = await self._carry_out([work for work, _ in group]) if group else []
            except Exception as error:
                outcomes = [Outcome(error=error)] * len(group)
            for (_, future), result in zip(group, outcomes, strict=True):
                if future.cancelled():
                    continue
                if result.error is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(result.error)


def outcome(tx: Tx, work: Work) -> Outcome:
    """Run one write of a group. A refusal has changed nothing, so the others go on."""
    try:
        return Outcome(value=work(tx))
    except JobsError as error:
        return Outcome(error=error)


async def outcome_of(written: Awaitable[Any]) -> Outcome:
    """The same of a write with a transaction of its own."""
    try:
        return Outcome(value=await written)
    except Exception as error:
        return Outcome(error=error)
