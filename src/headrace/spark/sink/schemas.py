"""The schema that values are written with, and how a message says which one it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...schemas.framing import HEADER
from ..links.outages import ServerPatience
from .options import ACCEPTED, SinkOptions, ValueSchema

if TYPE_CHECKING:
    from ...schemas.registry import Kind

_PLANNING_S: Final = 5.0  # a write that cannot read its schema does not begin


def with_schema(options: SinkOptions, *, streaming: bool = False) -> SinkOptions:
    """The options with the schema that they name, read by the driver; in a query once for each batch, whose
    registry is waited for as its server is.

    Raises:
        ConfigurationError: there is none.
        RegistryAwayError: the registry does not answer.
    """
    if options.value_format not in ("avro", "protobuf"):
        return options
    schema_id = options.schema_id
    if options.registry.url:
        from ...schemas.registry import SchemaRegistry  # with HTTP, which other sinks need not load

        kind: Kind = "AVRO" if options.value_format == "avro" else "PROTOBUF"
        seconds = options.reconnect_timeout_s if streaming else _PLANNING_S
        patience = ServerPatience(seconds, f"the registry {options.registry.url}")
        found = SchemaRegistry(options.registry, kind, patience).newest()
        schema_id, text = found
    elif options.value_format == "avro":
        text = options.avro_schema.encode()
    else:
        text = _file(options.descriptor_file)
    header_line = prefix = b""
    if schema_id is not None and options.schema_id_to == "header":
        header_line = f"{HEADER}: {schema_id}\r\n".encode()
    elif schema_id is not None:
        prefix = b"\0" + schema_id.to_bytes(4, "big")
    return replace(
        options, value_schema=ValueSchema(text, options.message_name, header_line, prefix)
    )


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ACCEPTED.error(f"'descFilePath' {path!r}: {error.strerror}") from None
