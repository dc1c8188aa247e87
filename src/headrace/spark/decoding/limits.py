"""How much a schema, or what is said of a value, may be: strangers write both."""

from __future__ import annotations

from typing import Final

from ...errors import ConfigurationError
from ...schemas.limits import DEPTH_MAX, clipped

COLUMNS_MAX: Final = 10_000
"""Columns of a schema, with those within columns: one that is used twice counts twice."""
_NAMES_SHOWN: Final = 20


class ColumnBudget:
    """Counts columns while they are made, as a few types can name each other often."""

    def __init__(self) -> None:
        self._left = COLUMNS_MAX

    def take(self, depth: int) -> None:
        """One more, in so many others. Raises ConfigurationError."""
        self._left -= 1
        if self._left < 0:
            raise ConfigurationError(
                f"jetstream source: the schema has more than {COLUMNS_MAX} columns, with those within columns"
            )
        if depth > DEPTH_MAX:
            raise ConfigurationError(
                f"jetstream source: the schema has more than {DEPTH_MAX} types in each other"
            )


def brief(error: BaseException) -> str:
    """What an error says, without what is too long to be read."""
    return clipped(f"{type(error).__name__}: {error}")


def some_of(names: list[str]) -> str:
    """The first of many names."""
    more = f", and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return clipped(", ".join(names[:_NAMES_SHOWN])) + more
