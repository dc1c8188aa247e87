"""The formats by name, and what their readers must know of schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...documents import read_json
from ...errors import ConfigurationError
from ...schemas.errors import NoSchemaError
from ...schemas.framing import id_of_header, split_confluent
from ...schemas.registry import Kind, SchemaRegistry
from ..links.link import Link
from ..links.outages import ServerPatience
from . import avros, protobufs
from .decoded import Decoded, Format, Misfit
from .rows import misfit
from .schemas import SchemaBucket

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..columns import Wanted
    from ..options import SourceOptions

PLANNING_S = 5.0  # a query that cannot read its schemas does not start


class Schemas(NamedTuple):
    """What was found out about schemas when a query was planned; its tasks use the same.

    ``reader`` is the Avro schema to read with, or the protobuf descriptor set.
    """

    reader: bytes = b""

    @classmethod
    def of(cls, options: SourceOptions) -> Schemas:
        """Read them: from the options, a file, or the newest of a bucket or a registry.

        Raises:
            ConfigurationError: there is none.
        """
        decoding = options.decoding
        if decoding.value_format == "avro":
            return cls(decoding.avro_schema.encode() or _newest(options))
        if decoding.value_format == "protobuf":
            if not decoding.descriptor_file:
                return cls(_newest(options))
            try:
                return cls(Path(decoding.descriptor_file).read_bytes())
            except OSError as error:
                raise ConfigurationError(
                    f"jetstream source: 'descFilePath' {decoding.descriptor_file!r}: {error.strerror}"
                ) from None
        return cls()


def _newest(options: SourceOptions) -> bytes:
    if options.decoding.registry.url:
        return _registry(options, PLANNING_S).newest().text
    links: list[Link] = []

    def connect() -> Link:
        links.append(Link.open(options.connection))
        return links[-1]

    try:
        return _bucket(options, connect, PLANNING_S).newest()
    finally:
        for link in links:
            link.close()


def _bucket(options: SourceOptions, connect: Callable[[], Link], timeout_s: float) -> SchemaBucket:
    decoding = options.decoding
    what = f"the schemas in bucket {decoding.schema_bucket!r}"
    patience = ServerPatience(timeout_s, what)
    return SchemaBucket(decoding.schema_bucket, decoding.schema_prefix, connect, patience)


def _registry(options: SourceOptions, timeout_s: float) -> SchemaRegistry:
    decoding = options.decoding
    patience = ServerPatience(timeout_s, f"the registry {decoding.registry.url}")
    kind: Kind = "AVRO" if decoding.value_format == "avro" else "PROTOBUF"
    return SchemaRegistry(decoding.registry, kind, patience)


def default_value_schema(options: SourceOptions) -> str | StructType:
    """The value's columns, where ``.schema(...)`` does not tell them: a struct, or DDL that Spark reads.

    Raises:
        ConfigurationError: nothing tells them.
    """
    decoding = options.decoding
    if decoding.value_format in ("avro", "protobuf"):
        return own_schema(options, Schemas.of(options))
    text = decoding.value_schema
    if not text and decoding.schema_bucket:
        text = _newest(options).decode(errors="replace").strip()
    if not text:
        raise ConfigurationError(
            f"jetstream source: valueFormat={decoding.value_format} needs to know the columns: give "
            '.schema("id bigint, subject string, ...") with all that you want, or .option("valueSchema", '
            '"id bigint, ...") with those of the value'
        )
    if not text.startswith("{"):
        return text
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(read_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"jetstream source: 'valueSchema' is no schema as JSON: {error!r}"
        ) from None


def own_schema(options: SourceOptions, schemas: Schemas) -> StructType:
    """The columns of a format that knows them. Raises ConfigurationError."""
    if options.decoding.value_format == "avro":
        return avros.spark_schema(schemas.reader)
    return protobufs.spark_schema(schemas.reader, options.decoding.message_name)


def names_of(options: SourceOptions, schemas: Schemas) -> list[str] | None:
    """The fields of a value, where the format knows them; None where anything may be in it."""
    if options.decoding.value_format == "avro":
        return [field["name"] for field in avros.parse(schemas.reader).root["fields"]]
    if options.decoding.value_format == "protobuf":
        name = options.decoding.message_name
        return [field.name for field in protobufs.descriptor(schemas.reader, name).fields]
    return None


def format_of(
    options: SourceOptions,
    fields: Sequence[Wanted],
    schemas: Schemas,
    connect: Callable[[], Link],
) -> Format:
    """What decodes the payloads into these columns."""
    import pyarrow as pa

    decoding = options.decoding
    name = decoding.value_format
    schema: pa.Schema = pa.schema([pa.field(one.name, one.type) for one in fields])
    confluent = decoding.schema_id_from == "confluent"
    if name == "string":
        from .decoded import TextFormat

        return TextFormat(wanted=bool(fields))
    if name == "arrow":
        from .arrows import ArrowFormat

        return ArrowFormat(schema)
    if name == "json":
        from .jsons import JsonFormat

        return _Prefixed(JsonFormat(schema)) if confluent else JsonFormat(schema)
    writers: SchemaBucket | SchemaRegistry | None = None
    if decoding.schema_bucket:
        writers = _bucket(options, connect, options.reconnect_timeout_s)
    elif decoding.registry.url:
        writers = _registry(options, options.reconnect_timeout_s)
    if name == "protobuf":
        take = protobufs.Typed(
            schemas.reader, decoding.message_name, None if writers is None else writers.get
        ).take

        def message(payload: bytes, block: bytes) -> bytes:
            return take(*split_confluent(payload)) if confluent else payload

        return protobufs.protobuf_format(schema, schemas.reader, decoding.message_name, message)

    def record(payload: bytes, block: bytes) -> tuple[bytes | None, bytes]:
        if confluent:
            schema_id, payload = split_confluent(payload)
        elif writers is not None:
            schema_id = id_of_header(block)
        return (None if writers is None else writers.get(schema_id)), payload

    return avros.avro_format(schema, schemas.reader, record)


class _Prefixed:
    """A format after Confluent's schema id."""

    def __init__(self, form: Format) -> None:
        self._form = form

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        bodies: list[bytes] = []
        missing: dict[int, Misfit] = {}
        for number, payload in enumerate(payloads):
            try:
                bodies.append(split_confluent(payload)[1])
            except NoSchemaError as error:
                bodies.append(b"")
                missing[number] = misfit(payload, str(error))
        found = self._form.decode(bodies, headers)
        return found._replace(misfits={**found.misfits, **missing})
