"""Reading the asyncio classes: their text and tree, and where the names they use come from."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

__all__ = ["ROOT", "Function", "Module", "ProblemError", "find", "functions_of", "module_at"]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
CLIENT = SOURCES / "headrace" / "client"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef


class ProblemError(Exception):
    """The asyncio client has something that the generator cannot write; the text says what to do."""


@dataclass(frozen=True, eq=False)
class Module:
    """A source file. ``imports``: each name it imports, with the module and the name there."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]]

    def origin_of(self, name: str) -> tuple[str, str] | None:
        """The module that has ``name``, and its name there; None for what is built in."""
        if name in self.imports:
            return self.imports[name]
        return (self.name, name) if self.value_of(name) is not None else None

    def value_of(self, name: str) -> ast.AST | None:
        """What this module itself assigns or defines as ``name``."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and _names_in(node.targets) == [name]:
                return node.value
            if isinstance(node, ast.AnnAssign) and _names_in([node.target]) == [name]:
                return node.value
            if isinstance(node, Definition) and node.name == name:
                return node
        return None

    def comment_before(self, node: ast.stmt, since: int) -> str:
        """The last heading, a comment between blank lines, behind line ``since`` and before ``node``."""
        lines = self.text.splitlines()
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        headings = [
            lines[at].strip()
            for at in range(since, first - 1)
            if lines[at].startswith("    # ") and not lines[at - 1] and not lines[at + 1]
        ]
        return headings[-1] if headings else ""


def _names_in(targets: list[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports(name: str, tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, (alias.name, "")) for alias in node.names)
        if not isinstance(node, ast.ImportFrom):
            continue
        base = name.split(".")[: -node.level] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, (module, alias.name)


@functools.cache
def module_at(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    return Module(name, path, text, tree, dict(_imports(name, tree)))


@functools.cache
def _definitions() -> dict[str, list[tuple[Module, Definition]]]:
    found: dict[str, list[tuple[Module, Definition]]] = {}
    for path in sorted(CLIENT.rglob("*.py")):
        if path.name == "__init__.py" or "blocking" in path.relative_to(CLIENT).parts:
            continue
        module = module_at(path)
        for node in module.tree.body:
            if isinstance(node, Definition):
                found.setdefault(node.name, []).append((module, node))
    return found


def find(name: str) -> tuple[Module, Definition]:
    """The class or function of this name in the asyncio client, wherever its file is."""
    found = _definitions().get(name, [])
    if len(found) != 1:
        where = ", ".join(module.name for module, _ in found) or "no module"
        raise ProblemError(f"{name} is defined in {where}; it must be in one")
    return found[0]


def functions_of(definition: ast.ClassDef) -> dict[str, Function]:
    return {node.name: node for node in definition.body if isinstance(node, Function)}
