"""Avro payloads: one record each, written with a schema that the reader knows or looks up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import ConfigurationError
from ...schemas.avro_resolution import Resolution
from ...schemas.avro_values import (
    INSTANTS,
    LOCAL_TIMES,
    NULL,
    AvroSchema,
    Convert,
    decimal_of,
    fails,
    logical_of,
    members_of,
    shown,
    the_only_named,
)
from ...schemas.errors import NoSchemaError, UnfitError
from ...schemas.limits import SCHEMAS_KEPT_MAX
from .decoded import ColumnBudget, Format, Rows, Take
from .values import taker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_DECIMAL_DIGITS_MAX: Final = 38
_LONG_MAX: Final = (1 << 63) - 1


def fastavro() -> Any:
    """The package. Raises ConfigurationError if it is not installed."""
    try:
        import fastavro
    except ImportError:
        raise ConfigurationError(
            'jetstream source: valueFormat=avro needs fastavro: pip install "headrace[avro]"'
        ) from None
    return fastavro


def parse(text: bytes | str) -> AvroSchema:
    """An Avro schema of records. Raises ConfigurationError."""
    fastavro()
    try:
        return AvroSchema(text)
    except NoSchemaError as error:
        raise ConfigurationError(f"jetstream source: {error}") from None


class _Plan(NamedTuple):
    """How payloads of one writer's schema are read."""

    read: Callable[[bytes], dict[str, Any]]
    take: Callable[[dict[str, Any]], Mapping[str, Any]] | None


def avro_format(
    schema: pa.Schema, reader: bytes, split: Callable[[bytes, bytes], tuple[bytes | None, bytes]]
) -> Format:
    """A format that reads with the schema ``reader``.

    ``split(payload, headers)`` returns the writer's schema (None: it is the reader's) and the value.
    """
    full = parse(reader)
    columns = _Takers(full)
    kinds = {one["name"]: one["type"] for one in full.root["fields"]}
    takers = {
        one.name: columns.of(kinds[one.name], one.type) for one in schema if one.name in kinds
    }

    def own_plan() -> _Plan:
        fields = [(name, name, take, None) for name, take in takers.items()]
        is_plain = not any(takers.values())
        return _Plan(full.reader(takers), None if is_plain else Take(fields))

    def plan_of(text: bytes) -> _Plan | str:
        try:
            writer = parse(text)
        except ConfigurationError as error:  # whoever stored it, the messages of others are read
            return str(error).removeprefix("jetstream source: ")
        fields = [
            (one.name, one.source, _chained(one.convert, takers[one.name]), one.default)
            for one in Resolution(writer, full).fields()
            if one.name in takers
        ]
        needed = [source for _, source, _, _ in fields if source is not None]
        is_plain = all(source == name and convert is None for name, source, convert, _ in fields)
        return _Plan(writer.reader(needed), None if is_plain else Take(fields))

    own = own_plan()
    plans: dict[bytes, _Plan | str] = {reader: own}

    def decode_one(payload: bytes, block: bytes) -> Mapping[str, Any]:
        text, value = split(payload, block)
        if text is None:
            plan: _Plan | str = own
        else:
            if text not in plans:
                plans[text] = plan_of(text)
                if len(plans) > SCHEMAS_KEPT_MAX:
                    del plans[next(iter(plans))]
            plan = plans[text]
        if isinstance(plan, str):
            raise NoSchemaError(plan)
        found = plan.read(value)
        return found if plan.take is None else plan.take(found)

    return Rows(schema, decode_one, (NoSchemaError, UnfitError, RecursionError))


def _chained(first: Convert | None, then: Convert | None) -> Convert | None:
    if first is None or then is None:
        return first or then
    return lambda value: then(first(value))


class _Takers:
    """Makes of plain values of a schema those that Arrow takes for a column's type.

    Numbers of logical types fit columns of whole numbers, as what they are written as.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def of(self, part: Any, kind: pa.DataType) -> Convert | None:
        """None: Arrow takes the plain value."""
        import pyarrow as pa

        node = self._schema.node(part)
        if isinstance(node, list):
            return self._union(node, kind)
        name, types = node["type"], pa.types
        if name == NULL:
            return None
        if name in ("record", "error") and types.is_struct(kind):
            return self._record(node, kind)
        if name == "array" and types.is_list(kind):
            item = self.of(node["items"], kind.value_type)
            return None if item is None else lambda value: [item(one) for one in value]
        if name == "map" and types.is_map(kind) and types.is_string(kind.key_type):
            value_of = self.of(node["values"], kind.item_type)
            if value_of is None:
                return lambda value: list(value.items())
            return lambda value: [(key, value_of(one)) for key, one in value.items()]
        if name in ("record", "error", "array", "map"):
            return fails(f"{shown(node)} is no {kind}")
        return self._leaf(node, kind)

    def _leaf(self, node: Any, kind: pa.DataType) -> Convert | None:
        import pyarrow as pa

        types, logical = pa.types, logical_of(node)
        unit = INSTANTS.get(logical) or LOCAL_TIMES.get(logical)
        if unit is not None and types.is_timestamp(kind):
            return None if unit == 1 else lambda value: _in_range(value * unit)
        if logical == "date" and types.is_date(kind):
            return None
        if logical == "decimal":
            if types.is_binary(kind):
                return None
            if types.is_decimal(kind):
                scale = node.get("scale", 0)
                return lambda value: decimal_of(value, scale)
        elif logical in ("", "uuid") or types.is_integer(kind):
            source = {"fixed": "bytes", "enum": "string"}.get(node["type"], node["type"])
            return taker(source, kind)
        return fails(f"{shown(node)} is no {kind}")

    def _record(self, node: Any, kind: pa.DataType) -> Convert | None:
        parts = {one["name"]: one["type"] for one in node["fields"]}
        fields = [
            (one.name, self.of(parts[one.name], one.type)) for one in kind if one.name in parts
        ]
        if not any(take for _, take in fields):
            return None
        return lambda value: {
            name: value[name] if take is None else take(value[name]) for name, take in fields
        }

    def _union(self, union: list[Any], kind: pa.DataType) -> Convert | None:
        branches = self._schema.branches(union)
        if len(branches) < 2:
            inner = next((self.of(node, kind) for node in branches.values()), None)
            return None if inner is None else lambda value: None if value is None else inner(value)
        only = the_only_named(branches)
        members = _members(branches, kind)
        if members is None:
            takers = {name: self.of(node, kind) for name, node in branches.items()}

            def convert(value: Any) -> Any:
                if value is None:
                    return None
                name, found = value if type(value) is tuple else (only, value)
                take = takers[name]
                return found if take is None else take(found)

            return convert
        there = {one.name: one.type for one in kind}
        of_members = {
            name: (member, self.of(branches[name], there[member]))
            for name, member in members.items()
            if member in there
        }

        def to_member(value: Any) -> Any:
            if value is None:
                return None
            name, found = value if type(value) is tuple else (only, value)
            if name not in of_members:
                return {}
            member, take = of_members[name]
            return {member: found if take is None else take(found)}

        return to_member


def _members(branches: Mapping[str, Any], kind: pa.DataType) -> dict[str, str] | None:
    """Which field of a struct has which branch; None where the column is not made of them."""
    import pyarrow as pa

    members = members_of(branches)
    if not pa.types.is_struct(kind) or not {one.name for one in kind} <= set(members):
        return None
    return dict(zip(branches, members, strict=True))


def _in_range(micros: int) -> int:
    if not -_LONG_MAX - 1 <= micros <= _LONG_MAX:
        raise UnfitError("a time is out of the range of microseconds in 64 bits")
    return micros


def spark_schema(text: bytes) -> StructType:
    """The columns of a schema, as Spark's own Avro reader makes them. Raises ConfigurationError."""
    from pyspark.sql import types as t

    try:
        schema = parse(text)
        found = _Columns(schema).type(schema.root, ())
    except RecursionError:
        raise ConfigurationError(
            "jetstream source: an Avro schema has too many types in each other to make columns"
        ) from None
    assert isinstance(found, t.StructType)
    return found


class _Columns:
    """Makes columns of types that may name each other."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._budget = ColumnBudget()

    def type(self, part: Any, within: Sequence[str]) -> DataType:
        from pyspark.sql import types as t

        self._budget.take(len(within))
        schema = self._schema.node(part)
        if isinstance(schema, list):
            return self._union(schema, within)
        kind, logical = schema["type"], logical_of(schema)
        if logical == "decimal":
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _DECIMAL_DIGITS_MAX:
                raise ConfigurationError(
                    f"jetstream source: an Avro decimal has {precision} digits, a column at most "
                    f"{_DECIMAL_DIGITS_MAX}"
                )
            return t.DecimalType(precision, scale)
        if logical == "date":
            return t.DateType()
        if logical in INSTANTS or logical in LOCAL_TIMES:
            return t.TimestampType() if logical in INSTANTS else t.TimestampNTZType()
        if kind in ("record", "error"):
            name = schema["name"]
            if name in within:
                raise ConfigurationError(f"jetstream source: Avro record {name!r} contains itself")
            inner = (*within, name)
            fields = [
                t.StructField(f["name"], self.type(f["type"], inner)) for f in schema["fields"]
            ]
            return t.StructType(fields)
        if kind == "array":
            return t.ArrayType(self.type(schema["items"], within))
        if kind == "map":
            return t.MapType(t.StringType(), self.type(schema["values"], within))
        simple: dict[str, DataType] = {
            "boolean": t.BooleanType(),
            "int": t.IntegerType(),
            "long": t.LongType(),
            "float": t.FloatType(),
            "double": t.DoubleType(),
            "bytes": t.BinaryType(),
            "fixed": t.BinaryType(),
            "string": t.StringType(),
            "enum": t.StringType(),
            NULL: t.StringType(),
        }
        return simple[kind]

    def _union(self, schema: list[Any], within: Sequence[str]) -> DataType:
        from pyspark.sql import types as t

        branches = self._schema.branches(schema)
        if not branches:
            return t.StringType()
        if len(branches) == 1:
            return self.type(next(iter(branches.values())), within)
        kinds = {node["type"] for node in branches.values()}
        if kinds == {"int", "long"}:
            return t.LongType()
        if kinds == {"float", "double"}:
            return t.DoubleType()
        names = members_of(branches)
        return t.StructType(
            [
                t.StructField(name, self.type(node, within))
                for name, node in zip(names, branches.values(), strict=True)
            ]
        )
