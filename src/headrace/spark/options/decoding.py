"""The options of decoding and of a schema registry, and what they amount to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...errors import ConfigurationError
from ...schemas.address import Registry, Words, checked_url
from .table import Accepted, Option, RefusedError, name, one_of, text

NO_REGISTRY: Final = Registry()
WORDS: Final = Words(
    "jetstream: ", "schemaRegistryUser", "schemaRegistryPassword", "schemaRegistryCa"
)


def _url(value: str) -> str:
    try:
        return checked_url(value, WORDS)
    except ConfigurationError as error:
        raise RefusedError(str(error)) from None


def _subject(value: str) -> str:
    if not value or len(value) > 255 or not value.isprintable():
        raise RefusedError("a subject of the registry such as orders-value")
    return value


# fmt: off
REGISTRY_OPTIONS: Final[tuple[Option, ...]] = (
    Option("schemaRegistry", "",
        "The URL of a schema registry with Confluent's HTTP API, instead of a bucket.", _url),
    Option("schemaSubject", "",
        "The registry's subject whose latest version is the schema to read (to write) with, such as "
        "orders-value.", _subject),
    Option("schemaRegistryUser", "", "User, or API key, of the registry.", text),
    Option("schemaRegistryPassword", "",
        "Password, or secret of the API key; as schemaRegistrySecret it is hidden in Spark's plans.", text),
    Option("schemaRegistryCa", "",
        "File of the certificate authorities to trust, on the driver and on every executor; default: the "
        "system's.", text),
)
# fmt: on
REGISTRY_ALIASES: Final = {"schemaregistrysecret": "schemaRegistryPassword"}


def registry_of(values: Mapping[str, Any], accepted: Accepted) -> Registry:
    """The registry of collected options. Raises ConfigurationError if they do not fit each other."""
    url: str = values["schemaRegistry"]
    for option in REGISTRY_OPTIONS[1:]:
        if values[option.name] and not url:
            raise accepted.error(f"{option.name!r} needs 'schemaRegistry', the registry's URL")
    if values["schemaRegistryPassword"] and not values["schemaRegistryUser"]:
        raise accepted.error("'schemaRegistryPassword' needs 'schemaRegistryUser'")
    return Registry(
        url,
        values["schemaSubject"],
        values["schemaRegistryUser"],
        values["schemaRegistryPassword"],
        values["schemaRegistryCa"],
        WORDS,
    )


ValueFormat = Literal["raw", "string", "json", "arrow", "avro", "protobuf"]
Mode = Literal["permissive", "dropmalformed", "failfast"]
SchemaIdFrom = Literal["header", "confluent"]


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How payloads become columns.

    ``value_schema`` is the user's text, DDL or JSON; "" where ``.schema(...)`` or the format tells the
    columns. ``schema_bucket`` has the schemas of writers, under ``schema_prefix`` and their ids; or
    ``registry`` has them.
    """

    value_format: ValueFormat = "raw"
    value_schema: str = ""
    mode: Mode = "permissive"
    metadata_prefix: str = ""
    avro_schema: str = ""
    descriptor_file: str = ""
    message_name: str = ""
    schema_bucket: str = ""
    schema_prefix: str = ""
    schema_id_from: SchemaIdFrom = "header"
    registry: Registry = NO_REGISTRY


def _prefix(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise RefusedError("letters, digits and _, such as _ or meta_")
    return value


def _key_prefix(value: str) -> str:
    if not re.fullmatch(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*", value):
        raise RefusedError("the beginning of a key, without the last dot, such as orders")
    return value


# fmt: off
DECODING_OPTIONS: Final[tuple[Option, ...]] = (
    Option("valueFormat", "raw",
        "What payloads are: raw (the column data), string, json, arrow, avro or protobuf.",
        one_of("raw", "string", "json", "arrow", "avro", "protobuf")),
    Option("valueSchema", "",
        "The columns of the value, as DDL or as JSON; instead of it .schema(...) may name all columns.",
        text),
    Option("mode", "permissive",
        "What to do with a value that does not fit: permissive (null, and _rescued has it), dropmalformed "
        "(no row), or failfast (onBadMessage says what happens).",
        one_of("permissive", "dropmalformed", "failfast")),
    Option("metadataPrefix", "",
        "Put before the names of the source's own columns, where the value has columns of these names.",
        _prefix),
    Option("avroSchema", "", "The schema to read (to write) Avro with, as JSON.", text),
    Option("descFilePath", "",
        "A protobuf descriptor set, as protoc --include_imports --descriptor_set_out writes it.", text),
    Option("messageName", "", "The full name of the protobuf message.", text),
    Option("schemaBucket", "", "A key-value bucket with the schemas of writers, each under its id.", name),
    Option("schemaPrefix", "", "The keys of the schemas begin with this and a dot; default: the id alone.",
        _key_prefix),
    Option("schemaIdFrom", "",
        "Where a message has its schema's id: header (schema-id), or confluent (a zero and four bytes before "
        "the value, which are then taken off). Default: header, and confluent with a registry.",
        one_of("header", "confluent")),
    *REGISTRY_OPTIONS,
)
# fmt: on


def decoding_of(values: Mapping[str, Any], accepted: Accepted) -> DecodingOptions:
    """The decoding of collected options.

    Raises:
        ConfigurationError: two options contradict each other, or one is missing.
    """
    value_format: ValueFormat = values["valueFormat"]
    _check_belongs(values, accepted, value_format)
    registry = registry_of(values, accepted)
    bucket: str = values["schemaBucket"]
    _check_schemas(values, accepted, value_format)
    return DecodingOptions(
        value_format=value_format,
        value_schema=values["valueSchema"].strip(),
        mode=values["mode"],
        metadata_prefix=values["metadataPrefix"],
        avro_schema=values["avroSchema"],
        descriptor_file=values["descFilePath"],
        message_name=values["messageName"],
        schema_bucket=bucket,
        schema_prefix=values["schemaPrefix"],
        schema_id_from=values["schemaIdFrom"] or ("confluent" if registry.url else "header"),
        registry=registry,
    )


def _check_schemas(values: Mapping[str, Any], accepted: Accepted, value_format: str) -> None:
    """Check that the schema to read with comes from one place."""
    bucket, registry = values["schemaBucket"], values["schemaRegistry"]
    if bucket and registry:
        raise accepted.error("give either 'schemaBucket' or 'schemaRegistry'")
    own, where = ("avroSchema", "the schemas"), "'schemaBucket' or 'schemaRegistry' with"
    if value_format == "protobuf":
        own = ("descFilePath", "descriptor sets")
        if not values["messageName"]:
            raise accepted.error("valueFormat=protobuf needs 'messageName'")
        if bool(values["descFilePath"]) == bool(bucket or registry):
            raise accepted.error(
                f"valueFormat=protobuf needs either {own[0]!r}, or {where} {own[1]}"
            )
    if value_format == "avro" and not (values["avroSchema"] or bucket or registry):
        raise accepted.error(f"valueFormat=avro needs {own[0]!r}, or {where} {own[1]}")
    if registry and bool(values["schemaSubject"]) == bool(values[own[0]]):
        either = "either the latest of 'schemaSubject', or 'avroSchema'"
        latest = "the latest of 'schemaSubject'" if value_format == "protobuf" else either
        raise accepted.error(f"with 'schemaRegistry' the schema to read with is {latest}")


_OF_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "valueSchema": ("json", "arrow"),
    "avroSchema": ("avro",),
    "descFilePath": ("protobuf",),
    "messageName": ("protobuf",),
    "schemaBucket": ("json", "arrow", "avro", "protobuf"),
    "schemaRegistry": ("avro", "protobuf"),
}


def _check_belongs(values: Mapping[str, Any], accepted: Accepted, value_format: str) -> None:
    for option, formats in _OF_FORMATS.items():
        if values[option] and value_format not in formats:
            raise accepted.error(
                f"{option!r} is for valueFormat={' or '.join(formats)}, not for {value_format}"
            )
    if values["schemaPrefix"] and not values["schemaBucket"]:
        raise accepted.error("'schemaPrefix' needs 'schemaBucket'")
