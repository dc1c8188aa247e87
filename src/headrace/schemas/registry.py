"""What is asked of a registry, and what its answers mean.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html; others, such as Redpanda's,
answer the same. What a schema refers to is fetched as well.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from ..errors import ConfigurationError, HeadraceError
from .address import Registry
from .avro_names import inlined
from .errors import NoSchemaError, RegistryAwayError
from .framing import ID_MAX
from .http import RegistryAnswer, ask
from .limits import DEPTH_MAX, SCHEMAS_KEPT_MAX, clipped

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
T = TypeVar("T")

_NOT_FOUND: Final = 404
REFERENCES_MAX: Final = 200
"""Schemas that one may refer to, with those that these refer to."""


class Patient(Protocol):
    """How long to wait for a registry that is away."""

    def restart(self) -> None:
        """It has answered."""

    def persist(
        self,
        call: Callable[[], T],
        let_go: Callable[[], object],
        passes: Callable[[HeadraceError], bool],
    ) -> T:
        """Call, and again after errors that pass."""
        ...


class Impatient:
    """Asks once."""

    def restart(self) -> None:
        """Do nothing: there is no pause."""

    def persist(
        self,
        call: Callable[[], T],
        let_go: Callable[[], object],
        passes: Callable[[HeadraceError], bool],
    ) -> T:
        """Call."""
        return call()


class Registered(NamedTuple):
    """A schema and its id. ``text`` is Avro's JSON, a protobuf descriptor set, or JSON Schema as ``bundled``,
    with what it refers to."""

    id: int
    text: bytes


class SchemaRegistry:
    """The schemas of a registry; one that was read is kept, as what an id means never changes.

    Args:
        registry: where it is, and how to log in.
        kind: which schemas are read.
        patience: how long to wait for a registry that is away.
        get: asks it.
    """

    _kept: Final[dict[tuple[str, str, str], bytes]] = {}
    """By address, kind and id, for all tasks of this process: they come and go with each batch."""

    def __init__(
        self,
        registry: Registry,
        kind: Kind,
        patience: Patient,
        get: Callable[[Registry, str], RegistryAnswer] = ask,
    ) -> None:
        self._registry = registry
        self._kind: Kind = kind
        self._patience = patience
        self._get = get

    def get(self, schema_id: str) -> bytes:
        """The schema of this id. Raises NoSchemaError, and what ``ask`` raises at the end of the patience."""
        key = (self._registry.url, self._kind, schema_id)
        found = self._kept.get(key)
        if found is None:
            document = self._document(f"/schemas/ids/{quote(schema_id, safe='')}")
            if document is None:
                raise NoSchemaError(
                    f"no schema {clipped(schema_id)!r} in the registry {self._registry.url}"
                )
            found = self._kept[key] = self._whole(document)
            while len(self._kept) > SCHEMAS_KEPT_MAX:
                self._kept.pop(next(iter(self._kept)), None)
        return found

    def newest(self) -> Registered:
        """The latest version of ``schemaSubject``. Raises ConfigurationError, and what ``ask`` raises."""
        subject = self._registry.subject
        if not subject:
            raise ConfigurationError(
                f"{self._registry.words.before}with 'schemaRegistry', 'schemaSubject' names the subject "
                "whose latest schema is used, such as orders-value"
            )
        document = self._document(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if document is None:
            raise self._wrong(f"it has no subject {subject!r}")
        schema_id = document.get("id")
        if type(schema_id) is not int or not 0 <= schema_id <= ID_MAX:
            raise self._wrong(f"the id of {subject!r} is {clipped(repr(schema_id))}")
        try:
            return Registered(schema_id, self._whole(document))
        except NoSchemaError as error:
            raise self._wrong(f"{subject!r} cannot be used: {error}") from None

    def _document(self, path: str) -> dict[str, Any] | None:
        """What the registry answers; None where it has nothing of that name."""
        if self._kind == "PROTOBUF":
            path += "?format=serialized"
        answer = self._patience.persist(
            lambda: self._get(self._registry, path),
            lambda: None,
            lambda error: isinstance(error, RegistryAwayError),
        )
        self._patience.restart()
        return None if answer.status == _NOT_FOUND else answer.document

    def _whole(self, document: dict[str, Any]) -> bytes:
        """The schema with all that it refers to. Raises NoSchemaError."""
        text = self._text(document)
        referred = list(self._referred(document, set(), 0))
        if self._kind == "AVRO":
            return inlined(text, [said for _, said in referred]) if referred else text.encode()
        if self._kind == "JSON":
            return bundled(text, dict(referred))
        return _descriptor_set([*referred, ("", text)])

    def _text(self, document: dict[str, Any]) -> str:
        kind = document.get("schemaType") or "AVRO"  # which is not said
        if kind != self._kind:
            raise NoSchemaError(f"it is of type {clipped(str(kind))}, not {self._kind}")
        found = document.get("schema")
        if not isinstance(found, str):
            raise NoSchemaError("the registry's answer has no schema")
        return found

    def _referred(
        self, document: dict[str, Any], seen: set[str], depth: int
    ) -> Iterator[tuple[str, str]]:
        """Name and text of each schema that it refers to, those that others need first."""
        references = document.get("references") or ()
        if not isinstance(references, list | tuple):
            raise NoSchemaError("the references of a schema are no list")
        for one in references:
            try:
                name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise NoSchemaError(
                    f"a schema has the reference {clipped(repr(one))}, not a name, a subject and a version"
                ) from None
            if name in seen:
                continue
            if len(seen) == REFERENCES_MAX or depth == DEPTH_MAX:
                raise NoSchemaError(f"a schema refers to more than {REFERENCES_MAX} others")
            seen.add(name)
            found = self._document(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if found is None:
                raise NoSchemaError(
                    f"a schema refers to version {version} of {clipped(subject)!r}, which is not there"
                )
            yield from self._referred(found, seen, depth + 1)
            yield name, self._text(found)

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._registry.words.before}the registry {self._registry.url}: {what}"
        )


def bundled(text: str, referred: Mapping[str, str]) -> bytes:
    """A JSON Schema with those that it refers to, by the names that it uses: a document of both."""
    return json.dumps({"schema": text, "named": dict(referred)}).encode()


def _descriptor_set(files: list[tuple[str, str]]) -> bytes:
    """A descriptor set of files, each under the name by which it is imported. Raises NoSchemaError."""
    from google.protobuf import descriptor_pb2, message

    made = descriptor_pb2.FileDescriptorSet()
    for name, said in files:
        try:
            file = made.file.add()
            file.ParseFromString(base64.b64decode(said, validate=True))
        except (binascii.Error, ValueError, message.DecodeError) as error:
            raise NoSchemaError(
                f"the registry sent no descriptor (it has to know format=serialized): {clipped(str(error))}"
            ) from None
        file.name = name or file.name or "schema.proto"
    found: bytes = made.SerializeToString()
    return found
