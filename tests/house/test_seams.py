"""A private name is used where it is made: what another file needs has a name of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headrace"
SEAMS = {"client/seam.py": 14}
"""Files that reach on behalf of other rooms, and how often at most."""

LEFT = {
    "client/blocking": 60,
    "client/connection.py": 7,
    "client/jetstream": 40,
    "client/jetstream_context.py": 1,
    "client/kv.py": 1,
    "client/objects": 9,
    "client/publish": 2,
    "client/services.py": 4,
    "client/spans.py": 1,
    "jobs/client": 5,
    "testing/recorded.py": 1,
}
"""What reaches still, and how often at most. It may become less."""

REACH = re.compile(r"(?<!\bself)(?<!\bcls)\s*\.\s*_[^_]")
"""What each reach looks like, and little else."""

OF_PYTHON = {"_actions", "_asdict", "_exit", "_fields", "_getframe", "_replace", "_value_"}
OF_SPARK = {"_gateway", "_jdf", "_jsparkSession", "_jvm"}


def made(tree: ast.AST) -> set[str]:
    """The names that a file makes: functions, classes, fields, what is set on ``self``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.update([node.attr] if is_own(node.value) else [])
    return names


def is_own(value: ast.expr) -> bool:
    """Whether the object is that which the code belongs to."""
    if isinstance(value, ast.Call):
        value = value.func
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")


def reaches(text: str) -> list[str]:
    """The private names that are taken of other objects, and that this file did not make."""
    if not REACH.search(text):
        return []  # most files: reading all of them as Python takes seconds
    tree = ast.parse(text)
    known = made(tree) | OF_PYTHON | OF_SPARK
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in known
        and not is_own(node.value)
    ]


def found_in_all() -> dict[str, list[str]]:
    """By file where it is a seam, else by the first two parts of the path."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        room = name if name in SEAMS else "/".join(name.split("/")[:2])
        found.setdefault(room, []).extend(f"{name}: {each}" for each in reaches(path.read_text()))
    return {room: taken for room, taken in found.items() if taken}


def test_nobody_reaches_for_what_is_private_to_another_file() -> None:
    allowed = {**SEAMS, **LEFT}
    found = found_in_all()
    assert {room: taken for room, taken in found.items() if room not in allowed} == {}
    more = {room: taken for room, taken in found.items() if len(taken) > allowed[room]}
    assert more == {}, "give it a name: see client/seam.py"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("other._name", ["other._name"]),
        ("self.other._name()", ["self.other._name"]),
        ("self._name = 1\nother._name", []),
        ("class A:\n    _name: int\nother._name", []),
        ("self._name", []),
        ("super()._name()", []),
        ("each._asdict()", []),
        ("other.__dict__", []),
    ],
)
def test_a_reach_is_found(text: str, found: list[str]) -> None:
    assert reaches(text) == found
