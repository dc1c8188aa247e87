"""Which schemas a handler's messages and results are written with, as declared. Nothing is asked here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from ..errors import ConfigurationError
from ..schemas.address import Registry, checked_url
from ..schemas.codecs import FORMATS, SchemaFormat, codecs_of

__all__ = ["HttpRegistry", "Schema", "SchemaBucket", "check_schemas"]

Ids = Literal["", "confluent", "header"]
_IDS: Final = get_args(Ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRegistry:
    """A schema registry that speaks Confluent's HTTP API, as Redpanda's and others do. It is only read.

    Attributes:
        url: such as https://registry.example.com:8081.
        user, password: its login, or API key and secret; "" for none.
        ca: a file of the certificate authorities to trust; "" is the system's.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "url", checked_url(self.url))
        except ConfigurationError as error:
            raise ConfigurationError(f"url is {self.url!r}; accepted is {error}") from None
        if self.password and not self.user:
            raise ConfigurationError("password needs user")

    def __str__(self) -> str:
        return f"the registry {self.url}"

    def with_subject(self, subject: str) -> Registry:
        """As what asks takes it."""
        return Registry(self.url, subject, self.user, self.password, self.ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaBucket:
    """A key-value bucket with a schema under each key, ``<prefix>.<id>``, or ``<id>`` without a prefix.

    What an id means never changes: a schema that was read is kept. Those of a subject are read again.
    """

    bucket: str
    prefix: str = ""

    def __post_init__(self) -> None:
        if not self.bucket:
            raise ConfigurationError("bucket is empty; accepted is the name of a bucket")

    def __str__(self) -> str:
        return f"the bucket {self.bucket!r}"

    def key(self, schema_id: str) -> str:
        """Where the schema of this id is."""
        return f"{self.prefix}.{schema_id}" if self.prefix else schema_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """By which schema messages are read, or results are written.

    Attributes:
        registry: where schemas are.
        format: of the schemas, and of the values: ``avro`` or ``json`` (JSON Schema).
        subject: whose latest version is taken, such as orders-value; in a bucket a key. "": each message
            says the id of its schema.
        ids: where a message says it: ``confluent`` is a zero byte and four more before the value, ``header``
            the header ``schema-id``. "": confluent with an HTTP registry, header with a bucket; and nowhere,
            where messages are read by ``subject``.
    """

    registry: HttpRegistry | SchemaBucket
    format: SchemaFormat = "avro"
    subject: str = ""
    ids: Ids = ""

    def __post_init__(self) -> None:
        if not isinstance(self.registry, HttpRegistry | SchemaBucket):
            raise ConfigurationError(
                f"registry is {self.registry!r}; accepted are HttpRegistry and SchemaBucket"
            )
        if self.format not in FORMATS:
            raise ConfigurationError(f"format is {self.format!r}; accepted: {', '.join(FORMATS)}")
        if self.ids not in _IDS:
            raise ConfigurationError(f"ids is {self.ids!r}; accepted: {', '.join(_IDS[1:])}")
        if self.ids == "confluent" and isinstance(self.registry, SchemaBucket) and self.subject:
            raise ConfigurationError(
                "ids is 'confluent' with a subject of a bucket, whose keys are no numbers; accepted: header"
            )

    @property
    def id_in(self) -> Literal["confluent", "header"]:
        """Where ids are."""
        if self.ids:
            return self.ids
        return "confluent" if isinstance(self.registry, HttpRegistry) else "header"


def check_schemas(schema: Schema | None, returns: Schema | None, publish: str) -> None:
    """Raises ConfigurationError: they fit neither a handler nor each other."""
    for name, one in (("schema", schema), ("returns", returns)):
        if one is not None and not isinstance(one, Schema):
            raise ConfigurationError(f"{name} is {one!r}; accepted is a Schema")
        if one is not None:
            codecs_of(one.format)
    if schema is not None and schema.subject and schema.ids:
        raise ConfigurationError(
            "schema has both subject and ids; accepted is one of them: messages are read by the latest "
            "version of a subject, or each by the schema whose id it has"
        )
    if returns is not None and not returns.subject:
        raise ConfigurationError("returns has no subject; accepted is one, whose latest is written")
    if returns is not None and not publish:
        raise ConfigurationError("returns needs publish, the subject that results go to")
