"""Questions to a server that may be far: asked at once, and asked again before the answer is there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

__all__ = ["Asking", "of_each", "together"]

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")
AT_ONCE: Final = 3
"""Questions under way at a time: a server that is slow, and not far, must not be asked ever more."""


async def together(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    """The answers to two questions that are asked at once. Raises what the first of them raised that did,
    once both have ended."""
    found = await asyncio.gather(one, other, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    first, second = found
    return first, second  # type: ignore[return-value]


async def of_each(ask: Callable[[K], Awaitable[A]], of: Sequence[K], at_once: int) -> list[A]:
    """The answers to a question about each, in order; so many are under way at a time. Raises what the first
    raised that did, and asks no more."""
    room = asyncio.Semaphore(at_once)

    async def one(each: K) -> A:
        async with room:
            return await ask(each)

    tasks = [asyncio.ensure_future(one(each)) for each in of]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


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
            is_full = len(self._under_way) >= AT_ONCE
            if (left := self._due - time()) <= 0 and not is_full:
                left = self._pause_s
                self._due = time() + left
                self._pause_s = min(2 * left, self._max_s)
                asked = asyncio.ensure_future(self._ask())
                asked.add_done_callback(_is_heard)
                self._under_way.append(asked)
            if not self._under_way:
                await asyncio.sleep(left)
                continue
            patience = None if len(self._under_way) >= AT_ONCE else left
            done, _ = await asyncio.wait([self._under_way[0]], timeout=patience)
            if done:
                return self._under_way.popleft().result()

    async def settle(self) -> None:
        """Ask no more; until all that was asked is answered, or failed."""
        if self._under_way:
            await asyncio.wait(self._under_way)
            self._under_way.clear()

    async def end(self) -> None:
        """Ask no more, and wait for no answer."""
        for each in self._under_way:
            each.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
            self._under_way.clear()


def _is_heard(answer: asyncio.Task[Any]) -> None:
    """An answer that nobody waits for any more may be a refusal, of which nothing is to be said."""
    if not answer.cancelled():
        answer.exception()
