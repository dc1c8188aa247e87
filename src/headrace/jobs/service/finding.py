"""Finding jobs: of a channel, a message, a consumer, in a state, of an age; and cancelling what is found."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from .. import limits
from ..errors import JobsError, not_found
from ..matching.payloads import Patterns, document_of, fitting_paths
from ..states import Event, Hold, State
from ..store import Row, Tx
from .moves import Move, apply_moves, load
from .page_reads import Paging

__all__ = [
    "Cancelled",
    "Filter",
    "JobRows",
    "blockers_of",
    "cancel_job",
    "cancel_some",
    "count_some",
    "find",
    "first_made_from",
    "fitting",
]


_WHOLE: Final = 2**31 - 1


def fitting(
    tx: Tx, rows: Sequence[Row], wanted: Patterns, n: int, window: int
) -> tuple[list[Row], int | None]:
    """Choose those of these jobs whose payloads fit, at most ``n``, in their order; and where to continue.

    ``None``: nothing is left, because they were fewer than the ``window`` that was asked for.
    """
    looked = list(rows) if not wanted else _within_bytes(tx, rows)
    found = list(looked) if not wanted else _chosen(tx, looked, wanted)
    if len(found) > n or (len(found) == n and (wanted or n == window)):
        return found[:n], found[n - 1]["seq"]
    over = len(rows) < window and len(looked) == len(rows)
    return found, None if over or not looked else looked[-1]["seq"]


def _within_bytes(tx: Tx, rows: Sequence[Row]) -> Sequence[Row]:
    """The first of them whose payloads may be looked into at once; one at least."""
    seqs = json.dumps(sorted({row["message_seq"] for row in rows}))
    sizes = {row["seq"]: int(row["size"]) for row in tx.all("sizes_of", seqs=seqs)}
    seen, total = set[int](), 0
    for count, row in enumerate(rows):
        if row["message_seq"] in seen:
            continue
        seen.add(row["message_seq"])
        total += sizes.get(row["message_seq"], 0)
        if total > limits.SEARCH_BYTES_MAX and count:
            return rows[:count]
    return rows


def _chosen(tx: Tx, rows: Sequence[Row], wanted: Patterns) -> list[Row]:
    fits = fitting_paths(wanted)
    seqs = json.dumps(sorted({row["message_seq"] for row in rows}))
    messages = tx.all("messages_of", seqs=seqs, bytes=_WHOLE)
    chosen = {row["seq"] for row in messages if fits(document_of(row["payload"]))}
    return [row for row in rows if row["message_seq"] in chosen]


_ALWAYS: Final = 2**62
_SKEW_US: Final = 10_000_000  # by how much a later job may have been made earlier, at most
_CANCELLABLE: Final = (State.QUEUED, State.INFLIGHT)


@dataclass(frozen=True, slots=True)
class Filter:
    """Jobs of a channel that are meant; ``None`` is any. ``until_us``: made at this time or before.
    ``payload``: whose message's payload has such values.
    """

    consumer_id: str | None = None
    message_id: str | None = None
    states: tuple[State, ...] = tuple(State)
    until_us: int | None = None
    payload: Patterns = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRows:
    """A page of jobs, newest first, the ids of the channel's consumers by number, and by the number of a
    job that waits for its ordering key the one that has it. ``at``: how far the channel was looked through;
    ``None``: to its end.
    """

    rows: Sequence[Row]
    consumers: Mapping[int, str]
    blockers: Mapping[int, Row]
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Jobs cancelled in one slice, by consumer: waiting ones, and those that run, which are told.

    ``at`` is where to continue; ``None``: nothing is left.
    """

    waiting: Mapping[str, int]
    running: Mapping[str, int]
    at: int | None


def find(tx: Tx, channel_seq: int, wanted: Filter, asked: Paging, n: int) -> JobRows:
    """A page of the jobs that are ``wanted``; 404 for a consumer that does not exist."""
    seen = limits.SEARCH_ROWS if wanted.payload else n
    looked, consumers = _look(tx, channel_seq, wanted, asked, seen)
    rows, at = fitting(tx, looked, wanted.payload, n, seen)
    page = rows[::-1] if asked.backwards else rows
    return JobRows(page, consumers, blockers_of(tx, page), at)


def _look(
    tx: Tx, channel_seq: int, wanted: Filter, asked: Paging, n: int
) -> tuple[list[Row], dict[int, str]]:
    """The next ``n`` jobs from a place on that are ``wanted``, whatever their payloads; and the consumers."""
    consumers = {
        row["seq"]: row["consumer_id"]
        for row in tx.all("list_consumers_of_channel", channel_seq=channel_seq)
    }
    chosen = [seq for seq, name in consumers.items() if wanted.consumer_id in (None, name)]
    if wanted.consumer_id is not None and not chosen:
        raise not_found("consumer", "consumer")
    until_us = _ALWAYS if wanted.until_us is None else wanted.until_us
    way = "before" if asked.backwards else "after"
    if wanted.message_id is not None:
        message = tx.one("get_digest", channel_seq=channel_seq, message_id=wanted.message_id)
        if message is None:
            raise not_found("message", "message")
        one = chosen[0] if wanted.consumer_id is not None else 0
        each = {"message_seq": message["seq"], "consumer_seq": one, "until_us": until_us}
        query, ways = (
            f"page_jobs_of_message_{way}",
            [{**each, "state": int(state)} for state in wanted.states],
        )
    else:
        last = _ALWAYS if wanted.until_us is None else _last_made(tx, wanted.until_us)
        query, ways = (
            f"page_jobs_of_state_{way}",
            [
                {"consumer_seq": seq, "state": int(state), "last": last, "until_us": until_us}
                for seq, state in _kept(tx, chosen, wanted.states)
            ],
        )
    step = max(limits.PAGE_SIZE, n // (len(ways) or 1))
    walks = [_walk(tx, query, asked.at, min(n, step), values) for values in ways]
    merged = heapq.merge(*walks, key=lambda row: int(row["seq"]), reverse=not asked.backwards)
    return list(islice(merged, n)), consumers


def _walk(tx: Tx, query: str, at: int, n: int, values: Mapping[str, Any]) -> Iterator[Row]:
    """The jobs from a place on, read ``n`` at a time, when they are asked for."""
    while True:
        rows = tx.all(query, at=at, n=n, **values)
        yield from rows
        if len(rows) < n:
            return
        at = rows[-1]["seq"]


def blockers_of(tx: Tx, rows: Sequence[Row]) -> dict[int, Row]:
    """Find the job that has the ordering key which each of these waits for, by their number."""
    blocked = [
        row["seq"] for row in rows if row["state"] == State.QUEUED and row["hold"] == Hold.BLOCKED
    ]
    if not blocked:
        return {}
    return {row["seq"]: row for row in tx.all("blockers", seqs=json.dumps(blocked))}


def _kept(tx: Tx, consumers: Sequence[int], states: Sequence[State]) -> list[tuple[int, State]]:
    """Find which of these consumers have jobs in which of these states."""
    chosen = set(consumers)
    return [
        (row["consumer_seq"], State(row["state"]))
        for row in tx.all("job_counts")
        if row["n"] and row["consumer_seq"] in chosen and row["state"] in states
    ]


def _last_made(tx: Tx, until_us: int) -> int:
    """A number that no job made until then exceeds. Jobs are numbered as they are made: it is bisected."""
    row = tx.one("last_job")
    low, high = 0, (row["seq"] or 0) if row is not None else 0
    while low < high:
        middle = (low + high) // 2
        found = tx.one("job_at", seq=middle + 1)
        if found is None or found["created_us"] > until_us + _SKEW_US:
            high = middle
        else:
            low = int(found["seq"])
    return max(low, 0)


def first_made_from(tx: Tx, from_us: int) -> int:
    """A number below those of all jobs that were made since then."""
    return _last_made(tx, from_us - 2 * _SKEW_US)


def cancel_job(
    tx: Tx, channel_seq: int, seq: int, consumer_id: str | None, now: int, *, dry_run: bool
) -> Cancelled:
    """Cancel one job; 404 if channel and consumer have none such, 409 if it is finished."""
    row = load(tx, [seq]).get(seq)
    names = {
        one["seq"]: one["consumer_id"]
        for one in tx.all("list_consumers_of_channel", channel_seq=channel_seq)
    }
    if row is None or names.get(row["consumer_seq"]) not in _named(names, consumer_id):
        raise not_found("job", "job")
    if row["state"] not in _CANCELLABLE:
        raise JobsError(
            409, "finished", f"the job is {State(row['state']).name}: it cannot be cancelled", "job"
        )
    return _split([row], names, None) if dry_run else _cancel(tx, [row], names, now, None)


def _named(names: Mapping[int, str], consumer_id: str | None) -> set[str]:
    return {name for name in names.values() if consumer_id in (None, name)}


def cancel_some(tx: Tx, channel_seq: int, wanted: Filter, at: int, now: int) -> Cancelled:
    """Cancel a limited number of the jobs that are ``wanted`` and unfinished, from ``at`` downwards."""
    found, names, following = _slice(tx, channel_seq, wanted, at)
    locked = load(tx, [row["seq"] for row in found])
    rows = [locked[row["seq"]] for row in found if row["seq"] in locked]
    return _cancel(
        tx, [row for row in rows if row["state"] in wanted.states], names, now, following
    )


def count_some(tx: Tx, channel_seq: int, wanted: Filter, at: int, now: int) -> Cancelled:
    """Count what :func:`cancel_some` would cancel."""
    del now
    return _split(*_slice(tx, channel_seq, wanted, at))


def _slice(
    tx: Tx, channel_seq: int, wanted: Filter, at: int
) -> tuple[list[Row], dict[int, str], int | None]:
    """A limited number of the jobs that are ``wanted``, the consumers, and where to continue."""
    n = limits.SEARCH_ROWS if wanted.payload else limits.SWEEP_ROWS
    looked, names = _look(tx, channel_seq, wanted, Paging(at), n)
    rows, following = fitting(tx, looked, wanted.payload, n, n)
    return rows, names, following


def _cancel(
    tx: Tx, rows: Sequence[Row], names: Mapping[int, str], now: int, at: int | None
) -> Cancelled:
    split = _split(rows, names, at)
    waiting = [row for row in rows if row["state"] == State.QUEUED]
    apply_moves(tx, [Move(row=row, event=Event.CANCEL) for row in waiting], now)
    for row in rows:
        if row["state"] == State.INFLIGHT and row["cancelled_us"] is None:
            tx.run("mark_cancelled", seq=row["seq"], now=now)
    return split


def _split(rows: Sequence[Row], names: Mapping[int, str], at: int | None) -> Cancelled:
    waiting, running = Counter[str](), Counter[str]()
    for row in rows:
        if row["state"] == State.QUEUED:
            waiting[names[row["consumer_seq"]]] += 1
        elif row["cancelled_us"] is None:
            running[names[row["consumer_seq"]]] += 1
    return Cancelled(waiting, running, at)
