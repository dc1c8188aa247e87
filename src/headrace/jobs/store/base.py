"""The database interface of the service: run a function in a transaction, wake up waiters."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..vault import Vault

__all__ = ["Database", "GroupWork", "Outcome", "Row", "Tx", "carried_out", "resolve"]

A = TypeVar("A")
T = TypeVar("T")


class Row(Protocol):
    """A row, by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


class Tx(ABC):
    """One open transaction. Queries have names; their text is in ``sql/``.

    Attributes:
        vault: seals what is secret in the database, and opens it.
        rung: the consumers whose waiters are woken up once it is committed.
    """

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.rung: set[int] = set()
        self._known: dict[Hashable, Any] = {}

    @abstractmethod
    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        """Return all rows of the result."""

    @abstractmethod
    def one(self, query: str, /, **values: Any) -> Row | None:
        """The first row of the result, or None."""

    @abstractmethod
    def run(self, query: str, /, **values: Any) -> int:
        """Execute a statement. Returns how many rows were affected."""

    @abstractmethod
    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        """Execute a statement with the values of each row, quicker than one by one."""

    @abstractmethod
    def now_us(self) -> int:
        """Microseconds since 1970 by the database's clock, the same for the whole transaction.

        Leases, retries and schedules use only this clock: the clocks of processes differ.
        """

    def once(self, key: Hashable, made: Callable[[], T], /) -> T:
        """Return what ``made`` returned for ``key`` earlier in this transaction, or returns now."""
        if key not in self._known:
            self._known[key] = made()
        found: T = self._known[key]
        return found

    def ring(self, consumers: Sequence[int], /) -> None:
        """Wake up, once this transaction is committed, the waiters for jobs of ``consumers``."""
        self.rung.update(consumers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one operation of a group: a value, or the error that its client gets."""

    value: Any = None
    error: BaseException | None = None


GroupWork = Callable[[Tx, Sequence[Any]], Sequence[Outcome]]
"""Carries out some operations of one kind; returns the outcome of each, in their order."""


def resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    """Tell whoever waits for ``future`` its outcome, unless they wait no more."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def carried_out(work: Callable[[A], T], argument: A) -> T:
    """Return ``work(argument)``; a StopIteration, which no future takes, is a RuntimeError."""
    try:
        return work(argument)
    except StopIteration as error:
        raise RuntimeError("an operation raised StopIteration") from error


class Database(Protocol):
    """A database with the schema of this version.

    ``work`` runs on another thread and may run again after a conflict with another transaction. It must
    therefore change nothing but the database. If it raises, its changes are rolled back and the exception
    is raised to the caller. Raises :class:`~headrace.jobs.errors.DatabaseUnavailableError` if the database
    cannot be reached; a write may or may not have happened.
    """

    name: str

    async def write(self, work: Callable[[Tx], T], /) -> T:
        """Run ``work`` in a transaction; returns when it is durable."""
        ...

    async def write_together(self, work: GroupWork, item: Any, /, weight: int = 1) -> Any:
        """The outcome of ``item`` in ``work``, which gets it with others of its kind, in one transaction.

        ``work`` returns an outcome for each of its items, in their order. A refused item must leave the
        others alone. If ``work`` raises, nothing is stored, and it is called again for fewer of them, in the
        end for each alone, which then gets what was raised. ``weight``: how many rows the item is about.
        """
        ...

    async def read(self, work: Callable[[Tx], T], /) -> T:
        """Run ``work`` on a consistent read-only snapshot."""
        ...

    def on_ring(self, hear: Callable[[Sequence[int]], None], /) -> None:
        """Call ``hear`` on the event loop for every :meth:`Tx.ring`.

        With PostgreSQL for those of other processes, too, and with nothing when some may have been missed.
        """
        ...

    async def find_room(self) -> None:
        """Look, if a write has lately found no room on the disk, whether there is some again.

        Raises :class:`~headrace.jobs.errors.DatabaseUnavailableError` while there is none. Where a small
        write finds what a large one would, this does nothing.
        """
        ...

    def place(self) -> str:
        """Say where the database is, for people: no password. May ask the disk: call it on a thread."""
        ...

    async def start(self) -> None:
        """Connect, bring the schema up to date, listen."""
        ...

    async def close(self) -> None:
        """Finish work in progress, then close everything."""
        ...
