"""The options of a schema registry, common to reading and writing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import ConfigurationError
from ...schemas.address import Registry, Words, checked_url
from .table import Accepted, Option
from .values import RefusedError, text

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
        "The URL of a schema registry with Confluent's HTTP API, instead of a bucket. Its values begin with "
        "Confluent's five bytes, unless schemaIdFrom (schemaIdTo) says otherwise.", _url),
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
