"""The pages name what is there: types of the glossary, files of the architecture."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"


def test_each_word_of_the_glossary_has_a_type() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    types = re.findall(r"\| `(headrace\.[\w.]+)` \|$", text, re.MULTILINE)
    assert len(types) >= 30
    for name in types:
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), type), name


def test_the_words_of_the_glossary_are_in_order_and_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = [row.split("|")[1].strip().lower() for row in text.splitlines() if " `headrace." in row]
    assert words == sorted(set(words))


def test_the_files_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    assert len(named) > 20
    known = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("[st][re]*/**/*.py")]
    missing = [
        name
        for name in named
        if not any(path.endswith(f"/{name}") or path == name for path in known)
    ]
    assert not missing
