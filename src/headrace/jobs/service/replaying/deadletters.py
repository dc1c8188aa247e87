"""Dead letters, of push and pull consumers alike: requeue, delete, purge."""

from __future__ import annotations

from ... import limits
from ...errors import JobsError, bad_request, not_found
from ...models import Consumer
from ...states import Event, State
from ...store import Tx
from ..moves import Move, apply_moves, load
from ..removed_jobs import missing

__all__ = ["delete_dead_job", "purge_some", "requeue_dead_job", "requeue_some"]


def requeue_dead_job(tx: Tx, consumer: Consumer, seq: int, now: int) -> None:
    """Requeue one dead job with all its retries; 400 if it is not dead, 404, 401."""
    row = load(tx, [seq]).get(seq)
    if row is None:
        raise missing(tx, seq)
    if row["consumer_seq"] != consumer.seq:
        raise JobsError(401, "foreign_job", "the job is another consumer's", "jobId")
    if row["state"] != State.DEAD:
        raise bad_request("not_dead", "only a job that is DEAD can be requeued", "jobId")
    apply_moves(tx, [Move(row=row, event=Event.REQUEUE)], now)


def requeue_some(tx: Tx, consumer: Consumer, after: int, now: int) -> tuple[int, int | None]:
    """Requeue a limited number of dead jobs. Returns how many, and where to continue (``None``: done)."""
    rows = tx.all("load_dead", consumer_seq=consumer.seq, after=after, n=limits.SWEEP_ROWS)
    apply_moves(tx, [Move(row=row, event=Event.REQUEUE) for row in rows], now)
    return len(rows), rows[-1]["seq"] if len(rows) == limits.SWEEP_ROWS else None


def purge_some(tx: Tx, consumer: Consumer) -> int:
    """Delete a limited number of dead jobs. Returns how many; fewer than ``SWEEP_ROWS`` were the last."""
    return tx.run("delete_dead", consumer_seq=consumer.seq, n=limits.SWEEP_ROWS)


def delete_dead_job(tx: Tx, consumer: Consumer, seq: int) -> None:
    """Delete one dead job; 404 if the consumer has no such job that is DEAD."""
    row = load(tx, [seq]).get(seq)
    if row is None or row["consumer_seq"] != consumer.seq or row["state"] != State.DEAD:
        raise not_found("dead job", "jobId")
    tx.run("delete_job", seq=seq)
