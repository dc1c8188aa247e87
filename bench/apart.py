"""A measured piece of work in a fresh interpreter, as a user's program runs.

A fork of the benchmark's own process is not that: it runs on the heap that the imports of all benchmarks have
left, and copies the pages that it writes there one by one: a client that had not changed was a fifth slower
when a benchmark imported more.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu
import headrace
import ourclient

__all__ = ["ByName", "apart"]


class ByName:
    """A function of a module that cannot be imported here: it becomes that one where the work is done."""

    def __init__(self, module: str, function: str) -> None:
        self._names = module, function

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"{'.'.join(self._names)} is for another process")

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        return _find, self._names


def _find(module: str, function: str) -> Any:
    return getattr(importlib.import_module(module), function)


def apart(
    work: Callable[[], Any], sources: Path | None = None, interpreter: Path | None = None
) -> tuple[Any, float]:
    """What ``work`` returns, and the seconds of processor time it took (Linux, macOS).

    ``work`` is pickled, so it is made of functions of modules: ``partial``, no ``lambda``. ``sources``: where
    the package ``headrace`` is taken from; None: these. ``interpreter``: the Python; None: this one.
    """
    order = pickle.dumps((ourclient.loop_name, sources, work))
    if interpreter is not None and sources is None:
        sources = Path(headrace.__file__).parent.parent
    env = None if sources is None else {**os.environ, "PYTHONPATH": str(sources)}
    command = [interpreter or sys.executable, __file__]
    ended = subprocess.run(command, input=order, stdout=subprocess.PIPE, check=False, env=env)
    if ended.returncode != 0:
        raise RuntimeError("the measured work failed; what it said is above")
    value, seconds = json.loads(ended.stdout)
    return value, seconds


def _run() -> None:
    ourclient.loop_name, sources, work = pickle.load(sys.stdin.buffer)
    measured = str(sys.modules["headrace"].__file__)
    if sources is not None and sources not in Path(measured).parents:
        raise SystemExit(f"{measured} would be measured, not what is in {sources}")
    before = cpu.of_ourselves()
    value = work()
    print(json.dumps([value, cpu.of_ourselves() - before]))


if __name__ == "__main__":
    _run()
