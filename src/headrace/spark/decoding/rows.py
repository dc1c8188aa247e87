"""Rows of Python values as columns: for formats that decode one message at a time."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import HeadraceError
from ...schemas.limits import clipped
from .decoded import Decoded, Misfit
from .values import Fit, MisfitError, fit_for

if TYPE_CHECKING:
    import pyarrow as pa

DecodeOne: TypeAlias = Callable[[bytes, bytes], Mapping[str, Any]]


class Rows:
    """Decodes with ``decode_one(payload, headers)``, whose ``refused`` errors make a misfit."""

    def __init__(
        self, schema: pa.Schema, decode_one: DecodeOne, refused: tuple[type[Exception], ...]
    ) -> None:
        self._schema = schema
        self._decode_one = decode_one
        self._refused = refused
        self._fits: list[Fit] = [fit_for(field.type) for field in schema]

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
        columns = [
            self._column(field, fit, rows, payloads, misfits)
            for field, fit in zip(self._schema, self._fits, strict=True)
        ]
        return Decoded(columns, None, misfits)

    def _column(
        self,
        field: pa.Field,
        fit: Fit,
        rows: Sequence[Mapping[str, Any]],
        payloads: list[bytes],
        misfits: dict[int, Misfit],
    ) -> pa.Array:
        import pyarrow as pa

        values = [row.get(field.name) for row in rows]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            fitted: list[Any] = []
        for number, value in enumerate(values):
            try:
                fitted.append(fit(value))
            except MisfitError:
                fitted.append(None)
                reason = f"field {field.name!r} is no {field.type}"
                misfits.setdefault(number, misfit(payloads[number], reason))
        return pa.array(fitted, field.type)


def misfit(payload: bytes, reason: str) -> Misfit:
    """A value that is not text: what is rescued of it is the payload in base64."""
    return Misfit(clipped((reason.splitlines() or [""])[0]), base64.b64encode(payload).decode())
