"""The address of a database, which may have a password: from an option, a file or the environment."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from ..shared.errors import Failure
from .tokens import read_secret

__all__ = ["VARIABLE", "has_password", "take_database"]

VARIABLE: Final = "HEADRACE_JOBS_DATABASE"
_SHOWN: Final = (
    "--database shows its password to whoever lists this machine's processes, and a password in it is "
    f"deprecated: use --database-file FILE (- is standard input) or {VARIABLE}, or leave the password "
    "out and give it in PGPASSWORD, or in a file that PGPASSFILE names"
)
_SECRETS: Final = frozenset({"password", "sslpassword"})


def take_database(values: dict[str, Any]) -> list[str]:
    """Put the address that a file or the environment has into ``values``. Returns what is to be said of it.

    Raises Failure for a file that cannot be read or is empty, and for an option beside a file.
    """
    if "database_file" not in values:
        return []
    path, given = values.pop("database_file"), values.get("database")
    if path is not None and given is not None:
        raise Failure("--database-file goes without --database")
    if path is not None:
        values["database"] = read_secret(path, "--database-file")
    elif given is None:
        values["database"] = os.environ.get(VARIABLE) or None
    elif has_password(given):
        return [_SHOWN]
    return []


def has_password(url: str) -> bool:
    """Whether an address says a password, before the host or behind the question mark."""
    try:
        parts = urlsplit(url)
        named = any(name in _SECRETS and value for name, value in parse_qsl(parts.query))
    except ValueError:  # whatever else is wrong with it: this may be one
        return "@" in url
    return bool(parts.password) or named
