"""The databases that the job service is measured on, each durable: SQLite, and a PostgreSQL of our own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from postgres_server import PostgresServer

NAMES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Database:
    """One of them.

    Attributes:
        make: makes an empty database of this name; its URL.
        pid: the server's process; None where there is none.
    """

    name: str
    make: Callable[[str], str]
    pid: int | None


def databases(
    only: str | None, settings: Mapping[str, str] | None = None
) -> Generator[Database, None, None]:
    """Each in turn, or the one that is named; gone when the next one is taken, or the generator is closed.

    PostgreSQL has ``settings`` beside its defaults.
    """
    if only in (None, "sqlite"):
        with tempfile.TemporaryDirectory() as directory:
            yield Database("sqlite", lambda name: f"sqlite:///{directory}/{name}.db", None)
    if only in (None, "postgresql"):
        server = PostgresServer(durable=True, settings=settings)
        try:
            server.start()
            yield Database("postgresql", server.create, server.pid)
        finally:
            server.remove()
