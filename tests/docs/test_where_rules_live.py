"""Each rule of the page is where the page says: the file is there, and defines the name."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from guides import ROOT

PAGE = (ROOT / "docs" / "explanation" / "where-rules-live.md").read_text()
ROWS = re.findall(r"(?m)^\| ([^|]+) \| `([\w/]+\.py)` \| `([\w.]+)` \|$", PAGE)


@cache
def defined_in(file: str) -> frozenset[str]:
    """Names that a module defines at its top, and ``Class.name`` of what its classes define."""
    tree = ast.parse((ROOT / "src" / "headrace" / file).read_text())
    names = set(_names_of(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for name in _names_of(node.body)}
    return frozenset(names)


def _names_of(body: list[ast.stmt]) -> list[str]:
    names = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return names


@pytest.mark.parametrize(("rule", "file", "name"), ROWS, ids=[rule for rule, _, _ in ROWS])
def test_a_rule_is_in_its_file(rule: str, file: str, name: str) -> None:
    assert name in defined_in(file), f"{rule}: {file} does not define {name}"


def test_every_row_of_the_page_is_read() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    heads = [line for line in rows if line.startswith(("| rule ", "| --- "))]
    assert len(ROWS) == len(rows) - len(heads) >= 60


def test_a_rule_has_one_row() -> None:
    rules = [rule for rule, _, _ in ROWS]
    assert len(rules) == len(set(rules))
