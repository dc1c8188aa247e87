"""The names that a generated module uses, and the types of the asyncio client in blocking words."""

from __future__ import annotations

import ast
import builtins
import copy

from .source import ROOT, Module, ProblemError, find, module_at
from .table import MESSAGES, MODULES, RETURNED

__all__ = ["TWINS", "Imports"]

PACKAGE = ["headrace", "client", "blocking"]
HAND_WRITTEN = ("loop_thread", "messages", "reading", "sending", "opening")

TWINS = {name: module for module, names in MODULES.items() for name in names}


def _hand_written() -> dict[str, str]:
    """What the hand-written modules offer, each name with its module."""
    found: dict[str, str] = {}
    for name in HAND_WRITTEN:
        module = module_at(ROOT.joinpath("src", *PACKAGE, f"{name}.py"))
        offered = module.value_of("__all__")
        if not isinstance(offered, ast.List):
            raise ProblemError(f"{name}.py has no __all__")
        found.update({ast.literal_eval(each): name for each in offered.elts})
    return found


class Imports:
    """Collects what a generated module has to import.

    Args:
        target: the module's own name, within ``headrace.client.blocking``.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._offered = _hand_written()
        self._found: dict[str, tuple[str, str]] = {}
        self._types_only: dict[str, tuple[str, str]] = {}

    def use(self, name: str, module: str, original: str = "") -> str:
        """Import ``original`` from ``module`` as ``name``; return the name."""
        origin = (module, original)
        if self._found.setdefault(name, origin) != origin:
            raise ProblemError(f"{self._target}: {name} means {origin} and {self._found[name]}")
        return name

    def helper(self, name: str) -> str:
        """Use what a hand-written module or the asyncio client offers."""
        if name in self._offered:
            return self.use(name, self._absolute(self._offered[name]), name)
        return self.use(name, find(name)[0].name, name)

    def asyncio_twin(self, name: str) -> str:
        """Use a class or function of the asyncio client under a name of its own."""
        alias = f"Aio{name}" if name[0].isupper() else f"aio_{name}"
        return self.use(alias, find(name)[0].name, name)

    def twin(self, name: str) -> str:
        """Use a blocking class in the code; returns the import it needs in the method, or ""."""
        module = TWINS.get(name) or self._offered[name]
        if module == self._target:
            return ""
        modules = list(MODULES)
        if module in modules and modules.index(module) > modules.index(self._target):
            self._types_only[name] = (self._absolute(module), name)
            return f"from .{module} import {name}"
        self.use(name, self._absolute(module), name)
        return ""

    def types_in(self, node: ast.expr | None, module: Module) -> str:
        """An annotation or a default of ``module`` in blocking words; its names are imported."""
        return ast.unparse(_Translator(self, module).visit(copy.deepcopy(node))) if node else ""

    def text(self) -> str:
        """The import statements; the formatter puts them in order."""
        lines = [_statement(name, *origin) for name, origin in self._found.items()]
        if self._types_only:
            self.use("TYPE_CHECKING", "typing", "TYPE_CHECKING")
            lines = [_statement(name, *origin) for name, origin in self._found.items()]
            lines.append("if TYPE_CHECKING:")
            lines += [f"    {_statement(n, *origin)}" for n, origin in self._types_only.items()]
        return "\n".join(lines)

    @staticmethod
    def _absolute(module: str) -> str:
        return ".".join([*PACKAGE, module])


class _Translator(ast.NodeTransformer):
    """Translates names, and expands aliases that stand for types with another name here."""

    def __init__(self, imports: Imports, module: Module) -> None:
        self._imports = imports
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = RETURNED.get(node.id, node.id)
        if name in TWINS or name in MESSAGES:
            self._imports.twin(name)
            return ast.Name(name)
        origin = self._module.origin_of(node.id)
        if origin is None:
            if not hasattr(builtins, name):
                raise ProblemError(f"{self._module.name} does not say where {name} comes from")
            return node
        if not origin[0].startswith("headrace."):
            self._imports.use(name, origin[0], name if origin[1] else "")
            return ast.Name(name)
        alias = self._alias(*origin)
        if alias is not None:
            return alias
        self._imports.use(name, *origin)
        return node

    def _alias(self, module_name: str, name: str) -> ast.expr | None:
        """What an alias stands for, if that has another name in the blocking client."""
        path = ROOT.joinpath("src", *module_name.split(".")).with_suffix(".py")
        module = module_at(path) if path.is_file() else None
        value = module.value_of(name) if module is not None else None
        if module is None or not isinstance(value, ast.Subscript):
            return None
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if names.isdisjoint({*TWINS, *MESSAGES, *RETURNED}):
            return None
        translated: ast.expr = _Translator(self._imports, module).visit(copy.deepcopy(value))
        return translated


def _statement(name: str, module: str, original: str) -> str:
    if not original:
        return f"import {module}"
    suffix = "" if name == original else f" as {name}"
    return f"from {_relative(module)} import {original}{suffix}"


def _relative(module: str) -> str:
    parts = module.split(".")
    if parts[0] != PACKAGE[0]:
        return module
    common = 0
    while common < min(len(PACKAGE), len(parts)) and PACKAGE[common] == parts[common]:
        common += 1
    return "." * (len(PACKAGE) - common + 1) + ".".join(parts[common:])
