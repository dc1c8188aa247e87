"""What ``import headrace`` offers, and what it costs."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import headrace


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(headrace, name) is not None
    assert name in dir(headrace)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"headrace.*nonsense"):
        _ = headrace.nonsense


def test_type_checkers_see_the_same_names_as_users() -> None:
    tree = ast.parse(Path(headrace.__file__).read_text())
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        alias.asname or alias.name
        for node in ast.walk(blocks[0])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__"} == set(headrace.__all__)


def test_importing_the_package_loads_neither_asyncio_nor_msgspec() -> None:
    code = "import sys, headrace; print(*(m for m in ('asyncio', 'msgspec', 'ssl') if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_errors_are_shown_and_pickled_under_the_names_that_users_know() -> None:
    error = headrace.RequestTimeoutError("no answer")
    assert repr(error) == "RequestTimeoutError('no answer')"
    (line,) = traceback.format_exception_only(error)
    assert line == "headrace.errors.RequestTimeoutError: no answer\n"
    unsent = headrace.UnsentError("closed", 2, ("a", "b"))
    for given in (error, unsent, headrace.TimeoutUnknownError("x")):
        again = pickle.loads(pickle.dumps(given))
        assert (type(again), str(again)) == (type(given), str(given))
    assert (unsent.count, unsent.subjects) == (2, ("a", "b"))


@pytest.mark.parametrize("error", [headrace.TimeoutUnknownError, headrace.DisconnectedUnknownError])
def test_who_handles_timeouts_and_losses_handles_unknown_outcomes(error: type[Exception]) -> None:
    assert issubclass(error, headrace.OutcomeUnknownError)
    is_late = error is headrace.TimeoutUnknownError
    assert (
        issubclass(error, TimeoutError)
        == issubclass(error, headrace.RequestTimeoutError)
        == is_late
    )
    assert issubclass(error, headrace.DisconnectedError) == (not is_late)
