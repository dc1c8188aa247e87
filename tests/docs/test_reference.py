"""The reference has every public name."""

from __future__ import annotations

import importlib
import re

import pytest

import guides

REFERENCE = guides.ROOT / "docs" / "reference"


@pytest.mark.parametrize(
    "module",
    [
        "headrace",
        "headrace.sync",
        "headrace.groups",
        "headrace.jobs.client",
        "headrace.console",
        "headrace.worker",
        "headrace.locks",
        "headrace.testing",
    ],
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    text = "".join(
        page.read_text()
        for page in REFERENCE.glob("api-*.md")
        if f"currentmodule:: {module}\n" in page.read_text()
    )
    listed = set(re.findall(r"(?m)^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", text))
    public = {name for name in importlib.import_module(module).__all__ if not name.startswith("_")}
    assert listed == public


def test_every_page_is_reached_from_the_first() -> None:
    reached, queue = set(), [guides.ROOT / "docs" / "index.md"]
    while queue:
        page = queue.pop()
        if page in reached:
            continue
        reached.add(page)
        for tree in re.findall(r"(?s)```\{toctree\}\n(.*?)```", page.read_text()):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            queue += [(page.parent / f"{name}.md").resolve() for name in names]
    pages = {
        page.resolve()
        for page in (guides.ROOT / "docs").rglob("*.md")
        if "_build" not in page.parts
    }
    assert pages == {page.resolve() for page in reached}
