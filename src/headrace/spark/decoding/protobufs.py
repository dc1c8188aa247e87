"""Protocol Buffers payloads: messages of one type of a descriptor set."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigurationError
from ...schemas.avro_values import fails
from ...schemas.errors import NoSchemaError, UnfitError
from ...schemas.limits import DEPTH_MAX, SCHEMAS_KEPT_MAX, clipped
from .decoded import ColumnBudget, Format, Rows, Unfit, brief, some_of
from .values import taker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_OWN_FILES: Final = "google/protobuf/"
_NANOS: Final = 1_000_000_000
_VARINT_BYTES_MAX: Final = 10


def descriptor(descriptor_set: bytes, name: str) -> Any:
    """The message type of this full name. Raises ConfigurationError."""
    files, pool = _files_of(descriptor_set)
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


def _files_of(descriptor_set: bytes) -> tuple[Any, Any]:
    """A descriptor set, and a pool of its types. Raises ConfigurationError."""
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
    return files, pool


def _add(name: str, files: dict[str, Any], pool: Any, above: Sequence[str]) -> None:
    """Add a file after those that it imports; what protoc left out is looked for in the package."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    try:
        pool.FindFileByName(name)
    except KeyError:
        file = files.get(name)
        if file is None:
            file = descriptor_pb2.FileDescriptorProto()
            if name.startswith(_OWN_FILES):  # it is there once its module is loaded
                module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
                try:
                    importlib.import_module(module)
                except ImportError:
                    raise KeyError(name) from None
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

    def decode_one(payload: bytes, block: bytes) -> Mapping[str, Any]:
        found = make()
        found.ParseFromString(split(payload, block))
        try:
            return {name: get(found) for name, get in getters}
        except (UnfitError, RecursionError):
            return {name: _got(get, found) for name, get in getters}

    return Rows(schema, decode_one, (NoSchemaError, message.DecodeError, ValueError, OverflowError))


def _got(get: Callable[[Any], Any], found: Any) -> Any:
    try:
        return get(found)
    except (UnfitError, RecursionError) as error:
        return Unfit(str(error))


# Where a message is in its file, as Confluent's readers and writers tell it


def split_path(body: bytes) -> tuple[bytes, bytes]:
    """Confluent's path to a message's type, a count and so many numbers, and the message. Raises
    NoSchemaError."""
    at, count = _varint(body, 0)
    for _ in range(count):
        at, _index = _varint(body, at)
    return body[:at], body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The position after a zigzag varint, and its value."""
    value = 0
    for shift, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if value & 1:
                break  # it is negative
            return at + shift + 1, value >> 1
    raise NoSchemaError("no path to the message's type before the value")


def path_of(kind: Any) -> bytes:
    """The path to a message type in its file; 0 is the first one."""
    names: list[str] = []
    file = kind.file
    while kind is not None:
        names.insert(0, kind.name)
        kind = kind.containing_type
    places: list[int] = []
    among = _proto_of(file).message_type
    for name in names:
        places.append([each.name for each in among].index(name))
        among = among[places[-1]].nested_type
    return b"\0" if places == [0] else b"".join(map(_zigzag, (len(places), *places)))


def _proto_of(file: Any) -> Any:
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    return found


def _zigzag(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(0x80 | (left & 0x7F))
        left >>= 7
    return bytes((*made, left))


def _name_at(file: Any, path: bytes) -> str:
    """The full name of the message type at a path of a file; "" if there is none."""
    at, count = _varint(path, 0)
    places = []
    for _ in range(count):
        at, place = _varint(path, at)
        places.append(place)
    name, among = file.package, file.message_type
    for place in places or [0]:
        if place >= len(among):
            return ""
        name, among = f"{name}.{among[place].name}", among[place].nested_type
    return str(name).lstrip(".")


class Typed:
    """Takes messages of one type only, by Confluent's framing.

    Args:
        descriptor_set, name: the type.
        writer: the descriptor set by a schema's id, where a path is one of that; None: it is one of ours.
    """

    def __init__(
        self, descriptor_set: bytes, name: str, writer: Callable[[str], bytes] | None
    ) -> None:
        self._own = descriptor(descriptor_set, name).file
        self._name = name
        self._writer = writer
        self._known: dict[tuple[str, bytes], str] = {}

    def take(self, schema_id: str, body: bytes) -> bytes:
        """The message after its path. Raises NoSchemaError: it is of another type."""
        path, message = split_path(body)
        key = (schema_id, path)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._name_at(schema_id, path)
            if len(self._known) > SCHEMAS_KEPT_MAX:
                del self._known[next(iter(self._known))]
        if found != self._name:
            what = f"of type {clipped(found)}" if found else "of no type of its schema"
            raise NoSchemaError(f"the message is {what}, not {self._name}")
        return message

    def _name_at(self, schema_id: str, path: bytes) -> str:
        if self._writer is None:
            return _name_at(_proto_of(self._own), path)
        try:
            files, _ = _files_of(self._writer(schema_id))
        except ConfigurationError as error:  # whoever stored it, the messages of others are read
            raise NoSchemaError(str(error).removeprefix("jetstream source: ")) from None
        if not files.file:
            raise NoSchemaError(f"schema {schema_id} has no file")
        same = (file for file in files.file if file.name == self._own.name)
        # Files come after those that they import.
        return _name_at(next(same, files.file[-1]), path)


# Fields


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
            return _refusing(name, fails(f"a map is no {kind}"))
        keys = _converter(field.message_type.fields_by_name["key"], kind.key_type)
        items = _converter(field.message_type.fields_by_name["value"], kind.item_type)
        return lambda found: [
            (key if keys is None else keys(key), item if items is None else items(item))
            for key, item in getattr(found, name).items()
        ]
    if is_repeated(field):
        if not pa.types.is_list(kind):
            return _refusing(name, fails(f"a list is no {kind}"))
        each = _converter(field, kind.value_type)
        if each is None:
            return lambda found: list(getattr(found, name))
        return lambda found: [each(one) for one in getattr(found, name)]
    convert = _converter(field, kind)
    if not field.has_presence:
        if convert is None:
            return lambda found: getattr(found, name)
        return lambda found: convert(getattr(found, name))
    if convert is None:
        return lambda found: getattr(found, name) if found.HasField(name) else None
    return lambda found: convert(getattr(found, name)) if found.HasField(name) else None


def _refusing(name: str, refuse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A getter of a list or a map that no column of its type can hold, but for an empty one."""
    return lambda found: refuse(None) if getattr(found, name) else None


def _converter(field: Any, kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a field's value one that Arrow takes for ``kind``; None: it takes it as it is."""
    import pyarrow as pa

    if field.enum_type is not None:
        if pa.types.is_integer(kind):
            return None
        # Of several names of a number it is the first, as in protobuf's JSON.
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        if pa.types.is_string(kind):
            return lambda number: names.get(number, str(number))
        return fails(f"an enum is no {kind}")
    message = field.message_type
    if message is None:
        return taker(_SOURCES[field.cpp_type if field.type != field.TYPE_BYTES else -1], kind)
    if message.full_name == _TIMESTAMP and pa.types.is_timestamp(kind):
        return _micros
    if not pa.types.is_struct(kind):
        return fails(f"{message.full_name} is no {kind}")
    getters = [
        (one.name, _getter(message.fields_by_name[one.name], one.type))
        for one in kind
        if one.name in message.fields_by_name
    ]
    return lambda value: {name: get(value) for name, get in getters}


# By FieldDescriptor's CPPTYPE_…; -1 is bytes, which it has as a string.
_SOURCES: Final = {
    1: "int",
    2: "long",
    3: "long",
    4: "long",
    5: "double",
    6: "float",
    7: "boolean",
    9: "string",
    -1: "bytes",
}


def _micros(value: Any) -> int:
    """A Timestamp as microseconds, to which its nanoseconds are cut."""
    if not 0 <= value.nanos < _NANOS:
        raise UnfitError(f"{value.nanos} are no nanoseconds of a second")
    micros: int = value.seconds * 1_000_000 + value.nanos // 1000
    return micros


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
