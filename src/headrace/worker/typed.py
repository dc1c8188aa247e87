"""Typed handlers: what a function wants is read off its annotations; bytes become models, and models bytes.

Models are what msgspec knows (structs, dataclasses, TypedDicts, lists, …), classes of pydantic, and messages
of protobuf. pydantic and protobuf are not imported here: their classes are known by their methods.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from ..documents import DocumentError, read_json, read_typed
from ..errors import ConfigurationError, HeadraceError
from ..schemas.codecs import SchemaFormat, UnfitError, json_of

__all__ = ["MisfitError", "Wants", "encoded", "wants_of"]

Read = Callable[[bytes], Any]
Take = Callable[[Any, bytes], Any]
"""What makes an argument of a value of plain types, and of the bytes that it was read from."""

_MESSAGES: Final = frozenset({"JetStreamMessage", "GroupMessage", "Delivered"})
_PLAIN: Final[dict[object, tuple[type, ...]]] = {dict: (dict,), list: (list,)}


class MisfitError(HeadraceError, ValueError):
    """A message does not fit what its handler takes. It is not tried again: that would fail, too."""


class Wants(NamedTuple):
    """What a handler is called with, in order: the message where ``readers`` has None, else what is read."""

    readers: tuple[Read | None, ...]
    kinds: tuple[Any, ...] = ()

    @property
    def are_typed(self) -> bool:
        """Whether something is read, which may not fit."""
        return any(self.readers)

    def arguments(self, message: Any) -> list[Any]:
        """For this message. Raises MisfitError."""
        return [message if read is None else read(bytes(message.payload)) for read in self.readers]


def wants_of(function: Callable[..., object]) -> Wants:
    """Read off the annotations: one parameter, or two of which one is the message.

    Raises ConfigurationError: they cannot be called with a message.
    """
    name = getattr(function, "__qualname__", repr(function))
    parameters = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty
    ]
    try:
        hints = typing.get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__
        )
    except (NameError, TypeError) as error:
        raise ConfigurationError(
            f"handler {name}: its annotations cannot be read: {error}; models stand where the module does"
        ) from error
    kinds = [hints.get(each.name, Any) for each in parameters]
    positional = all(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters
    )
    bodies = [kind for kind in kinds if not _is_message(kind)]
    if (
        not positional
        or len(kinds) not in (1, 2)
        or len(bodies) > 1
        or len(kinds) - len(bodies) > 1
    ):
        raise ConfigurationError(
            f"handler {name} takes {inspect.signature(function)}; accepted are a message, a model, "
            "or both, in either order"
        )
    readers = tuple(None if _is_message(kind) else _reader(kind, name) for kind in kinds)
    return Wants(readers, tuple(kinds))


def takes_of(wants: Wants, kind: SchemaFormat) -> tuple[Take | None, ...]:
    """What makes its arguments of values that were read by a schema of this format; None for the message.

    Raises ConfigurationError: it takes what no schema gives.
    """
    if not wants.are_typed:
        raise ConfigurationError(
            "a schema needs a handler that takes a value: a dict, or a model of msgspec or pydantic"
        )
    return tuple(
        None if read is None else _take(each, read if kind == "json" else None)
        for read, each in zip(wants.readers, wants.kinds, strict=True)
    )


def _take(kind: Any, read: Read | None) -> Take:
    """``read`` reads it from the bytes, where they are JSON: a number that is not a float need not be one."""
    if kind is bytes:
        return lambda _value, body: body
    if kind is str or (isinstance(kind, type) and hasattr(kind, "FromString")):
        raise ConfigurationError(
            f"a handler takes {kind!r}, and its messages have a schema; accepted are bytes, dict, list, "
            "dataclasses, TypedDicts, and models of msgspec and pydantic"
        )
    if read is not None and kind not in _PLAIN and get_origin(kind) not in _PLAIN:
        return lambda _value, body: read(body)
    validate = getattr(kind, "model_validate", None) if isinstance(kind, type) else None

    def take(value: Any, _body: bytes) -> Any:
        try:
            return msgspec.convert(value, kind) if validate is None else validate(value)
        except ValueError as error:  # msgspec's and pydantic's are
            raise _misfit(kind, error) from error

    return take


def _is_message(kind: object) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) in (Union, types.UnionType):
        return all(map(_is_message, get_args(kind)))
    return (
        isinstance(kind, type)
        and kind.__name__ in _MESSAGES
        and kind.__module__.startswith("headrace.")
    )


def _reader(kind: Any, handler: str) -> Read:
    if kind is bytes:
        return bytes
    if kind is str:
        return _read_text
    for method in ("model_validate_json", "FromString"):  # of pydantic, of protobuf
        if isinstance(kind, type) and (read := getattr(kind, method, None)) is not None:
            return _guarded(read, kind)
    if kind in _PLAIN or get_origin(kind) in _PLAIN:
        return _reader_of_any(kind)
    why = ""
    try:
        if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
            why = "it is no model"
    except TypeError as error:
        why = str(error)
    if why:
        raise ConfigurationError(
            f"handler {handler} takes {kind!r}, which cannot be read from JSON: {why}; accepted are bytes, "
            "str, dict, list, dataclasses, TypedDicts, and models of msgspec, pydantic and protobuf"
        )

    def read_model(payload: bytes) -> Any:
        try:
            return read_typed(payload, kind)
        except DocumentError as error:
            raise _misfit(kind, error) from error

    return read_model


def _reader_of_any(kind: Any) -> Read:
    def read_plain(payload: bytes) -> Any:
        try:
            return msgspec.convert(read_json(payload), kind)
        except (DocumentError, msgspec.ValidationError) as error:
            raise _misfit(kind, error) from error

    return read_plain


def _guarded(read: Read, kind: type) -> Read:
    def read_guarded(payload: bytes) -> Any:
        try:
            return read(payload)
        except (
            Exception
        ) as error:  # each library has its own; here it can only be about the payload
            raise _misfit(kind, error) from error

    return read_guarded


def _read_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise _misfit(str, error) from error


def _misfit(kind: Any, error: Exception) -> MisfitError:
    name = getattr(kind, "__name__", repr(kind))
    return MisfitError(f"no {name}: {' '.join(str(error).split())}")


def encoded(result: object) -> bytes:
    """What a handler returned, as a payload.

    Raises ConfigurationError: it is nothing that can be one; MisfitError: it has a number that JSON has not.
    """
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    if isinstance(result, str):
        return result.encode()
    if (dump := getattr(result, "model_dump_json", None)) is not None:
        text = str(dump())
        if "null" in text:  # so it may write NaN
            _json_of(result.model_dump())  # type: ignore[attr-defined]
        return text.encode()
    if (serialize := getattr(result, "SerializeToString", None)) is not None:
        return bytes(serialize())
    try:
        return _json_of(result)
    except TypeError as error:
        raise ConfigurationError(
            f"what the handler returned cannot be published: {error}"
        ) from error


def _json_of(result: object) -> bytes:
    try:
        return json_of(result)
    except UnfitError as error:
        raise MisfitError(f"what the handler returned cannot be published: {error}") from error
