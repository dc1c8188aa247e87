"""A connection works in the event loop that it was made in, and says so where another one calls it,
or where none is there to make it in."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from asyncio import _get_running_loop as running_loop
from typing import Final

from ...errors import WrongLoopError

__all__ = ["check_loop", "require_loop", "wrong_loop"]

_WHAT_TO_DO: Final = (
    "Each asyncio.run has a loop of its own, and so has each call of an async view under WSGI. Connect in "
    "the loop that uses the connection, or use headrace.sync, which all threads and loops may use"
)


def wrong_loop(loop: AbstractEventLoop) -> WrongLoopError | None:
    """What to raise where something is done to what belongs to ``loop``, if it cannot be done here.

    Without a running loop it can: what is queued is sent when ``loop`` goes on.
    """
    running = running_loop()
    if running is loop:
        return None
    if loop.is_closed():
        return WrongLoopError(
            f"the event loop that this connection was made in is closed. {_WHAT_TO_DO}"
        )
    if running is not None:
        return WrongLoopError(
            f"this connection was made in another event loop than the one that runs here. {_WHAT_TO_DO}"
        )
    return None


def check_loop(loop: AbstractEventLoop) -> None:
    """Raises WrongLoopError: as ``wrong_loop``."""
    if running_loop() is not loop and (error := wrong_loop(loop)) is not None:
        raise error


def require_loop() -> None:
    """Raises WrongLoopError: nothing can be made here, as no event loop of asyncio runs."""
    if running_loop() is None:
        raise WrongLoopError(
            "no event loop of asyncio runs here. The client is asyncio's, and does not run with trio and "
            "curio: connect inside of asyncio.run, or use headrace.sync, which needs no loop"
        )
