"""What an Avro schema of a stranger may ask for, so that no message costs more than its bytes.

Whoever may write to a stream or to a bucket of schemas may write any schema there. fastavro reads as deep and
as much as it is told: a value within itself ten thousand times ends the process, and an array of nulls takes
no byte for any number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

from ..errors import ConfigurationError
from .limits import DEPTH_MAX, NOTHINGS_MAX, clipped

_QUICK_DEPTH_MAX: Final = 2000


class Shape(NamedTuple):
    """How deep a value can be: without an end if ``recursive``, and then ``step`` levels for each byte."""

    recursive: bool
    step: int

    def is_shallow(self, size: int) -> bool:
        """Whether no value of ``size`` bytes is too deep for a reader that does not count."""
        return not self.recursive or size * self.step <= _QUICK_DEPTH_MAX


@dataclass(slots=True)
class _Part:
    """A part of a schema: a record, or what a field or an array has."""

    direct: Counter[str] = field(default_factory=Counter)
    """Records in it that are always there."""
    behind: set[str] = field(default_factory=set)
    """Records in it that a byte before them may leave out."""
    bytes_: int = 0
    """Values that take a byte, outside of records."""
    nothings: int = 0
    """Values that take none, outside of records."""
    depth: int = 1

    def add(self, other: _Part, *, always: bool) -> None:
        self.depth = max(self.depth, other.depth + 1)
        self.behind |= other.behind
        if always:
            self.direct += other.direct
            self.bytes_ += other.bytes_
            self.nothings += other.nothings
        else:
            self.behind |= other.direct.keys()


class _Walk:
    """Goes once through each type of a schema that fastavro has accepted."""

    def __init__(self, schema: Any) -> None:
        self.records: dict[str, _Part] = {}
        self.items: list[_Part] = []
        self._empty: set[str] = set()
        self.part(schema)

    def part(self, schema: Any) -> _Part:
        found = _Part()
        if isinstance(schema, list):
            found.bytes_ = 1
            for one in schema:
                found.add(self.part(one), always=False)
            return found
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, list | dict):
            return self.part(kind)
        if kind in ("record", "error"):
            self._record(schema)
            found.direct[schema["name"]] += 1
        elif kind in ("array", "map"):
            found.bytes_ = 1
            inner = self.part(schema["items" if kind == "array" else "values"])
            if kind == "array":
                self.items.append(inner)
            found.add(inner, always=False)
        elif kind in self.records:
            found.direct[kind] += 1
        else:
            if kind == "fixed" and not schema["size"]:
                self._empty.add(schema["name"])
            if kind == "null" or kind in self._empty or (kind == "fixed" and not schema["size"]):
                found.nothings = 1
            else:
                found.bytes_ = 1
        return found

    def _record(self, schema: dict[str, Any]) -> None:
        whole = self.records[schema["name"]] = _Part()
        for one in schema["fields"]:
            whole.add(self.part(one["type"]), always=True)


def shape_of(schema: Any) -> Shape:
    """The shape of a schema that fastavro has accepted.

    Raises:
        ConfigurationError: a value of it can cost more than its bytes.
    """
    walk = _Walk(schema)
    direct: dict[str, set[str]] = {name: set(part.direct) for name, part in walk.records.items()}
    try:
        order = list(TopologicalSorter(direct).static_order())
    except CycleError as error:
        raise _refused(f"record {error.args[1][0]!r} always contains itself") from None
    _check_nothings(walk, order)
    everything = {name: direct[name] | part.behind for name, part in walk.records.items()}
    step = max(_depths(order, direct, walk.records).values(), default=1)
    try:
        order = list(TopologicalSorter(everything).static_order())
    except CycleError:
        recursive = True
    else:
        recursive = False
        step = max(_depths(order, everything, walk.records).values(), default=1)
    if step > DEPTH_MAX:
        raise _refused(f"more than {DEPTH_MAX} types are in each other")
    return Shape(recursive, step + 1)


def _check_nothings(walk: _Walk, order: list[str]) -> None:
    """Refuse what could be many values of few bytes."""
    takes: dict[str, int] = {}
    nothings: dict[str, int] = {}
    for name in order:
        part = walk.records[name]
        takes[name] = part.bytes_ + sum(takes[one] * count for one, count in part.direct.items())
        nothings[name] = part.nothings + sum(
            nothings[one] * count for one, count in part.direct.items()
        )
        if not takes[name]:
            nothings[name] += 1
        if nothings[name] > NOTHINGS_MAX:
            raise _refused(
                f"record {name!r} has more than {NOTHINGS_MAX} values that take no bytes"
            )
    for item in walk.items:
        if not item.bytes_ and not any(takes[name] for name in item.direct):
            raise _refused(
                "an array has items that take no bytes, so it may have any number of them"
            )


def _depths(
    order: list[str], graph: Mapping[str, set[str]], records: Mapping[str, _Part]
) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in order:  # what is in a record comes before it
        found[name] = records[name].depth + max((found[one] for one in graph[name]), default=0)
    return found


def _refused(reason: str) -> ConfigurationError:
    return ConfigurationError(f"an Avro schema cannot be read: {clipped(reason)}")


def schema_failures() -> tuple[type[Exception], ...]:
    """What may be raised where a stranger's text is read as a schema. ``fastavro`` has to be installed."""
    from fastavro.schema import SchemaParseException

    return (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        SchemaParseException,
    )
