"""An event loop in a thread of its own, and how other threads use it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, ParamSpec, TypeVar

from ...blocking import Blocking
from ...errors import ConfigurationError, ConnectionClosedError
from ...handling.threads import lane_here
from ..subscription import Subscription

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("headrace.client")

STOP_TIMEOUT_S: Final = 5.0
INTERRUPT_S: Final = 1.0
"""How long a lost interrupt may go unseen: one that comes just before Python waits for a lock, or where
``signal.siginterrupt(SIGINT, False)`` holds, does not end the wait."""
_CLOSED: Final = "the connection is closed"
_FORKED: Final = "this connection belongs to the process that made it; connect anew after a fork"

_loop_threads: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_here = threading.local()


def _after_fork_in_child() -> None:
    """The loops' threads are not in this process: nothing handed to them would ever be done."""
    for thread in list(_loop_threads):
        thread._over = _FORKED
        thread._lock = threading.Lock()  # a thread may have held it, which is not here to let go


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _at_exit() -> None:
    """What was left open is closed as ever: threads that live on to the end of Python end in the midst of
    whatever they do."""
    for thread in list(_loop_threads):
        close, thread.close_at_exit = thread.close_at_exit, None
        if close is not None and not thread._over:
            try:
                close()
            except ConnectionClosedError:
                continue  # another thread has closed it meanwhile
            except Exception:  # whatever it is: the others are closed all the same
                _log.exception("a connection was not closed at the end of Python")


atexit.register(_at_exit)


def _result_of(future: concurrent.futures.Future[R]) -> R:
    """What ``future`` ends with, waited for so that Python sees an interrupt meanwhile."""
    while not future.done():
        with contextlib.suppress(concurrent.futures.TimeoutError):
            return future.result(INTERRUPT_S)
    return future.result()


class LoopThread:
    """One loop, one daemon thread. Any thread of this process may call ``run`` and ``post``.

    Args:
        on_error: told of an exception out of something posted.
    """

    def __init__(self, on_error: Callable[[Exception], None] | None = None) -> None:
        self.on_error = on_error
        self.close_at_exit: Callable[[], None] | None = None
        self._loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False
        self._over = ""  # why it cannot be used any more
        self._lock = threading.Lock()  # what was begun under it before the stop is ended by it
        self._thread = threading.Thread(target=self._serve, name="headrace", daemon=True)
        _loop_threads.add(self)
        self._thread.start()

    @property
    def is_forked(self) -> bool:
        """Whether it was left behind in another process, which goes on using it."""
        return self._over is _FORKED

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run on the loop, wait, return its result or raise its exception. An interrupt cancels it.

        Raises ConnectionClosedError: it was stopped before or meanwhile, or this is a forked child.
        """
        try:
            with self._lock:
                self._check()
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException as error:
            coroutine.close()
            if isinstance(error, RuntimeError):  # the loop is closed: it was lent by another thread
                raise ConnectionClosedError(_CLOSED) from None
            raise
        try:
            return _result_of(future)
        except concurrent.futures.CancelledError:  # not by us: the loop's end
            raise ConnectionClosedError(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> R:
        """``run`` for a plain function that has to be called on the loop's thread."""

        async def make() -> R:
            return function(*args, **keywords)

        return self.run(make())

    def post(self, call: Callable[[], object]) -> None:
        """Have ``call`` made on the loop soon, after everything posted before; do not wait."""
        if self._over:
            raise ConnectionClosedError(self._over)
        self._posted.append(call)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._make_posted_calls)
            except RuntimeError:  # the loop is closed
                raise ConnectionClosedError(_CLOSED) from None

    def settle(self, future: asyncio.Future[None]) -> None:
        """Tell those who wait for ``future`` on the loop; from any thread, also after the stop."""
        try:
            self._loop.call_soon_threadsafe(_settle, future)
        except RuntimeError:
            return  # the loop is closed, and nobody waits there

    def stop(self) -> None:
        """Cancel what still runs and end the thread. May be called twice."""
        with self._lock:
            if self._over:
                return
            self._over = _CLOSED
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _check(self) -> None:
        if self._over:
            raise ConnectionClosedError(self._over)
        if threading.current_thread() is self._thread:
            raise ConfigurationError(
                "a blocking call was made on the connection's own thread (from on_event, on_error or "
                "on_failure), where it could never return"
            )

    def report(self, error: Exception) -> None:
        """Tell of an error nobody waits for; from any thread."""
        on_error = self.on_error
        if on_error is not None and not self._over:
            self.post(lambda: on_error(error))

    def _make_posted_calls(self) -> None:
        self._woken = False
        posted = self._posted
        while posted:
            call = posted.popleft()
            try:
                call()
            except Exception as error:
                if self.on_error is None:
                    _log.error("a call that was left to the loop failed", exc_info=error)
                else:
                    self.on_error(error)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            while left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class SharedLoopThread(LoopThread):
    """The loop and thread of another one, which goes on when this one is stopped."""

    def __init__(self, owner: LoopThread) -> None:
        self.on_error = None
        self.close_at_exit = None
        self._loop = owner._loop
        self._thread = owner._thread
        self._posted = deque()
        self._woken = False
        self._over = owner._over
        self._lock = threading.Lock()
        _loop_threads.add(self)

    def stop(self) -> None:
        """Refuse further calls."""
        with self._lock:
            self._over = self._over or _CLOSED


class Facade(Blocking):
    """Base of the client's classes: the asyncio object, and the thread of its loop."""

    __slots__ = ()
    _thread: LoopThread


def sides_of(facade: Facade) -> tuple[LoopThread, Any]:
    """The thread of its loop, and the asyncio object."""
    return facade._thread, facade._inner


def call_on_thread(
    name: str,
    inner: Subscription,
    messages: Iterator[T],
    callback: Callable[[T], object],
    thread: LoopThread,
    failed: Callable[[T, Exception], None] | None = None,
) -> None:
    """Call back with each message of ``inner`` on a new thread, until they end; whoever drains or stops
    ``inner`` waits for that. Errors go to ``failed``, or to ``thread.on_error``."""

    async def adopt() -> asyncio.Future[None]:
        inner._worker = asyncio.get_running_loop().create_future()
        return inner._worker

    worker = thread.run(adopt())
    spans = inner._session.spans
    called = callback if spans is None else spans.traced(callback)

    def work() -> None:
        _here.worker = worker
        try:
            for message in messages:
                try:
                    called(message)
                except Exception as error:
                    if failed is None:
                        thread.report(error)
                    else:
                        failed(message, error)
        except Exception as error:
            # The end; whoever waits for it gets the reason.
            if not isinstance(error, ConnectionClosedError) and error is not inner._error:
                raise
        finally:
            thread.settle(worker)

    threading.Thread(target=work, name=name, daemon=True).start()


def callback_here() -> asyncio.Future[None] | None:
    """What stands for this thread on the loop, if it is one that calls back."""
    return getattr(_here, "worker", None) or lane_here()


def caller_here() -> asyncio.Future[None] | int:
    """Who calls: what stands for a thread that calls back, or the number of any other."""
    return callback_here() or threading.get_ident()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
