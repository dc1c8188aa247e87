"""The accepted differences, read from ``docs/compatibility.md``, so that the page cannot drift."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
_ROW = re.compile(
    r"^\| (?P<names>`[^`]+`(?:<br>`[^`]+`)*) \|(?P<difference>[^|]+)\|(?P<reason>[^|]+)\|$"
)


def accepted_differences(scenarios: Collection[str]) -> dict[str, str]:
    """The reason by scenario; rows are ``| `scenario`<br>`scenario` | difference | reason |``.

    ``…`` in a name stands for any text: such a row is of each of these scenarios that it fits.
    """
    found: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        row = _ROW.match(line)
        if row:
            assert row["reason"].strip(), f"{row['names']} is listed without a reason"
            for listed in re.findall(r"`([^`]+)`", row["names"]):
                pattern = re.compile(".+".join(map(re.escape, listed.split("…"))))
                names = [name for name in scenarios if pattern.fullmatch(name)]
                assert names, f"{listed!r} is no scenario"
                for name in names:
                    assert name not in found, f"{name!r} is listed twice"
                    found[name] = row["reason"].strip()
    return found
