"""The accepted differences, read from ``docs/compatibility.md``, so that the page cannot drift."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
_ROW = re.compile(
    r"^\| (?P<names>`[^`]+`(?:<br>`[^`]+`)*) \|(?P<difference>[^|]+)\|(?P<reason>[^|]+)\|$"
)


def accepted_differences() -> dict[str, str]:
    """The reason by scenario; rows are ``| `scenario`<br>`scenario` | difference | reason |``."""
    found: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        row = _ROW.match(line)
        if row:
            assert row["reason"].strip(), f"{row['names']} is listed without a reason"
            for name in re.findall(r"`([^`]+)`", row["names"]):
                assert name not in found, f"{name!r} is listed twice"
                found[name] = row["reason"].strip()
    return found
