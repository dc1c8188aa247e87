"""Which messages' work is done, kept in the database of that work and in its transaction: each effect once.

A message may come again: after a crash, or when an acknowledgement is lost. Where its number is stored with
what it causes, both or neither, the second time finds it and causes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..client import JetStreamMessage

__all__ = ["Done"]

TABLE: Final = "headrace_done"
_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?", re.ASCII)


class Done:
    """A table of messages whose work is done.

    ::

        done = Done("billing")

        with database:  # one transaction: of sqlite3, or of psycopg by `with database.transaction()`
            if done.first_time(database, message):
                ...  # the work, in the same transaction
        message.ack()

    What must happen once is what the transaction does; a mail that is sent inside it is not undone with it.
    A stream that is deleted and made again counts anew, though its sequences begin at 1, too. One that got
    another name is another one, until ``renamed`` says so.

    Args:
        consumer: whose work it is: each has its own messages.
        table: its name, with a schema before it if wanted.
    """

    def __init__(self, consumer: str, *, table: str = TABLE) -> None:
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise ConfigurationError(
                f"table is {table!r}; accepted are small letters, digits and underscores, with a schema "
                "before it if wanted"
            )
        self._consumer = consumer
        self._table = table

    def __repr__(self) -> str:
        return f"<Done {self._consumer!r} in table {self._table!r}>"

    def create(self, database: Any) -> None:
        """Make the table, if it is not there. ``database``: a connection of sqlite3 or psycopg."""
        database.execute(self._creating())

    async def create_async(self, database: Any) -> None:
        """``create`` with an asynchronous connection of psycopg."""
        await database.execute(self._creating())

    def first_time(self, database: Any, message: JetStreamMessage) -> bool:
        """Note the message in the transaction that is open, and say whether its work is yet to be done.

        Of two that do the work of one message at the same time the second waits, in PostgreSQL for the
        other's transaction, in SQLite for the database. To be called before the work.
        """
        return bool(database.execute(self._noting(database), self._row(message)).rowcount)

    async def first_time_async(self, database: Any, message: JetStreamMessage) -> bool:
        """``first_time`` with an asynchronous connection of psycopg."""
        cursor = await database.execute(self._noting(database), self._row(message))
        return bool(cursor.rowcount)

    def forget(self, database: Any, *, before_ns: int) -> int:
        """Remove what was stored in its stream before a time, in nanoseconds since the Unix epoch; returns
        how many. What could come again must not be forgotten: think of the stream's ``max_age``."""
        mark = _mark(database)
        old = f"consumer = {mark} AND stored_ns < {mark}"
        deleting = f"DELETE FROM {self._table} WHERE {old}"  # noqa: S608 (the name is checked)
        return int(database.execute(deleting, (self._consumer, before_ns)).rowcount)

    def renamed(self, database: Any, old: str, new: str) -> int:
        """Have what is noted of stream ``old`` hold for ``new`` alone, which has its messages now; returns of
        how many. After ``headrace stream rename`` or ``repartition``, before a worker begins there."""
        mark = _mark(database)
        renaming = (
            f"UPDATE {self._table} SET stream = {mark} WHERE consumer = {mark} AND stream = {mark}"  # noqa: S608 (checked)
        )
        return int(database.execute(renaming, (new, self._consumer, old)).rowcount)

    def _creating(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (consumer TEXT NOT NULL, stream TEXT NOT NULL, "
            "sequence BIGINT NOT NULL, stored_ns BIGINT NOT NULL, "
            "PRIMARY KEY (consumer, stream, sequence, stored_ns))"
        )

    def _noting(self, database: Any) -> str:
        marks = ", ".join([_mark(database)] * 4)
        return f"INSERT INTO {self._table} VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 (checked)

    def _row(self, message: JetStreamMessage) -> tuple[str, str, int, int]:
        about = message.metadata
        return self._consumer, about.stream, about.stream_seq, about.timestamp_ns


def _mark(database: Any) -> str:
    """How a value is marked in the statements of this library."""
    return "?" if type(database).__module__.partition(".")[0] == "sqlite3" else "%s"
