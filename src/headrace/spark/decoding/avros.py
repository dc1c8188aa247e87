"""Avro payloads: one record each, written with a schema that the reader knows or looks up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ...documents import read_json
from ...errors import ConfigurationError
from ...schemas.avro_shape import Shape, schema_failures, shape_of
from ...schemas.codecs import ExactBytes
from ...schemas.errors import NoSchemaError
from ...schemas.limits import SCHEMAS_KEPT_MAX
from .decoded import Format
from .limits import ColumnBudget, brief
from .rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_KEPT: Final = (
    "decimal",
    "date",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)
_NULL: Final = "null"
_DECIMAL_DIGITS_MAX: Final = 38


def fastavro() -> Any:
    """The package. Raises ConfigurationError if it is not installed."""
    try:
        import fastavro
    except ImportError:
        raise ConfigurationError(
            'jetstream source: valueFormat=avro needs fastavro: pip install "headrace[avro]"'
        ) from None
    return fastavro


def parse(text: bytes | str) -> Any:
    """An Avro schema without the logical types that no column has. Raises ConfigurationError."""
    return parse_measured(text)[0]


def parse_measured(text: bytes | str) -> tuple[Any, Shape]:
    """As ``parse``, and how deep its values may be. Raises ConfigurationError."""
    package = fastavro()
    try:
        found = package.parse_schema(_plain(read_json(text)))
    except schema_failures() as error:
        raise ConfigurationError(
            f"jetstream source: an Avro schema cannot be read: {brief(error)}"
        ) from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise ConfigurationError(
            "jetstream source: an Avro schema must be a record, to make columns"
        )
    try:
        return found, shape_of(found)
    except ConfigurationError as error:
        raise ConfigurationError(f"jetstream source: {error}") from None


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = schema.get("logicalType") not in (None, *_KEPT)
    return {
        key: _plain(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if not (dropped and key == "logicalType")
    }


def avro_format(
    schema: pa.Schema, reader: bytes, split: Callable[[bytes, bytes], tuple[bytes | None, bytes]]
) -> Format:
    """A format that reads with the schema ``reader``.

    ``split(payload, headers)`` returns the writer's schema (None: it is the reader's) and the value.
    """
    quick = fastavro().schemaless_reader
    from fastavro._read_py import schemaless_reader as counting  # Python counts how deep it is

    full, shape = parse_measured(reader)
    wanted = {field.name for field in schema}
    pruned = {**full, "fields": [field for field in full["fields"] if field["name"] in wanted]}
    reads_all = len(pruned["fields"]) == len(full["fields"])
    writers: dict[bytes, tuple[Any, Shape] | str] = {}

    def decode_one(payload: bytes, block: bytes) -> dict[str, Any]:
        text, value = split(payload, block)
        if text is None:
            writer, how = full, shape
        else:
            if text not in writers:
                writers[text] = _written_with(text)
                if len(writers) > SCHEMAS_KEPT_MAX:
                    del writers[next(iter(writers))]
            known = writers[text]
            if isinstance(known, str):
                raise NoSchemaError(known)
            writer, how = known
        stream = ExactBytes(value)
        same = reads_all and (writer is full or text == reader)
        read = quick if how.is_shallow(len(value)) else counting
        found: Any = read(stream, writer, None if same else pruned)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left after the record")
        return cast("dict[str, Any]", found)

    from fastavro.read import SchemaResolutionError

    refused = (
        NoSchemaError,
        SchemaResolutionError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        MemoryError,
        RecursionError,
        AttributeError,
    )
    return Rows(schema, decode_one, refused)


def _written_with(text: bytes) -> tuple[Any, Shape] | str:
    """A writer's schema, or why it is none: whoever stored it, the messages of others are read."""
    try:
        return parse_measured(text)
    except ConfigurationError as error:
        return str(error).removeprefix("jetstream source: ")


def spark_schema(text: bytes) -> StructType:
    """The columns of a schema, as Spark's own Avro reader makes them. Raises ConfigurationError."""
    from pyspark.sql import types as t

    try:
        found = _Columns().type(parse(text), ())
    except RecursionError:
        raise ConfigurationError(
            "jetstream source: an Avro schema has too many types in each other to make columns"
        ) from None
    assert isinstance(found, t.StructType)
    return found


class _Columns:
    """Makes columns of types that may name each other."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._budget = ColumnBudget()

    def type(self, schema: Any, within: Sequence[str]) -> DataType:
        from pyspark.sql import types as t

        self._budget.take(len(within))
        if isinstance(schema, list):
            return self._union(schema, within)
        if isinstance(schema, str):
            if schema in self._named:
                return self.type(self._named[schema], within)
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self.type(kind, within)
        if "name" in schema:
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType", "")
        if logical == "decimal":
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _DECIMAL_DIGITS_MAX:
                raise ConfigurationError(
                    f"jetstream source: an Avro decimal has {precision} digits, a column at most "
                    f"{_DECIMAL_DIGITS_MAX}"
                )
            return t.DecimalType(precision, scale)
        if logical:
            local = logical.startswith("local-")
            return t.DateType() if logical == "date" else _time(local=local)
        if kind == "record":
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
            _NULL: t.StringType(),
        }
        if kind not in simple:
            return self.type(self._named[kind], within)
        return simple[kind]

    def _union(self, schema: list[Any], within: Sequence[str]) -> DataType:
        from pyspark.sql import types as t

        kinds = [self.type(one, within) for one in schema if one != _NULL]
        if len(kinds) == 1:
            return kinds[0]
        if kinds and all(isinstance(kind, t.IntegerType | t.LongType) for kind in kinds):
            return t.LongType()
        if kinds and all(isinstance(kind, t.FloatType | t.DoubleType) for kind in kinds):
            return t.DoubleType()
        raise ConfigurationError(
            "jetstream source: an Avro union of several types makes no column; name the columns that you "
            "want with .schema(...)"
        )


def _time(*, local: bool) -> DataType:
    from pyspark.sql import types as t

    return t.TimestampNTZType() if local else t.TimestampType()
