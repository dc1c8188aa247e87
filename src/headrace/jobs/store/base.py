"""What the service needs of a database: run a function in a transaction, wake up those who wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["Database", "Row", "Tx", "Work"]

T = TypeVar("T")


class Row(Protocol):
    """A row, by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any: ...


class Tx(Protocol):
    """One open transaction. Queries are named; their text is in ``sql/``."""

    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        """Every row of the answer."""
        ...

    def one(self, query: str, /, **values: Any) -> Row | None:
        """The first row of the answer, or none."""
        ...

    def run(self, query: str, /, **values: Any) -> int:
        """Carry out; how many rows were touched."""
        ...

    def now_us(self) -> int:
        """Microseconds since 1970 by the database's clock, the same for the whole transaction.

        Leases, retries and schedules are told by this clock alone: the clocks of processes differ.
        """
        ...

    def ring(self, consumers: Sequence[int], /) -> None:
        """Wake up, once this transaction is committed, those who wait for jobs of ``consumers``."""
        ...


Work = Callable[[Tx], T]


class Database(Protocol):
    """A database with the schema of this version.

    ``work`` runs on another thread, may run again after a conflict with another transaction, and must
    therefore change nothing but the database. An exception it raises undoes what it did and is raised
    to the caller. :class:`~headrace.jobs.errors.DatabaseUnavailableError` is raised when the database
    cannot be reached; a write may have happened or not.
    """

    name: str

    async def write(self, work: Callable[[Tx], T], /) -> T:
        """Run ``work`` in a transaction; returns when it is durable."""
        ...

    async def read(self, work: Callable[[Tx], T], /) -> T:
        """Run ``work`` on a consistent snapshot it cannot change."""
        ...

    def on_ring(self, hear: Callable[[Sequence[int]], None], /) -> None:
        """Call ``hear`` on the event loop for every :meth:`Tx.ring`, also of other processes."""
        ...

    async def start(self) -> None:
        """Connect, bring the schema up to date, listen."""
        ...

    async def close(self) -> None:
        """Finish what was begun, then let go of everything."""
        ...
