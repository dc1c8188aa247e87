"""The table of what each thing takes: its rows are those of the benchmark that measures them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import guides

sys.path.insert(0, str(guides.ROOT / "bench"))

import contenders
import footprint


def test_the_page_has_what_the_benchmark_makes() -> None:
    text = (guides.ROOT / "docs" / "limits.md").read_text()
    _, _, part = text.partition("### What each thing takes\n")
    rows = re.findall(r"(?m)^\| ([\w ()]+) \| ([\d,]+) \|", part.partition("\n### ")[0])
    assert rows == [(name, f"{count:,}") for name, (_, _, count) in footprint.THINGS.items()]


@pytest.mark.parametrize(
    ("make", "files"), [(footprint.connections, 1.0), (footprint.consumers, 0.0)]
)
def test_a_connection_takes_one_open_file_and_a_consumer_none(
    make: footprint.Make, files: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "ROOT", tmp_path)
    _, opened = footprint.measure(contenders.HEADRACE, make, 2, 20)
    assert opened == files
