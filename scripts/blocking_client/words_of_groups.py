"""Writes the docstrings of what is written by hand for groups: those of the asyncio classes, adapted."""

from __future__ import annotations

import ast

from .facade import _doc
from .source import Function, ProblemError, functions_of, module_at
from .verbs import GROUPS, TARGET

__all__ = ["BY_HAND", "write_docstrings"]

BY_HAND = {
    "membership": (GROUPS / "member" / "membership.py", "Membership"),
    "message": (GROUPS / "message.py", "GroupMessage"),
}
"""Modules of ``headrace.groups.blocking``, each with the asyncio class of which it has the twin."""


def write_docstrings(name: str) -> str:
    """The text of the module, with the docstrings of the asyncio class; not formatted yet."""
    path, kind = BY_HAND[name]
    text = (TARGET / f"{name}.py").read_text()
    ours = _class_in(ast.parse(text), kind)
    theirs = _class_in(module_at(path).tree, kind)
    methods = functions_of(theirs)
    pairs: list[tuple[Function | ast.ClassDef, Function | ast.ClassDef, str]] = [
        (ours, theirs, kind)
    ]
    pairs += [
        (mine, methods[mine.name], f"{kind}.{mine.name}")
        for mine in functions_of(ours).values()
        if mine.name in methods and ast.get_docstring(mine)
    ]
    lines = text.splitlines()
    for mine, other, where in sorted(pairs, key=lambda pair: -pair[0].lineno):
        said = mine.body[0]
        doc = _doc(other, where, " " * said.col_offset).rstrip("\n")
        lines[said.lineno - 1 : said.end_lineno] = doc.split("\n")
    return "\n".join([*lines, ""])


def _class_in(tree: ast.Module, name: str) -> ast.ClassDef:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise ProblemError(f"there is no class {name}")
