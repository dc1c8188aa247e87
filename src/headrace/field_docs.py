"""Descriptions of the fields of a configuration, as ``help`` shows them.

They stand below each field in the source, where editors and the reference read them. Python keeps none of
these texts, so they are read from the source when somebody asks; nothing is paid for before.
"""

from __future__ import annotations

from typing import Any, Final, SupportsIndex, TypeVar

__all__ = ["described", "descriptions"]

T = TypeVar("T")

_WIDTH: Final = 100
_SIMPLE: Final = (bool, int, float, str, tuple, type(None))


def described(kind: type[T]) -> type[T]:
    """A class decorator: let its docstring go on with each field, its type, default and description."""
    type.__setattr__(kind, "__doc__", _Documentation(kind))
    return kind


def descriptions(kind: type) -> dict[str, str]:
    """The text below each field of a class, "" where there is none. Empty without the source."""
    import ast
    import inspect

    try:
        tree = ast.parse(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = inspect.cleandoc(str(below.value.value))
            found[field.target.id] = text
    return found


class _Documentation(str):
    """A docstring that is completed when it is read.

    Most read it as an attribute of the class. ``help`` looks into the class itself where that has another
    metaclass, and finds this object; the first that it does with it is to expand its tabs.
    """

    __slots__ = ("_kind",)
    _kind: type

    def __new__(cls, kind: type) -> _Documentation:
        made = super().__new__(cls, kind.__doc__ or "")
        made._kind = kind
        return made

    def __get__(self, instance: object, owner: type | None = None) -> str:
        import inspect

        lines = [inspect.cleandoc(str.__str__(self))]
        texts, types = descriptions(self._kind), inspect.get_annotations(self._kind)
        if texts:
            lines += ["", "Fields:"]
        for name, text in texts.items():
            lines += _shown(name, types.get(name, ""), _default(self._kind, name), text)
        return "\n".join(lines)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return self.__get__(None).expandtabs(tabsize)


def _shown(name: str, kind: object, default: str, text: str) -> list[str]:
    import textwrap

    written = getattr(kind, "__forward_arg__", kind)  # a TypedDict's annotations are references
    head = f"    {name}: {written}{default}"
    return [head, *textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)]


def _default(owner: Any, name: str) -> str:
    import inspect

    try:
        value = inspect.signature(owner).parameters[name].default
    except (ValueError, KeyError):
        return ""  # of a TypedDict: what is left out is said in the description
    return f" = {value!r}" if type(value) in _SIMPLE else ""
