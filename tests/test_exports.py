"""What ``import headrace`` offers, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headrace


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(headrace, name) is not None
    assert name in dir(headrace)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"headrace.*nonsense"):
        _ = headrace.nonsense


def test_type_checkers_see_the_same_names_as_users() -> None:
    tree = ast.parse(Path(headrace.__file__).read_text())
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.asname or alias.name
        for node in ast.walk(blocks[0])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__"} == set(headrace.__all__)


def test_importing_the_package_loads_neither_asyncio_nor_msgspec() -> None:
    code = "import sys, headrace; print(*(m for m in ('asyncio', 'msgspec', 'ssl') if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
