"""Which column is what, checked once on the driver and carried to the tasks.

Which types can be written so that what is read back is equal is said here, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ...errors import ConfigurationError
from .options import ACCEPTED, SinkOptions, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


SUBJECT: Final = "subject"
DATA: Final = "data"
HEADERS: Final = "headers"
MESSAGE_ID: Final = "msg_id"
TTL: Final = "ttl"
SEQUENCE: Final = "sequence"

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_IN_ORDER: Final = (*_WHOLE, "timestamp", "timestamp_ntz", "date")
_IN_SUBJECTS: Final = ("string", *_WHOLE, "boolean", "date")
_HEADERS: Final = re.compile(
    r"map<string,(string|array<string>)>|array<struct<key:string,value:(string|binary)>>"
)


class Column(NamedTuple):
    """A column of the rows to write; ``type`` as in SQL."""

    name: str
    type: str


class Layout(NamedTuple):
    """Where in a row is what; −1 for a column that is not there. ``values`` are encoded as one payload."""

    format: ValueFormat
    subject: int
    data: int
    headers: int
    message_id: int
    ttl: int
    values: tuple[int, ...]
    template: tuple[tuple[str, str], ...]
    """Columns of the template: the name in it, and the name that the rows have."""
    order: tuple[int, ...] = ()
    """With a key: the columns that tell which row is the last."""
    checked: tuple[int, ...] = ()
    """With a key: the columns that are all null in a row that deletes it."""
    value_names: tuple[str, ...] = ()
    """What ``values`` are called."""


def columns_of(schema: StructType) -> list[Column]:
    """The columns of Spark's schema."""
    return [Column(field.name, field.dataType.simpleString()) for field in schema.fields]


def lay_out(options: SinkOptions, columns: Iterable[Column]) -> Layout:
    """Find every column that the options need.

    Raises:
        ConfigurationError: one is missing or has a type that cannot be written.
    """
    finder = _Finder(list(columns))
    template = options.subject
    subject = -1 if template is not None else finder.find(SUBJECT, "string")
    if template is None and subject < 0:
        raise ACCEPTED.error(
            "messages need a subject: set the option 'subject', or add a column subject"
        )
    in_template = [
        (name, finder.columns[finder.needed(name, "the subject's template")].name)
        for name in (template.columns if template is not None else ())
    ]
    for _, name in in_template:
        finder.find(name, *_IN_SUBJECTS)
    data = finder.find(DATA, "binary", "string") if options.value_format in ("", "raw") else -1
    if options.value_format == "raw" and data < 0:
        raise ACCEPTED.error("valueFormat=raw needs a column data")
    chosen = options.value_format or ("raw" if data >= 0 else "json")
    headers = finder.find(HEADERS)
    if headers >= 0 and not _HEADERS.fullmatch(finder.columns[headers].type):
        raise ACCEPTED.error(
            f"column headers is {finder.columns[headers].type}; it can be map<string,string>, "
            "map<string,array<string>> or array<struct<key:string,value:binary>>"
        )
    own = {finder.at(name) for name in (SUBJECT, HEADERS, MESSAGE_ID, TTL)}
    values = () if chosen == "raw" else tuple(set(range(len(finder.columns))) - own)
    if chosen != "raw" and not values:
        raise ACCEPTED.error(f"valueFormat={chosen} finds no column to encode")
    order = _order(options, finder)
    named = {finder.at(name) for _, name in in_template} | set(order)
    return Layout(
        chosen,
        subject,
        data if chosen == "raw" else -1,
        headers,
        _message_id(options, finder),
        finder.find(TTL, "string", *_WHOLE),
        tuple(sorted(values)),
        tuple(in_template),
        order,
        tuple(sorted(({data} if chosen == "raw" else set(values)) - named)),
        tuple(finder.columns[at].name for at in sorted(values)),
    )


def _message_id(options: SinkOptions, finder: _Finder) -> int:
    found = finder.find(MESSAGE_ID, "string")
    if found >= 0 and options.key:
        raise ACCEPTED.error(
            "a key's value needs no message id: leave out the column msg_id, or 'key'"
        )
    return found


def _order(options: SinkOptions, finder: _Finder) -> tuple[int, ...]:
    """The columns that tell which row of a key is the last."""
    if not options.key:
        return ()
    for name in options.order:
        finder.needed(name, "the option 'order'")
    if options.order:
        return tuple(finder.find(name, *_IN_ORDER) for name in options.order)
    found = finder.at(SEQUENCE)
    return (found,) if found >= 0 and finder.columns[found].type == "bigint" else ()


class _Finder:
    """Columns by name, in any case, as Spark takes them."""

    def __init__(self, columns: list[Column]) -> None:
        self.columns = columns
        self._at: dict[str, int] = {}
        for index, column in enumerate(columns):
            if column.name.lower() in self._at:
                raise ACCEPTED.error(f"column {column.name!r} is there twice")
            self._at[column.name.lower()] = index

    def at(self, name: str) -> int:
        return self._at.get(name.lower(), -1)

    def find(self, name: str, *types: str) -> int:
        """Its place, or −1. Raises ConfigurationError if it has none of the types."""
        index = self.at(name)
        if index >= 0 and types and (kind := self.columns[index].type) not in types:
            accepted = f"{', '.join(types[:-1])} or {types[-1]}" if len(types) > 1 else types[0]
            raise ACCEPTED.error(f"column {name} is {kind}; it must be {accepted}")
        return index

    def needed(self, name: str, why: str) -> int:
        index = self.at(name)
        if index < 0:
            near = difflib.get_close_matches(name.lower(), self._at, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(
                f"{ACCEPTED.who}: {why} names column {name!r}, which the rows do not have{hint}"
            )
        return index


def check_types(layout: Layout, schema: StructType) -> None:
    """Refuse columns that JSON cannot hold without loss. The other formats have types for themselves.

    Raises:
        ConfigurationError: there is such a column.
    """
    if layout.format != "json":
        return
    for at in layout.values:
        field = schema.fields[at]
        why = _complaint(field.dataType)
        if why:
            raise ACCEPTED.error(
                f"column {field.name!r} is {field.dataType.simpleString()}, and JSON cannot hold {why} so "
                "that it is read back equal; cast it, or set valueFormat=arrow"
            )


def _complaint(kind: DataType) -> str:
    """What of a type JSON cannot hold; "" if there is nothing."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = kind.fieldNames()
        if len(set(names)) < len(names):
            return "two fields of one name"
        return next(filter(None, (_complaint(field.dataType) for field in kind.fields)), "")
    if isinstance(kind, t.ArrayType):
        return _complaint(kind.elementType)
    if isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, t.StringType):
            return f"keys that are {kind.keyType.simpleString()}"
        return _complaint(kind.valueType)
    fitting = (
        t.StringType,
        t.BinaryType,
        t.BooleanType,
        t.IntegralType,
        t.FractionalType,
        t.DateType,
        t.TimestampType,
        t.TimestampNTZType,
        t.NullType,
    )
    return "" if isinstance(kind, fitting) else kind.simpleString()
