"""The architecture names nothing that is not there: modules, classes and their methods."""

from __future__ import annotations

import ast
import re

from guides import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILES = [
    str(path.relative_to(ROOT))
    for top in ("src", "tests", "bench", "fuzz")
    for path in (ROOT / top).rglob("*.py")
]


def members(classes: set[str]) -> set[str]:
    """Each ``Class.name`` of these in the sources: methods, and attributes of the class or of ``self``."""
    found = set()
    defined = re.compile(rf"\bclass (?:{'|'.join(classes)})\b")
    for path in (ROOT / "src").rglob("*.py"):
        if defined.search(text := path.read_text()):  # to parse all of them takes seconds
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and node.name in classes:
                    found |= {f"{node.name}.{name}" for name in _names_in(node)}
    return found


def _names_in(owner: ast.ClassDef) -> set[str]:
    names = set()
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_methods_that_are_named_are_there() -> None:
    named = set(re.findall(r"`([A-Z]\w+\.[a-z_]\w*)(?:\([^)]*\))?`", PAGE))
    assert len(named) > 4
    assert named <= members({name.partition(".")[0] for name in named})


def test_modules_that_are_named_are_there() -> None:
    named = set(re.findall(r"`(headrace(?:\.[a-z_]+)+)`", PAGE))
    assert len(named) > 10
    modules = {name.replace(".", "/") for name in named}
    found = {name for name in modules if {f"src/{name}.py", f"src/{name}/__init__.py"} & set(FILES)}
    assert modules == found
