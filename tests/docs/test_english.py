"""Phrases that readers stumbled over do not come back."""

from __future__ import annotations

import re

import pytest

from guides import ROOT
from headrace.quantities import counted

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize(
    "phrase",
    ["what fingers and scripts know", "rooms fit", "which there is not", "since 5m", "Come from "],
)
def test_a_phrase_is_in_no_page(phrase: str) -> None:
    assert [str(page) for page in PAGES if phrase in page.read_text()] == []


LAWFUL = ("in_msgs", "out_msgs", ":>12", "{msgs:,}", "of {config.max_")
"""Where there are always many, or the words are a table's."""


def test_commands_count_what_may_be_one_with_counted() -> None:
    """ "1 messages" is what a reader sees first where there is little."""
    source = ROOT / "src" / "headrace"
    files = [*(source / "cli").rglob("*.py"), *(source / "doctor").rglob("*.py")]
    told = re.compile(
        r"f\".*\{[^{}]*\} (messages|consumers|streams|members|entries|files|partitions|jobs)\b"
    )
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in files
        for line in path.read_text().splitlines()
        if told.search(line) and not any(word in line for word in LAWFUL)
    ]
    assert found == []
    assert (counted(1, "message"), counted(2000, "message")) == ("1 message", "2,000 messages")
