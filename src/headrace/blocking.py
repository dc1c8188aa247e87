"""Blocking methods, each made of an asyncio one, and where their coroutines run.

A method made here has the arguments, the documentation (without ``async``) and, but for its result, the
signature of the asyncio one. Type checkers and editors infer the same. What runs it is the ``Runner`` of its
object: the thread of a connection's loop (``client/blocking/loop_thread.py``), or, where coroutines wait for
nothing but calls that block, the thread that calls (``CallingThread``).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import GenericAlias
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

__all__ = [
    "Blocking",
    "CallingThread",
    "Method",
    "Runner",
    "anywhere",
    "blocking",
    "calling",
    "checked",
    "documented",
    "iterate",
    "iterating",
    "made_by",
    "returning",
    "take_next",
    "wrapping",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ASYNC: Final = re.compile(r"\basync (?=with|for|def)|\bawait ")

Method: TypeAlias = Callable[Concatenate[Any, P], R]

_KINDS: Final[dict[Callable[..., Any], Callable[[Any, Any], Any]]] = {}
"""What makes the results of a method, where that is an object of the facade."""


# Where coroutines run


class Runner(Protocol):
    """Where the coroutines of blocking methods run."""

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run it to its end, and return its result or raise its exception."""

    def call(self, function: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> R:
        """Call a plain function where the coroutines run."""


class CallingThread:
    """The thread that calls, for coroutines whose awaits all block: there is no loop, and nothing is handed
    to another thread. So an interrupt arrives where the call is, and a forked child goes on by itself."""

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run it to its end, and return its result or raise its exception.

        Raises RuntimeError: it awaits something that only a loop brings about.
        """
        hooks = sys.get_asyncgen_hooks()
        # A loop that runs in this thread would end a listing that is not its own, with itself.
        sys.set_asyncgen_hooks(None, None)
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            sys.set_asyncgen_hooks(*hooks)
            coroutine.close()
        raise RuntimeError(f"{coroutine!r} waits for a loop, and there is none")

    def call(self, function: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> R:
        """Call it."""
        return function(*args, **keywords)


class Blocking:
    """Base of the facade's classes: the asyncio object, and where its coroutines run."""

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: Runner, inner: Any) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


# Methods


def blocking(method: Method[P, Coroutine[Any, Any, R]]) -> Method[P, R]:
    """Run it where coroutines run, and wait for the result."""

    def run(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        result: R = self._thread.run(method(self._inner, *args, **keywords))
        return result

    return documented(run, method)


def calling(method: Method[P, R]) -> Method[P, R]:
    """Call a plain method where coroutines run."""

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        result: R = self._thread.call(method, self._inner, *args, **keywords)
        return result

    return documented(call, method)


def anywhere(method: Method[P, R]) -> Method[P, R]:
    """Call a plain method on the caller's thread: it touches nothing of a loop's."""

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        return method(self._inner, *args, **keywords)

    return documented(call, method)


def iterating(method: Method[P, AsyncIterator[R]]) -> Method[P, Iterator[R]]:
    """Take the items one by one as they are asked for."""

    def items(self: Any, /, *args: P.args, **keywords: P.kwargs) -> Iterator[R]:
        return iterate(self._thread, method(self._inner, *args, **keywords))

    item = method.__annotations__["return"].removeprefix("AsyncIterator[").removesuffix("]")
    return documented(items, method, f"Iterator[{item}]", GenericAlias(Iterator, item))


def wrapping(kind: Callable[[Any, R], T], method: Method[P, R]) -> Method[P, T]:
    """Return what ``method``, made here, returns as an object of the facade."""

    def wrap(self: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        return kind(self._thread, method(self, *args, **keywords))

    made = getattr(kind, "__self__", kind)  # a class, or that whose class method it is
    _KINDS[wrap] = kind
    return documented(wrap, method, method.__annotations__["return"], made)


def made_by(method: Callable[..., Any]) -> Callable[[Any, Any], Any] | None:
    """What makes an object of the facade of what the asyncio method returns; None: nothing does."""
    return _KINDS.get(method)


def returning(
    kind: Callable[[Any, R], T], method: Method[P, Coroutine[Any, Any, R]]
) -> Method[P, T]:
    """Run it where coroutines run, and return the result as an object of the facade."""
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


# Items


def iterate(thread: Runner, items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an asynchronous listing, page by page as they are asked for."""
    while (item := thread.run(_next_of(items))) is not _END:
        yield item


def take_next(thread: Runner, items: AsyncIterator[T]) -> T:
    """The next item. Raises StopIteration at the end."""
    item = thread.run(_next_of(items))
    if item is _END:
        raise StopIteration
    return item


_END: Any = object()


async def _next_of(items: AsyncIterator[T]) -> T:
    return await anext(items, _END)
