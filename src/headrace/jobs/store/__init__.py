"""Storage of jobs: SQLite in one process, PostgreSQL in any number. Knows SQL, not jobs."""

from __future__ import annotations

from .base import Database, Outcome, Row, Tx
from .open import open_database

__all__ = ["Database", "Outcome", "Row", "Tx", "open_database"]
