"""A pipeline as a tree of plain values, with the line of each: read from TOML, or made by calls in Python."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from ... import toml_lines as lines
from ...documents import DocumentError, parse_toml
from ...toml_lines import Path as Keys
from ..model import PipelineError, Place, Problem, did_you_mean

_VARIABLE: Final = re.compile(r"\$(\$)?\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_VERBATIM: Final = frozenset({"sql", "check"})  # Spark has ${…} of its own


class Document:
    """The tree, and where each part of it stands.

    Args:
        tree: tables and values, as in TOML; where it holds a ``python``, this may be a function itself.
        found: the lines of paths.
        profile: the name of the profile whose values take precedence; "" for none.
        environment: the variables for ``${NAME}``.

    Raises:
        PipelineError: the profile does not exist, or a variable is not set.
    """

    def __init__(
        self,
        file: Path,
        tree: Mapping[str, Any],
        found: Mapping[lines.Path, int],
        profile: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.file = file
        self.profile = profile
        self._lines = dict(found)
        self.profiles = dict(tree.get("profiles", {}))
        self._environment = os.environ if environment is None else environment
        merged = {key: value for key, value in tree.items() if key != "profiles"}
        if profile:
            if profile not in self.profiles:
                hint = did_you_mean(profile, self.profiles) or "; the file has none"
                raise PipelineError([Problem(Place(file), f"no profile {profile!r}{hint}")])
            merged = _merge(merged, self.profiles[profile])
            self._take_lines(("profiles", profile))
        self._problems: list[Problem] = []
        self.tree: dict[str, Any] = self._filled(merged, ())
        if self._problems:
            raise PipelineError(self._problems)

    def place(self, *path: str) -> Place:
        """Where ``path`` stands, or what holds it."""
        return Place(self.file, lines.find_line(self._lines, path))

    def _take_lines(self, front: lines.Path) -> None:
        for path, line in list(self._lines.items()):
            if path[: len(front)] == front and len(path) > len(front):
                rest = path[len(front) :]
                is_table = any(
                    other[: len(path)] == path and other != path for other in self._lines
                )
                if not is_table or rest not in self._lines:
                    self._lines[rest] = line

    def _filled(self, value: Any, path: lines.Path) -> Any:
        """The value with variables of the environment in place."""
        if isinstance(value, dict):
            return {key: self._filled(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner, (*path, str(index))) for index, inner in enumerate(value)]
        if not isinstance(value, str) or (path and path[-1] in _VERBATIM):
            return value

        def replace(found: re.Match[str]) -> str:
            escaped, name, default = found.groups()
            if escaped:
                return found[0][1:]
            if name in self._environment:
                return self._environment[name]
            if default is None:
                text = f"the variable {name} is not set; set it, or give a default: ${{{name}:-…}}"
                self._problems.append(Problem(self.place(*path), text))
            return default or ""

        return _VARIABLE.sub(replace, value)


def read_toml(
    file: Path, profile: str = "", environment: Mapping[str, str] | None = None
) -> Document:
    """Read a TOML file. Raises PipelineError: it cannot be read, or is no TOML."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # editors put a mark before it
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PipelineError([Problem(Place(file), f"cannot be read: {reason}")]) from error
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)", said)
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        column = f" (column {at[2]})" if at and at[2] else ""
        told = said[: at.start()] if at else said
        raise PipelineError([Problem(Place(file, line), f"no TOML: {told}{column}")]) from error
    except DocumentError as error:
        raise PipelineError([Problem(Place(file), str(error))]) from error
    return Document(file, tree, lines.find_lines(text), profile, environment)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` upon ``base``: tables are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        before = merged.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[key] = _merge(before, value) if both else value  # type: ignore[arg-type]
    return merged


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
