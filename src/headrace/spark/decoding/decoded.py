"""What a format makes of payloads: columns, or rows of Python values as columns.

How large a schema may be, or what is said of a value, lies here too: strangers write both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ...errors import ConfigurationError, HeadraceError
from ...schemas.errors import UnfitError
from ...schemas.limits import DEPTH_MAX, clipped
from .misfits import Misfit, misfit

if TYPE_CHECKING:
    import pyarrow as pa


COLUMNS_MAX: Final = 10_000
"""Columns of a schema, with those within columns: one that is used twice counts twice."""
_NAMES_SHOWN: Final = 20


class ColumnBudget:
    """Counts columns while they are made, as a few types can name each other often."""

    def __init__(self) -> None:
        self._left = COLUMNS_MAX

    def take(self, depth: int) -> None:
        """One more, in so many others. Raises ConfigurationError."""
        self._left -= 1
        if self._left < 0:
            raise ConfigurationError(
                f"jetstream source: the schema has more than {COLUMNS_MAX} columns, with those within columns"
            )
        if depth > DEPTH_MAX:
            raise ConfigurationError(
                f"jetstream source: the schema has more than {DEPTH_MAX} types in each other"
            )


def brief(error: BaseException) -> str:
    """What an error says, without what is too long to be read."""
    return clipped(f"{type(error).__name__}: {error}")


def some_of(names: list[str]) -> str:
    """The first of many names."""
    more = f", and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return clipped(", ".join(names[:_NAMES_SHOWN])) + more


class Decoded(NamedTuple):
    """The value's columns.

    ``rows`` has, for each row of them, the number of its message; None if each message made one row.
    ``misfits`` are by the number of the message, each of which has at least one row.
    """

    columns: Sequence[pa.Array]
    rows: Sequence[int] | None
    misfits: dict[int, Misfit]


class Format(Protocol):
    """Decodes many payloads at once; ``headers`` are their raw header blocks."""

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded: ...


@runtime_checkable
class ArrayFormat(Protocol):
    """Decodes payloads without their headers, as an Arrow array."""

    def decode_together(self, payloads: pa.BinaryArray) -> Sequence[pa.Array] | None:
        """The value's columns, a row for each payload; None if one is out of the ordinary."""
        ...


SHOWN_CHARACTERS = 80


def shown(payload: bytes) -> str:
    """The beginning of a payload, for error texts."""
    text = payload.decode(errors="backslashreplace")
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


VALUE_COLUMN = "value"


class TextFormat:
    """Decodes UTF-8."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        import pyarrow as pa

        columns = self.decode_together(pa.array(payloads, pa.binary()))
        misfits: dict[int, Misfit] = {}
        if columns is None:
            texts: list[str | None] = []
            for number, payload in enumerate(payloads):
                try:
                    texts.append(payload.decode())
                except UnicodeDecodeError:
                    texts.append(None)
                    text = payload.decode(errors="backslashreplace")
                    misfits[number] = Misfit(f"not UTF-8: {shown(payload)}", text)
            columns = [pa.array(texts, pa.string())] if self._wanted else []
        return Decoded(columns, None, misfits)

    def decode_together(self, payloads: pa.BinaryArray) -> list[pa.Array] | None:
        import pyarrow as pa

        try:
            column = payloads.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        return [column] if self._wanted else []


DecodeOne: TypeAlias = Callable[[bytes, bytes], Mapping[str, Any]]


class Unfit:
    """Stands where a column has no value, and says why; nothing, if its type says all."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Take:
    """Makes the values of columns of one message.

    Args:
        fields: a column's name, where its value comes from (None: it is always the last), what makes it fit.
    """

    def __init__(
        self, fields: Sequence[tuple[str, str | None, Callable[[Any], Any] | None, Any]]
    ) -> None:
        self._moved = [(name, source) for name, source, *_ in fields if source is not None]
        self._is_in_place = all(name == source for name, source in self._moved)
        self._constant = {name: default for name, source, _, default in fields if source is None}
        self._converts = [(name, convert) for name, _, convert, _ in fields if convert is not None]

    def __call__(self, found: dict[str, Any]) -> dict[str, Any]:
        """The values; ``found`` may be changed to have them."""
        made = found if self._is_in_place else {name: found[at] for name, at in self._moved}
        made.update(self._constant)
        for name, convert in self._converts:
            try:
                made[name] = convert(made[name])
            except (UnfitError, RecursionError) as error:
                made[name] = Unfit(str(error))
        return made


class Rows:
    """Decodes with ``decode_one(payload, headers)``, whose ``refused`` errors make a misfit.

    What it returns Arrow takes as it is, or not at all; it may have an ``Unfit``.
    """

    def __init__(
        self, schema: pa.Schema, decode_one: DecodeOne, refused: tuple[type[Exception], ...]
    ) -> None:
        self._schema = schema
        self._decode_one = decode_one
        self._refused = refused

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        rows: list[Mapping[str, Any]] = []
        misfits: dict[int, Misfit] = {}
        for number, (payload, block) in enumerate(zip(payloads, headers, strict=True)):
            try:
                rows.append(self._decode_one(payload, block))
            except HeadraceError:
                raise
            except self._refused as error:
                rows.append({})
                misfits[number] = misfit(payload, f"{type(error).__name__}: {error}")
        columns = [self._column(field, rows, payloads, misfits) for field in self._schema]
        return Decoded(columns, None, misfits)

    def _column(
        self,
        field: pa.Field,
        rows: Sequence[Mapping[str, Any]],
        payloads: list[bytes],
        misfits: dict[int, Misfit],
    ) -> pa.Array:
        import pyarrow as pa

        values = [row.get(field.name) for row in rows]
        try:
            return pa.array(values, field.type)
        except _refusals():
            fitted: list[pa.Array] = []
        for number, value in enumerate(values):
            if isinstance(value, Unfit):
                why = value.reason
            else:
                try:
                    fitted.append(pa.array([value], field.type))
                    continue
                except _refusals() as error:
                    why = str(error)
            fitted.append(pa.nulls(1, field.type))
            reason = f"field {field.name!r} is no {field.type}" + (f": {why}" if why else "")
            misfits.setdefault(number, misfit(payloads[number], reason))
        return pa.concat_arrays(fitted)


def _refusals() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return pa.ArrowException, OverflowError, TypeError, ValueError
