"""How much a schema, or what is said of one, may be: strangers write both."""

from __future__ import annotations

from typing import Final

DEPTH_MAX: Final = 200
"""Records, arrays, maps and unions in each other, where a schema is not within itself."""
NOTHINGS_MAX: Final = 32
"""Values of an Avro record that take no bytes."""
SCHEMAS_KEPT_MAX: Final = 1000
"""Schemas of writers that are kept."""
REASON_CHARACTERS_MAX: Final = 300


def clipped(text: str) -> str:
    """The beginning of a long text."""
    cut = len(text) > REASON_CHARACTERS_MAX
    return text[:REASON_CHARACTERS_MAX] + "…" if cut else text
