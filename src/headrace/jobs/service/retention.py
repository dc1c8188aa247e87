"""Retention: messages that are old enough and whose jobs are all finished may be removed.

A run checks the messages once, in order of arrival, in limited windows. However many are blocked by an
unfinished job, the next window begins after them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import limits
from ..models import rfc3339
from ..states import State
from ..store import Row, Tx
from .push import call_statistics
from .removed_jobs import note_removed

__all__ = [
    "Keep",
    "Removed",
    "Window",
    "folder_of",
    "give_back",
    "glance",
    "look",
    "prune_notes",
    "remove",
]


_DISPATCHED = 102


@dataclass(frozen=True, slots=True)
class Keep:
    """Ages that data may reach, in seconds; ``None`` means for ever."""

    messages_s: float | None = None
    dead_s: float | None = None
    attempts_s: float | None = 7 * 24 * 3600.0
    events_s: float | None = 90 * 24 * 3600.0
    audit_s: float | None = 90 * 24 * 3600.0

    def allows(self, message: Row, jobs: Sequence[Row], now: int) -> bool:
        """Whether a message with these jobs may be removed."""
        if self.messages_s is None or message["status"] != _DISPATCHED:
            return False
        if message["received_us"] > now - self.messages_s * 1e6:
            return False
        return all(job["state"] == State.DELIVERED or self._dead_may_go(job, now) for job in jobs)

    def _dead_may_go(self, job: Row, now: int) -> bool:
        return (
            job["state"] == State.DEAD
            and self.dead_s is not None
            and bool(job["changed_us"] <= now - self.dead_s * 1e6)
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that may be removed, with their jobs, and where to continue (``None``: all checked)."""

    messages: Sequence[Row]
    jobs: dict[int, list[Row]]
    after: int | None
    attempts: dict[int, list[Row]] = field(default_factory=dict)


@dataclass(slots=True)
class Removed:
    """Counts of rows that were removed, by table."""

    rows: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, count: int) -> None:
        self.rows[table] = self.rows.get(table, 0) + count


def look(tx: Tx, keep: Keep, after: int, now: int) -> Window:
    """One window of messages after ``after``, with what an archive keeps of them."""
    if keep.messages_s is None:
        return Window([], {}, None)
    sizes = tx.all("scan_old_sizes", after=after, n=limits.SWEEP_ROWS)
    old_us = now - keep.messages_s * 1e6
    if not any(row["received_us"] <= old_us for row in sizes):
        # Behind a window of young messages there are only younger ones.
        return Window([], {}, None)
    fitting = _fitting(sizes)
    until = fitting[-1]["seq"]
    rows = tx.all("scan_old_messages", after=after, until=until)
    jobs = _jobs_of(tx, [row["seq"] for row in rows])
    ready = [row for row in rows if keep.allows(row, jobs.get(row["seq"], []), now)]
    over = len(sizes) < limits.SWEEP_ROWS and len(fitting) == len(sizes)
    return Window(ready, jobs, None if over else until, _attempts_of(tx, ready, jobs))


def _fitting(sizes: Sequence[Row]) -> Sequence[Row]:
    """The first of these messages whose payloads may be held in memory together; at least one."""
    total = 0
    for count, row in enumerate(sizes, 1):
        total += row["size"]
        if total >= limits.WINDOW_BYTES_MAX:
            return sizes[:count]
    return sizes


def glance(tx: Tx, keep: Keep, after: int, now: int) -> Window:
    """:func:`look` where nothing is archived: what may go, without its payloads."""
    if keep.messages_s is None:
        return Window([], {}, None)
    rows = tx.all("scan_old_heads", after=after, n=limits.SWEEP_ROWS)
    old_us = now - keep.messages_s * 1e6
    old = [row for row in rows if row["received_us"] <= old_us]
    if not old:
        return Window([], {}, None)
    jobs = _states_of(tx, [row["seq"] for row in old])
    ready = [row for row in old if keep.allows(row, jobs.get(row["seq"], []), now)]
    return Window(ready, jobs, rows[-1]["seq"] if len(rows) == limits.SWEEP_ROWS else None)


def folder_of(message: Row) -> str:
    """The folder of the archive that a message belongs to: the day it was received."""
    return f"date={rfc3339(message['received_us'])[:10]}"


def remove(tx: Tx, keep: Keep, window: Window, now: int, *, archived: bool) -> Removed:
    """Remove what :func:`look` or :func:`glance` found, except what changed since (a requeued dead letter).

    Which jobs that were, and in which folder of the archive they are, is noted for those who ask for them.
    """
    messages = window.messages
    jobs = _states_of(tx, [row["seq"] for row in messages])
    gone = [row for row in messages if keep.allows(row, jobs.get(row["seq"], []), now)]
    removed = Removed()
    if gone:
        folders = {
            job["seq"]: folder_of(message) if archived else None
            for message in gone
            for job in jobs.get(message["seq"], [])
        }
        note_removed(tx, folders, now)
        seqs = json.dumps([row["seq"] for row in gone])
        removed.add("job", tx.run("delete_jobs_of_messages", seqs=seqs))
        removed.add("message", tx.run("delete_messages", seqs=seqs))
    return removed


def prune_notes(tx: Tx, keep: Keep, now: int) -> Removed:
    """Remove a limited number of old attempts, events, lines of the audit log, notes of where jobs went."""
    removed = Removed()
    for table, query, age_s in (
        ("attempt", "prune_attempts", keep.attempts_s),
        ("event", "prune_events", keep.events_s),
        ("audit", "prune_audit", keep.audit_s),
    ):
        if age_s is not None:
            before = now - round(age_s * 1e6)
            removed.add(table, tx.run(query, before=before, n=limits.SWEEP_ROWS))
    removed.add("push_calls", call_statistics.prune(tx, now))
    tx.run("delete_hidden_producers")
    if keep.events_s is not None:
        before = now - round(keep.events_s * 1e6)
        tx.run("prune_removed_ranges", before=before, n=limits.SWEEP_ROWS)
        tx.run("prune_keys", before=before)
    return removed


def _attempts_of(
    tx: Tx, messages: Sequence[Row], jobs: Mapping[int, Sequence[Row]]
) -> dict[int, list[Row]]:
    seqs = [job["seq"] for message in messages for job in jobs.get(message["seq"], [])]
    attempts: dict[int, list[Row]] = {}
    if seqs:
        for row in tx.all("attempts_of_jobs", seqs=json.dumps(seqs)):
            attempts.setdefault(row["job_seq"], []).append(row)
    return attempts


def _jobs_of(tx: Tx, seqs: Sequence[int], query: str = "jobs_of_messages") -> dict[int, list[Row]]:
    jobs: dict[int, list[Row]] = {}
    if seqs:
        for row in tx.all(query, seqs=json.dumps(list(seqs))):
            jobs.setdefault(row["message_seq"], []).append(row)
    return jobs


def _states_of(tx: Tx, seqs: Sequence[int]) -> dict[int, list[Row]]:
    """The jobs of these messages, with what decides whether they may go."""
    return _jobs_of(tx, seqs, "states_of_messages")


def give_back(tx: Tx) -> int:
    """Give a limited number of the database's empty pages back to the disk. Returns how many."""
    row = tx.one("empty_pages")
    count = 0 if row is None else min(int(row["n"]), limits.PAGES_GIVEN_BACK)
    for _ in range(count):
        tx.run("give_back_page")
    return count
