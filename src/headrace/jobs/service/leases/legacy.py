"""The specification's pull consumption: a list that claims nothing, and one move of one job at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ids, limits
from ...errors import JobsError, bad_request
from ...models import Consumer, Options
from ...policy import pull_timeout_s
from ...states import Event, State, requested_event
from ...store import Row, Tx
from ..moves import Move, apply_moves, load
from ..removed_jobs import missing

__all__ = ["change_state", "is_held", "job_of_consumer", "list_queued"]


def list_queued(tx: Tx, consumer: Consumer, limit: int) -> Sequence[Row]:
    """All QUEUED jobs, by falling priority, oldest first; jobs that cannot be claimed yet come last.

    The list ends earlier where the payloads are more than one answer should carry.
    """
    n = min(limit, limits.QUEUED_JOBS_MAX)
    total, fitting = 0, 0
    for row in tx.all("list_queued_sizes", consumer_seq=consumer.seq, n=n):
        if total >= limits.CLAIM_BYTES_MAX:
            break
        total += row["size"]
        fitting += 1
    return tx.all("list_queued", consumer_seq=consumer.seq, n=fitting)


def job_of_consumer(tx: Tx, consumer: Consumer, seq: int, *, foreign: int = 401) -> Row:
    """The job; 404 if it does not exist, ``foreign`` (401) if it is another consumer's."""
    row = tx.one("get_job", seq=seq)
    if row is None:
        raise missing(tx, seq)
    if row["consumer_seq"] != consumer.seq:
        raise JobsError(foreign, "foreign_job", "the job is another consumer's", "jobId")
    return row


def is_held(tx: Tx, consumer: Consumer, job_id: str) -> bool:
    """Whether the consumer has taken this job by the specified route, and not finished it.

    One that became a push consumer meanwhile still finishes it; nobody else has it until its time is over.
    """
    row = tx.one("get_job", seq=ids.job_number(job_id)) if ids.is_job_number(job_id) else None
    return (
        row is not None
        and row["consumer_seq"] == consumer.seq
        and row["state"] == State.INFLIGHT
        and row["lease"] is None
    )


def change_state(
    tx: Tx, consumer: Consumer, seq: int, asked: str, incremental_s: int, options: Options, now: int
) -> Event | None:
    """Carry out a ``NextState``, or reject it with 400; setting the current state changes nothing.

    Returns what happened to the job: ``None`` for nothing.

    A job held under a lease of the leased API can be finished only with that lease.
    """
    job_of_consumer(tx, consumer, seq)
    row = load(tx, [seq]).get(seq)
    if row is None:
        raise missing(tx, seq)
    event = requested_event(State(row["state"]), asked, incremental_s)
    if event is None:
        return None
    if event in {Event.COMPLETE, Event.BURY} and row["lease"] is not None:
        raise bad_request(
            "leased",
            "invalid transition request: the job is held under a lease and finished with it",
            "NextState",
        )
    timeout_s = pull_timeout_s(
        options.connection_timeout_s, options.rational_delay_s, incremental_s
    )
    apply_moves(
        tx,
        [
            Move(
                row=row,
                event=event,
                lease_expires_us=now + round(timeout_s * 1e6),
                extra_s=incremental_s,
                error="marked DEAD by the consumer" if event is Event.BURY else None,
            )
        ],
        now,
    )
    return Event.CANCEL if event is Event.BURY and row["cancelled_us"] is not None else event
