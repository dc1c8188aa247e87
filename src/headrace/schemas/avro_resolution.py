"""Values that were written with one Avro schema and are read with another.

All is as the specification says (https://avro.apache.org/docs/1.12.0/specification/#schema-resolution).
fastavro's own resolution goes by the writer's logical types, hands out defaults as they stand in JSON, and
rounds; so it reads with the writer's schema alone. Beyond the specification, numbers are not rounded, times
change their units with their logical types, and of a reader's union the branch of the writer's own type comes
before those that it can be promoted to, as in Java.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .avro_values import (
    MOMENTS,
    NAMED,
    NULL,
    TIMES_OF_DAY,
    AvroSchema,
    Convert,
    default_of,
    double,
    fails,
    logical_of,
    long_of,
    name_of,
    shown,
    single,
    text_of_bytes,
    the_only_named,
)
from .errors import UnfitError


class Field(NamedTuple):
    """Where a reader's field comes from: the writer's field ``source``, or the ``default`` if that is None.

    ``convert`` makes the reader's plain value of the writer's, or of the default; None leaves it as it is.
    """

    name: str
    source: str | None
    convert: Convert | None
    default: Any


class Resolution:
    """Plain values of a writer's schema as plain values of a reader's."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader
        self._made: dict[tuple[int, int], list[Convert]] = {}

    def fields(self) -> list[Field]:
        """Those of the reader's record. What can not be read is refused when it is read."""
        writer, reader = self._writer.root, self._reader.root
        if not _same_name(writer, reader):
            refuse = fails(f"record {writer['name']} is no record {reader['name']}")
            return [Field(one["name"], None, refuse, None) for one in reader["fields"]]
        return self._fields(writer, reader)

    def _fields(self, writer: Any, reader: Any) -> list[Field]:
        written = {one["name"]: one for one in writer["fields"]}
        found = []
        for one in reader["fields"]:
            name = one["name"]
            candidates = (name, *one.get("aliases", ()))
            source = next((each for each in candidates if each in written), None)
            if source is not None:
                convert = self._convert(written[source]["type"], one["type"])
                found.append(Field(name, source, convert, None))
            elif "default" in one:
                try:
                    value = default_of(self._reader, one["type"], one["default"])
                    found.append(Field(name, None, None, value))
                except UnfitError as error:
                    refuse = fails(
                        f"the default of {reader['name']}.{name} cannot be read: {error}"
                    )
                    found.append(Field(name, None, refuse, None))
            else:
                refuse = fails(f"{reader['name']}.{name} is not there, and has no default")
                found.append(Field(name, None, refuse, None))
        return found

    def _convert(self, w: Any, r: Any) -> Convert | None:
        writer, reader = self._writer.node(w), self._reader.node(r)
        if isinstance(writer, list):
            return self._of_union(writer, reader)
        if isinstance(reader, list):
            return self._to_union(writer, reader)
        if not self._rank(writer, reader):
            return fails(f"{shown(writer)} is no {shown(reader)}")
        kind = writer["type"]
        if kind in ("record", "error"):
            return self._record(writer, reader)
        if kind == "array":
            item = self._convert(writer["items"], reader["items"])
            return None if item is None else lambda value: [item(one) for one in value]
        if kind == "map":
            each = self._convert(writer["values"], reader["values"])
            if each is None:
                return None
            return lambda value: {key: each(one) for key, one in value.items()}
        if kind == "enum":
            return _enum(writer, reader)
        return _number_or_text(writer, reader)

    def _record(self, writer: Any, reader: Any) -> Convert:
        key = id(writer), id(reader)
        cell = self._made.get(key)
        if cell is not None:
            known = cell
            return lambda value: known[0](value)
        cell = self._made[key] = []
        fields = self._fields(writer, reader)

        def convert(value: Any) -> Any:
            made = {}
            for name, source, change, default in fields:
                found = default if source is None else value[source]
                made[name] = found if change is None else change(found)
            return made

        cell.append(convert)
        return convert

    def _of_union(self, writer: list[Any], reader: Any) -> Convert | None:
        branches = self._writer.branches(writer)
        has_null = any(self._writer.node(one)["type"] == NULL for one in writer)
        of_null = self._convert(NULL, reader) if has_null else None
        converts = {name: self._convert(node, reader) for name, node in branches.items()}
        if len(converts) < 2:
            inner = next(iter(converts.values()), None)
            if inner is None and of_null is None:
                return None
            return lambda value: _apply(of_null if value is None else inner, value)
        only = the_only_named(branches)

        def convert(value: Any) -> Any:
            if value is None:
                return _apply(of_null, value)
            name, found = value if type(value) is tuple else (only, value)
            return _apply(converts[name], found)

        return convert

    def _to_union(self, writer: Any, reader: list[Any]) -> Convert | None:
        """The first branch of the writer's own type, else the first that holds its values."""
        nodes = list(map(self._reader.node, reader))
        ranks = [self._rank(writer, node) for node in nodes]
        best = max(ranks, default=0)
        if not best:
            return fails(f"{shown(writer)} is no type of the reader's union")
        node = nodes[ranks.index(best)]
        inner = self._convert(writer, node)
        if node["type"] == NULL or len(self._reader.branches(reader)) < 2:
            return inner
        name = name_of(node)
        return lambda value: (name, _apply(inner, value))

    def _rank(self, w: Any, r: Any) -> int:
        """How well a writer's type matches a reader's: 0 not at all, 1 by promotion, 2 and 3 as the same."""
        writer, reader = self._writer.node(w), self._reader.node(r)
        if isinstance(writer, list) or isinstance(reader, list):
            return 2
        kind, other = writer["type"], reader["type"]
        if kind != other:
            return int(other in _PROMOTIONS.get(kind, ()))
        if kind in NAMED:
            if kind == "fixed" and writer["size"] != reader["size"]:
                return 0
            return 3 if writer["name"] == reader["name"] else 2 * _same_name(writer, reader)
        if kind == "array":
            return self._rank(writer["items"], reader["items"])
        if kind == "map":
            return self._rank(writer["values"], reader["values"])
        # Of the branches of a union that are written alike, the one of the same logical type is meant.
        return 3 if logical_of(writer) == logical_of(reader) else 2


_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _same_name(writer: Any, reader: Any) -> bool:
    """Whether two named types match: by their names without namespaces, or by an alias of the reader's."""
    own = writer["name"].rpartition(".")[2]
    return own == reader["name"].rpartition(".")[2] or any(
        alias in (own, writer["name"]) for alias in reader.get("aliases", ())
    )


def _enum(writer: Any, reader: Any) -> Convert | None:
    symbols, default = frozenset(reader["symbols"]), reader.get("default")
    if symbols.issuperset(writer["symbols"]):
        return None

    def convert(value: Any) -> Any:
        if value in symbols:
            return value
        if default is None:
            raise UnfitError(f"{value!r} is no symbol of enum {reader['name']}")
        return default

    return convert


def _number_or_text(writer: Any, reader: Any) -> Convert | None:
    kind, other = writer["type"], reader["type"]
    ours, theirs = logical_of(writer), logical_of(reader)
    if ours and theirs and ours != theirs:
        for units in (MOMENTS, TIMES_OF_DAY):
            if ours in units and theirs in units:
                return _unit(units[ours], units[theirs], theirs)
        return fails(f"{shown(writer)} is no {shown(reader)}")
    if ours == theirs == "decimal" and shown(writer) != shown(reader):
        return fails(f"{shown(writer)} is no {shown(reader)}")
    if other in ("float", "double") and kind in ("int", "long"):
        return single if other == "float" else double
    if kind == "string" and other == "bytes":
        return str.encode
    if kind == "bytes" and other == "string":
        return text_of_bytes
    return None


def _unit(ours: int, theirs: int, name: str) -> Convert | None:
    if ours == theirs:
        return None
    if ours > theirs:
        return lambda value: long_of(value * (ours // theirs))
    ratio = theirs // ours

    def convert(value: int) -> int:
        whole, rest = divmod(value, ratio)
        if rest:
            raise UnfitError(f"{value} µs are no whole {name}")
        return whole

    return convert
