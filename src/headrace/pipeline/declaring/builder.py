"""A pipeline declared in Python: the same tables as in TOML, made by calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...toml_lines import Path as Keys
from .document import Document

F = TypeVar("F", bound=Callable[..., Any])


class Pipeline:
    """What a pipeline's Python file makes, once.

    Keywords are the keys of the file's tables. Nothing is run here: ``headrace pipeline run FILE`` does.

    Args:
        name: what it is called; checkpoints are kept under it.
        settings: the keys of ``[pipeline]``, ``checkpoint`` among them.
        spark: the table ``[spark]``.
        lease: the table ``[lease]``.
        metrics: the table ``[metrics]``.
        profiles: tables that override, by name.
    """

    def __init__(
        self,
        name: str,
        *,
        spark: Mapping[str, Any] | None = None,
        lease: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        profiles: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._lines: dict[Keys, int] = {}
        self._tree: dict[str, Any] = {"pipeline": {"name": name, **settings}}
        tables = (("spark", spark), ("lease", lease), ("metrics", metrics), ("profiles", profiles))
        for key, table in tables:
            if table is not None:
                self._tree[key] = dict(table)
                self._lines[(key,)] = _caller_line()
        self._lines[("pipeline",)] = _caller_line()

    def __repr__(self) -> str:
        return f"<Pipeline {self._tree['pipeline']['name']!r}>"

    def source(self, name: str, **keys: Any) -> None:
        """A source: the keys of ``[sources.<name>]``."""
        self._add("sources", name, keys)

    def sql(self, name: str, sql: str, **keys: Any) -> None:
        """A view by SQL: the keys of ``[views.<name>]``; ``of`` stands for ``from``."""
        self._add("views", name, {"sql": sql, **_with_from(keys)})

    def view(self, function: F | None = None, **keys: Any) -> Any:
        """A view by the decorated function, whose name it has; its parameters are what it uses."""
        line = _caller_line()

        def add(made: F) -> F:
            self._add("views", made.__name__, {"python": made, **_with_from(keys)}, line)
            return made

        return add(function) if function is not None else add

    def sink(self, name: str, of: str = "", **keys: Any) -> None:
        """A sink: the keys of ``[sinks.<name>]``; ``of`` stands for ``from``."""
        self._add("sinks", name, {"from": of, **keys})

    def document(
        self, file: Path, profile: str = "", environment: Mapping[str, str] | None = None
    ) -> Document:
        """What was declared, as a document."""
        return Document(file, self._tree, self._lines, profile, environment)

    def _add(self, kind: str, name: str, table: Mapping[str, Any], line: int = 0) -> None:
        self._tree.setdefault(kind, {})[name] = dict(table)
        line = line or _caller_line()
        self._lines[(kind, name)] = line


def _with_from(keys: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(keys)
    if "of" in given:
        of: str | Sequence[str] = given.pop("of")
        given["from"] = of if isinstance(of, str) else list(of)
    if "expect" in given:
        given["expect"] = list(given["expect"])
    return given


def _caller_line() -> int:
    """The line of the first frame outside this module."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_lineno
