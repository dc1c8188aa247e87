"""The kinds of findings, and their page (`headrace.findings.finding`)."""

from __future__ import annotations

import re

import guides
from headrace.findings.finding import KINDS


def test_the_page_lists_every_kind_in_its_words() -> None:
    text = (guides.ROOT / "docs" / "findings.md").read_text()
    rows = re.findall(r"(?m)^\| `([\w-]+)` \| (.*?) \| (.+) \|$", text)
    assert [name for name, _, _ in rows] == list(KINDS)
    for name, meaning, mend in rows:
        assert meaning.startswith(KINDS[name].rstrip(".")), name
        assert mend


def test_every_kind_is_told_by_somebody() -> None:
    sources = "".join(
        path.read_text()
        for part in ("findings/*.py", "doctor.py", "cli/doctor.py", "console/*.py")
        for path in (guides.ROOT / "src" / "headrace").glob(part)
        if path.name != "finding.py"
    )
    assert {name for name in KINDS if f'name="{name}"' not in sources} == set()
