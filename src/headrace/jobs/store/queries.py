"""Loads the named queries: ``-- name: <name>`` begins one, comments below it explain its purpose."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final, Literal

from .tables import whole_queries

__all__ = ["Dialect", "load_migrations", "load_queries"]

Dialect = Literal["sqlite", "postgres"]

_ROOT: Final = resources.files(__package__.rpartition(".")[0]) / "sql"
_NAME: Final = re.compile(r"-- name: ([a-z0-9_]+)\s*$")
_VALUE: Final = re.compile(r"(?<![:\w]):([a-z][a-z0-9_]*)")


@cache
def load_queries(dialect: Dialect) -> dict[str, str]:
    """Every query of ``dialect`` by name, including those that both dialects share."""
    texts = [
        entry.read_text("utf-8")
        for folder in ("shared", dialect)
        for entry in sorted((_ROOT / folder).iterdir(), key=lambda found: found.name)
        if entry.name.endswith(".sql")
    ]
    found: dict[str, str] = {}
    for queries in (whole_queries(dialect), *map(_split, texts)):
        for name, query in queries.items():
            if name in found:
                raise ValueError(f"the query {name} is there twice in {dialect}")
            found[name] = query if dialect == "sqlite" else _VALUE.sub(r"%(\1)s", query)
    return found


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
