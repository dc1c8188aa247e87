"""The only place where a test waits without an event.

What another process, another thread or the network decides is asked for again and again (``until``); what
takes time, or must not happen within some, is said to (``elapse``). Everything else waits for an event or
lives in virtual time; a test of the house looks for sleeps of any other kind.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from headrace.client import Consumer

__all__ = [
    "block",
    "elapse",
    "elapse_here",
    "until",
    "until_delivered",
    "until_here",
    "until_pulling",
]

POLL_S = 0.01
POLL_MOST_S = 0.1
BETWEEN = 4
"""Who takes so long to ask waits this many times longer, up to ``POLL_MOST_S``: the processor is others', of
which one makes what is waited for."""
WITHIN_S = 10.0

T = TypeVar("T")


@overload
async def until(
    found: Callable[[], Awaitable[T]], what: str = ..., *, within: float = ...
) -> T: ...
@overload
async def until(found: Callable[[], T], what: str = ..., *, within: float = ...) -> T: ...
async def until(
    found: Callable[[], object], what: str = "it did not come", *, within: float = WITHIN_S
) -> object:
    """Ask until the answer is true, and return it; ``what`` says what is wrong if it never is."""
    asked = time.monotonic()
    deadline = asked + within
    while True:
        answer = found()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"{what} (within {within} s)")
        await asyncio.sleep(_pause(now - asked, POLL_S))
        asked = time.monotonic()


def until_here(
    found: Callable[[], T],
    what: str = "it did not come",
    *,
    within: float = WITHIN_S,
    every: float = POLL_S,
) -> T:
    """``until`` of a thread without a loop."""
    asked = time.monotonic()
    deadline = asked + within
    while not (answer := found()):
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"{what} (within {within} s)")
        time.sleep(_pause(now - asked, every))
        asked = time.monotonic()
    return answer


def _pause(asking_s: float, least: float) -> float:
    return max(least, min(POLL_MOST_S, BETWEEN * asking_s))


def block(seconds: float) -> None:
    """What a handler that blocks does: its thread, and the loop if it runs there, stands still."""
    time.sleep(seconds)


async def elapse(seconds: float, why: str) -> None:
    """Let time pass that nothing can be waited for in: something takes so long, or must not happen."""
    assert why
    await asyncio.sleep(seconds)


def elapse_here(seconds: float, why: str) -> None:
    """``elapse`` of a thread without a loop."""
    assert why
    time.sleep(seconds)


async def until_delivered(consumer: Consumer, messages: int) -> None:
    """Until the server has delivered so many, as far as it knows."""

    async def are_out() -> bool:
        return (await consumer.info()).delivered.consumer_seq >= messages

    await until(are_out, f"{messages} messages are not delivered")


async def until_pulling(consumer: Consumer, pulls: int = 1) -> None:
    """Until so many requests for messages wait at the server."""

    async def are_there() -> bool:
        return (await consumer.info()).num_waiting >= pulls

    await until(are_there, f"{pulls} requests do not wait at the server")
