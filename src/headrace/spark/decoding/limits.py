"""How much a schema, or what is said of a value, may be: strangers write both."""

from __future__ import annotations

from typing import Final

from ...errors import ConfigurationError

DEPTH_MAX: Final = 200
"""Records, arrays, maps and unions in each other, where a schema is not within itself."""
NOTHINGS_MAX: Final = 32
"""Values of an Avro record that take no bytes."""
COLUMNS_MAX: Final = 10_000
"""Columns of a schema, with those within columns: one that is used twice counts twice."""
SCHEMAS_KEPT_MAX: Final = 1000
"""Schemas of writers that a task keeps."""
REASON_CHARACTERS_MAX: Final = 300
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


def clipped(text: str) -> str:
    """The beginning of a long text."""
    cut = len(text) > REASON_CHARACTERS_MAX
    return text[:REASON_CHARACTERS_MAX] + "…" if cut else text


def brief(error: BaseException) -> str:
    """What an error says, without what is too long to be read."""
    return clipped(f"{type(error).__name__}: {error}")


def some_of(names: list[str]) -> str:
    """The first of many names."""
    more = f", and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return clipped(", ".join(names[:_NAMES_SHOWN])) + more
