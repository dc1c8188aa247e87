"""What a notebook shows of what it is given: errors without our own frames, documents and messages as tables.

IPython asks objects for ``_render_traceback_`` and ``_repr_html_``; it is not needed here.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Final

__all__ = ["table", "traceback_lines"]

_MACHINERY: Final = ("headrace", "asyncio", "concurrent.futures", "IPython", "ipykernel")
"""Packages whose frames tell a user nothing about the call that failed."""

_CAUSES_MAX: Final = 10
_CAUSED: Final = {
    True: "\nThe above exception was the direct cause of the following exception:\n",
    False: "\nDuring handling of the above exception, another exception occurred:\n",
}


def traceback_lines(error: BaseException) -> list[str]:
    """The traceback of an error with the frames of the user's own program, as a notebook prints it.

    What it was caused by is told before it, unless its text is in the error's own. Where frames are left
    out the last line says how to see them.
    """
    parts: list[list[str]] = []
    current: BaseException | None = error
    has_left_out = False
    while current is not None and len(parts) < _CAUSES_MAX:
        lines, left_out = _of_one(current)
        has_left_out |= left_out
        before, is_cause = _before(current)
        if before is not None:
            lines.insert(0, _CAUSED[is_cause])
        parts.insert(0, lines)
        current = before
    found = [line for part in parts for line in part]
    if has_left_out:
        found.append(
            "(without the frames of headrace; import sys, traceback; "
            "traceback.print_exception(sys.last_value) shows them)"
        )
    return found


def _of_one(error: BaseException) -> tuple[list[str], bool]:
    """Its lines, and whether frames are left out."""
    own = list(_own_frames(error.__traceback__))
    frames = traceback.StackSummary.extract(iter(own), lookup_lines=True)
    shown = "".join(frames.format()).rstrip("\n")
    told = "".join(traceback.format_exception_only(error)).rstrip("\n")
    head = ["Traceback (most recent call last):", shown] if shown else []
    total = sum(1 for _ in traceback.walk_tb(error.__traceback__))
    return [*head, told], len(own) < total


def _own_frames(found: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    for frame, line in traceback.walk_tb(found):
        name = str(frame.f_globals.get("__name__", ""))
        if not any(name == each or name.startswith(f"{each}.") for each in _MACHINERY):
            yield frame, line


def _before(error: BaseException) -> tuple[BaseException | None, bool]:
    """The error to be told before this one, and whether that is its cause."""
    is_cause = error.__cause__ is not None
    before = error.__cause__
    if before is None and not error.__suppress_context__:
        before = error.__context__
    if before is None:
        return None, False
    is_told = str(before) in str(error) and not any(_own_frames(before.__traceback__))
    return (None, False) if is_told else (before, is_cause)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table in HTML; every text is escaped."""
    from html import escape  # it brings thousands of names, which no other use needs

    titles = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{said}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
