"""Which values of Python's an Avro schema holds: checked before they are written.

A value fits if what is read back is equal. fastavro would round it, cut it, or take it for something else.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from .avro_values import (
    EXACTLY,
    LOCAL_TIMES,
    MOMENTS,
    NULL,
    TIMES_OF_DAY,
    AvroSchema,
    Convert,
    default_of,
    double,
    int_of,
    logical_of,
    long_of,
    members_of,
    short,
    shown,
    single,
    unfit,
)
from .errors import UnfitError

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_DAY: Final = _LOCAL_EPOCH.toordinal()
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def fitter(schema: AvroSchema) -> Convert:
    """What makes of a record in Python's types the plain one that ``AvroSchema.write`` takes.

    A value fits if what is read back is equal; nothing is rounded, cut or taken for something else.

    Raises (the function): UnfitError, which begins with the field.
    """
    return _Fitter(schema).fit(schema.root)


class _Fitter:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._records: dict[str, list[Convert]] = {}

    def fit(self, part: Any) -> Convert:
        node = self._schema.node(part)
        if isinstance(node, list):
            return self._union(node)
        kind = node["type"]
        if kind in ("record", "error"):
            return self._record(node)
        if kind == "array":
            return self._array(node)
        if kind == "map":
            return self._map(node)
        return _leaf(node)

    def _own_type(self, part: Any) -> type | None:
        """The type of Python's of which every value fits as it is, so that ``fit`` need not be called."""
        node = self._schema.node(part)
        return (
            None if isinstance(node, list) or logical_of(node) else _AS_THEY_ARE.get(node["type"])
        )

    def _array(self, node: Any) -> Convert:
        item, own = self.fit(node["items"]), self._own_type(node["items"])

        def fit(value: Any) -> Any:
            if not isinstance(value, list | tuple):
                raise unfit(value, "array")
            return [one if type(one) is own else item(one) for one in value]

        return fit

    def _map(self, node: Any) -> Convert:
        item, own = self.fit(node["values"]), self._own_type(node["values"])

        def fit(value: Any) -> Any:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise unfit(value, "map")
            for key in value:
                if not isinstance(key, str):
                    raise UnfitError(f"the key {short(key)} of a map is no string")
            return {key: one if type(one) is own else item(one) for key, one in value.items()}

        return fit

    def _record(self, node: Any) -> Convert:
        name = node["name"]
        cell = self._records.get(name)
        if cell is not None:
            known = cell
            return lambda value: known[0](value)
        cell = self._records[name] = []
        fields = [
            (one["name"], self._own_type(one["type"]), self.fit(one["type"]))
            for one in node["fields"]
        ]
        defaults: dict[str, Any] = dict(self._defaults(node))
        names = frozenset(each for each, _, _ in fields)

        def fit(value: Any) -> Any:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise unfit(value, f"record {name}")
            made: dict[str, Any] = {}
            there = fields
            if value.keys() != names:
                made = left_out(value)
                there = [each for each in fields if each[0] in value]
            field = ""
            try:
                for field, own, one in there:
                    found = value[field]
                    made[field] = found if type(found) is own else one(found)
            except UnfitError as error:
                raise UnfitError(f"{name}.{field}: {error}") from None
            return made

        def left_out(value: Mapping[Any, Any]) -> dict[str, Any]:
            for more in value:
                if more not in names:
                    raise UnfitError(f"record {name} has no field {short(more)}")
            missing = [each for each, _, _ in fields if each not in value]
            for each in missing:
                if each not in defaults:
                    raise UnfitError(f"{name}.{each}: it is not there, and has no default")
            return {each: defaults[each] for each in missing}

        cell.append(fit)
        return fit

    def _defaults(self, node: Any) -> Iterator[tuple[str, Any]]:
        for one in node["fields"]:
            kind = self._schema.node(one["type"])
            if "default" in one:
                try:
                    found = default_of(self._schema, kind, one["default"], pairs=True)
                except UnfitError:
                    continue  # who leaves the field out hears of it
                yield one["name"], found
            elif isinstance(kind, list) and any(
                self._schema.node(each)["type"] == NULL for each in kind
            ):
                yield one["name"], (NULL, None)

    def _union(self, union: list[Any]) -> Convert:
        branches = self._schema.branches(union)
        fits = {name: self.fit(node) for name, node in branches.items()}
        has_null = any(self._schema.node(one)["type"] == NULL for one in union)
        if len(fits) == 1:
            ((name, only),) = fits.items()
            null, own = (NULL, None), self._own_type(branches[name])

            def fit_only(value: Any) -> Any:
                if value is None and has_null:
                    return null
                return name, value if type(value) is own else only(value)

            return fit_only
        return self._several(branches, fits, has_null=has_null)

    def _several(
        self, branches: dict[str, Any], fits: dict[str, Convert], *, has_null: bool
    ) -> Convert:
        """The branch of the value's own type, else the first that holds it; Spark's struct tells which."""
        members = dict(zip(members_of(branches), fits, strict=True))
        own: dict[type, list[str]] = {}
        for name, node in branches.items():
            for kind in _types_of(node):
                own.setdefault(kind, []).append(name)
        if "double" in branches and "float" in branches:
            own[float] = ["double"]
        label = "union of " + ", ".join(branches)

        def fit(value: Any) -> Any:
            if value is None:
                if has_null:
                    return NULL, None
                raise unfit(value, label)
            if isinstance(value, dict) and value.keys() == members.keys():
                return of_member(value)
            first = own.get(type(value), ())
            reason: UnfitError | None = None
            for name in (*first, *(each for each in fits if each not in first)):
                try:
                    return name, fits[name](value)
                except UnfitError as error:
                    reason = reason or error
            raise UnfitError(f"{short(value)} is no {label}" + (f" ({reason})" if first else ""))

        def of_member(value: dict[str, Any]) -> Any:
            there = [member for member, one in value.items() if one is not None]
            if not there and has_null:
                return NULL, None
            if len(there) != 1:
                raise UnfitError(f"{len(there)} members of a {label} are there, not one")
            name = members[there[0]]
            return name, fits[name](value[there[0]])

        return fit


def _types_of(node: Any) -> tuple[type, ...]:
    """Python's types of which a value is meant for this branch."""
    logical = logical_of(node)
    if logical in _OWN_TYPES:
        return _OWN_TYPES[logical]
    return _OWN_TYPES.get(node["type"], ())


_OWN_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "enum": (str,),
    "bytes": (bytes, bytearray),
    "fixed": (bytes, bytearray),
    "array": (list, tuple),
    "map": (dict,),
    "record": (dict,),
    "decimal": (Decimal,),
    "uuid": (uuid.UUID, str),
    "date": (dt.date,),
    **dict.fromkeys(TIMES_OF_DAY, (dt.time,)),
    **dict.fromkeys(MOMENTS, (dt.datetime,)),
}


def _leaf(node: Any) -> Convert:
    logical, kind = logical_of(node), node["type"]
    if logical == "decimal":
        return _decimal(node)
    if logical in MOMENTS:
        is_local = logical in LOCAL_TIMES
        return _moment(logical, MOMENTS[logical], _LOCAL_EPOCH if is_local else _EPOCH)
    if logical in TIMES_OF_DAY:
        return _time(logical, TIMES_OF_DAY[logical])
    if logical == "date":
        return _day
    if logical == "uuid":
        return _uuid
    if kind == "fixed":
        return _fixed(node)
    if kind == "enum":
        return _symbol(node)
    return _LEAVES[kind]


def _null(value: Any) -> None:
    if value is not None:
        raise unfit(value, NULL)


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise unfit(value, "boolean")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise unfit(value, "bytes")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise unfit(value, "string")


_LEAVES: Final[dict[str, Convert]] = {
    NULL: _null,
    "boolean": _boolean,
    "int": int_of,
    "long": long_of,
    "float": single,
    "double": double,
    "bytes": _bytes,
    "string": _text,
}
_AS_THEY_ARE: Final[dict[str, type]] = {
    "boolean": bool,
    "double": float,
    "bytes": bytes,
    "string": str,
}


def _fixed(node: Any) -> Convert:
    size, label = node["size"], f"fixed {node['name']} of {node['size']} bytes"

    def fit(value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview) and len(value) == size:
            return bytes(value)
        raise unfit(value, label)

    return fit


def _symbol(node: Any) -> Convert:
    symbols, label = frozenset(node["symbols"]), f"symbol of enum {node['name']}"

    def fit(value: Any) -> str:
        if isinstance(value, str) and value in symbols:
            return value
        raise unfit(value, label)

    return fit


def _day(value: Any) -> int:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH_DAY
    raise unfit(value, "date")


def _moment(logical: str, unit: int, epoch: dt.datetime) -> Convert:
    is_local = epoch.tzinfo is None

    def fit(value: Any) -> int:
        if not isinstance(value, dt.datetime):
            raise unfit(value, logical)
        if (value.tzinfo is None) is not is_local:
            raise UnfitError(f"{value} is no {logical}: it has {'a' if is_local else 'no'} zone")
        since = value - epoch
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        if unit == 1:
            return micros
        whole, rest = divmod(micros, unit)
        if rest:
            raise UnfitError(f"{value} is no {logical}: it would be cut")
        return whole

    return fit


def _time(logical: str, unit: int) -> Convert:
    def fit(value: Any) -> int:
        if not isinstance(value, dt.time) or value.tzinfo is not None:
            raise unfit(value, logical)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        whole, rest = divmod(seconds * 1_000_000 + value.microsecond, unit)
        if rest:
            raise UnfitError(f"{value} is no {logical}: it would be cut")
        return whole

    return fit


def _uuid(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value
    raise unfit(value, "uuid")


def _decimal(node: Any) -> Convert:
    precision, scale = node["precision"], node.get("scale", 0)
    size = node["size"] if node["type"] == "fixed" else 0
    label = shown(node)

    def fit(value: Any) -> bytes:
        number = value
        if type(value) is not Decimal:
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                raise unfit(value, label)
            number = Decimal(value)
        if not number.is_finite() or (number and number.adjusted() >= precision - scale):
            raise unfit(value, label)
        unscaled = number.scaleb(scale, EXACTLY)
        whole = int(unscaled) if number else 0
        if unscaled != whole:
            raise unfit(value, label)
        try:
            return whole.to_bytes(size or (whole.bit_length() + 8) // 8, "big", signed=True)
        except OverflowError:
            raise unfit(value, f"{label} of {size} bytes") from None

    return fit
