"""Messages and results by the schemas of a registry: what is asked, where, and who waits for it."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ..client.kv import KeyNotFoundError
from ..errors import ConfigurationError, DisconnectedError, NoRespondersError, RequestTimeoutError
from ..schemas.codecs import Codec, UnfitError, codecs_of
from ..schemas.errors import NoSchemaError, RegistryAwayError
from ..schemas.framing import (
    HEADER,
    confluent_head,
    id_of_header,
    number_of_header,
    split_confluent,
)
from ..schemas.lookup import FoundSchema, Key, Known, Lookup, Source
from .schemas import HttpRegistry, Schema, SchemaBucket
from .typed import MisfitError, Take

if TYPE_CHECKING:
    from ..client import JetStream, KeyValue
    from ..schemas.registry import Kind, SchemaRegistry

_KINDS: Final[dict[str, Kind]] = {"avro": "AVRO", "json": "JSON"}
_AWAY: Final = (RequestTimeoutError, DisconnectedError, NoRespondersError)
_NATIVE: Final = (
    bytes,
    datetime.datetime,
    datetime.date,
    datetime.time,
    decimal.Decimal,
    uuid.UUID,
)
"""What Avro's logical types take as it is."""


class _OverHttp:
    """A registry that is asked in threads."""

    def __init__(self, registry: HttpRegistry, kind: Kind) -> None:
        self._registry = registry
        self._kind = kind

    async def of_id(self, schema_id: str) -> bytes:
        return await asyncio.to_thread(self._asked("").get, schema_id)

    async def latest(self, subject: str) -> FoundSchema:
        number, text = await asyncio.to_thread(self._asked(subject).newest)
        return FoundSchema(str(number), text)

    def _asked(self, subject: str) -> SchemaRegistry:
        from ..schemas.registry import (  # what speaks HTTP is loaded when used
            Impatient,
            SchemaRegistry,
        )

        return SchemaRegistry(self._registry.with_subject(subject), self._kind, Impatient())


class _InBucket:
    """A bucket of the server that messages come from."""

    def __init__(self, registry: SchemaBucket, js: JetStream) -> None:
        self._registry = registry
        self._js = js
        self._bucket: KeyValue | None = None

    async def of_id(self, schema_id: str) -> bytes:
        try:
            return await self._get(schema_id)
        except KeyNotFoundError:
            raise NoSchemaError(f"no schema {schema_id!r} in {self._registry}") from None

    async def latest(self, subject: str) -> FoundSchema:
        try:
            return FoundSchema(subject, await self._get(subject))
        except KeyNotFoundError as error:
            raise ConfigurationError(str(error)) from None

    async def _get(self, schema_id: str) -> bytes:
        try:
            if self._bucket is None:
                self._bucket = await self._js.key_value(self._registry.bucket)
            return (await self._bucket.get(self._registry.key(schema_id))).value
        except _AWAY as error:
            raise RegistryAwayError(f"{self._registry}: {error}") from None


class Lookups:
    """The lookups of a worker at work: one for each registry and format, however many handlers use it."""

    def __init__(self) -> None:
        self._made: dict[tuple[HttpRegistry | SchemaBucket, str], Lookup] = {}

    def of(self, schema: Schema, js: JetStream) -> Lookup:
        """The one for this schema."""
        registry, kind = schema.registry, schema.format
        found = self._made.get((registry, kind))
        if found is None:
            source: Source
            if isinstance(registry, HttpRegistry):
                source = _OverHttp(registry, _KINDS[kind])
            else:
                source = _InBucket(registry, js)
            found = self._made[registry, kind] = Lookup(source, codecs_of(kind), str(registry))
        return found

    def end(self) -> None:
        """Ask no more."""
        for lookup in self._made.values():
            lookup.end()


class Reading:
    """A handler's messages, read by their schemas."""

    def __init__(self, schema: Schema, lookup: Lookup, takes: tuple[Take | None, ...]) -> None:
        self._schema = schema
        self._lookup = lookup
        self._takes = takes
        self._loop = asyncio.get_running_loop()

    async def arguments(self, message: Any) -> list[Any]:
        """What the handler is called with. Raises MisfitError, LookupEndedError."""
        key, body = self._split(message)
        try:
            known = self._lookup.kept(key) or await self._lookup.get(key, message.in_progress)
        except NoSchemaError as error:
            raise _misfit(key.name, error) from None
        return self._taken(known, body, message)

    def arguments_on_thread(self, message: Any) -> list[Any]:
        """The arguments on a thread, which waits where something has to be asked."""
        key, body = self._split(message)
        known = self._lookup.kept(key)
        if known is not None:
            return self._taken(known, body, message)
        asked = asyncio.run_coroutine_threadsafe(self.arguments(message), self._loop)
        return asked.result()

    def _split(self, message: Any) -> tuple[Key, bytes]:
        """What says the schema, and the value."""
        payload = bytes(message.payload)
        if self._schema.subject:
            return Key("subject", self._schema.subject), payload
        try:
            if self._schema.id_in == "confluent":
                schema_id, payload = split_confluent(payload)
            elif isinstance(self._schema.registry, HttpRegistry):
                schema_id = number_of_header(message.raw_headers)
            else:
                schema_id = id_of_header(message.raw_headers)
        except NoSchemaError as error:
            raise MisfitError(str(error)) from None
        return Key("id", schema_id), payload

    def _taken(self, known: Known, body: bytes, message: Any) -> list[Any]:
        try:
            value = _codec(known).read(body)
            return [message if take is None else take(value, body) for take in self._takes]
        except (UnfitError, MisfitError, NoSchemaError) as error:
            raise _misfit(known.id, error) from error


class Written(NamedTuple):
    """A result, ready to be published."""

    payload: bytes
    headers: dict[str, str] | None


class Writing:
    """A handler's results, written by the latest schema of a subject."""

    def __init__(self, schema: Schema, lookup: Lookup) -> None:
        self._schema = schema
        self._lookup = lookup
        self._key = Key("subject", schema.subject)

    async def written(self, message: Any, result: Any) -> Written:
        """Raises MisfitError: the result does not fit; LookupEndedError."""
        known = self._lookup.kept(self._key)
        if known is None:
            known = await self._lookup.get(self._key, message.in_progress)
        try:
            body = _codec(known).write(self._plain(result))
        except (UnfitError, TypeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise MisfitError(
                f"what the handler returned does not fit schema {known.id} of {self._schema.subject}: {text}"
            ) from error
        if self._schema.id_in == "confluent":
            return Written(confluent_head(int(known.id)) + body, None)
        return Written(body, {HEADER: known.id})

    def _plain(self, result: Any) -> Any:
        """A model as plain types."""
        is_json = self._schema.format == "json"
        if (dump := getattr(result, "model_dump", None)) is not None:  # of pydantic
            return dump(mode="json" if is_json else "python")
        return msgspec.to_builtins(result, builtin_types=() if is_json else _NATIVE)


def _codec(known: Known) -> Codec:
    if known.codec is None:
        raise NoSchemaError(known.error)
    return known.codec


def _misfit(schema_id: str, error: Exception) -> MisfitError:
    return MisfitError(f"schema {schema_id}: {error}")
