"""Who lets go of something that still receives messages is told so, as the standard library does it."""

from __future__ import annotations

import asyncio
import sys
import warnings
from pathlib import Path
from typing import Final

_HOME: Final = str(Path(__file__).parents[2])
_LIBRARY: Final = str(Path(asyncio.__file__).parent)


def place_of_call() -> str:
    """File and line of whoever called into this package, or of nobody: ""."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith(_LIBRARY):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_of_left(what: object, place: str, instead: str) -> None:
    """Warn that ``what``, made at ``place``, was let go of before its end. Called by its ``__del__``; the
    line warned of is the one that let go, unless it was found as garbage."""
    made = f", made in {place}" if place else ""
    warnings.warn(
        f"{what!r} was left open{made}; {instead}", ResourceWarning, stacklevel=3, source=what
    )
