"""Functions of Python files: found and described without running anything, loaded when a session runs."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..model import Function, PipelineError, Place, Problem, did_you_mean
from ..spark_errors import text_of
from .document import Document


def find(given: str | Callable[..., Any], file: Path, place: Place) -> Function:
    """A function by ``file.py:name`` (from the pipeline's file on), or a function itself.

    Raises:
        PipelineError: the file or the function is not there, or the file is no Python.
    """
    if callable(given):
        code = inspect.unwrap(given).__code__
        at = Place(Path(code.co_filename), code.co_firstlineno)
        parameters, takes_more = _parameters(given)
        return Function(given.__name__, parameters, lambda: given, at, takes_more)
    where, _, name = given.rpartition(":")
    source = file.parent / where
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"), str(source))
    except OSError as error:
        raise PipelineError([Problem(place, f"{source}: {error.strerror}")]) from error
    except (SyntaxError, ValueError) as error:
        raise PipelineError([_no_python(source, error)]) from error
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in defined:
        hint = did_you_mean(name, defined)
        raise PipelineError([Problem(place, f"{where} has no function {name!r}{hint}")])
    node = defined[name]
    parameters = tuple(each.arg for each in [*node.args.posonlyargs, *node.args.args])

    def load() -> Callable[..., Any]:
        loaded: Callable[..., Any] = getattr(load_module(source), name)
        return loaded

    takes_more = node.args.vararg is not None
    return Function(name, parameters, load, Place(source, node.lineno), takes_more)


def read_python(
    file: Path, profile: str = "", environment: Mapping[str, str] | None = None
) -> Document:
    """Run a Python file that makes one ``Pipeline``. Raises PipelineError."""
    from .document import Pipeline

    try:
        module = load_module(file)
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise PipelineError([Problem(Place(file), text)]) from error
    except SyntaxError as error:
        raise PipelineError([_no_python(file, error)]) from error
    except (Exception, SystemExit) as error:  # a file that ends its process makes no pipeline
        text = f"{type(error).__name__}: {text_of(error)}"
        raise PipelineError([Problem(Place(file, _line_in(file, error)), text)]) from error
    made = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(set(map(id, made))) != 1:
        text = f"a pipeline's file makes one Pipeline; this one makes {len(set(map(id, made))) or 'none'}"
        raise PipelineError([Problem(Place(file), text)])
    return made[0].document(file, profile, environment)


def load_module(file: Path) -> ModuleType:
    """Import a file by its path, once. Workers get its functions by value."""
    file = file.resolve()
    name = f"_headrace_pipeline_{abs(hash(str(file))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise OSError(2, "no Python file", str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that it finds what lies beside it, as a script does
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """The parameters that are given by position, and whether there may be more."""
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_more = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in found)
    return tuple(each.name for each in found if each.kind in kinds), takes_more


def _no_python(file: Path, error: Exception) -> Problem:
    line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
    said = error.msg if isinstance(error, SyntaxError) else text_of(error)
    return Problem(Place(file, line), f"no Python: {said}")


def _line_in(file: Path, error: BaseException) -> int:
    """The last line of ``file`` in a traceback."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
