"""Connections that a worker process keeps between its tasks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ...errors import ConnectionClosedError
from ..link import Link
from ..options import Connection

_idle: Final[dict[tuple[int, Connection], list[Link]]] = {}

Connect = Callable[[], Link]


class Links:
    """Lends one connection to a task, and another one after it broke.

    Args:
        connect: opens one; default: the server that the options name.
    """

    def __init__(self, connection: Connection, connect: Connect | None = None) -> None:
        self._key = os.getpid(), connection  # a forked process must not share a socket
        self._connect = connect or (lambda: Link.open(connection))
        self._link: Link | None = None
        self._was_connected = False

    @property
    def was_connected(self) -> bool:
        """Whether this task or one before it in this process has reached the server."""
        return self._was_connected or self._key in _idle

    def get(self) -> Link:
        """The connection. Raises as ``Link.open``."""
        if self._link is not None and not self._link.closed:
            return self._link
        kept = _idle.get(self._key, [])
        while kept:
            self._link = kept.pop()
            if self._link.is_alive():
                return self._link
        self._link = self._connect()
        self._was_connected = True
        return self._link

    def drop(self) -> None:
        """Close the connection: what it has sent is not known to have arrived."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def end(self, sid: bytes) -> None:
        """End a subscription of the task, which has heard all it wants."""
        if self._link is None or not sid:
            return
        try:
            self._link.unsubscribe(sid)
        except ConnectionClosedError:
            self.drop()  # it ended with the connection; the next task opens another one

    def give_back(self) -> None:
        """The task is done with the connection and has nothing under way on it."""
        link, self._link = self._link, None
        if link is not None and not link.closed:
            _idle.setdefault(self._key, []).append(link)


def close_idle() -> None:
    """Close every connection that no task uses."""
    for kept in _idle.values():
        for link in kept:
            link.close()
    _idle.clear()
