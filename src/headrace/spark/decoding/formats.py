"""The formats by name, and what their readers must know of the schemas of writers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ...api import base
from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse, StoredMessageDocument
from ...documents import read_json
from ...errors import ConfigurationError, JetStreamApiError
from ...schemas.errors import NoSchemaError
from ...schemas.framing import id_of_header, split_confluent
from ...schemas.limits import SCHEMAS_KEPT_MAX, clipped
from ...schemas.registry import Kind, SchemaRegistry
from ..frames import is_deletion
from ..links.control import StreamMissingError
from ..links.link import Link
from ..links.outages import ServerPatience
from ..reading.snapshot import SnapshotPlan, read_snapshot
from . import avros, protobufs
from .decoded import Decoded, Format
from .misfits import Misfit, misfit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..columns import Wanted
    from ..options import SourceOptions


_MESSAGE_NOT_FOUND: Final = Errors.NO_MESSAGE_FOUND.err_code
_STREAM_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code


class SchemaBucket:
    """The schemas in a key-value bucket, each under its id; one that was read is kept.

    Args:
        bucket, prefix: where they are.
        connect: opens (or lends) a link; it is used for nothing else meanwhile.
        patience: how long to wait for a server that is away.
    """

    def __init__(
        self, bucket: str, prefix: str, connect: Callable[[], Link], patience: ServerPatience
    ) -> None:
        self._stream = f"KV_{bucket}"
        self._bucket = bucket
        self._subject = f"$KV.{bucket}.{prefix}." if prefix else f"$KV.{bucket}."
        self._connect = connect
        self._patience = patience
        self._link: Link | None = None
        self._known: dict[str, bytes] = {}

    def get(self, schema_id: str) -> bytes:
        """The schema of this id. Raises NoSchemaError."""
        found = self._known.get(schema_id)
        if found is None:
            found = self._known[schema_id] = self._fetch(schema_id)
            if len(self._known) > SCHEMAS_KEPT_MAX:
                del self._known[next(iter(self._known))]
        return found

    def newest(self) -> bytes:
        """The schema that was stored last. Raises ConfigurationError if there is none."""
        plan = SnapshotPlan(self._stream, f"{self._subject}>", 1000, 5.0, 5.0)
        newest = b""
        try:
            for chunk in read_snapshot(self._connect, plan, self._patience):
                newest = chunk.payloads[-1]  # in the order of the stream
        except StreamMissingError:
            raise self._missing() from None
        if not newest:
            raise ConfigurationError(
                f"jetstream source: bucket {self._bucket!r} has no schema under {self._subject[4:]}*"
            )
        return newest

    def _fetch(self, schema_id: str) -> bytes:
        request = base.encode(GetMessageRequest(last_by_subj=self._subject + schema_id))
        try:
            message = self._patience.persist(lambda: self._ask(request), self._let_go)
        except JetStreamApiError as error:
            if error.err_code == _MESSAGE_NOT_FOUND:
                raise self._unknown(schema_id) from None
            if error.err_code == _STREAM_NOT_FOUND:
                raise self._missing() from None
            raise
        self._patience.restart()
        if is_deletion(base64.b64decode(message.hdrs)):
            raise self._unknown(schema_id)
        return base64.b64decode(message.data)

    def _ask(self, request: bytes) -> StoredMessageDocument:
        if self._link is None or self._link.closed:
            self._link = self._connect()
        subject = self._link.api("STREAM", "MSG", "GET", self._stream)
        answer = self._link.request(subject, request)
        return decode_response(answer.payload, GetMessageResponse).message

    def _let_go(self) -> None:
        if self._link is not None:
            self._link.close()

    def _unknown(self, schema_id: str) -> NoSchemaError:
        return NoSchemaError(f"no schema {clipped(schema_id)!r} in bucket {self._bucket!r}")

    def _missing(self) -> ConfigurationError:
        return ConfigurationError(
            f"jetstream source: there is no bucket {self._bucket!r} for 'schemaBucket'"
        )


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
