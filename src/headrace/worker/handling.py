"""A function as the handler of a consumer or a group: hooks around it, arguments before it, the result, the
acknowledgement and the clock after it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Final

from ..handling.callbacks import awaitable_of, close_unawaited, gives_coroutines
from ..schemas.errors import LookupEndedError
from .current import handled
from .metrics import Tally
from .typed import MisfitError, Wants, encoded

if TYPE_CHECKING:
    from .schema_conversion import Reading, Writing

BACK_S: Final = 1.0
"""Until a message comes again that could not be read when the worker ended: by then this one takes none."""

Hook = Callable[[Any], AbstractContextManager[object]]
Publish = Callable[[Any, bytes, dict[str, str] | None], Coroutine[Any, Any, object]]
"""Stores a result, with these headers, once for its message, however often that is handled."""


def handler_of(
    function: Callable[..., Any],
    wants: Wants,
    hooks: Sequence[Hook],
    tally: Tally,
    publish: Publish | None,
    clock: Callable[[], float] = time.monotonic,
    reading: Reading | None = None,
    writing: Writing | None = None,
) -> Callable[[Any], Any]:
    """What is to be called with each message: a coroutine function where ``function`` is one.

    What returns has handled its message: the result is published, if there is somewhere to, and then the
    message is acknowledged, unless the function has answered it.
    """
    call = _Call(function, wants, hooks, tally, publish, clock, reading, writing)
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
        reading: Reading | None,
        writing: Writing | None,
    ) -> None:
        self._function = function
        self._wants = wants
        self._hooks = hooks
        self._tally = tally
        self._publish = publish
        self._clock = clock
        self._reading = reading
        self._writing = writing

    async def awaited(self, message: Any) -> None:
        """On the event loop."""
        reading = self._reading
        try:
            with _Turn(self._tally, self._clock, message), ExitStack() as around:
                for hook in self._hooks:
                    around.enter_context(hook(message))
                if reading is None:
                    arguments = self._wants.arguments(message)
                else:
                    arguments = await reading.arguments(message)
                result = await self._function(*arguments)
                if self._publish is not None and result is not None:
                    await self._store(message, result)
        except LookupEndedError:  # the worker ends while the registry is away
            message.nak(BACK_S)
        if not message.is_answered:
            message.ack()

    def plain(self, message: Any) -> Awaitable[None] | None:
        """On a thread. What it returns is awaited on the loop."""
        result: Any = None  # also where a hook keeps an error to itself
        read = self._wants.arguments
        if self._reading is not None:
            read = self._reading.arguments_on_thread
        try:
            with _Turn(self._tally, self._clock, message), ExitStack() as around:
                for hook in self._hooks:
                    around.enter_context(hook(message))
                result = self._function(*read(message))
                if awaitable_of(result) is not None:
                    close_unawaited(result)
                    raise TypeError(
                        "the handler returned something to await, which nobody does; accepted is a coroutine "
                        "function (async def)"
                    )
                if self._publish is not None and result is not None and self._writing is None:
                    result = encoded(result)
        except LookupEndedError:
            message.nak(BACK_S)
            return None
        if self._publish is not None and result is not None:
            return self._stored(message, result)
        if not message.is_answered:
            message.ack()
        return None

    async def _stored(self, message: Any, result: Any) -> None:
        try:
            await self._store(message, result)
        except LookupEndedError:
            message.nak(BACK_S)
        if not message.is_answered:
            message.ack()

    async def _store(self, message: Any, result: Any) -> None:
        assert self._publish is not None
        if self._writing is None:
            await self._publish(message, encoded(result), None)
        else:
            await self._publish(message, *(await self._writing.written(message, result)))


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
