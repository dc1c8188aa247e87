"""``help()`` on everything public: signatures, annotations and docstrings that can be read."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace

ROOMS = (
    "headrace",
    "headrace.broker",
    "headrace.client",
    "headrace.client.events",
    "headrace.client.services",
    "headrace.clock",
    "headrace.embedded",
    "headrace.errors",
    "headrace.groups",
    "headrace.groups.elastic",
    "headrace.groups.static",
    "headrace.jobs.client",
    "headrace.json_logs",
    "headrace.message",
    "headrace.spark",
    "headrace.subjects",
    "headrace.sync",
    "headrace.sync.groups",
    "headrace.field_docs",
    "headrace.testing.plugin",
    "headrace.transforms",
)


def public(room: str) -> dict[str, Any]:
    """The classes and functions a room offers; its constants and aliases have no docstrings."""
    module = importlib.import_module(room)
    found = {name: getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def functions(value: Any) -> Iterator[tuple[str, Any]]:
    """A function itself, or the public methods and properties that a class of ours defines."""
    if not inspect.isclass(value):
        yield value.__name__, value
        return
    for name, member in inspect.getmembers(value):
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not (inspect.isfunction(function) or inspect.ismethod(function)):
            continue
        if function.__module__.startswith("headrace"):
            yield name, function


@cache
def names_for_types(module: ModuleType) -> dict[str, Any]:
    """What a module imports under ``TYPE_CHECKING``, for annotations that a reader can follow."""
    found: dict[str, Any] = {}
    assert module.__file__ is not None
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            code = compile(ast.Module(node.body, type_ignores=[]), module.__file__, "exec")
            exec(code, {"__package__": module.__package__}, found)
    return found


def has_a_signature(value: Any) -> bool:
    """Python gives none to an exception without an ``__init__`` of its own, nor to a ``TypedDict``."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return inspect.isfunction(value.__init__)
    return not typing.is_typeddict(value)


def annotations_of(function: Any, owner: Any) -> None:
    """Evaluate them. Raises NameError for what neither the module nor its type checker knows."""
    typing.get_type_hints(function, localns=names_for_types(sys.modules[owner.__module__]))


@pytest.mark.parametrize("room", ROOMS)
def test_help_can_be_shown_and_names_what_is_public(room: str) -> None:
    module = importlib.import_module(room)
    text = pydoc.plain(pydoc.render_doc(module))
    assert [name for name in module.__all__ if name not in text] in ([], ["__version__"])
    for value in public(room).values():
        assert value.__name__ in pydoc.plain(pydoc.render_doc(value))


@pytest.mark.parametrize("room", ROOMS)
def test_signatures_can_be_read(room: str) -> None:
    for value in public(room).values():
        if has_a_signature(value):
            inspect.signature(value)
        for _, function in functions(value):
            inspect.signature(function)


@pytest.mark.parametrize("room", ROOMS)
def test_annotations_mean_something(room: str) -> None:
    for value in public(room).values():
        for owner in value.__mro__ if inspect.isclass(value) else ():
            if owner.__module__.startswith("headrace"):
                annotations_of(owner, owner)
        for _, function in functions(value):
            annotations_of(function, function)


@pytest.mark.parametrize("room", ROOMS)
def test_everything_public_says_what_it_is_for(room: str) -> None:
    assert inspect.getdoc(importlib.import_module(room))
    for name, value in public(room).items():
        own = value.__doc__
        assert own, name
        assert not own.startswith(f"{value.__name__}("), f"{name}: what a dataclass says of itself"
        assert len(own.split()) > 2, name
        mute = [method for method, function in functions(value) if not inspect.getdoc(function)]
        assert mute == [], name


def test_this_looks_at_all_that_is_offered() -> None:
    assert {"Message", "JetStreamMessage", "connect"} <= public("headrace").keys()
    assert {"ack", "payload"} <= {name for name, _ in functions(headrace.JetStreamMessage)}
