"""The fields of a configuration class, as its source has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Field", "fields_of"]

TIMES: Final = ("opt_start_time", "pause_until")


@dataclass(frozen=True)
class Field:
    """One field: its name, its type as a keyword argument, and the lines that describe it."""

    name: str
    type: str
    description: str


def fields_of(path: Path, kind: str) -> list[Field]:
    """The fields of the class ``kind`` in the file ``path``."""
    tree = ast.parse(path.read_text())
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    durations = set(_durations(body))
    found = []
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, written = statement.target.id, ast.unparse(statement.annotation)
        if not written.startswith("ClassVar"):
            found.append(Field(name, _widened(name, written, name in durations), _text(following)))
    return found


def _durations(body: list[ast.stmt]) -> Iterator[str]:
    """What the class names in ``durations``: a tuple of texts, or one text for ``fields``."""
    for statement in body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "durations":
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant):
                    yield from str(node.value).split()


def _widened(name: str, written: str, is_duration: bool) -> str:
    """The type that a keyword argument may have for a field of this type."""
    if is_duration:
        written = re.sub(r"\bfloat\b", "float | timedelta", written)
    elif name in TIMES:
        return "str | datetime | None"
    if written == "tuple[str, ...]":
        return "str | Sequence[str]"
    written = re.sub(r"\btuple\[(.*), \.\.\.\]", r"Sequence[\1]", written)
    return re.sub(r"\bdict\[", "Mapping[", written)


def _text(statement: ast.stmt | None) -> str:
    """A description is the text that stands below its field."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        assert isinstance(statement.value.value, str)
        return f'"""{statement.value.value}"""'
    return ""
