"""Values by their schema: read from bytes, and written to bytes. Needs ``fastavro`` or ``jsonschema-rs``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol

from ..documents import DocumentError, read_json
from ..errors import ConfigurationError
from .avro_fitting import fitter
from .avro_values import AvroSchema, brief
from .errors import NoSchemaError, UnfitError
from .limits import clipped

SchemaFormat = Literal["avro", "json"]
FORMATS: Final = ("avro", "json")

__all__ = [
    "FORMATS",
    "AvroCodec",
    "Codec",
    "JsonCodec",
    "SchemaFormat",
    "UnfitError",
    "codecs_of",
    "json_of",
]


class Codec(Protocol):
    """Reads and writes values of one schema. Any thread may call it."""

    def read(self, body: bytes) -> Any:
        """The value, of plain types. Raises UnfitError."""
        ...

    def write(self, value: Any) -> bytes:
        """The bytes of a value of plain types. Raises UnfitError."""
        ...


def codecs_of(kind: SchemaFormat) -> Callable[[bytes], Codec]:
    """What makes codecs of schemas, which raises NoSchemaError for those it cannot read.

    Raises ConfigurationError: the package is not installed.
    """
    try:
        if kind == "avro":
            import fastavro  # noqa: F401
        else:
            import jsonschema_rs  # noqa: F401
    except ImportError:
        package, extra = (
            ("fastavro", "avro") if kind == "avro" else ("jsonschema-rs", "json-schema")
        )
        raise ConfigurationError(
            f'schemas of format {kind!r} need {package}: pip install "headrace[{extra}]"'
        ) from None
    return AvroCodec if kind == "avro" else JsonCodec


class AvroCodec:
    """Of an Avro schema, as JSON; it has to be a record. Raises NoSchemaError: it cannot be read."""

    def __init__(self, text: bytes) -> None:
        self._schema = AvroSchema(text)
        self._fit = fitter(self._schema)
        self.fields: list[str] = [one["name"] for one in self._schema.root["fields"]]

    def read(self, body: bytes) -> Any:
        """The record, as a dict. Raises UnfitError."""
        return self._schema.read_native(body)

    def write(self, value: Any) -> bytes:
        """One record, without its schema. Raises UnfitError."""
        try:
            return self._schema.write(self._fit(value))
        except UnfitError as error:
            raise UnfitError(clipped(str(error))) from None
        except RecursionError as error:
            raise UnfitError(brief(error)) from None


class JsonCodec:
    """Of a JSON Schema, alone or with those that it refers to, see ``registry.bundled``. Nothing is fetched.

    Raises NoSchemaError: it cannot be read.
    """

    def __init__(self, text: bytes) -> None:
        import jsonschema_rs

        try:
            schema = read_json(text)
            named: dict[str, Any] = {}
            if isinstance(schema, dict) and schema.keys() == {"schema", "named"}:
                named = {name: read_json(one) for name, one in schema["named"].items()}
                schema = read_json(schema["schema"])
        except DocumentError as error:
            raise NoSchemaError(f"a JSON Schema is no JSON: {error}") from None

        def retrieve(uri: str) -> Any:
            known = [n for n in named if uri == n or uri.endswith("/" + n.removeprefix("/"))]
            if known:
                return named[max(known, key=len)]  # billing/address.json is not address.json
            raise ValueError(f"it refers to {clipped(uri)}, which is not known")

        try:
            self._validator = jsonschema_rs.validator_for(schema, retriever=retrieve)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            raise NoSchemaError(f"a JSON Schema cannot be read: {clipped(_line(error))}") from None

    def read(self, body: bytes) -> Any:
        """The value. Raises UnfitError."""
        try:
            found = read_json(body)
        except DocumentError as error:
            raise UnfitError(f"it is no JSON: {error}") from None
        self._check(found)
        return found

    def write(self, value: Any) -> bytes:
        """JSON. Raises UnfitError."""
        try:
            body = json_of(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnfitError(brief(error)) from None
        self._check(read_json(body))
        return body

    def _check(self, value: Any) -> None:
        error = next(iter(self._validator.iter_errors(value)), None)
        if error is not None:
            raise UnfitError(clipped(f"{_path(error.instance_path)}: {error.message}"))


def json_of(value: Any) -> bytes:
    """A value as JSON, which has no NaN and no infinity: they would be null.

    Raises UnfitError: there is one in it; TypeError: it cannot be JSON.
    """
    import msgspec

    body = msgspec.json.encode(value)
    if b"null" in body and (found := _not_finite(msgspec.to_builtins(value), ())) is not None:
        raise UnfitError(f"{_path(found[0])}: {found[1]} is no number of JSON")
    return body


def _not_finite(
    value: Any, path: tuple[str | int, ...]
) -> tuple[tuple[str | int, ...], float] | None:
    """Where a number is that is not finite, and which."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    return next(filter(None, (_not_finite(one, (*path, key)) for key, one in parts)), None)


def _path(parts: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in parts)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
