"""Runs commands as an installation with certain extras would: other packages are not to be found.

``python -m cli.without_extras EXTRAS`` reads a JSON object from standard input: the command lines, and which
distributions have which module, which takes long to find out. It writes what each line did, as a JSON list:
the status and what it wrote.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.metadata
import io
import json
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from typing import Any

PROJECT = "headrace"


def packages_of(extras: Sequence[str]) -> set[str]:
    """The distributions that ``pip install headrace[extras]`` brings, as far as they are installed here."""
    found: set[str] = set()
    waiting = [(PROJECT, frozenset(extras))]
    seen = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        for each in requirements:
            text, _, marker = each.partition(";")
            extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
            if extra is not None and extra[1] not in wanted:
                continue
            named = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", text.strip())
            assert named is not None, each
            waiting.append((canonical(named[1]), frozenset((named[2] or "").split(","))))
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Filtered(importlib.abc.MetaPathFinder):
    """Finds what Python finds, but for the distributions that are not to be there."""

    def __init__(self, there: set[str], modules: Mapping[str, Sequence[str]]) -> None:
        self._hidden = {
            module
            for module, names in modules.items()
            if not there & {canonical(name) for name in names}
        }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self._hidden:
            return None
        return PathFinder.find_spec(name, path, target)

    find_distributions = staticmethod(PathFinder.find_distributions)


def run(arguments: list[str]) -> dict[str, Any]:
    """One command, in this process."""
    from headrace.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as left:
            status = int(left.code or 0) if isinstance(left.code, int | None) else 1
        except BaseException:
            traceback.print_exc()
            status = -1
    return {"arguments": arguments, "status": status, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    filtered = _Filtered(packages_of(sys.argv[1].split(",")), asked["modules"])
    sys.meta_path[:] = [filtered if each is PathFinder else each for each in sys.meta_path]
    print(json.dumps([run(arguments) for arguments in asked["lines"]]))
