"""Protocol Buffers payloads: messages of one type of a descriptor set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigurationError
from ...schemas.errors import NoSchemaError
from ...schemas.limits import DEPTH_MAX, clipped
from .decoded import Format
from .limits import ColumnBudget, brief, some_of
from .rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT_BYTES_MAX: Final = 10


def descriptor(descriptor_set: bytes, name: str) -> Any:
    """The message type of this full name. Raises ConfigurationError."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError:
        raise ConfigurationError(
            'jetstream source: valueFormat=protobuf needs protobuf: pip install "headrace[protobuf]"'
        ) from None
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptor_set)
        by_name = {file.name: file for file in files.file}
        for file in files.file:
            _add(file.name, by_name, pool, ())
    except (message.DecodeError, TypeError, KeyError, ValueError) as error:
        raise ConfigurationError(
            "jetstream source: the protobuf descriptor set cannot be read (make it with protoc "
            f"--include_imports --descriptor_set_out): {brief(error)}"
        ) from None
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        there = sorted(
            f"{file.package}.{one.name}".lstrip(".")
            for file in files.file
            for one in file.message_type
        )
        raise ConfigurationError(
            f"jetstream source: the descriptor set has no message {name!r}; there are: {some_of(there)}"
        ) from None


def _add(name: str, files: dict[str, Any], pool: Any, above: Sequence[str]) -> None:
    """Add a file after those that it imports; what protoc left out is looked for in the package."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    try:
        pool.FindFileByName(name)
    except KeyError:
        file = files.get(name)
        if file is None:
            file = descriptor_pb2.FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
        if name in above:
            raise ValueError(f"file {name!r} imports itself") from None
        if len(above) == DEPTH_MAX:
            raise ValueError(f"more than {DEPTH_MAX} files import each other in a row") from None
        for imported in file.dependency:
            _add(imported, files, pool, (*above, name))
        pool.Add(file)


def protobuf_format(
    schema: pa.Schema,
    descriptor_set: bytes,
    name: str,
    split: Callable[[bytes, bytes], bytes],
) -> Format:
    """A format that reads messages of this name. ``split(payload, headers)`` returns the message's bytes."""
    from google.protobuf import message, message_factory

    kind = descriptor(descriptor_set, name)
    try:
        make: Callable[[], Any] = message_factory.GetMessageClass(kind)
    except RecursionError:
        raise ConfigurationError(
            f"jetstream source: protobuf message {clipped(name)!r} has too many types in each other"
        ) from None
    getters = [
        (field.name, _getter(kind.fields_by_name[field.name], field.type))
        for field in schema
        if field.name in kind.fields_by_name
    ]

    def decode_one(payload: bytes, block: bytes) -> dict[str, Any]:
        found = make()
        found.ParseFromString(split(payload, block))
        return {name: get(found) for name, get in getters}

    return Rows(schema, decode_one, (NoSchemaError, message.DecodeError, ValueError, OverflowError))


def strip_indexes(body: bytes) -> bytes:
    """The message after Confluent's path to its type: a count and so many numbers. Raises NoSchemaError."""
    at, count = _varint(body, 0)
    for _ in range(count):
        at, _index = _varint(body, at)
    return body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The position after a zigzag varint, and its value."""
    value = 0
    for shift, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return at + shift + 1, value >> 1
    raise NoSchemaError("no path to the message's type before the value")


def is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # before protobuf 6 there was a label
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _getter(field: Any, kind: pa.DataType) -> Callable[[Any], Any]:
    """A function of a message that returns the field, as Arrow takes it for ``kind``."""
    import pyarrow as pa

    name = field.name
    if is_map(field):
        if not pa.types.is_map(kind):
            return lambda found: dict(getattr(found, name))
        keys = _converter(field.message_type.fields_by_name["key"], kind.key_type)
        items = _converter(field.message_type.fields_by_name["value"], kind.item_type)
        return lambda found: [(keys(k), items(v)) for k, v in getattr(found, name).items()]
    if is_repeated(field):
        element = kind.value_type if pa.types.is_list(kind) else kind
        convert = _converter(field, element)
        return lambda found: [convert(one) for one in getattr(found, name)]
    convert = _converter(field, kind)
    if not field.has_presence:
        return lambda found: convert(getattr(found, name))
    return lambda found: convert(getattr(found, name)) if found.HasField(name) else None


def _converter(field: Any, kind: pa.DataType) -> Callable[[Any], Any]:
    import pyarrow as pa

    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    message = field.message_type
    if message is None:
        return lambda value: value
    if message.full_name == _TIMESTAMP:
        return _moment
    if not pa.types.is_struct(kind):
        return lambda value: {}  # it does not fit, whatever it is
    getters = [
        (one.name, _getter(message.fields_by_name[one.name], one.type))
        for one in kind
        if one.name in message.fields_by_name
    ]
    return lambda value: {name: get(value) for name, get in getters}


def _moment(value: Any) -> datetime:
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def spark_schema(descriptor_set: bytes, name: str) -> StructType:
    """The columns of a message type. Unsigned numbers get a type that holds all of them.

    Raises ConfigurationError.
    """
    return _struct(descriptor(descriptor_set, name), (), ColumnBudget())


def _struct(kind: Any, within: Sequence[str], budget: ColumnBudget) -> StructType:
    from pyspark.sql import types as t

    if kind.full_name in within:
        raise ConfigurationError(
            f"jetstream source: protobuf message {kind.full_name!r} contains itself; name the columns that "
            "you want with .schema(...)"
        )
    inner = (*within, kind.full_name)
    return t.StructType([t.StructField(f.name, _type(f, inner, budget)) for f in kind.fields])


def _type(field: Any, within: Sequence[str], budget: ColumnBudget) -> DataType:
    from pyspark.sql import types as t

    if is_map(field):
        entry = field.message_type.fields_by_name
        return t.MapType(_one(entry["key"], within, budget), _one(entry["value"], within, budget))
    one = _one(field, within, budget)
    return t.ArrayType(one) if is_repeated(field) else one


def _one(field: Any, within: Sequence[str], budget: ColumnBudget) -> DataType:
    from pyspark.sql import types as t

    budget.take(len(within))
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return t.TimestampType()
        return _struct(field.message_type, within, budget)
    unsigned_long = (field.TYPE_UINT64, field.TYPE_FIXED64)
    if field.type in unsigned_long:
        return t.DecimalType(20, 0)
    if field.type == field.TYPE_BYTES:
        return t.BinaryType()
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: t.IntegerType(),
        field.CPPTYPE_INT64: t.LongType(),
        field.CPPTYPE_UINT32: t.LongType(),
        field.CPPTYPE_DOUBLE: t.DoubleType(),
        field.CPPTYPE_FLOAT: t.FloatType(),
        field.CPPTYPE_BOOL: t.BooleanType(),
        field.CPPTYPE_ENUM: t.StringType(),
        field.CPPTYPE_STRING: t.StringType(),
    }
    return kinds[field.cpp_type]
