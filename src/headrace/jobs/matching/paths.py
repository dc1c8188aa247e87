"""A path into JSON: ``$.order.lines[0].sku``. Names and indexes only: it costs what it is long. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from .. import limits
from ..errors import bad_request

__all__ = ["MISSING", "Path", "parse_path", "value_at"]

Path = tuple[str | int, ...]
MISSING: Final = object()
"""There is nothing at the path."""

_HOLDER: Final = {str: dict, int: list}
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def parse_path(text: str, field: str) -> Path:
    """The steps of a path; 400 for anything else."""
    if len(text) > limits.PATH_CHARS_MAX:
        raise bad_request(
            "invalid_path", f"at most {limits.PATH_CHARS_MAX} characters are accepted", field
        )
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    if not steps or at < len(text):
        raise bad_request(
            "invalid_path",
            f"{text[:80]!r} is no path; accepted are names and indexes, such as $.user.id or $.lines[0]",
            field,
        )
    if len(steps) > limits.PATH_STEPS_MAX:
        raise bad_request(
            "invalid_path", f"at most {limits.PATH_STEPS_MAX} names and indexes are accepted", field
        )
    return tuple(steps)


def value_at(document: Any, path: Path) -> Any:
    """What is there, or ``MISSING``."""
    for step in path:
        try:
            document = document[step] if type(document) is _HOLDER[type(step)] else MISSING
        except LookupError:
            document = MISSING
        if document is MISSING:
            return MISSING
    return document
