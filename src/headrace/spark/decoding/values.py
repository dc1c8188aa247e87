"""Fits Python values into the types of columns, one value at a time.

``fit_for`` is for values of JSON, where a whole column does not fit: its rules are those of Spark's
``from_json``, as far as the readers of whole columns have the same. ``taker`` is for formats whose values
have types of their own.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...schemas.avro_values import EXACTLY, fails, single, text_of_bytes
from ...schemas.errors import UnfitError

if TYPE_CHECKING:
    import pyarrow as pa

Fit: TypeAlias = Callable[[Any], Any]


class Constant(float):
    """A number of a document that says that it is none, or infinite."""


class MinusZero(int):
    """The whole number -0, which has its sign as a float only."""

    def __float__(self) -> float:
        return -0.0


def fit_for(kind: pa.DataType) -> Fit:
    """A function that makes of a value one that Arrow takes for ``kind``; None stays None.

    Raises (the function): UnfitError.
    """
    fit = _fit_for(kind)
    return lambda value: None if value is None else fit(value)


def _fit_for(kind: pa.DataType) -> Fit:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        fields = [(field.name, fit_for(field.type)) for field in kind]
        return lambda value: _struct(value, fields)
    if types.is_map(kind):
        key, item = fit_for(kind.key_type), fit_for(kind.item_type)
        return lambda value: [(key(k), item(v)) for k, v in _is_a(value, Mapping).items()]
    if types.is_list(kind):
        element = fit_for(kind.value_type)
        return lambda value: [element(one) for one in _is_a(value, list)]
    if types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return lambda value: _integer(value, bound)
    if types.is_floating(kind):
        return _single if types.is_float32(kind) else _floating
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if types.is_boolean(kind):
        return lambda value: _is_a(value, bool)
    if types.is_string(kind):
        return _string
    if types.is_binary(kind):
        return _binary
    if types.is_date(kind):
        return _date
    if types.is_timestamp(kind):
        return _timestamp if kind.tz else _local_timestamp
    raise TypeError(f"no value can be fitted into {kind}")


def _is_a(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise UnfitError
    return value


def _struct(value: Any, fields: list[tuple[str, Fit]]) -> dict[str, Any]:
    found = _is_a(value, Mapping)
    return {name: fit(found.get(name)) for name, fit in fields}


def _integer(value: Any, bound: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
        raise UnfitError
    return value


def _number(value: Any) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnfitError
    return value


_NOT_FINITE: Final = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}
"""What ``from_json`` takes for numbers that JSON has not, in lower case."""


def _floating(value: Any) -> float:
    if isinstance(value, str):
        found = _NOT_FINITE.get(value.lower())
        if found is None:
            raise UnfitError
        return found
    number = _number(value)
    try:
        made = float(number)
    except OverflowError:
        raise UnfitError from None
    if math.isinf(made) and type(number) is not Constant:
        raise UnfitError  # of 1e400 nobody wants infinity
    return made


_SINGLE_MAX: Final = 3.4028235677973366e38
"""From here on 32 bits have only infinity."""


def _single(value: Any) -> float:
    made = _floating(value)
    if _SINGLE_MAX <= abs(made) < math.inf:
        raise UnfitError
    return made


_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    """Only what is exact: rounding money silently is nobody's wish."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise UnfitError
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise UnfitError  # Python takes 1_000 for a number, too
    try:
        number = Decimal(value)
        _, digits, exponent = number.normalize(EXACTLY).as_tuple()
    except InvalidOperation:
        raise UnfitError from None
    if not isinstance(exponent, int):
        raise UnfitError
    if number and (-exponent > scale or len(digits) + exponent > precision - scale):
        raise UnfitError
    return number


def _string(value: Any) -> str:
    text: str = _is_a(value, str)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise UnfitError from None
    return text


def _binary(value: Any) -> bytes:
    """Bytes; of text what it is in base64, as ``from_json`` takes it."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(_is_a(value, str), validate=True)
    except ValueError:
        raise UnfitError from None


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(_is_a(value, str))
    except ValueError:
        raise UnfitError from None


def _timestamp(value: Any) -> datetime:
    """A time; one without a zone is UTC."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(_is_a(value, str))
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UnfitError from None


def _local_timestamp(value: Any) -> datetime:
    return _timestamp(value).replace(tzinfo=None)


def _as_bytes(value: str | bytes) -> bytes:
    """Text as bytes; protobuf has bytes where text of proto2 is no UTF-8."""
    return value if isinstance(value, bytes) else value.encode()


def taker(source: str, kind: pa.DataType) -> Fit | None:
    """A function that makes of a format's value one that Arrow takes for ``kind`` as it is, or not at all.

    None: Arrow does so without it. ``source`` is what the format calls the value: boolean, int, long, float,
    double, string or bytes.

    Raises (the function): UnfitError.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind) and source not in ("string", "bytes"):
        return lambda value: json.dumps(value)
    if source in ("int", "long") and (types.is_integer(kind) or types.is_floating(kind)):
        return None  # it looks whether they are exact
    if source in ("int", "long", "float", "double") and types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if source in ("float", "double") and types.is_floating(kind):
        return single if types.is_float32(kind) and source == "double" else None
    if source == "boolean" and types.is_boolean(kind):
        return None
    if source == "bytes":
        if types.is_string(kind):
            return text_of_bytes
        return None if types.is_binary(kind) else fails(f"bytes are no {kind}")
    if source == "string" and not types.is_nested(kind):
        if types.is_binary(kind):
            return _as_bytes
        return None if types.is_string(kind) else _fit_for(kind)
    return fails(f"{source} is no {kind}")
