"""Connections that a worker process keeps between its tasks, of the source and of the sink.

Spark's Python workers run one task after another, and a task may need several connections. Few are kept, none
for long, and none that is broken is lent: what is kept is looked at before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ...errors import HeadraceError
from ..options import Connection
from .link import Link

IDLE_MAX: Final = 8
"""So many connections a process keeps that no task uses; of more, the one unused for longest is closed."""
IDLE_S: Final = 60.0
"""Seconds after which a connection that no task has used is closed, when the next is taken or given back."""

Connect = Callable[[], Link]


@dataclass(slots=True)
class Statistics:
    """What a pool has done: connections opened, lent again, found broken, closed as too many or too old."""

    opened: int = 0
    reused: int = 0
    broken: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class _Idle:
    owner: tuple[int, Connection]
    link: Link
    since: float


class LinkPool:
    """Lends connections, to one task each.

    Args:
        idle_max: how many are kept that no task uses.
        idle_s: for how many seconds each.
        now: seconds of a clock that never goes back.
        process: this process's id. A forked one must not share sockets: it never touches those of its parent.
    """

    def __init__(
        self,
        *,
        idle_max: int = IDLE_MAX,
        idle_s: float = IDLE_S,
        now: Callable[[], float] = time.monotonic,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        self.statistics = Statistics()
        self._idle_max, self._idle_s = idle_max, idle_s
        self._now, self._process = now, process
        self._idle: list[_Idle] = []  # the one unused for longest first
        self._reached: set[tuple[int, Connection]] = set()

    def has_reached(self, connection: Connection) -> bool:
        """Whether a task of this process was done with a connection there before."""
        return (self._process(), connection) in self._reached

    def take(self, connection: Connection, connect: Connect | None = None) -> Link:
        """A connection for one task: one that was kept, or a new one. Raises as ``Link.open``."""
        self._close_old()
        owner = self._process(), connection
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index].owner != owner:
                continue
            link = self._idle.pop(index).link
            if link.is_alive():
                self.statistics.reused += 1
                return link
            link.close()
            self.statistics.broken += 1
        link = connect() if connect is not None else Link.open(connection)
        self.statistics.opened += 1
        return link

    def give_back(self, connection: Connection, link: Link) -> None:
        """A task is done with a connection and has nothing under way on it."""
        owner = self._process(), connection
        self._reached.add(owner)
        if not link.closed:
            self._idle.append(_Idle(owner, link, self._now()))
        self._close_old()

    @contextmanager
    def lending(self, connection: Connection) -> Iterator[Connect]:
        """Yields what takes one; all are given back at the end, or closed if the task failed within."""
        lent: list[Link] = []

        def connect() -> Link:
            lent.append(self.take(connection))
            return lent[-1]

        try:
            yield connect
        except HeadraceError:
            for link in lent:
                link.close()
            raise
        finally:
            for link in lent:
                self.give_back(connection, link)

    def close(self) -> None:
        """Close every connection of this process that no task uses, and be as new."""
        self._close(lambda each: True)
        self._reached.clear()

    def _close_old(self) -> None:
        mine = [each for each in self._idle if each.owner[0] == self._process()]
        too_many = {id(each) for each in mine[: max(len(mine) - self._idle_max, 0)]}
        until = self._now() - self._idle_s
        self._close(lambda each: each.since < until or id(each) in too_many)

    def _close(self, is_due: Callable[[_Idle], bool]) -> None:
        process, kept = self._process(), []
        for each in self._idle:
            if each.owner[0] == process and is_due(each):
                each.link.close()
                self.statistics.closed += 1
            else:
                kept.append(each)
        self._idle = kept


POOL: Final = LinkPool()
"""That of this process."""
