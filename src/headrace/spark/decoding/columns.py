"""What the columns of a query are: the source's own, those of the decoded value, and the rescued one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import ConfigurationError
from ..columns import COLUMNS, HEADERS_COLUMN, KEY_COLUMN, Wanted, check_columns, own_columns
from ..links.link import Link
from .decoded import VALUE_COLUMN
from .decoder import Decoder
from .misfits import RESCUED_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from ..options import SourceOptions
    from .formats import Schemas

_NOT_DECODED: Final = (
    "jetstream source: column {name!r} has type {kind}, which no value is decoded to"
)


class Layout(NamedTuple):
    """The columns of a query in order, and what its readers must know of schemas. Picklable."""

    columns: tuple[str | Wanted, ...]
    schemas: Schemas | None = None

    def decoder(self, options: SourceOptions, connect: Callable[[], Link]) -> Decoder | None:
        """What decodes the value for one task; None if no column is of the value.

        Args:
            connect: opens (or lends) a link for schemas; it is used for nothing else meanwhile.
        """
        decoding = options.decoding
        value = [one for one in self.columns if isinstance(one, Wanted) and not one.column]
        if decoding.value_format == "raw" or not (value or decoding.mode != "permissive"):
            return None
        from .formats import Schemas, format_of  # raw messages do without its libraries

        rescued = "".join(one.name for one in value if one.name.lower() == RESCUED_COLUMN)
        fields = [one for one in value if one.name != rescued]
        form = format_of(options, fields, self.schemas or Schemas(), connect)
        names = [one.name for one in fields]
        return Decoder(form, names, decoding.mode, rescued, options.stream)


def source_schema(options: SourceOptions) -> str | StructType:
    """The schema where the user's query names none: the source's own columns, then those of the value.

    Raises:
        ConfigurationError: nothing says what columns the value has.
    """
    decoding = options.decoding
    known = own_columns(include_headers=options.include_headers, bucket=options.bucket)
    own = {decoding.metadata_prefix + n: k for n, k in known.items()}
    if decoding.value_format == "raw":
        return _ddl(own)
    del own[decoding.metadata_prefix + "data"]
    if decoding.value_format == "string":
        return _ddl(own | {VALUE_COLUMN: "string", RESCUED_COLUMN: "string"})
    from .formats import default_value_schema

    value = default_value_schema(options)
    if isinstance(value, str):
        return f"{_ddl(own)}, {value}, {RESCUED_COLUMN} string"
    return _struct(own, value)


def _ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _struct(own: dict[str, str], value: StructType) -> StructType:
    from pyspark.sql import types as t

    kinds: dict[str, DataType] = {
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "bigint": t.LongType(),
        "timestamp": t.TimestampType(),
        "int": t.IntegerType(),
        HEADERS_COLUMN["headers"]: t.MapType(t.StringType(), t.ArrayType(t.StringType())),
    }
    fields = [t.StructField(name, kinds[kind]) for name, kind in own.items()]
    return t.StructType([*fields, *value.fields, t.StructField(RESCUED_COLUMN, t.StringType())])


def layout_of(options: SourceOptions, schema: StructType) -> Layout:
    """The columns that a schema requests: the source's own by their names, all others of the value.

    Raises:
        ConfigurationError: a column is unknown, or has a type that it cannot have.
    """
    prefix = options.decoding.metadata_prefix.lower()
    known = COLUMNS | HEADERS_COLUMN | (KEY_COLUMN if options.bucket else {})
    decoded = options.decoding.value_format != "raw"
    wanted: list[Wanted] = []
    seen: set[str] = set()
    for field in schema.fields:
        lowered = field.name.lower()
        if lowered in seen:
            raise ConfigurationError(
                f"jetstream source: column {field.name!r} is there twice; if the value has a field of this "
                "name, set metadataPrefix"
            )
        seen.add(lowered)
        kind = field.dataType.simpleString()
        own = lowered.removeprefix(prefix) if lowered.startswith(prefix) else ""
        if own in known or not decoded:
            source = own if prefix else None
            wanted.append(Wanted(field.name, kind, field.nullable, source))
        else:
            wanted.append(_of_value(field.name, field.dataType, field.nullable, options))
    checked = check_columns(wanted, include_headers=options.include_headers, bucket=options.bucket)
    if not decoded:
        return Layout(checked)
    from .formats import Schemas, names_of

    schemas = Schemas.of(options)
    _check_there(checked, names_of(options, schemas))
    return Layout(checked, schemas)


def _check_there(columns: Sequence[Wanted], there: list[str] | None) -> None:
    for one in columns:
        own = one.column or one.name.lower() == RESCUED_COLUMN
        if there is not None and not own and one.name not in there:
            raise ConfigurationError(
                f"jetstream source: the value has no field {one.name!r}; there are: {', '.join(there)}"
            )


def _of_value(name: str, kind: DataType, nullable: bool, options: SourceOptions) -> Wanted:
    shown = kind.simpleString()
    if not nullable or _forbids_null(kind):
        raise ConfigurationError(
            f"jetstream source: column {name!r} is of the value, where anything may be missing; leave out "
            "NOT NULL"
        )
    text_only = options.decoding.value_format == "string"
    if text_only and name.lower() not in (VALUE_COLUMN, RESCUED_COLUMN):
        raise ConfigurationError(
            f"jetstream source: no column {name!r}; with valueFormat=string the value is in the column "
            f"{VALUE_COLUMN!r}"
        )
    if (text_only or name.lower() == RESCUED_COLUMN) and shown != "string":
        raise ConfigurationError(
            f"jetstream source: column {name!r} has type string, not {shown}; cast it in the query"
        )
    return Wanted(name, shown, True, "", _arrow_type(name, kind))


def _forbids_null(kind: DataType) -> bool:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return any(not field.nullable or _forbids_null(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return not kind.containsNull or _forbids_null(kind.elementType)
    if isinstance(kind, t.MapType):
        return not kind.valueContainsNull or _forbids_null(kind.valueType)
    return False


def _arrow_type(name: str, kind: DataType) -> pa.DataType:
    """The type that Spark expects of a column; the same function makes it there."""
    from pyspark.errors import PySparkException

    from .values import fit_for

    try:
        found = _to_arrow(kind)
        _check_plain(found)
        fit_for(found)
    except (PySparkException, TypeError):
        raise ConfigurationError(_NOT_DECODED.format(name=name, kind=kind.simpleString())) from None
    return found


def _to_arrow(kind: DataType) -> Any:
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_type
    try:
        return convert(kind, timezone="UTC")
    except TypeError:
        return convert(kind)  # before Spark 4.3 there was no such argument, and the zone was UTC


def _check_plain(kind: pa.DataType) -> None:
    """Refuse (TypeError) what only looks like a struct to Arrow, such as a variant."""
    for field in (kind.field(i) for i in range(kind.num_fields)):
        if {b"variant", b"geometry", b"geography"} & set(field.metadata or ()):
            raise TypeError
        _check_plain(field.type)
