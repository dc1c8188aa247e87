"""The pages name what is there: types of the glossary, files of the architecture."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"


def test_each_word_of_the_glossary_has_a_type() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    types = re.findall(r"^- .* \(`(headrace\.[\w.]+)`\)$", text, re.MULTILINE)
    assert len(types) >= 30
    for name in types:
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), type), name


def test_the_words_of_the_glossary_are_in_order_and_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = [word.lower() for word in re.findall(r"^- \*\*(.+?)\*\*:", text, re.MULTILINE)]
    assert len(words) >= 30
    assert words == sorted(set(words))


PAGES = [ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "explanation").glob("*.md"))]
TOPS = ("src", "tests", "bench", "fuzz", "examples")
FILES = ["/" + str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py")]


def test_the_files_that_the_explanations_name_are_there() -> None:
    named = {
        (page.name, file)
        for page in PAGES
        for file in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text())
    }
    assert len({file for _, file in named}) > 80
    assert [
        (page, file)
        for page, file in sorted(named)
        if not any(path.endswith(f"/{file}") for path in FILES)
    ] == []


def test_the_modules_that_the_architecture_names_are_there() -> None:
    named = set(re.findall(r"`(headrace(?:\.[a-z_]+)+)`", PAGES[0].read_text()))
    assert len(named) > 10
    missing = []
    for name in named:
        path = "/src/" + name.replace(".", "/")
        if not {f"{path}.py", f"{path}/__init__.py"} & set(FILES):
            missing.append(name)
    assert missing == []
