"""Values by their schema: read from bytes, and written to bytes. Needs ``fastavro`` or ``jsonschema-rs``."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol

from ..documents import DocumentError, read_json
from ..errors import ConfigurationError
from .avro_shape import schema_failures, shape_of
from .errors import NoSchemaError
from .limits import clipped

SchemaFormat = Literal["avro", "json"]
FORMATS: Final = ("avro", "json")


class UnfitError(ValueError):
    """A value does not fit its schema. The text begins with the field, where that is known."""


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
        import fastavro

        try:
            self._schema: Any = fastavro.parse_schema(read_json(text))
        except schema_failures() as error:
            raise NoSchemaError(f"an Avro schema cannot be read: {clipped(str(error))}") from None
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise NoSchemaError("an Avro schema is no record")
        try:
            self._shape = shape_of(self._schema)
        except ConfigurationError as error:
            raise NoSchemaError(str(error)) from None

    def read(self, body: bytes) -> Any:
        """The record, as a dict. Raises UnfitError."""
        from fastavro import schemaless_reader as quick
        from fastavro._read_py import schemaless_reader as counting  # Python counts how deep it is

        read: Any = quick if self._shape.is_shallow(len(body)) else counting
        stream = ExactBytes(body)
        try:
            found = read(stream, self._schema, None)
        except (
            ValueError,
            EOFError,
            LookupError,
            TypeError,
            ArithmeticError,
            MemoryError,
            RecursionError,
            AttributeError,
        ) as error:
            raise UnfitError(f"it is no such record: {_brief(error)}") from None
        if (left := len(body) - stream.tell()) > 0:
            raise UnfitError(f"{left} bytes are left after the record")
        return found

    def write(self, value: Any) -> bytes:
        """One record, without its schema. Raises UnfitError."""
        import fastavro
        from fastavro.validation import ValidationError

        written = io.BytesIO()
        try:
            fastavro.validate(value, self._schema, raise_errors=True)
            fastavro.schemaless_writer(written, self._schema, value)
        except ValidationError as error:
            raise UnfitError(clipped("; ".join(map(str, error.errors)))) from None
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
            raise UnfitError(_brief(error)) from None
        return written.getvalue()


class ExactBytes(io.BytesIO):
    """Bytes that are there or not: a field that is skipped may otherwise be cut off unnoticed."""

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if size is not None and len(found) < size:
            raise EOFError("the record ends in the middle")
        return found


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
        import msgspec

        try:
            body = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnfitError(_brief(error)) from None
        self._check(read_json(body))
        return body

    def _check(self, value: Any) -> None:
        error = next(iter(self._validator.iter_errors(value)), None)
        if error is not None:
            raise UnfitError(clipped(f"{_path(error.instance_path)}: {error.message}"))


def _path(parts: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in parts)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _brief(error: BaseException) -> str:
    return clipped(f"{type(error).__name__}: {_line(error)}")
