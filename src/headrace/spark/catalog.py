"""Tables of Spark's catalog: ``CREATE TABLE … USING jetstream OPTIONS (…)``.

Spark hands the options of a table to a Python source once, when it asks for the columns of a table that was
declared without any, and never again. So they are kept in the comment of the first column, which Spark keeps
with the table and shows to the reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..documents import read_json
from .options.source import ACCEPTED

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PROVIDER: Final = "provider"  # what only a table has among its options
_OPTION: Final = "option."  # begins the names of those that a user gave
_KEPT: Final = "options of the table: "
_SECRETS: Final = frozenset(
    {
        "password",
        "token",
        "jwt",
        "nkeyseed",
        "nkeysecret",
        "schemaregistrypassword",
        "schemaregistrysecret",
    }
)


def table_options(raw: Mapping[str, str]) -> dict[str, str] | None:
    """The options that were given for a table; None if no table is declared.

    Raises:
        ConfigurationError: a secret is among them, which the catalog would show to everybody.
    """
    if _PROVIDER not in raw or not any(name.startswith(_OPTION) for name in raw):
        return None
    found = {
        name.removeprefix(_OPTION): value for name, value in raw.items() if name.startswith(_OPTION)
    }
    if "path" in raw:
        found["path"] = raw["path"]
    for name, value in found.items():
        if name.lower() in _SECRETS or ("@" in value and "://" in value):
            raise ACCEPTED.error(
                f"a table keeps its options in the catalog, for everybody to read, and {name!r} is a secret; "
                "log in with the file of 'creds', or use CREATE TEMPORARY VIEW … USING jetstream OPTIONS (…)"
            )
    return found


def keep(schema: str | StructType, options: Mapping[str, str]) -> str | StructType:
    """The columns of a table; the first one, which is the source's own, keeps the options."""
    comment = _KEPT + json.dumps(dict(options))
    if isinstance(schema, str):
        quoted = comment.replace("\\", "\\\\").replace("'", "\\'")
        first, comma, others = schema.partition(",")
        return f"{first} COMMENT '{quoted}'{comma}{others}"
    from pyspark.sql.types import StructField, StructType

    own, *others_ = schema.fields
    kept = StructField(own.name, own.dataType, own.nullable, {"comment": comment})
    return StructType([kept, *others_])


def with_kept(raw: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a read: those that a table keeps, and over them those of the query.

    Raises:
        ConfigurationError: there are none at all, as of a table that was declared with columns; or they
            are damaged.
    """
    for field in schema.fields:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(_KEPT):
            return {**_read_kept(comment.removeprefix(_KEPT), field.name), **raw}
    if not raw:
        raise ACCEPTED.error(
            "Spark hands on no options of this table. Leave out the columns in CREATE TABLE (valueSchema "
            "names those of a value), use CREATE TEMPORARY VIEW … USING jetstream OPTIONS (…), or name the "
            "options in the query: SELECT … FROM t WITH (stream 'NAME')"
        )
    return dict(raw)


def _read_kept(text: str, column: str) -> dict[str, str]:
    """The options in a comment. Raises ConfigurationError: it was changed and has none any more."""
    try:
        kept = read_json(text)
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not all(isinstance(each, str) for each in kept.values()):
        raise ACCEPTED.error(
            f"the options of this table are kept in the comment of its column {column!r}, which is damaged; "
            "drop the table and create it again (its messages stay in the stream)"
        )
    return kept
