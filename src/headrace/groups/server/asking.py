"""Questions to a server that may be far: asked at once, and asked again before the answer is there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["Asking", "together"]

A = TypeVar("A")
B = TypeVar("B")


async def together(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    """The answers to two questions that are asked at once. Raises what the first of them raised that did,
    once both have ended."""
    found = await asyncio.gather(one, other, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    first, second = found
    return first, second  # type: ignore[return-value]


class Asking(Generic[A]):
    """One question, asked again until the answer is another one: of a server that is near after each answer,
    of one that is far before the answer is there, so that no round trip is added to what is waited for.

    Args:
        ask: asks.
        first_s: the time between the first two questions; it doubles …
        max_s: … up to here.
    """

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, A]], first_s: float, max_s: float = float("inf")
    ) -> None:
        self._ask: Callable[[], Coroutine[Any, Any, A]] = ask
        self._pause_s = first_s
        self._max_s = max_s
        self._under_way: deque[asyncio.Task[A]] = deque()
        self._due = 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a question was asked whose answer nobody has taken."""
        return bool(self._under_way)

    async def next(self) -> A:
        """The next answer, in the order of the questions. Raises what it was answered with."""
        time = asyncio.get_running_loop().time
        while True:
            if (left := self._due - time()) <= 0:
                left = self._pause_s
                self._due = time() + left
                self._pause_s = min(2 * left, self._max_s)
                self._under_way.append(asyncio.ensure_future(self._ask()))
            if not self._under_way:
                await asyncio.sleep(left)
                continue
            done, _ = await asyncio.wait([self._under_way[0]], timeout=left)
            if done:
                return self._under_way.popleft().result()

    async def settle(self) -> None:
        """Ask no more; until all that was asked is answered, or failed."""
        if self._under_way:
            await asyncio.wait(self._under_way)
            for each in self._under_way:
                each.exception()
            self._under_way.clear()

    async def end(self) -> None:
        """Ask no more, and wait for no answer."""
        for each in self._under_way:
            each.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
            self._under_way.clear()
