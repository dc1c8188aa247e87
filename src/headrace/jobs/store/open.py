"""Opens the database that a URL names (`sqlite:///path`, `postgresql://…`)."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock
from ...errors import ConfigurationError
from ..vault import PLAIN, Vault
from .base import Database

__all__ = ["open_database"]


def open_database(
    url: str, *, threads: int = 8, clock: Clock | None = None, vault: Vault = PLAIN
) -> Database:
    """The database at ``url``, not yet started.

    ``sqlite:///jobs.db`` is relative, ``sqlite:////var/lib/jobs.db`` absolute. ``threads`` is the number of
    connections of a PostgreSQL pool. ``clock`` replaces the database's own clock: this machine's for
    SQLite, the server's for PostgreSQL. ``vault`` seals what is secret. Raises :class:`ConfigurationError`
    for any other URL, and if the package that a database needs is not installed.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        from .sqlite import SqliteDatabase

        if not rest.startswith("/") or len(rest) < 2:
            raise ConfigurationError(
                f"database {url!r}: write sqlite:///relative.db or sqlite:////absolute.db"
            )
        return SqliteDatabase(Path(rest[1:]), clock=clock, vault=vault)
    if separator and scheme in {"postgresql", "postgres"}:
        try:
            from .postgres import PostgresDatabase
        except ImportError as error:
            raise ConfigurationError(
                f"PostgreSQL needs `pip install headrace[postgres]` ({error})"
            ) from error
        return PostgresDatabase(url, threads=threads, clock=clock, vault=vault)
    # The URL itself may contain a password, so only its scheme is shown.
    raise ConfigurationError(
        f"database scheme {scheme if separator else '(none)'!r}: accepted are sqlite:///path and postgresql://…"
    )
