"""An event loop in a thread of its own, and how other threads use it."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ...errors import ConfigurationError, ConnectionClosedError, PullError

__all__ = ["Blocking", "LentPortal", "Portal", "blocking", "call_on_thread", "iterate"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

STOP_TIMEOUT_S: Final = 5.0


class Portal:
    """One loop, one daemon thread. Any thread of this process may call ``run`` and ``post``.

    Args:
        on_error: told of an exception out of something posted.
    """

    def __init__(self, on_error: Callable[[Exception], None] | None = None) -> None:
        self.on_error = on_error
        self._loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False
        self._pid = os.getpid()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="headrace", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run on the loop, wait, return its result or raise its exception. An interrupt cancels it."""
        try:
            self._check()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, call: Callable[[], object]) -> None:
        """Have ``call`` made on the loop soon, after everything posted before; do not wait."""
        if self._stopped:
            raise ConnectionClosedError("the connection is closed")
        self._posted.append(call)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._make_posted_calls)

    def stop(self) -> None:
        """Cancel what still runs and end the thread. May be called twice."""
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionClosedError(
                "this connection belongs to the process that made it; connect anew after a fork"
            )
        if self._stopped:
            raise ConnectionClosedError("the connection is closed")
        if threading.current_thread() is self._thread:
            raise ConfigurationError(
                "a blocking call was made on the connection's own thread (from on_event, on_error or "
                "on_failure), where it could never return"
            )

    def report(self, error: Exception) -> None:
        """Tell of an error nobody waits for; from any thread."""
        on_error = self.on_error
        if on_error is not None and not self._stopped:
            self.post(lambda: on_error(error))

    def _make_posted_calls(self) -> None:
        self._woken = False
        posted = self._posted
        while posted:
            call = posted.popleft()
            try:
                call()
            except Exception as error:
                if self.on_error is not None:
                    self.on_error(error)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class LentPortal(Portal):
    """The loop and thread of another portal, which goes on when this one is stopped."""

    def __init__(self, owner: Portal) -> None:
        self.on_error = None
        self._loop = owner._loop
        self._thread = owner._thread
        self._pid = owner._pid
        self._posted = deque()
        self._woken = False
        self._stopped = False

    def stop(self) -> None:
        """Nothing more is run here."""
        self._stopped = True


class Blocking:
    """Base of the facade's classes: the asyncio object, and the portal to its loop."""

    __slots__ = ("_inner", "_portal")

    def __init__(self, portal: Portal, inner: Any) -> None:
        self._portal = portal
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


def blocking(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking, P], R]:
    """The blocking twin of a coroutine method: same name, arguments, documentation and errors."""

    @functools.wraps(method)
    def call(self: Blocking, /, *args: P.args, **keywords: P.kwargs) -> R:
        return self._portal.run(method(self._inner, *args, **keywords))

    return call


def call_on_thread(
    name: str,
    messages: Iterator[T],
    callback: Callable[[T], object],
    portal: Portal,
) -> threading.Thread:
    """Call back with each message on a new thread, until they end; errors go to ``portal.on_error``."""

    def work() -> None:
        try:
            for message in messages:
                try:
                    callback(message)
                except Exception as error:
                    portal.report(error)
        except (ConnectionClosedError, PullError):
            return  # the end; whoever waits for it gets the reason

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def iterate(portal: Portal, items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an asynchronous listing, page by page as they are asked for."""
    end: Any = object()

    async def one() -> T:
        return await anext(items, end)

    while (item := portal.run(one())) is not end:
        yield item
