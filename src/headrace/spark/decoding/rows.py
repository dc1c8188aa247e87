"""Rows of Python values as columns: for formats that decode one message at a time."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import HeadraceError
from ...schemas.errors import UnfitError
from ...schemas.limits import clipped
from .decoded import Decoded, Misfit

if TYPE_CHECKING:
    import pyarrow as pa

DecodeOne: TypeAlias = Callable[[bytes, bytes], Mapping[str, Any]]


class Unfit:
    """Stands where a column has no value, and says why."""

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
            why = value.reason if isinstance(value, Unfit) else ""
            if not why:
                try:
                    fitted.append(pa.array([value], field.type))
                    continue
                except _refusals() as error:
                    why = str(error)
            fitted.append(pa.nulls(1, field.type))
            reason = f"field {field.name!r} is no {field.type}: {why}"
            misfits.setdefault(number, misfit(payloads[number], reason))
        return pa.concat_arrays(fitted)


def _refusals() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return pa.ArrowException, OverflowError, TypeError, ValueError


def misfit(payload: bytes, reason: str) -> Misfit:
    """A value that is not text: what is rescued of it is the payload in base64."""
    return Misfit(clipped((reason.splitlines() or [""])[0]), base64.b64encode(payload).decode())
