"""Phrases that readers stumbled over do not come back."""

from __future__ import annotations

import pytest

from guides import ROOT

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize(
    "phrase",
    ["what fingers and scripts know", "rooms fit", "which there is not", "since 5m", "Come from "],
)
def test_a_phrase_is_in_no_page(phrase: str) -> None:
    assert [str(page) for page in PAGES if phrase in page.read_text()] == []
