"""Conversion between JetStream documents and structs.

In Python a duration is a ``float`` of seconds; on the wire it is an integer of nanoseconds. A struct
names its duration fields in ``durations`` and the fields that a server always prints in ``always``.
``encode`` and ``decode`` do the rest, also for nested structs. Decoding is lenient (unknown fields are
ignored, because newer servers add some) or strict (as a server treats requests). ``null`` means absent,
as in Go.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec

from ..documents import DocumentError as DocumentError
from ..documents import read_json as read_json
from ..documents import read_typed as read_typed
from ..notebook import table

NS_PER_S = 1_000_000_000


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every JSON document of the API. Printed, it shows what differs from the defaults."""

    durations: ClassVar[tuple[str, ...]] = ()
    always: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in _shown(self))
        return f"{type(self).__name__}({told})"

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        rows = ((name, repr(value)) for name, value in _shown(self))
        return table(("field", "value"), rows, type(self).__name__)


def _shown(document: Document) -> Iterator[tuple[str, Any]]:
    """The fields that are not as they are by default."""
    for name, _, default, *_ in _columns(type(document)):
        value = getattr(document, name)
        if value != default and value != {}:
            yield name, value


D = TypeVar("D", bound=Document)


def fields(names: str) -> tuple[str, ...]:
    """The names in a text, for ``durations`` and ``always``."""
    return tuple(names.split())


def encode(document: Document) -> bytes:
    """The JSON text of a document, durations in nanoseconds."""
    return msgspec.json.encode(to_wire(document))


def decode(data: bytes | str, kind: type[D], *, strict: bool = False) -> D:
    """Read a document of type ``kind``.

    Raises:
        DocumentError: the text is not JSON, or (``strict``) has unknown fields, or a field has the wrong
            type. The text of the error follows ``invalid JSON: …`` of the server.
    """
    raw = read_json(data)
    if not isinstance(raw, dict):
        raise DocumentError(f"json: cannot unmarshal {_kind_name(raw)} into an object")
    return from_wire(raw, kind, strict=strict)


def to_wire(document: Document) -> dict[str, Any]:
    """The document as JSON-ready builtins: durations in nanoseconds, defaults omitted except
    ``always``.
    """
    kind = type(document)
    result: dict[str, Any] = {}
    for name, wire_name, default, is_always, is_duration in _columns(kind):
        value = getattr(document, name)
        if not is_always and (value == default or value in (None, (), {}, "")):
            continue
        result[wire_name] = _value_to_wire(value, is_duration)
    return result


@cache  # msgspec evaluates every annotation again on each call
def _columns(kind: type[Document]) -> tuple[tuple[str, str, Any, bool, bool], ...]:
    """For each field: its name, its wire name, its default, whether always shown, whether a duration."""
    return tuple(
        (f.name, f.encode_name, f.default, f.name in kind.always, f.name in kind.durations)
        for f in msgspec.structs.fields(kind)
    )


def _value_to_wire(value: Any, is_duration: bool) -> Any:
    if is_duration:
        if isinstance(value, tuple):
            return [round(item * NS_PER_S) for item in value]
        return round(value * NS_PER_S)
    if isinstance(value, Document):
        return to_wire(value)
    if isinstance(value, tuple):
        if {*map(type, value)} == {str}:  # such as thousands of subjects
            return list(value)
        return [_value_to_wire(item, False) for item in value]
    if isinstance(value, dict) and any(isinstance(item, Document) for item in value.values()):
        return {key: _value_to_wire(item, False) for key, item in value.items()}
    return value


def from_wire(raw: dict[str, Any], kind: type[D], *, strict: bool = False) -> D:
    """Build a document from decoded JSON. Raises DocumentError like ``decode``."""
    prepared = _prepare(raw, kind, strict)
    try:
        return msgspec.convert(prepared, kind, strict=True)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from error


def _prepare(raw: dict[str, Any], kind: type[Document], strict: bool) -> dict[str, Any]:
    known = _shape(kind)
    result: dict[str, Any] = {}
    for name, value in raw.items():
        nested = known.get(name, _UNKNOWN)
        if nested is _UNKNOWN:
            if strict:
                raise DocumentError(f'json: unknown field "{name}"')
            continue
        if value is None:
            continue
        if name in kind.durations:
            value = _seconds(name, value)
        elif nested is not None:
            value = _prepare_nested(name, value, typing.cast("type[Document]", nested), strict)
        result[name] = value
    return result


def _prepare_nested(name: str, value: Any, kind: type[Document], strict: bool) -> Any:
    if isinstance(value, dict):
        return _prepare(value, kind, strict)
    if isinstance(value, list):
        return [_prepare(item, kind, strict) if isinstance(item, dict) else item for item in value]
    raise DocumentError(f"json: cannot unmarshal {_kind_name(value)} into field {name}")


def _seconds(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_seconds(name, item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int):
        raise DocumentError(
            f"json: cannot unmarshal {_kind_name(value)} into field {name} of type duration"
        )
    return value / NS_PER_S


_UNKNOWN = object()


@cache
def _shape(kind: type[Document]) -> dict[str, object]:
    """Wire name → nested document type, or None for a plain field."""
    hints = typing.get_type_hints(kind)
    return {f.encode_name: _nested(hints[f.name]) for f in msgspec.structs.fields(kind)}


def _nested(hint: Any) -> type[Document] | None:
    origin = typing.get_origin(hint)
    if origin is None:
        return hint if isinstance(hint, type) and issubclass(hint, Document) else None
    if origin is dict:
        return None
    for argument in typing.get_args(hint):
        found = _nested(argument)
        if found is not None:
            return found
    return None


def _kind_name(value: Any) -> str:
    names = {str: "string", bool: "bool", int: "number", float: "number"}
    names |= {list: "array", dict: "object"}
    return names.get(type(value), "null")
