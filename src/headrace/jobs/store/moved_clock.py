"""Leases last as long as they were given, also when somebody sets the machine's clock.

A lease's end is stored as a time of the wall clock. Set back by an hour, the clock would let a dead
worker keep its jobs for that hour; set forward, it would take them from workers that are alive. So the
writer compares the wall clock with the machine's steady one (which nobody sets) before each transaction,
and when one has moved against the other, it moves the ends of leases and of pauses between retries along.
What the clocks said last is in the database, so that a step is also noticed that happened while no
process ran. Schedules stay: they name a time of the wall clock.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from ...clock import Clock, SystemClock
from .queries import load_queries

__all__ = ["Steady"]

_LOG: Final = logging.getLogger("headrace.jobs")
_KEY: Final = "clock"
_STEP_US: Final = 1_000_000  # less is a correction of the clock's rate, and moves no lease
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Steady:
    """Notices steps of ``clock``. Used by the thread that writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Steady clocks of two runs of a machine, or of a test's clock, say nothing about each other.
        self._run = _run_of_machine() if isinstance(clock, SystemClock) else f"clock {id(clock)}"
        self._ahead_us: int | None = None

    def follow(self, connection: sqlite3.Connection) -> None:
        """Move leases and pauses along if the clock was set since the last time. Not inside a transaction."""
        ahead_us = (self._clock.now_ns() - self._clock.monotonic_ns()) // 1000
        if self._ahead_us is not None and abs(ahead_us - self._ahead_us) < _STEP_US:
            return
        queries = load_queries("sqlite")
        connection.execute("BEGIN IMMEDIATE")
        try:
            row = connection.execute(queries["get_meta"], {"key": _KEY}).fetchone()
            run, _, before = (row[0] if row else "").rpartition(" ")
            # Another process may have noticed it first.
            step_us = ahead_us - int(before) if run == self._run else 0
            if abs(step_us) >= _STEP_US:
                for query in ("move_leases", "move_pauses", "move_leads"):
                    connection.execute(queries[query], {"step": step_us})
                _LOG.warning(
                    "the machine's clock was set by %+.1f s: leases and retries move along",
                    step_us / 1e6,
                )
            if row is None or run != self._run or step_us:
                value = {"key": _KEY, "value": f"{self._run} {ahead_us}"}
                connection.execute(queries["put_meta"], value)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # of a full disk SQLite has ended it itself
                connection.execute("ROLLBACK")
            raise
        self._ahead_us = ahead_us


def _run_of_machine() -> str:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return "unknown"
