"""Leases that expired: their jobs are ready again, or dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import limits
from ...states import State, failure_event
from ...store import Row, Tx
from ..moves import Move, apply_moves, note_attempts

__all__ = ["Swept", "expire_leases"]


@dataclass(frozen=True, slots=True)
class Swept:
    """How many leases expired, and the states of those jobs since, by channel and consumer."""

    expired: int
    consumers: Mapping[tuple[str, str], Sequence[State]]
    cancelled: Mapping[tuple[str, str], int]


def expire_leases(tx: Tx, now: int) -> Swept:
    """Take back a limited number of jobs with expired leases: ready again at once, or dead."""
    rows = tx.all("load_expired", now=now, n=limits.SWEEP_ROWS)
    moves = [
        Move(
            row=row,
            event=failure_event(row["retries"], row["max_retries"]),
            error="the lease expired",
        )
        for row in rows
    ]
    states = apply_moves(tx, moves, now)
    note_attempts(tx, [_attempt(row) for row in rows])
    found: dict[tuple[str, str], list[State]] = {}
    for row, state in zip(rows, states, strict=True):
        found.setdefault((row["channel_id"], row["consumer_id"]), []).append(state)
    cancelled = Counter(
        (row["channel_id"], row["consumer_id"]) for row in rows if row["cancelled_us"] is not None
    )
    return Swept(len(rows), found, cancelled)


def _attempt(row: Row) -> dict[str, Any]:
    started = row["lease_started_us"]
    return {
        "job_seq": row["seq"],
        "number": row["claims"],
        "kind": "expired",
        "started_us": started,
        "duration_us": max(0, row["lease_expires_us"] - started),
        "status": 0,
        "error": "the lease expired",
        "excerpt": None,
    }
