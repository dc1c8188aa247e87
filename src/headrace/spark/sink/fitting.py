"""Which types of columns can be written in a format so that what is read back is equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layout import Layout
from .options import ACCEPTED

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


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
