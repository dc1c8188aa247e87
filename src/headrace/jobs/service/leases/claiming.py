"""The leased API: claim many jobs at once. Every claim has a new lease token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from ... import ids, limits
from ...models import ClaimedJob, Consumer
from ...store import Row, Tx

__all__ = ["claim", "claim_each", "claimed_job"]

_SECOND_US: Final = 1_000_000
_NO_LIMIT: Final = 2**62


def claim(tx: Tx, consumer: Consumer, n: int, lease_s: float, now: int) -> list[ClaimedJob]:
    """Lease up to ``n`` ready jobs: highest priority first, and within a priority the oldest.

    Together they have about ``CLAIM_BYTES_MAX`` of payload at most: fewer than ``n`` may be given where more
    are ready.

    Nothing is claimed if the definition has changed since ``consumer`` was read: ``n`` may be by a limit that
    no longer holds, and the consumer may be paused. Whoever changes it rings for those who wait for its jobs.
    """
    lease, expires = ids.new_lease(), _expires(now, lease_s)
    leased = _lease(tx, consumer, n, lease, expires, now, each=False)
    if not leased:
        return []
    rows, messages = _carried(tx, leased)
    return [claimed_job(row, messages[row["message_seq"]], lease, expires) for row in rows]


def claim_each(
    tx: Tx, consumer: Consumer, clients: int, lease_s: float, now: int
) -> list[ClaimedJob]:
    """The same for so many clients that want one job each: a lease for each, and whatever its bytes."""
    lease, expires = ids.new_lease(), _expires(now, lease_s)
    rows = _lease(tx, consumer, clients, lease, expires, now, each=True)
    messages = _messages(tx, rows, _NO_LIMIT) if rows else {}
    return [
        claimed_job(row, messages[row["message_seq"]], f"{lease}.{row['seq']}", expires)
        for row in rows
    ]


def _lease(
    tx: Tx, consumer: Consumer, n: int, lease: str, expires: int, now: int, *, each: bool
) -> list[Row]:
    """The jobs, leased. With ``each`` the lease is followed by a dot and the job's number."""
    if consumer.paused or consumer.disabled_us is not None:
        return []
    tx.run("promote_due", consumer_seq=consumer.seq, now=now, n=limits.SWEEP_ROWS)
    rows = tx.all(
        "claim_jobs",
        consumer_seq=consumer.seq,
        version=consumer.updated_us,
        n=n,
        lease=lease,
        each=each,
        now=now,
        expires=expires,
    )
    return sorted(rows, key=lambda row: (-row["priority"], row["seq"]))


def _expires(now: int, lease_s: float) -> int:
    return now + round(lease_s * _SECOND_US)


def _carried(tx: Tx, rows: Sequence[Row]) -> tuple[Sequence[Row], dict[int, Row]]:
    """The first of these jobs whose payloads one answer carries, at least one, with their messages.

    The others are given back. Where none is above its share of the bytes, all are carried, and nobody has to
    add them up.
    """
    share = limits.CLAIM_BYTES_MAX // len(rows) if len(rows) > 1 else _NO_LIMIT
    messages = _messages(tx, rows, share)
    if all(message["payload"] is not None for message in messages.values()):
        return rows, messages
    sizes = {row["seq"]: row["size"] for row in tx.all("sizes_of", seqs=_message_seqs(rows))}
    total, count = 0, 0
    while count < len(rows) and total < limits.CLAIM_BYTES_MAX:
        total += sizes[rows[count]["message_seq"]]
        count += 1
    if count < len(rows):
        tx.run("unclaim_jobs", seqs=json.dumps([row["seq"] for row in rows[count:]]))
    return rows[:count], _messages(tx, rows[:count], _NO_LIMIT)


def _messages(tx: Tx, rows: Sequence[Row], bytes_each: int) -> dict[int, Row]:
    """The messages of jobs, by number; without the payloads that have more bytes."""
    found = tx.all("messages_of", seqs=_message_seqs(rows), bytes=bytes_each)
    return {row["seq"]: row for row in found}


def _message_seqs(rows: Sequence[Row]) -> str:
    return json.dumps([row["message_seq"] for row in rows])


def claimed_job(row: Row, message: Row, lease: str, expires: int) -> ClaimedJob:
    """A job that was leased, with its message."""
    return ClaimedJob(
        seq=row["seq"],
        lease=lease,
        deadline_us=expires,
        attempt=row["claims"],
        retries=row["retries"],
        priority=row["priority"],
        created_us=row["created_us"],
        message_seq=row["message_seq"],
        message_id=message["message_id"],
        payload=message["payload"],
        content_type=message["content_type"],
        headers=msgspec.json.decode(message["headers"], type=dict[str, str]),
        ordering_key=row["ordering_key"],
    )
