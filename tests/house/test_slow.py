"""What `make test` leaves out has something that stands for it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.slow" in path.read_text()
]

Tests = dict[str, bool]
"""Names of a file's tests, and whether each is left out."""


def is_slow(node: ast.AST) -> bool:
    return ast.unparse(node) == "pytest.mark.slow" if isinstance(node, ast.Attribute) else False


def marks_of(tree: ast.AST) -> Iterator[ast.AST]:
    """``pytest.mark.slow``, called or not."""
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_slow(node.func)]
    yield from called
    bases = {id(node.func) for node in called}
    yield from (node for node in ast.walk(tree) if is_slow(node) and id(node) not in bases)


def instead_in(tree: ast.AST) -> Iterator[str]:
    """What the marks of a file name.

    Raises AssertionError: a mark names nothing.
    """
    for mark in marks_of(tree):
        assert isinstance(mark, ast.Call), f"line {getattr(mark, 'lineno', 0)}: slow without a name"
        match mark.args:
            case [ast.Constant(value=str(name))]:
                yield name
            case _:
                raise AssertionError(f"line {mark.lineno}: slow takes the name of one file or test")


@cache
def slow_in(path: Path) -> Tests:
    tree = ast.parse(path.read_text())
    all_slow = any(
        isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "pytestmark" for to in node.targets)
        and any(marks_of(node.value))
        for node in tree.body
    )
    found: Tests = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            direct = [mark for mark in node.decorator_list if is_slow(getattr(mark, "func", mark))]
            found[node.name] = all_slow or bool(direct)
    return found


def why_not(name: str) -> str:
    """Why ``name`` cannot stand for a slow test, or nothing."""
    file, _, test = name.partition("::")
    path = ROOT / file
    if path.is_dir():
        played = [each for each in path.rglob("test_*.py") if not all(slow_in(each).values())]
        return "" if played and not test else f"{file} has no tests that are played"
    if not path.is_file():
        return f"there is no {file}"
    tests = slow_in(path)
    if test and test not in tests:
        return f"{file} has no {test}"
    if tests.get(test, all(tests.values())):
        return f"{name} is slow itself"
    return ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_slow_test_names_what_is_played_instead(path: Path) -> None:
    wrong = [why for name in instead_in(ast.parse(path.read_text())) if (why := why_not(name))]
    assert not wrong


@pytest.mark.parametrize(
    "source", ["@pytest.mark.slow\ndef test_a(): ...", "pytestmark = [pytest.mark.slow()]"]
)
def test_a_slow_mark_without_a_name_is_noticed(source: str) -> None:
    with pytest.raises(AssertionError):
        list(instead_in(ast.parse(source)))


def test_a_name_of_nothing_is_noticed(tmp_path: Path) -> None:
    assert why_not("tests/house/test_none.py") == "there is no tests/house/test_none.py"
    assert why_not("tests/house/test_slow.py::test_none").endswith("has no test_none")
    assert not why_not("tests/house/test_slow.py")
    slow = tmp_path / "test_s.py"
    slow.write_text("@pytest.mark.slow('x')\ndef test_s(): ...\n")
    assert why_not(f"{slow}::test_s").endswith("is slow itself")
    assert why_not(str(slow)).endswith("is slow itself")
    assert why_not(str(tmp_path)).endswith("has no tests that are played")
