"""Loads the named queries: ``-- name: <name>`` begins one, comments below it explain its purpose.

``-- name: <name>, by any plan``: it counts, or goes through much of a table, so an index is not always best.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final, Literal

from .tables import whole_queries

__all__ = ["Dialect", "any_plan_queries", "load_migrations", "load_queries"]

Dialect = Literal["sqlite", "postgres"]

_ROOT: Final = resources.files(__package__.rpartition(".")[0]) / "sql"
_NAME: Final = re.compile(r"-- name: ([a-z0-9_]+)(, by any plan)?\s*$")
_VALUE: Final = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)")


@cache
def load_queries(dialect: Dialect) -> dict[str, str]:
    """Every query of ``dialect`` by name, including those that both dialects share."""
    found: dict[str, str] = {}
    for queries in (whole_queries(dialect), *map(_split, _texts(dialect))):
        for name, query in queries.items():
            if name in found:
                raise ValueError(f"the query {name} is there twice in {dialect}")
            found[name] = query if dialect == "sqlite" else _VALUE.sub(r"%(\1)s", query)
    return found


@cache
def any_plan_queries() -> frozenset[str]:
    """The queries that PostgreSQL may plan as it thinks best."""
    lines = (line for text in _texts("postgres") for line in text.splitlines())
    marked = {match[1] for line in lines if (match := _NAME.match(line)) and match[2]}
    return frozenset(marked | {name for name in whole_queries("postgres") if "count" in name})


def _texts(dialect: Dialect) -> list[str]:
    return [
        entry.read_text("utf-8")
        for folder in ("shared", dialect)
        for entry in sorted((_ROOT / folder).iterdir(), key=lambda found: found.name)
        if entry.name.endswith(".sql")
    ]


def load_migrations(dialect: Dialect) -> list[tuple[int, str, str]]:
    """``(number, name, text)`` of every migration, in order."""
    found = []
    for entry in (_ROOT / dialect / "migrations").iterdir():
        number, _, name = entry.name.removesuffix(".sql").partition("_")
        found.append((int(number), name, entry.read_text("utf-8")))
    return sorted(found)


def _split(text: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if match := _NAME.match(line):
            current = found[match[1]] = []
        elif current is not None and line.strip() and not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().removesuffix(";") for name, lines in found.items()}
