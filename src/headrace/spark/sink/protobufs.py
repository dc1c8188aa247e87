"""Rows as Protocol Buffers messages of one type of a descriptor set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from ...errors import ConfigurationError
from ...schemas.avro_values import double, short, single
from ..decoding.decoded import some_of
from ..decoding.protobufs import descriptor, is_map, is_repeated, path_of
from .options import ACCEPTED, ValueSchema

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE_MAX: Final = 1 << 64
Put = Callable[[Any, Any], None]


def encoder(schema: ValueSchema, columns: Iterable[str]) -> Callable[[Mapping[str, Any]], bytes]:
    """What makes the bytes of a row, with what Confluent's readers need before them if the schema says so.

    A null is a field that is not set. Raises ConfigurationError if the message cannot be used, or has no
    field for a column.
    """
    try:
        kind = descriptor(schema.text, schema.message)
    except ConfigurationError as error:
        raise ACCEPTED.error(str(error).removeprefix("jetstream source: ")) from None
    from google.protobuf import message as messages
    from google.protobuf import message_factory

    missing = [name for name in columns if name not in kind.fields_by_name]
    if missing:
        raise ACCEPTED.error(
            f"message {schema.message!r} has no field {missing[0]!r}; there are: "
            + some_of(list(kind.fields_by_name.keys()))
        )
    make = message_factory.GetMessageClass(kind)
    front = schema.prefix + (path_of(kind) if schema.prefix else b"")
    fill = _Fields().fill

    def encode(row: Mapping[str, Any]) -> bytes:
        message = make()
        fill(message, row)
        try:
            made: bytes = front + message.SerializeToString(deterministic=True)
        except messages.EncodeError as error:  # proto2 has fields that must be set
            raise ValueError(str(error)) from None
        return made

    return encode


class _Fields:
    """Sets the fields of messages by what each is; messages may lie in each other."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Put]] = {}
        self._oneofs: dict[str, list[tuple[str, list[str]]]] = {}

    def fill(self, message: Any, row: Mapping[str, Any]) -> None:
        """Raises ValueError or TypeError if a value does not fit."""
        kind = message.DESCRIPTOR
        puts = self._known.get(kind.full_name)
        if puts is None:
            puts = self._known[kind.full_name] = {one.name: self._put(one) for one in kind.fields}
            self._oneofs[kind.full_name] = [
                (group.name, [one.name for one in group.fields])
                for group in kind.oneofs
                if len(group.fields) > 1
            ]
        for name, value in row.items():
            if value is None:
                continue
            if name not in puts:
                raise ValueError(f"{kind.full_name} has no field {name!r}")
            try:
                puts[name](message, value)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{kind.full_name}.{name}: {error}") from None
        for group, names in self._oneofs[kind.full_name]:
            if sum(row.get(name) is not None for name in names) > 1:
                raise ValueError(f"{kind.full_name} holds one field of {group!r}, not several")

    def _put(self, field: Any) -> Put:
        name, fit = field.name, _fit(field)
        if is_map(field):
            return self._put_map(field)
        if is_repeated(field):
            return self._put_list(field)
        if field.message_type is None:
            return lambda message, value: setattr(message, name, fit(value))
        return lambda message, value: self._put_message(getattr(message, name), value)

    def _put_message(self, message: Any, value: Any) -> None:
        if message.DESCRIPTOR.full_name == _TIMESTAMP:
            if not isinstance(value, datetime):
                raise ValueError(f"a time is needed, not {type(value).__name__}")
            if value.tzinfo is None:
                raise ValueError(f"{value} has no zone, and {_TIMESTAMP} is an instant")
            since = value - _EPOCH
            message.seconds = since.days * 86_400 + since.seconds
            message.nanos = since.microseconds * 1000
            return
        if not isinstance(value, Mapping):
            raise ValueError(f"{message.DESCRIPTOR.full_name} is made of a struct")
        message.SetInParent()  # it is there, also without a field
        self.fill(message, value)

    def _put_list(self, field: Any) -> Put:
        name, fit = field.name, _fit(field)

        def put(message: Any, values: Any) -> None:
            if not isinstance(values, list) or None in values:
                raise ValueError(f"{name} is a list without nulls")
            container = getattr(message, name)
            if field.message_type is None:
                container.extend(map(fit, values))
                return
            for value in values:
                self._put_message(container.add(), value)

        return put

    def _put_map(self, field: Any) -> Put:
        name, entry = field.name, field.message_type.fields_by_name
        fit_key, fit_value = _fit(entry["key"]), _fit(entry["value"])
        of_messages = entry["value"].message_type is not None

        def put(message: Any, values: Any) -> None:
            if not isinstance(values, Mapping) or None in values.values():
                raise ValueError(f"{name} is a map without nulls")
            container = getattr(message, name)
            for key, value in values.items():
                if of_messages:
                    self._put_message(container[fit_key(key)], value)
                else:
                    container[fit_key(key)] = fit_value(value)

        return put


def _fit(field: Any) -> Callable[[Any], Any]:
    """What brings a value into the form that the field takes; refuses what it would take for something else.

    Raises (the function): ValueError.
    """
    if field.enum_type is not None:
        return _enum(field)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return single
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return double
    if field.cpp_type == field.CPPTYPE_BOOL:
        return _boolean
    if field.cpp_type == field.CPPTYPE_STRING:
        kind = bytes if field.type == field.TYPE_BYTES else str
        return lambda value: _is_a(value, kind)
    return _whole


def _enum(field: Any) -> Callable[[Any], Any]:
    numbers = {one.name: one.number for one in field.enum_type.values}

    def number_of(value: Any) -> Any:
        if not isinstance(value, str):
            return _whole(value)
        if value not in numbers:
            raise ValueError(f"{field.name} is {value!r}; there are: {some_of(list(numbers))}")
        return numbers[value]

    return number_of


def _is_a(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{short(value)} is no {kind.__name__}")
    return value


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise ValueError(f"{short(value)} is no bool")


def _whole(value: Any) -> int:
    """A whole number; the field itself looks whether it is in its range."""
    if type(value) is int:
        return value
    if isinstance(value, Decimal):
        if not value.is_finite() or not -_WHOLE_MAX < value < _WHOLE_MAX or int(value) != value:
            raise ValueError(f"{value} is no whole number of at most 64 bits")
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{short(value)} is no whole number")
    return value
