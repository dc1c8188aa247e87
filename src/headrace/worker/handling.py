"""A function as the handler of a consumer or a group: hooks around it, arguments before it, the result, the
acknowledgement and the clock after it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from ..client.callbacks import gives_coroutines
from .current import handled
from .metrics import Tally
from .typed import MisfitError, Wants, encoded

Hook = Callable[[Any], AbstractContextManager[object]]
Publish = Callable[[Any, bytes], Coroutine[Any, Any, object]]
"""Stores a result, once for its message, however often that is handled."""


def handler_of(
    function: Callable[..., Any],
    wants: Wants,
    hooks: Sequence[Hook],
    tally: Tally,
    publish: Publish | None,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[Any], Any]:
    """What is to be called with each message: a coroutine function where ``function`` is one.

    What returns has handled its message: the result is published, if there is somewhere to, and then the
    message is acknowledged, unless the function has answered it.
    """
    call = _Call(function, wants, hooks, tally, publish, clock)
    return call.awaited if gives_coroutines(function) else call.plain


class _Call:
    def __init__(
        self,
        function: Callable[..., Any],
        wants: Wants,
        hooks: Sequence[Hook],
        tally: Tally,
        publish: Publish | None,
        clock: Callable[[], float],
    ) -> None:
        self._function = function
        self._wants = wants
        self._hooks = hooks
        self._tally = tally
        self._publish = publish
        self._clock = clock

    async def awaited(self, message: Any) -> None:
        """On the event loop."""
        with _Turn(self._tally, self._clock, message), ExitStack() as around:
            for hook in self._hooks:
                around.enter_context(hook(message))
            result = await self._function(*self._wants.arguments(message))
            if self._publish is not None and result is not None:
                await self._publish(message, encoded(result))
        if not message.is_answered:
            message.ack()

    def plain(self, message: Any) -> Awaitable[None] | None:
        """On a thread. What it returns is awaited on the loop."""
        body: bytes | None = None  # also where a hook keeps an error to itself
        with _Turn(self._tally, self._clock, message), ExitStack() as around:
            for hook in self._hooks:
                around.enter_context(hook(message))
            result = self._function(*self._wants.arguments(message))
            if self._publish is not None and result is not None:
                body = encoded(result)
        if body is not None:
            return self._store(message, body)
        if not message.is_answered:
            message.ack()
        return None

    async def _store(self, message: Any, body: bytes) -> None:
        assert self._publish is not None
        await self._publish(message, body)
        if not message.is_answered:
            message.ack()


class _Turn:
    """One call: counted, measured, and known as the current message meanwhile."""

    __slots__ = ("_began", "_clock", "_message", "_tally", "_token")

    def __init__(self, tally: Tally, clock: Callable[[], float], message: Any) -> None:
        self._tally = tally
        self._clock = clock
        self._message = message

    def __enter__(self) -> None:
        self._token = handled.set(self._message)
        self._tally.began()
        self._began = self._clock()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        seconds = self._clock() - self._began
        is_misfit = isinstance(error, MisfitError)
        self._tally.ended(seconds, failed=error is not None, misfit=is_misfit)
        handled.reset(self._token)
