"""Ending in order when a process is told to: several workers of one event loop share its signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from weakref import WeakKeyDictionary

__all__ = ["is_free", "stopped_by"]

_Asked = dict[int, list[Callable[[], None]]]

_OF_LOOPS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Asked]] = WeakKeyDictionary()


def is_free(number: int) -> bool:
    """Whether this is the thread that gets signals, and nobody has said what happens at this one."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


@contextlib.contextmanager
def stopped_by(
    numbers: Sequence[int], stop: Callable[[], None], *, taken: Sequence[int] = ()
) -> Iterator[None]:
    """Call ``stop`` at each of these signals, those left out at which a program does something of its own.

    Those in ``taken`` are handled whoever has them.
    """
    loop = asyncio.get_running_loop()
    asked = _OF_LOOPS.setdefault(loop, {})
    ours = []
    for number in (*numbers, *taken):
        if number not in asked:
            if number not in taken and not is_free(number):
                continue
            try:
                loop.add_signal_handler(number, _tell, asked, number)
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # this system, or this loop, has no such thing
            asked[number] = []
        asked[number].append(stop)
        ours.append(number)
    try:
        yield
    finally:
        for number in ours:
            asked[number].remove(stop)
            if not asked[number]:
                del asked[number]
                loop.remove_signal_handler(number)


def _tell(asked: _Asked, number: int) -> None:
    for stop in tuple(asked.get(number, ())):
        stop()
