"""JSON and TOML that somebody else has written: the one reader of both.

Whatever comes, it is a value, or a ``DocumentError`` (a ``ValueError``), never a ``RecursionError``: what is
nested deeper than ``limits.NESTING_MAX`` is refused, so that nobody who works through it has to think of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from .limits import NESTING_MAX

__all__ = ["DocumentError", "parse_toml", "read_json", "read_typed"]

T = TypeVar("T")

_DEEP: Final = "exceeded max depth"
_SHALLOW_BYTES: Final = 2 * NESTING_MAX  # a shorter text is not nested deeper


class DocumentError(ValueError):
    """A document is invalid. The text says what is wrong, of JSON in the server's words."""


def read_json(data: bytes | str) -> Any:
    """Any JSON value. Raises DocumentError for invalid JSON, or for JSON nested too deep."""
    found = read_typed(data, Any)
    if len(data) > _SHALLOW_BYTES and _is_deep(found):
        raise DocumentError(_DEEP)
    return found


def read_typed(data: bytes | str, kind: type[T]) -> T:
    """A JSON value of a type that msgspec knows. Raises DocumentError as ``read_json``."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(str(error)) from error
    except RecursionError as error:
        raise DocumentError(_DEEP) from error


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document. Raises TOMLDecodeError where it is none, which tells the place, and DocumentError if
    it is nested too deep."""
    import tomllib  # a broker that is told nothing in this form starts without it

    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise DocumentError(f"more than {NESTING_MAX} tables and arrays in each other") from error
    if len(text) > _SHALLOW_BYTES and _is_deep(found):
        raise DocumentError(f"more than {NESTING_MAX} tables and arrays in each other")
    return found


def _is_deep(value: object) -> bool:
    level = _containers((value,))
    for _ in range(NESTING_MAX):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in _containers(outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _containers(values: Iterable[object]) -> list[dict[str, Any] | list[Any]]:
    return [value for value in values if isinstance(value, dict | list)]
