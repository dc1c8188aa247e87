"""Where a message says which schema it was written with. Pure."""

from __future__ import annotations

import re
from typing import Final

from ..wire import parse_headers
from .errors import NoSchemaError
from .limits import clipped

HEADER: Final = "schema-id"
ID_MAX: Final = (1 << 32) - 1
ID_CHARS_MAX: Final = 256
_CONFLUENT_BYTES: Final = 5
_ID: Final = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


def id_of_header(block: bytes) -> str:
    """The id in the header ``schema-id``. Raises NoSchemaError."""
    for name, value in parse_headers(block).items() if block else ():
        if name.lower() == HEADER:
            found = value.strip()
            if len(found) > ID_CHARS_MAX or not _ID.fullmatch(found):
                raise NoSchemaError(
                    f"header {HEADER} is {clipped(found)!r}, which is no key of a bucket"
                )
            return found
    raise NoSchemaError(f"no header {HEADER}")


def number_of_header(block: bytes) -> str:
    """The number of a header's id, for a registry whose ids are numbers. Raises NoSchemaError."""
    found = id_of_header(block)
    if not (found.isascii() and found.isdigit() and int(found) <= ID_MAX):
        raise NoSchemaError(
            f"header {HEADER} is {clipped(found)!r}, which is no number of a schema"
        )
    return found


def split_confluent(payload: bytes) -> tuple[str, bytes]:
    """The id before a value, and the value. Raises NoSchemaError."""
    if len(payload) < _CONFLUENT_BYTES or payload[0] != 0:
        raise NoSchemaError("no zero byte and schema id before the value")
    return str(int.from_bytes(payload[1:_CONFLUENT_BYTES], "big")), payload[_CONFLUENT_BYTES:]


def confluent_head(schema_id: int) -> bytes:
    """The five bytes before a value."""
    return b"\0" + schema_id.to_bytes(4, "big")
