"""The options of writing with ``format("jetstream")``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from ...schemas.address import Registry
from ...subjects import is_valid_subject
from ..options.connection import CONNECTION_ALIASES, CONNECTION_OPTIONS, Connection, connection_of
from ..options.decoding import REGISTRY_ALIASES, REGISTRY_OPTIONS, registry_of
from ..options.positions import STREAM_PREFIX
from ..options.table import (
    MOVED_OF_SINK,
    Accepted,
    BadRule,
    Option,
    RefusedError,
    at_least,
    bad_rule,
    name,
    one_of,
    seconds,
    subject,
    text,
    texts,
)
from .template import Template, TemplateError

Delivery = Literal["atleastonce", "dedupe", "exactlyonce"]
ValueFormat = Literal["", "raw", "json", "arrow", "avro", "protobuf"]
SchemaIdTo = Literal["header", "confluent"]

ROWS_PER_BATCH_MAX: Final = 999
"""Rows of an atomic batch: servers take 1,000 messages, and one is the marker."""


class ValueSchema(NamedTuple):
    """A schema to write with: Avro's JSON, or a protobuf descriptor set and the ``message`` in it.

    ``header_line`` goes into each message's headers, ``prefix`` before each value; b"" is nothing. After
    the prefix comes Confluent's path to a protobuf message.
    """

    text: bytes
    message: str = ""
    header_line: bytes = b""
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Every option, checked. ``subject`` is None where a column has it; ``batch_id`` None if not given.

    ``value_schema`` is what ``schemas.with_schema`` has found by the others.
    """

    connection: Connection
    stream: str
    subject: Template | None
    value_format: ValueFormat
    avro_schema: str
    delivery: Delivery
    sink_id: str
    batch_id: int | None
    bucket: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    marker_prefix: str
    rows_per_atomic_batch: int
    on_bad_row: BadRule
    max_in_flight: int
    reconnect_timeout_s: float
    registry: Registry
    descriptor_file: str
    message_name: str
    schema_id: int | None
    schema_id_to: SchemaIdTo
    value_schema: ValueSchema | None = None


def _template(value: str) -> Template:
    try:
        template = Template.parse(value)
    except TemplateError as error:
        raise RefusedError(f"a subject such as orders.{{region}}.{{id}}: {error}") from None
    if not is_valid_subject(template.example().encode()):
        raise RefusedError("a subject without wildcards, such as orders.{region}.{id}")
    return template


def _sink_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_=-]{1,64}", value):
        raise RefusedError("1 to 64 letters, digits, '-', '_' and '='")
    return value


def _columns(value: str) -> tuple[str, ...]:
    names = texts(value)
    if not names or len(set(map(str.lower, names))) < len(names):
        raise RefusedError("a column, or several that differ, separated by commas")
    return names


def _schema_id(value: str) -> int:
    number = at_least(0)(value)
    if number >= 1 << 32:
        raise RefusedError("a whole number from 0 to 4294967295")
    return number


def _rows(value: str) -> int:
    number = at_least(1)(value)
    if number > ROWS_PER_BATCH_MAX:
        raise RefusedError(f"a whole number from 1 to {ROWS_PER_BATCH_MAX}")
    return number


# fmt: off
SINK_OPTIONS: Final[tuple[Option, ...]] = (
    Option("stream", "", "The stream to write to. Required.", name),
    Option("subject", "",
        "The subject of every message, or a template with columns in it: orders.{region}.{id}. Default: the "
        "column subject.", _template),
    Option("bucket", "",
        "The key-value bucket to write to, instead of a stream and a subject; needs 'key'.", name),
    Option("key", "",
        "Store the latest value of each key alone: the column, or columns, of which the bucket's keys or the "
        "subjects are made.", _columns),
    Option("order", "",
        "With 'key': the columns that tell which row is the last, across batches, too. Default: the later "
        "batch, and in it a column sequence, or the order of tasks and of their rows.", _columns),
    Option("valueFormat", "",
        "The payload: raw takes the column data; json, arrow (an IPC stream of one row), avro and protobuf "
        "encode all columns but subject, headers, msg_id and ttl. Default: raw with a column data, otherwise "
        "json.", one_of("raw", "json", "arrow", "avro", "protobuf")),
    Option("avroSchema", "", "The schema to read (to write) Avro with, as JSON.", text),
    Option("descFilePath", "",
        "A protobuf descriptor set, as protoc --include_imports --descriptor_set_out writes it.", text),
    Option("messageName", "", "The full name of the protobuf message.", text),
    Option("schemaId", "",
        "The id of the schema, a number that each message tells its readers; a registry knows its own.",
        _schema_id),
    Option("schemaIdTo", "",
        "Where a message has its schema's id, as with schemaIdFrom.", one_of("header", "confluent")),
    *REGISTRY_OPTIONS,
    Option("delivery", "atLeastOnce",
        "atLeastOnce, dedupe (within the stream's duplicate window) or exactlyOnce.",
        one_of("atleastonce", "dedupe", "exactlyonce")),
    Option("sinkId", "",
        "The name of this sink, under which exactlyOnce keeps its markers and dedupe makes message ids. It "
        "outlives checkpoints. Required for exactlyOnce.", _sink_id),
    Option("batchId", "",
        "Of df.write: the number of the batch, in foreachBatch the one it is called with. Required for "
        "exactlyOnce; a streaming query has its own.", at_least(0)),
    Option("markerPrefix", "",
        "Where exactlyOnce keeps its markers; the stream must have <markerPrefix>.> among its subjects. "
        "Default: _sink.<stream>.", subject),
    Option("rowsPerAtomicBatch", str(ROWS_PER_BATCH_MAX),
        f"Rows that exactlyOnce stores together, at most {ROWS_PER_BATCH_MAX}.", _rows),
    Option("onBadRow", "fail",
        "What to do with a row that makes no message: fail, skip, or deadletter:<subject>.", bad_rule),
    Option("maxInFlight", "8000",
        "At most so many messages of a task wait for their acks together; fewer where acks are slow.",
        at_least(1)),
    Option("reconnectTimeout", "2m",
        "How long tasks wait for a server that is away.", seconds),
)
# fmt: on

ACCEPTED: Final = Accepted(
    "jetstream sink",
    (SINK_OPTIONS, CONNECTION_OPTIONS),
    {**CONNECTION_ALIASES, **REGISTRY_ALIASES, "path": "stream"},
    moved=MOVED_OF_SINK,
)
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark passes on of its own."""


def parse_sink_options(raw: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check and parse the options of a user; ``path`` (set by ``save("X")``) means stream.

    Raises:
        ConfigurationError: an option is unknown, wrong or missing, or two contradict each other.
    """
    values = ACCEPTED.collect({k: v for k, v in raw.items() if k.lower() not in _SPARKS_OWN})
    _check_key(values)
    if not values["stream"]:
        raise ACCEPTED.error('option \'stream\' is missing; add .option("stream", "NAME")')
    _check_together(values, streaming)
    return SinkOptions(
        connection=connection_of(values, ACCEPTED),
        stream=values["stream"],
        subject=values["subject"] or None,
        value_format=values["valueFormat"],
        avro_schema=values["avroSchema"],
        delivery=values["delivery"],
        sink_id=values["sinkId"],
        batch_id=None if values["batchId"] == "" else values["batchId"],
        bucket=values["bucket"],
        key=values["key"] or (),
        order=values["order"] or (),
        marker_prefix=values["markerPrefix"] or f"_sink.{values['stream']}",
        rows_per_atomic_batch=values["rowsPerAtomicBatch"],
        on_bad_row=values["onBadRow"],
        max_in_flight=values["maxInFlight"],
        reconnect_timeout_s=values["reconnectTimeout"],
        registry=registry_of(values, ACCEPTED),
        descriptor_file=values["descFilePath"],
        message_name=values["messageName"],
        schema_id=None if values["schemaId"] == "" else values["schemaId"],
        schema_id_to=values["schemaIdTo"]
        or ("confluent" if values["schemaRegistry"] else "header"),
    )


def _check_key(values: dict[str, Any]) -> None:
    """Check what belongs to keys; a bucket names its stream and its subjects."""
    bucket, key, template = values["bucket"], values["key"], values["subject"]
    if bucket and not key:
        raise ACCEPTED.error(
            "a bucket keeps the latest value of each key: name the columns of the key with the option 'key'"
        )
    if bucket and (values["stream"] or template):
        raise ACCEPTED.error("give either 'bucket' or 'stream' and 'subject'")
    if values["order"] and not key:
        raise ACCEPTED.error(
            "'order' tells which row of a key is the last: it needs the option 'key'"
        )
    if not key:
        return
    if values["delivery"] == "dedupe":
        raise ACCEPTED.error(
            "with 'key' nothing is stored twice in turn: leave out delivery=dedupe"
        )
    if bucket:
        values["stream"] = STREAM_PREFIX + bucket
        values["subject"] = Template.of_bucket(bucket, key)
    elif template and set(map(str.lower, template.columns)) != set(map(str.lower, key)):
        raise ACCEPTED.error(
            "the latest value is that of a subject, so 'key' names the columns of the subject: it has "
            + (", ".join(template.columns) or "none")
        )
    elif not template and tuple(map(str.lower, key)) != ("subject",):
        raise ACCEPTED.error(
            "the latest value is that of a subject: give 'subject' with the key's columns in it, or "
            "key=subject"
        )


def _check_together(values: Mapping[str, Any], streaming: bool) -> None:
    has_number = values["batchId"] != ""
    if streaming and has_number:
        raise ACCEPTED.error(
            "'batchId' is for df.write; a streaming query numbers its batches itself"
        )
    if values["delivery"] == "exactlyonce":
        if not values["sinkId"]:
            raise ACCEPTED.error(
                "delivery=exactlyOnce needs the option 'sinkId', a name for this sink that is kept when the "
                "query gets a new checkpoint"
            )
        if not streaming and not has_number:
            raise ACCEPTED.error(
                "delivery=exactlyOnce of df.write needs the option 'batchId', by which a repeated write is "
                "known; in foreachBatch pass the one it is called with"
            )
    if has_number and not values["sinkId"]:
        raise ACCEPTED.error("'batchId' counts the batches of a sink: it needs the option 'sinkId'")
    _check_schema(values)


def _check_schema(values: Mapping[str, Any]) -> None:
    """Check that a format with schemas has one, and others none."""
    chosen = values["valueFormat"]
    own = {"avro": ("avroSchema",), "protobuf": ("descFilePath", "messageName")}.get(chosen, ())
    with_ids = ("schemaRegistry", "schemaId", "schemaIdTo") if own else ()
    for option in (
        "avroSchema",
        "descFilePath",
        "messageName",
        "schemaRegistry",
        "schemaId",
        "schemaIdTo",
    ):
        if values[option] != "" and option not in (*own, *with_ids):
            raise ACCEPTED.error(
                f"{option!r} does not belong to valueFormat={chosen or 'json'}; it is for "
                + {"avroSchema": "avro", "descFilePath": "protobuf", "messageName": "protobuf"}.get(
                    option, "avro and protobuf"
                )
            )
    if not own:
        return
    if bool(values[own[0]]) == bool(values["schemaRegistry"]):
        raise ACCEPTED.error(
            f"valueFormat={chosen} needs either {own[0]!r}, or 'schemaRegistry' with 'schemaSubject'"
        )
    if chosen == "protobuf" and not values["messageName"]:
        raise ACCEPTED.error("valueFormat=protobuf needs 'messageName'")
    if values["schemaRegistry"] and values["schemaId"] != "":
        raise ACCEPTED.error("a registry knows the id of its schema: leave out 'schemaId'")
    if values["schemaRegistry"] and not values["schemaSubject"]:
        raise ACCEPTED.error(
            "'schemaSubject' names the registry's subject whose latest schema is written with, such as "
            "orders-value"
        )
    if values["schemaIdTo"] and values["schemaId"] == "" and not values["schemaRegistry"]:
        raise ACCEPTED.error("'schemaIdTo' needs 'schemaId', the number to tell")
