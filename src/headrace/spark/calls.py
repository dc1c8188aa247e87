"""Calls of one stream's API with a live connection, and again on a new one while the server may come back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from ..errors import HeadraceError
from .control import Control
from .link import Link
from .patience import Patience, may_pass

T = TypeVar("T")

FIRST_CONNECT_S: Final = 0.7  # a query that never reached its server has a wrong URL, more likely


class Calls:
    """Keeps the connection of a query's process.

    Args:
        stream: whose API is called.
        connect: opens a link.
        reconnect_timeout_s: how long to wait for a server that was there and is away.
        clock, sleep: monotonic seconds, and waiting for so many.
    """

    def __init__(
        self,
        stream: str,
        connect: Callable[[], Link],
        reconnect_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stream = stream
        self._connect = connect
        self._reconnect_timeout_s = reconnect_timeout_s
        self._clock = clock
        self._sleep = sleep
        self._control: Control | None = None
        self._was_there = False

    def __call__(self, call: Callable[[Control], T]) -> T:
        """The answer of ``call``; it may be called several times.

        Raises:
            HeadraceError: what ``call`` raised, if waiting would not help or was long enough.
        """
        timeout_s = self._reconnect_timeout_s
        if not self._was_there:
            timeout_s = min(timeout_s, FIRST_CONNECT_S)
        patience = Patience(timeout_s, f"stream {self._stream!r}", self._clock, self._sleep)
        while True:
            try:
                if self._control is None or self._control.link.closed:
                    self._control = Control(self._connect(), self._stream)
                answer = call(self._control)
                self._was_there = True
                return answer
            except HeadraceError as error:
                if not may_pass(error):
                    raise
                if self._control is not None:
                    self._control.link.close()
                patience.pause(error)

    def close(self) -> None:
        """Close the connection."""
        if self._control is not None:
            self._control.link.close()
