"""The source's own columns and their types, and what a user's schema may want of them. Pure.

Spark checks the first batch of a task exactly against the schema (order, nullability, time zone), so both
sides use the types defined here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "subject": "string",
    "data": "binary",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "stream": "string",
    "partition": "int",
}
HEADERS_COLUMN: Final = {"headers": "map<string,array<string>>"}
KEY_COLUMN: Final = {"key": "string"}  # of a key-value bucket


def own_columns(*, include_headers: bool, bucket: str = "") -> dict[str, str]:
    """The source's own columns, and their types as Spark writes them."""
    columns = (KEY_COLUMN if bucket else {}) | COLUMNS
    return columns | HEADERS_COLUMN if include_headers else columns


class Wanted(NamedTuple):
    """A column of a user's schema: its name in the user's case, its type, and whether it may be null.

    ``source`` is the source's own column that it shows, by default that of its name; "" for one of the
    decoded value, which then has an Arrow ``type``.
    """

    name: str
    kind: str
    nullable: bool = True
    source: str | None = None
    type: pa.DataType | None = None

    @property
    def column(self) -> str:
        """The source's own column that it shows; "" for one of the decoded value."""
        return self.name.lower() if self.source is None else self.source


def check_columns(
    wanted: Sequence[Wanted], *, include_headers: bool, bucket: str = ""
) -> tuple[Wanted, ...]:
    """The columns that a user's schema requests, in its order. Names are case-insensitive, as in Spark.

    Raises:
        ConfigurationError: a column is unknown, has another type, or may be null though the schema says no.
    """
    known = own_columns(include_headers=include_headers, bucket=bucket)
    for one in wanted:
        given, kind, nullable, name = one.name, one.kind, one.nullable, one.column
        if not name:
            continue
        if name not in known:
            hint = "; set includeHeaders=true for it" if name in HEADERS_COLUMN else ""
            hint = "; it is there with the option bucket" if name in KEY_COLUMN else hint
            raise ConfigurationError(
                f"jetstream source: no column {given!r}{hint}; there are: "
                + ", ".join(f"{n} {k}" for n, k in known.items())
            )
        if kind != known[name]:
            raise ConfigurationError(
                f"jetstream source: column {given!r} has type {known[name]}, not {kind}; cast it in the query"
            )
        if name == "partition" and not nullable:
            raise ConfigurationError(
                "jetstream source: column 'partition' is null for messages that have none; leave out NOT NULL"
            )
    return tuple(wanted)
