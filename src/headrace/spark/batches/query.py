"""A streaming query over its streams: how much the next micro-batch takes of each.

Spark calls it from one thread of a separate process, which gets SIGTERM at the end and no other sign. Each
stream has a driver; the query shares the limits among them and turns their offsets into Spark's.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final, Protocol

from ..offsets import Offset, read_offsets, write_offsets
from ..options import Pace, SourceOptions
from ..slices import Slice, share_out
from .driver import Driver, Look
from .lag import Lag

_LOG: Final = logging.getLogger("headrace.spark")


class Queryable(Protocol):
    """What Spark's calls need of a streaming query."""

    @property
    def latest(self) -> dict[str, Any] | None: ...

    def initial_offset(self) -> dict[str, Any]: ...

    def freeze_target(self) -> None: ...

    def latest_offset(self, start: dict[str, Any], *, limited: bool = True) -> dict[str, Any]: ...

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]: ...

    def hang_up(self) -> None: ...

    def close(self) -> None: ...


def query_of(options: SourceOptions) -> Queryable:
    """The query that these options ask for."""
    if options.group is not None:
        from ..grouped.query import GroupQuery

        return GroupQuery(options)
    if options.overflow is not None:
        from ..overflow.query import OverflowQuery

        return OverflowQuery(options)
    return Query(options)


def exit_on_sigterm(query: Queryable) -> None:
    """Exit quietly when Spark ends the query; it gives no other sign.

    Only if no other code handles the signal, and only in the main thread, where Python allows it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def exit_now(_signal: int, _frame: FrameType | None) -> None:
        # The main thread may be anywhere, also inside a request: only hang up and exit.
        query.hang_up()
        os._exit(0)

    signal.signal(signal.SIGTERM, exit_now)


class Query:
    """Offsets and plans of one streaming query, as Spark keeps them.

    Args:
        options: of the query.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self.drivers = {each.stream: Driver(each) for each in options.each()}
        self._frozen = False
        self._lag: Lag | None = None
        self._last_batch_at: float | None = None

    def initial_offset(self) -> dict[str, Any]:
        """Where a new query begins; the same answer on every call."""
        return self._write({name: driver.initial_offset() for name, driver in self.drivers.items()})

    def freeze_target(self) -> None:
        """Offer nothing beyond the streams' present ends from now on (Trigger.AvailableNow)."""
        self._frozen = True
        for driver in self.drivers.values():
            driver.freeze_target()

    def latest_offset(self, start: dict[str, Any], *, limited: bool = True) -> dict[str, Any]:
        """The end of the next batch after ``start``; ``start`` itself if there is none yet.

        Args:
            start: where the last committed batch ended.
            limited: whether the query's limits hold; not under Trigger.Once.

        Raises:
            DataLossError: a stream is not the one ``start`` belongs to, and ``onStreamReset`` is fail.
        """
        starts = self._read(start)
        looks = self._look(starts)
        if self._options.lag:
            self.lag.show(looks)
        idle = all(look.is_idle for look in looks.values())
        if idle and not self._frozen and self._wait(looks):
            looks = self._look(starts)
        if limited and not self._frozen and self._too_few(looks):
            return start
        rows = self._rows(looks, self._options.pace if limited else Pace())
        ends = {}
        for name, look in looks.items():
            end = self.drivers[name].end(look, rows[name])
            if name in starts:
                ends[name] = end
            elif end.seq > look.start.seq:
                # A stream that was added to the query: its first batch says where it began.
                ends[name] = end if end.begin is not None else end._replace(begin=look.start.seq)
        if ends == starts:
            return start  # the same text, or Spark would make an empty batch of it
        self._last_batch_at = self._clock()
        return self._write(ends)

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """The tasks of the batch ``(start, end]``."""
        starts, ends = self._read(start), self._read(end)
        widths = {
            name: max(0, to.seq - starts.get(name, Offset(to.begin or 0, "")).seq)
            for name, to in ends.items()
        }
        tasks = share_out(self._options.max_tasks, widths)
        least = share_out(self._options.min_tasks, widths)
        return [
            piece
            for name, to in ends.items()
            for piece in self.drivers[name].plan(
                starts.get(name, to),
                to,
                max_tasks=max(1, tasks[name]),
                min_tasks=max(1, least[name]),
            )
        ]

    @property
    def latest(self) -> dict[str, Any] | None:
        """The streams' ends as last seen, for the progress report."""
        ends = {name: driver.latest for name, driver in self.drivers.items()}
        seen = {name: end for name, end in ends.items() if end is not None}
        return self._write(seen) if len(seen) == len(ends) else None

    @property
    def lag(self) -> Lag:
        """Publishes how far the query is behind."""
        if self._lag is None:
            options = self._options
            self._lag = Lag(options.lag, options.durable, self.drivers, self._clock)
        return self._lag

    def hang_up(self) -> None:
        """Close the connections, wherever the main thread is."""
        for driver in self.drivers.values():
            driver.hang_up()

    def close(self) -> None:
        """Close the connections, and the metrics."""
        if self._lag is not None:
            self._lag.close()
        for driver in self.drivers.values():
            driver.close()

    def _look(self, starts: Mapping[str, Offset]) -> dict[str, Look]:
        return {
            name: driver.look(starts[name] if name in starts else driver.initial_offset())
            for name, driver in self.drivers.items()
        }

    def _wait(self, looks: Mapping[str, Look]) -> bool:
        """Wait for a message, at most the poll timeout, which several streams share."""
        timeout_s = self._options.poll_timeout_s / len(looks)
        return any(self.drivers[name].wait(look, timeout_s) for name, look in looks.items())

    def _too_few(self, looks: Mapping[str, Look]) -> bool:
        """Whether the batch has to wait for more messages; then it pauses a little, for Spark asks again."""
        pace = self._options.pace
        if pace.min_rows is None or self._last_batch_at is None:
            return False
        left = self._last_batch_at + pace.max_delay_s - self._clock()
        ahead = sum(look.ahead for look in looks.values())
        if left <= 0 or ahead == 0:
            return False
        if ahead >= pace.min_rows:
            found = sum(self.drivers[name].count(look) for name, look in looks.items())
            if found >= pace.min_rows:
                return False
        self._sleep(min(left, self._options.poll_timeout_s))
        return True

    def _rows(self, looks: Mapping[str, Look], pace: Pace) -> dict[str, int | None]:
        """The most messages that each stream may give to the batch; None: all it has."""
        ahead = {name: look.ahead for name, look in looks.items()}
        rows: dict[str, int | None] = dict.fromkeys(looks)
        if pace.max_rows is not None and len(rows) == 1:
            rows = dict.fromkeys(looks, pace.max_rows)
        elif pace.max_rows is not None and sum(ahead.values()) > pace.max_rows:
            rows = dict(share_out(pace.max_rows, ahead))
        if pace.max_bytes is None:
            return rows
        size = sum(look.ahead * look.head.mean_bytes for look in looks.values())
        if size > pace.max_bytes:
            for name, look in looks.items():
                fitting = max(1, look.ahead * pace.max_bytes // size)
                given = rows[name]
                rows[name] = fitting if given is None else min(given, fitting)
        return rows

    def _read(self, raw: dict[str, Any]) -> dict[str, Offset]:
        use = self._options.use
        offsets = read_offsets(raw, self._options.streams, use.source, use.others)
        gone = sorted(set(offsets) - set(self.drivers))
        if gone:
            _LOG.warning("the query no longer reads %s; the checkpoint still did", ", ".join(gone))
        return {name: offset for name, offset in offsets.items() if name in self.drivers}

    def _write(self, offsets: Mapping[str, Offset]) -> dict[str, Any]:
        return write_offsets(offsets, self._options.streams, self._options.use.source)
