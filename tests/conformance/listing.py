"""The accepted differences, read from ``docs/compatibility.md``, so that the page cannot drift."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|(?P<difference>[^|]+)\|(?P<reason>[^|]+)\|$")


def accepted_differences() -> dict[str, str]:
    """The reason by scenario; the page's table is ``| `scenario` | difference | reason |``."""
    found: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        row = _ROW.match(line)
        if row:
            assert row["name"] not in found, f"{row['name']!r} is listed twice"
            assert row["reason"].strip(), f"{row['name']!r} is listed without a reason"
            found[row["name"]] = row["reason"].strip()
    return found
