"""Patterns of payloads: JSON whose values at some paths are like given ones fits. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...documents import DocumentError, read_json
from .. import limits
from ..errors import bad_request
from .patterns import MISSING, fits_one, parse_path, value_at

__all__ = ["Patterns", "check_paths", "document_of", "fitting_paths", "read_paths"]

Patterns = Mapping[str, Sequence[str]]
"""Patterns by path, such as ``$.order.id``: one has to be like the value (``*`` is any text)."""


def check_paths(wanted: Patterns, field: str) -> None:
    """Refuse a path that is none, a path without a pattern, and too many of anything (400)."""
    if len(wanted) > limits.PAYLOAD_PATHS_MAX:
        most = limits.PAYLOAD_PATHS_MAX
        raise bad_request("invalid_path", f"at most {most} paths are accepted", field)
    for path, patterns in wanted.items():
        parse_path(path, field)
        if not 1 <= len(patterns) <= limits.FILTER_PATTERNS_MAX:
            raise bad_request(
                "invalid_pattern", f"1 to {limits.FILTER_PATTERNS_MAX} patterns are accepted", field
            )
        if any(len(pattern) > limits.FILTER_PATTERN_CHARS_MAX for pattern in patterns):
            most = limits.FILTER_PATTERN_CHARS_MAX
            raise bad_request("invalid_pattern", f"a pattern has at most {most} characters", field)


def read_paths(texts: Sequence[str], field: str) -> dict[str, tuple[str, ...]]:
    """Read texts such as ``$.order.id=7``; 400 for any other."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        path, is_there, pattern = text.partition("=")
        if not is_there:
            raise bad_request(
                "invalid_path", f"{text[:80]!r}: accepted is PATH=PATTERN, such as $.id=7", field
            )
        found[path] = (*found.get(path, ()), pattern)
    check_paths(found, field)
    return found


def document_of(payload: bytes) -> Any:
    """The JSON value, or ``MISSING``."""
    try:
        return read_json(payload)
    except DocumentError:
        return MISSING


def fitting_paths(wanted: Patterns) -> Callable[[Any], bool]:
    """Tells of a document (or of ``MISSING``) whether it fits: at each path a value like a pattern of it.

    Texts are compared as they are, numbers, ``true``, ``false`` and ``null`` as JSON writes them. What is not
    there fits nothing, and neither do objects and lists.
    """
    each = [(parse_path(path, "payload"), fits_one(patterns)) for path, patterns in wanted.items()]

    def fits(document: Any) -> bool:
        for path, fits_value in each:
            value = MISSING if document is MISSING else value_at(document, path)
            text = _text_of(value)
            if text is None or not fits_value(text):
                return False
        return True

    return fits


def _text_of(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return None
