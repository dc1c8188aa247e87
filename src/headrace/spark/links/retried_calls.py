"""Calls of one stream's API with a live connection, and again on a new one while the server may come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import HeadraceError
from .control import Control
from .link import Link
from .outages import FIRST_CONNECT_S, ServerPatience, may_pass

T = TypeVar("T")


class Calls:
    """Keeps the connection of a query's process.

    Args:
        stream: whose API is called.
        connect: opens a link.
        reconnect_timeout_s: how long to wait for a server that was there and is away.
        patience: makes the pauses between attempts.
        stays: whether to wait out an error of a server that was there, with the connection kept.
    """

    def __init__(
        self,
        stream: str,
        connect: Callable[[], Link],
        reconnect_timeout_s: float,
        patience: Callable[[float, str], ServerPatience] = ServerPatience,
        stays: Callable[[HeadraceError], bool] = lambda error: False,
    ) -> None:
        self._stream = stream
        self._connect = connect
        self._reconnect_timeout_s = reconnect_timeout_s
        self._patience = patience
        self._stays = stays
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
        patience = self._patience(timeout_s, f"stream {self._stream!r}")
        while True:
            try:
                if self._control is None or self._control.link.closed:
                    self._control = Control(self._connect(), self._stream)
                answer = call(self._control)
                self._was_there = True
                return answer
            except HeadraceError as error:
                stays = self._was_there and self._stays(error)
                if not (stays or may_pass(error)):
                    raise
                if not stays:
                    self.close()
                patience.pause(error)

    def close(self) -> None:
        """Close the connection."""
        if self._control is not None:
            self._control.link.close()
