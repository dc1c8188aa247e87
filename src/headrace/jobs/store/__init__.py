"""Storage of jobs: SQLite in one process, PostgreSQL in any number. Knows SQL, not jobs."""

from __future__ import annotations

from .base import Database, Row, Tx
from .open import open_database

__all__ = ["Database", "Row", "Tx", "open_database"]
