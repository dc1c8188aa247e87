"""What a format makes of payloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


class Misfit(NamedTuple):
    """A value that did not fit: why, and what is rescued of it."""

    reason: str
    rescued: str


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
