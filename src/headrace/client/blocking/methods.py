"""What the facade's classes are made of: blocking methods, each made of an asyncio one.

A method made here has the arguments, the documentation (without ``async``) and, but for its result, the
signature of the asyncio one. Type checkers and editors infer the same.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import GenericAlias
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from .loop_thread import Blocking, LoopThread, iterate

__all__ = [
    "Blocking",
    "anywhere",
    "blocking",
    "calling",
    "checked",
    "documented",
    "iterating",
    "made_by",
    "returning",
    "wrapping",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ASYNC: Final = re.compile(r"\basync (?=with|for|def)|\bawait ")

Method: TypeAlias = Callable[Concatenate[Any, P], R]

_KINDS: Final[dict[Callable[..., Any], Callable[[LoopThread, Any], Any]]] = {}
"""What makes the results of a method, where that is an object of the facade."""


def blocking(method: Method[P, Coroutine[Any, Any, R]]) -> Method[P, R]:
    """Run it on the loop, and wait for the result."""

    def run(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        result: R = self._thread.run(method(self._inner, *args, **keywords))
        return result

    return documented(run, method)


def calling(method: Method[P, R]) -> Method[P, R]:
    """Call a plain method on the loop's thread."""

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        result: R = self._thread.call(method, self._inner, *args, **keywords)
        return result

    return documented(call, method)


def anywhere(method: Method[P, R]) -> Method[P, R]:
    """Call a plain method on the caller's thread: it touches nothing of the loop's."""

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        return method(self._inner, *args, **keywords)

    return documented(call, method)


def iterating(method: Method[P, AsyncIterator[R]]) -> Method[P, Iterator[R]]:
    """Take the items one by one as they are asked for."""

    def items(self: Any, /, *args: P.args, **keywords: P.kwargs) -> Iterator[R]:
        return iterate(self._thread, method(self._inner, *args, **keywords))

    item = method.__annotations__["return"].removeprefix("AsyncIterator[").removesuffix("]")
    return documented(items, method, f"Iterator[{item}]", GenericAlias(Iterator, item))


def wrapping(kind: Callable[[LoopThread, R], T], method: Method[P, R]) -> Method[P, T]:
    """Return what ``method``, made here, returns as an object of the facade."""

    def wrap(self: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        return kind(self._thread, method(self, *args, **keywords))

    made = getattr(kind, "__self__", kind)  # a class, or that whose class method it is
    _KINDS[wrap] = kind
    return documented(wrap, method, method.__annotations__["return"], made)


def made_by(method: Callable[..., Any]) -> Callable[[LoopThread, Any], Any] | None:
    """What makes an object of the facade of what the asyncio method returns; None: nothing does."""
    return _KINDS.get(method)


def returning(
    kind: Callable[[LoopThread, R], T], method: Method[P, Coroutine[Any, Any, R]]
) -> Method[P, T]:
    """Run it on the loop, and return the result as an object of the facade."""
    return wrapping(kind, blocking(method))


def checked(check: Callable[[Any], None], method: Method[P, R]) -> Method[P, R]:
    """``method``, made here; first ``check`` is called with what the object stands for, and may raise."""

    def run(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        check(self._inner)
        return method(self, *args, **keywords)

    return documented(run, method)


def documented(
    function: Method[P, T], method: Callable[..., Any], shown: str = "", result: object = None
) -> Method[P, T]:
    """``function`` with the documentation of ``method``, and its signature but for another result."""
    update_wrapper(function, method)
    function.__doc__ = _ASYNC.sub("", method.__doc__ or "")
    if shown:
        function.__annotations__ = {**method.__annotations__, "return": result}
        signature = inspect.signature(method).replace(return_annotation=shown)
        function.__signature__ = signature  # type: ignore[attr-defined]
    return function
