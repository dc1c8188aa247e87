"""Option tables: what the options of a reader or a writer are, and how they are collected from a user's.

A reader or writer has several tables (of the connection, of its own), each in the module that knows what
its options mean. Names are matched case-insensitively, as Spark passes them in lower case, and shown as
the table writes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...errors import ConfigurationError
from .kafka import Moved
from .values import RefusedError


class Option(NamedTuple):
    """One option as users see it; ``default`` is used if it is not given."""

    name: str
    default: str
    doc: str
    parse: Callable[[str], Any]


class Accepted:
    """The options that one reader or writer accepts.

    Args:
        who: begins each error, such as ``jetstream source``.
        tables: they are shown in this order.
        aliases: other names, in lower case, and the option that each means.
        in_ms: other names of durations, whose values are milliseconds without a unit.
        moved: options of Spark's Kafka source or sink that are refused with what to use instead.
    """

    def __init__(
        self,
        who: str,
        tables: Iterable[Iterable[Option]],
        aliases: Mapping[str, str],
        *,
        in_ms: Mapping[str, str] = MappingProxyType({}),
        moved: Iterable[Moved] = (),
    ) -> None:
        self.who = who
        self.options = tuple(option for table in tables for option in table)
        self._aliases = {**aliases, **{key.lower(): name for key, name in in_ms.items()}}
        self._in_ms = frozenset(map(str.lower, in_ms))
        self._moved = tuple(moved)
        self._by_name = {option.name.lower(): option for option in self.options}

    def collect(self, raw: Mapping[str, str]) -> dict[str, Any]:
        """Option name → parsed value, or ``""`` for an option that is not given and has no default.

        Raises:
            ConfigurationError: an option is unknown, given twice or has a value that is not accepted.
        """
        given: dict[str, str] = {}
        for key, value in raw.items():
            lowered = self._aliases.get(key.lower(), key).lower()
            option = self._by_name.get(lowered)
            if option is None:
                raise self._unknown(key)
            meant = f"{value}ms" if key.lower() in self._in_ms else value
            if option.name in given and given[option.name] != meant:
                raise self.error(f"option {option.name!r} is given twice")
            given[option.name] = meant
        return {option.name: self._value(option, given) for option in self.options}

    def error(self, said: str) -> ConfigurationError:
        """An error about options."""
        return ConfigurationError(f"{self.who}: {said}")

    def _value(self, option: Option, given: Mapping[str, str]) -> Any:
        value = given.get(option.name, option.default)
        if value == "" and option.default == "":
            return ""
        try:
            return option.parse(value)
        except RefusedError as refused:
            raise self.error(f"option {option.name!r} is {value!r}; accepted: {refused}") from None

    def _unknown(self, key: str) -> ConfigurationError:
        """About an option that does not exist; Spark passes its name in lower case."""
        for moved in self._moved:
            begins = moved.name.endswith(".") and key.lower().startswith(moved.name.lower())
            if begins or key.lower() == moved.name.lower():
                name = f"{moved.name}*" if begins else moved.name
                return self.error(f"option {name!r} is one of Kafka's; {moved.instead}")
        near = difflib.get_close_matches(key.lower(), [*self._by_name, *self._aliases], n=1)
        known = self._by_name.get(near[0]) if near else None
        name = known.name if known else "".join(near)
        hint = f"; did you mean {name!r}?" if name else ""
        names = ", ".join(sorted(option.name for option in self.options))
        return self.error(f"unknown option {key!r}{hint}; accepted: {names}")
