"""Values that do not fit their column: what is rescued of them, and what becomes of them by the mode."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ...schemas.limits import clipped
from ..options.decoding import Mode

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("headrace.spark")

RESCUED_COLUMN: Final = "_rescued"


class Misfit(NamedTuple):
    """A value that did not fit: why, and what is rescued of it."""

    reason: str
    rescued: str


class MalformedError(Exception):
    """Values that do not fit, where that makes their messages bad: why, by the message's number."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__()
        self.reasons = reasons


def misfit(payload: bytes, reason: str) -> Misfit:
    """A value that is not text: what is rescued of it is the payload in base64."""
    return Misfit(clipped((reason.splitlines() or [""])[0]), base64.b64encode(payload).decode())


class Misfits:
    """Counts the misfits of one task, and does with them what the ``mode`` says.

    Args:
        rescued: the name of the column for these; "" for none.
        stream: for the report.
    """

    def __init__(self, mode: Mode, rescued: str, stream: str) -> None:
        self._mode = mode
        self._rescued = rescued
        self._stream = stream
        self._first = ""
        self.count = 0

    @property
    def drops(self) -> bool:
        """Whether their messages make no rows."""
        return self._mode == "dropmalformed"

    def add(self, found: Mapping[int, Misfit], sequence_of: Callable[[int], int]) -> None:
        """Count those of some messages, by number; ``sequence_of`` tells that of a message, for the report.

        Raises:
            MalformedError: in the mode failfast.
        """
        if self._mode == "failfast":
            raise MalformedError({number: one.reason for number, one in found.items()})
        if not self._first:
            number, first = min(found.items())
            self._first = f"message {sequence_of(number)}: {first.reason}"
        self.count += len(found)

    def rescue(
        self,
        arrays: dict[str, pa.Array],
        found: Mapping[int, Misfit],
        rows: pa.Array | None,
        messages: int,
    ) -> None:
        """Add to the ``arrays`` the column of what is rescued, if there is to be one.

        ``rows`` has the number of each row's message; None if each of the ``messages`` made one row.
        """
        if not self._rescued:
            return
        import pyarrow as pa

        if not found:
            column = pa.nulls(messages if rows is None else len(rows), pa.string())
        else:
            texts: list[str | None] = [None] * messages
            for number, one in found.items():
                texts[number] = one.rescued
            column = pa.array(texts, pa.string())
            column = column if rows is None else column.take(rows)
        arrays[self._rescued] = column

    def report(self) -> None:
        """Say how many values did not fit, if any."""
        if not self.count:
            return
        done = {"permissive": "are null", "dropmalformed": "were dropped"}[self._mode]
        _LOG.warning(
            "stream %r: %d values of this task did not fit and %s; the first is %s",
            self._stream,
            self.count,
            done + (f", see {self._rescued}" if self._rescued else ""),
            self._first,
        )
