"""Avro's schemas, and values by them. Needs ``fastavro``, which reads and writes the bytes.

A **plain value** is what the bytes say without logical types. Of a union of several types it is a pair, the
name of the branch and the value. ``avro_resolution`` makes plain values of one schema those of another,
``avro_fitting`` makes plain values of Python's.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Container, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

from ..documents import read_json
from ..errors import ConfigurationError
from .avro_shape import Shape, schema_failures, shape_of
from .errors import NoSchemaError, UnfitError
from .limits import clipped

Convert = Callable[[Any], Any]

NULL: Final = "null"
NUMBERS: Final = ("int", "long", "float", "double")
NAMED: Final = ("record", "error", "enum", "fixed")
INSTANTS: Final = {"timestamp-millis": 1000, "timestamp-micros": 1}
"""Logical types of an instant, and how many microseconds one of their units is."""
LOCAL_TIMES: Final = {"local-timestamp-millis": 1000, "local-timestamp-micros": 1}
TIMES_OF_DAY: Final = {"time-millis": 1000, "time-micros": 1}
MOMENTS: Final = {**INSTANTS, **LOCAL_TIMES}
_BASES: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "uuid": "string",
    **dict.fromkeys(MOMENTS, "long"),
}
"""What the values of logical types are written as; on other types the specification has them ignored."""
_HOOK: Final = "headrace-branch"
_EXACT_DECIMAL: Final = "headrace-decimal"
_BRANCH: Final = "headrace-name"
_PRIMITIVES: Final = {
    name: {"type": name} for name in (NULL, "boolean", *NUMBERS, "bytes", "string")
}
EXACTLY: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_VALUE_CHARACTERS_MAX: Final = 60
_WHOLE_MAX: Final = 1 << 64
_BEYOND: Final = bytes(16)
"""After a record: who reads of it has read too far. With a stream that ends, fastavro does not notice it
everywhere, and a stream of our own would be asked for each value. No number is longer."""
_READ_FAILURES: Final = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    AttributeError,
)


class AvroSchema:
    """A schema of records, and how its values are read and written as plain ones.

    Raises NoSchemaError: it cannot be read, is no record, or its values can cost more than their bytes.
    """

    def __init__(self, text: bytes | str) -> None:
        import fastavro
        from fastavro._read_py import schemaless_reader as counting

        try:
            self.root: Any = fastavro.parse_schema(read_json(text))
        except schema_failures() as error:
            raise NoSchemaError(f"an Avro schema cannot be read: {brief(error)}") from None
        if not isinstance(self.root, dict) or self.root.get("type") != "record":
            raise NoSchemaError("an Avro schema must be a record")
        try:
            self._shape: Shape = shape_of(self.root)
        except ConfigurationError as error:
            raise NoSchemaError(str(error)) from None
        self._named: dict[str, Any] = {}
        _install_hooks()
        try:
            self._plain: Any = fastavro.parse_schema(self._without_logical_types(self.root))
        except (
            schema_failures()
        ) as error:  # it is none that fastavro itself refuses, such as a nested union
            raise NoSchemaError(f"an Avro schema cannot be read: {brief(error)}") from None
        self._native: Any = None
        self._quick: Any = fastavro.schemaless_reader
        self._counting: Any = counting  # it is Python, which counts how deep it is
        self._writer: Any = fastavro.schemaless_writer

    def read(self, body: bytes) -> dict[str, Any]:
        """The record as a plain value. Raises UnfitError."""
        found: dict[str, Any] = self._read(self._plain, body, tag=True)
        return found

    def reader(self, wanted: Container[str]) -> Callable[[bytes], dict[str, Any]]:
        """As ``read``, where texts of other fields are not looked at."""
        import fastavro

        fields = [
            one if one["name"] in wanted else {**one, "type": _unread(one["type"])}
            for one in self._plain["fields"]
        ]
        if fields == self._plain["fields"]:
            return self.read
        schema = fastavro.parse_schema(
            {"type": "record", "name": self.root["name"], "fields": fields}
        )
        return lambda body: self._read(schema, body, tag=True)

    def read_native(self, body: bytes) -> Any:
        """The record with Python's types for logical ones, and a union's values as they are. Raises
        UnfitError."""
        if self._native is None:
            import fastavro

            self._native = fastavro.parse_schema(_with_exact_decimals(self.root))
        return self._read(self._native, body, tag=False)

    def write(self, value: Any) -> bytes:
        """One record of a plain value in which each union's value is a pair, as ``fitter`` makes it. Raises
        UnfitError."""
        out = io.BytesIO()
        try:
            self._writer(out, self._plain, value)
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
            raise UnfitError(brief(error)) from None
        return out.getvalue()

    def node(self, schema: Any) -> Any:
        """A part of the schema, where names are replaced by what they name: a list (a union) or a dict."""
        if isinstance(schema, list):
            return schema
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._named[schema]
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self.node(kind)
        if kind in self._named:
            return self._named[kind]
        return schema

    def branches(self, union: list[Any]) -> dict[str, Any]:
        """The branches of a union but null, by the names that plain values have for them."""
        nodes = map(self.node, union)
        return {name_of(node): node for node in nodes if node["type"] != NULL}

    def _read(self, schema: Any, body: bytes, *, tag: bool) -> Any:
        size = len(body)
        read = self._quick if self._shape.is_shallow(size + len(_BEYOND)) else self._counting
        stream = io.BytesIO(body + _BEYOND)
        try:
            found = read(
                stream, schema, None, return_named_type=tag, return_named_type_override=tag
            )
        except _READ_FAILURES as error:
            raise UnfitError(f"it is no such record: {brief(error)}") from None
        at = stream.tell()
        if at > size:
            raise UnfitError("it is no such record: it ends in the middle")
        if at < size:
            raise UnfitError(f"{size - at} bytes are left after the record")
        return found

    def _without_logical_types(self, schema: Any) -> Any:
        if isinstance(schema, list):
            names = list(map(_branch_name, schema))
            twice = next((one for one in names if names.count(one) > 1), None)
            if twice is not None:  # of which of the two a value is could not be told
                raise UnfitError(f"a union has {twice!r} twice")
            made = [self._without_logical_types(one) for one in schema]
            if sum(one != NULL for one in map(_kind, schema)) < 2:
                return made
            return [self._hooked(one) for one in made]
        if isinstance(schema, str):
            return schema
        kind = schema["type"]
        if isinstance(kind, list | dict):
            return self._without_logical_types(kind)
        found = {key: schema[key] for key in ("type", "name", "size", "symbols") if key in schema}
        if kind in NAMED:
            self._named[schema["name"]] = schema
        for key in ("items", "values"):
            if key in schema:
                found[key] = self._without_logical_types(schema[key])
        if "fields" in schema:
            found["fields"] = [
                {"name": one["name"], "type": self._without_logical_types(one["type"])}
                for one in schema["fields"]
            ]
        return found

    def _hooked(self, branch: Any) -> Any:
        """The branch of a union with what makes a pair of its value; fastavro does so with named types."""
        kind = _kind(branch)
        if kind == NULL or kind in NAMED or kind in self._named:
            return branch
        whole = branch if isinstance(branch, dict) else {"type": branch}
        return {**whole, "logicalType": _HOOK, _BRANCH: kind}


def _install_hooks() -> None:
    """Make fastavro ask us about our own logical types; it knows no others by these names."""
    from fastavro.read import LOGICAL_READERS

    if f"int-{_HOOK}" in LOGICAL_READERS:
        return
    readers: dict[str, Any] = LOGICAL_READERS
    for kind in ("bytes", "fixed"):
        readers[f"{kind}-{_EXACT_DECIMAL}"] = lambda value, writer, _reader: exact_decimal(
            value, writer
        )
    for kind in (*_PRIMITIVES, "array", "map"):
        readers[f"{kind}-{_HOOK}"] = lambda value, writer, _reader: (writer[_BRANCH], value)


def _with_exact_decimals(schema: Any) -> Any:
    """The schema with our own reader of decimals: fastavro's rounds what has too many digits."""
    if isinstance(schema, list):
        return [_with_exact_decimals(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _with_exact_decimals(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if not key.startswith("__")
    }
    if found.get("logicalType") == "decimal":
        found["logicalType"] = _EXACT_DECIMAL
    return found


def exact_decimal(value: bytes, schema: Any) -> Decimal:
    """The decimal that bytes are. Raises UnfitError: it has more digits than the schema allows."""
    found = decimal_of(value, schema.get("scale", 0))
    if len(found.as_tuple().digits) > schema["precision"]:
        raise UnfitError(f"a decimal has more than {schema['precision']} digits")
    return found


def decimal_of(value: bytes, scale: int) -> Decimal:
    """The decimal that bytes are, however many digits it has."""
    return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, EXACTLY)


def _unread(schema: Any) -> Any:
    """A type that takes the same bytes as text."""
    if isinstance(schema, list) and set(schema) == {NULL, "string"}:
        return ["bytes" if one == "string" else one for one in schema]
    return "bytes" if schema == "string" else schema


def _kind(schema: Any) -> str:
    """The type of a part that is no union."""
    found = schema["type"] if isinstance(schema, dict) else schema
    return _kind(found) if isinstance(found, dict) else str(found)


def _branch_name(schema: Any) -> str:
    """``name_of`` of a part as it stands in a schema."""
    if not isinstance(schema, dict):
        return "union" if isinstance(schema, list) else str(schema)
    kind = schema["type"]
    return _branch_name(kind) if isinstance(kind, list | dict) else name_of(schema)


def name_of(node: Any) -> str:
    """The name of a union's branch."""
    return str(node["name"] if node["type"] in NAMED else node["type"])


def logical_of(node: Any) -> str:
    """The logical type of a part that is no union; "" if it has none that means anything."""
    said = node.get("logicalType", "")
    if said != "decimal":
        return said if _BASES.get(said) == node["type"] else ""
    precision, scale = node.get("precision"), node.get("scale", 0)
    fits = node["type"] in ("bytes", "fixed") and type(precision) is int and type(scale) is int
    return said if fits and 0 <= scale <= precision and precision > 0 else ""


def brief(error: BaseException) -> str:
    """What an error says, in a line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UnfitError) else clipped(f"{type(error).__name__}: {text}")


def fails(reason: str) -> Convert:
    """What refuses every value."""

    def refuse(_value: Any) -> Any:
        raise UnfitError(reason)

    return refuse


def shown(node: Any) -> str:
    """A type as errors name it."""
    if isinstance(node, list):
        return "union"
    if (logical := logical_of(node)) == "decimal":
        return f"decimal({node['precision']},{node.get('scale', 0)})"
    return logical or (f"{node['type']} {node['name']}" if "name" in node else str(node["type"]))


def the_only_named(branches: Mapping[str, Any]) -> str:
    """The named type of a union that has one: of its values fastavro makes no pairs. "" if there are more."""
    named = [name for name, node in branches.items() if node["type"] in NAMED]
    return named[0] if len(named) == 1 else ""


def members_of(branches: Mapping[str, Any]) -> list[str]:
    """The fields of the struct that Spark makes of a union of these branches."""
    return [f"member{number}" for number in range(len(branches))]


def text_of_bytes(value: bytes) -> str:
    """Bytes as text. Raises UnfitError: they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnfitError("bytes are not UTF-8") from None


def default_of(schema: AvroSchema, part: Any, said: Any, *, pairs: bool = False) -> Any:
    """The plain value that a default in JSON means. Raises UnfitError: it means none of the part.

    Args:
        pairs: of every union, as ``AvroSchema.write`` takes them.
    """
    node = schema.node(part)
    if isinstance(node, list):
        several = pairs or len(schema.branches(node)) > 1
        for one in map(schema.node, node):
            try:
                value = default_of(schema, one, said, pairs=pairs)
            except UnfitError:
                continue
            return (name_of(one), value) if pairs or (several and value is not None) else value
        raise UnfitError(f"{short(said)} is of no type of the union")
    kind = node["type"]
    found = _simple_default(node, said)
    if found is not _NOT_SIMPLE:
        return found
    if kind == "array" and isinstance(said, list):
        return [default_of(schema, node["items"], one, pairs=pairs) for one in said]
    if kind == "map" and isinstance(said, dict):
        values = node["values"]
        return {key: default_of(schema, values, one, pairs=pairs) for key, one in said.items()}
    if kind in ("record", "error") and isinstance(said, dict):
        made = {}
        for one in node["fields"]:
            if one["name"] not in said and "default" not in one:
                raise UnfitError(f"it has no field {one['name']!r}")
            inner = said.get(one["name"], one.get("default"))
            made[one["name"]] = default_of(schema, one["type"], inner, pairs=pairs)
        return made
    raise UnfitError(f"{short(said)} is no {shown(node)}")


_NOT_SIMPLE: Final = object()


def _simple_default(node: Any, said: Any) -> Any:
    kind = node["type"]
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    if kind in ("int", "long") and is_number and said == int(said):
        return (int_of if kind == "int" else long_of)(int(said))
    if kind in ("float", "double") and (is_number or said in ("NaN", "Infinity", "-Infinity")):
        return float(said)
    if kind in ("bytes", "fixed") and isinstance(said, str):
        try:
            found = said.encode("latin-1")
        except UnicodeEncodeError:
            raise UnfitError(f"{short(said)} has characters above U+00FF") from None
        if kind == "bytes" or len(found) == node["size"]:
            return found
    simple = (
        (kind == "string" and isinstance(said, str))
        or (kind == "enum" and said in node["symbols"])
        or (kind == "boolean" and isinstance(said, bool))
        or (kind == NULL and said is None)
    )
    return said if simple else _NOT_SIMPLE


def unfit(value: Any, kind: str) -> UnfitError:
    return UnfitError(f"{short(value)} is no {kind}")


def short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits
        return f"a value of {type(value).__name__}"
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[:_VALUE_CHARACTERS_MAX] + "…"


def _whole(value: Any, kind: str) -> int:
    """A number that is not a plain ``int``. Raises UnfitError."""
    is_small = isinstance(value, Decimal) and value.is_finite() and -_WHOLE_MAX < value < _WHOLE_MAX
    if is_small and (number := int(value)) == value:
        return number
    if not isinstance(value, int) or isinstance(value, bool):
        raise unfit(value, kind)
    return int(value)


def int_of(value: Any) -> int:
    number = value if type(value) is int else _whole(value, "int")
    if -0x8000_0000 <= number <= 0x7FFF_FFFF:
        return number
    raise unfit(value, "int")


def long_of(value: Any) -> int:
    number = value if type(value) is int else _whole(value, "long")
    if -0x8000_0000_0000_0000 <= number <= 0x7FFF_FFFF_FFFF_FFFF:
        return number
    raise unfit(value, "long")


def double(value: Any) -> float:
    """A number that 64 bits hold exactly. Raises UnfitError."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise unfit(value, "double")
    try:
        number = float(value)
    except (OverflowError, ValueError):
        raise unfit(value, "double") from None
    # A NaN of a Decimal equals nothing, and has no business here.
    if number == value:
        return number
    raise UnfitError(f"{short(value)} would be rounded to the double {number!r}")


def single(value: Any) -> float:
    """A number that 32 bits hold exactly. Raises UnfitError."""
    number = double(value)
    try:
        (found,) = _SINGLE.unpack(_SINGLE.pack(number))
    except OverflowError:
        raise UnfitError(f"{short(value)} is no float: it is too large for 32 bits") from None
    if found == number or math.isnan(number):
        return number
    raise UnfitError(f"{short(value)} would be rounded to the float {found!r} of 32 bits")


_SINGLE: Final = struct.Struct("<f")
