"""Deletions: out of sight at once, then removed in slices, so that nobody waits for it.

The jobs of a consumer go with it, or to another consumer of the channel. Messages go with their channel. A
producer leaves what it has published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .. import limits
from ..errors import JobsError, bad_request
from ..models import Consumer
from ..states import State
from ..store import Row, Tx
from .auditing import note_event
from .definitions.channels import find_channel, find_producer
from .definitions.consumers import DEFINITIONS, find_consumer
from .definitions.definitions import Precondition, next_version
from .moves import finish_keys, lock_keys

__all__ = [
    "Hanging",
    "hanging_on",
    "remove_channel",
    "remove_consumer",
    "remove_producer",
    "remove_some",
]


_MOVED: Final = (State.QUEUED, State.DEAD)


@dataclass(frozen=True, slots=True)
class Hanging:
    """Work left of a channel: its jobs by state, its scheduled messages, those that wait for jobs."""

    jobs: Mapping[State, int]
    scheduled: int
    accepted: int
    messages: int
    consumers: int

    @property
    def unfinished(self) -> int:
        """Jobs that wait or run, and messages that wait for their time, or their jobs."""
        waiting = self.scheduled + self.accepted
        return self.jobs[State.QUEUED] + self.jobs[State.INFLIGHT] + waiting


def hanging_on(tx: Tx, channel_seq: int) -> Hanging:
    """Count what hangs on a channel, by counters: it costs the same whatever the backlog."""
    consumers = {row["seq"] for row in tx.all("list_consumers_of_channel", channel_seq=channel_seq)}
    kinds = {
        row["kind"]: int(row["n"]) for row in tx.all("message_counts", channel_seq=channel_seq)
    }
    jobs, messages = _jobs(tx, consumers), sum(kinds.values())
    return Hanging(jobs, kinds.get(201, 0), kinds.get(101, 0), messages, len(consumers))


def _jobs(tx: Tx, consumers: set[int]) -> dict[State, int]:
    found = dict.fromkeys(State, 0)
    for row in tx.all("job_counts"):
        if row["consumer_seq"] in consumers:
            found[State(row["state"])] += int(row["n"])
    return found


def remove_consumer(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    precondition: Precondition,
    now: int,
    *,
    discard: bool = True,
    move_to: str | None = None,
) -> None:
    """Delete a consumer; 404, 400, 412 as for a change.

    Its jobs go with it, if ``discard``; else 409 says how many wait or run. With ``move_to`` those that wait
    or are dead go to this consumer, unless that has its own job of the same message; 409 while jobs run.
    """
    consumer = find_consumer(tx, channel_id, consumer_id)
    target = None if move_to is None else _target(tx, consumer, move_to)
    for seq in sorted({consumer.seq, consumer.seq if target is None else target.seq}):
        tx.one("lock_consumer", seq=seq)
    consumer = find_consumer(tx, channel_id, consumer_id)
    precondition.check(consumer.updated_us)
    if move_to is not None:
        target = _target(tx, consumer, move_to)
    jobs = _jobs(tx, {consumer.seq})
    waiting, running = jobs[State.QUEUED], jobs[State.INFLIGHT]
    if target is not None and running:
        raise JobsError(
            409,
            "running",
            f"{running} jobs run: pause the consumer, and move its jobs when they are done",
            "move_to",
        )
    if target is None and not discard and waiting + running:
        raise JobsError(
            409,
            "has_jobs",
            f"{waiting} jobs wait and {running} run; accepted: `discard=true`, or `move_to`",
            "discard",
        )
    if coming := {row["seq"] for row in tx.all("moved_to", seq=consumer.seq)}:
        left = _jobs(tx, coming)
        raise JobsError(
            409,
            "moving",
            f"{left[State.QUEUED] + left[State.DEAD]} jobs of a deleted consumer are still on their way to "
            f"{consumer_id}: delete it when they are there",
            retry_after_s=1.0,
        )
    # A claim that is on its way was for another version, and takes nothing.
    _hide(tx, consumer.seq, consumer.updated_us, now, None if target is None else target.seq)
    what = "go with it" if target is None else f"go to {target.consumer_id}"
    detail = f"deleted; {waiting} waiting and {jobs[State.DEAD]} dead jobs {what}"
    if target is None and running:
        detail += f", and {running} that run"
    note_event(tx, "consumer_deleted", now, detail, channel_id, consumer_id)


def _target(tx: Tx, consumer: Consumer, move_to: str) -> Consumer:
    row = tx.one("get_consumer", channel_id=consumer.channel_id, consumer_id=move_to)
    if row is None or row["seq"] is None:
        raise JobsError(404, "not_found", "the channel has no such consumer", "move_to")
    if row["seq"] == consumer.seq:
        raise bad_request("same_consumer", "name another consumer of the channel", "move_to")
    return find_consumer(tx, consumer.channel_id, move_to)


def _hide(tx: Tx, seq: int, updated_us: int, now: int, moves_to: int | None) -> None:
    updated = next_version(updated_us, now)
    tx.run("hide_consumer", seq=seq, now=now, updated=updated, moves_to=moves_to)
    tx.ring([seq, DEFINITIONS])


def remove_channel(
    tx: Tx, channel_id: str, precondition: Precondition, now: int, *, discard: bool
) -> None:
    """Delete a channel with its consumers, jobs and messages.

    404, 400, 412 as for a change. Unless ``discard``, 409 says what is unfinished.
    """
    channel = find_channel(tx, channel_id)
    tx.one("lock_channel", channel_id=channel_id)
    channel = find_channel(tx, channel_id)
    precondition.check(channel.updated_us)
    hanging = hanging_on(tx, channel.seq)
    if hanging.unfinished and not discard:
        raise JobsError(
            409,
            "has_jobs",
            f"{hanging.jobs[State.QUEUED]} jobs wait, {hanging.jobs[State.INFLIGHT]} run and "
            f"{hanging.scheduled} messages are scheduled; drain the channel, or `discard=true`",
            "discard",
        )
    for row in tx.all("list_consumers_of_channel", channel_seq=channel.seq):
        _hide(tx, row["seq"], now, now, None)
    tx.run("forget_feeds", channel_id=channel_id)
    tx.run("forget_moves", channel_seq=channel.seq)
    tx.run("hide_channel", seq=channel.seq, now=now)
    detail = f"deleted with {hanging.consumers} consumers and {hanging.messages} messages"
    note_event(tx, "channel_deleted", now, detail, channel_id)


def remove_producer(tx: Tx, producer_id: str, precondition: Precondition, now: int) -> None:
    """Delete a producer: it publishes no more. What it has published stays, also what is scheduled.

    404, 400, 412 as for a change.
    """
    find_producer(tx, producer_id)
    tx.one("lock_producer", producer_id=producer_id)
    producer = find_producer(tx, producer_id)
    precondition.check(producer.updated_us)
    tx.run("hide_producer", seq=producer.seq, now=now)
    note_event(tx, "producer_deleted", now, f"the producer {producer_id} was deleted")


def remove_some(tx: Tx) -> bool:
    """Remove, or move, a limited number of jobs or messages of what was deleted.

    Returns whether something was done. A single transaction for all would keep publishers waiting for as
    long as it takes.
    """
    for row in tx.all("hidden_consumers"):
        if row["moves_to"] is None:
            done = tx.run("delete_jobs_of_consumer", consumer_seq=row["seq"], n=limits.SWEEP_ROWS)
        else:
            done = _move_some(tx, row["seq"], row["moves_to"], tx.now_us())
        if done or tx.run("delete_hidden_consumer", seq=row["seq"]):
            return True
    channel = tx.one("next_hidden_channel")
    if channel is None:
        return False
    if tx.run("delete_messages_of_channel", channel_seq=channel["seq"], n=limits.SWEEP_ROWS):
        return True
    return bool(tx.run("delete_hidden_channel", seq=channel["seq"]))


def _move_some(tx: Tx, seq: int, to: int, now: int) -> int:
    """Move a slice of the jobs of a deleted consumer, dead ones last; then remove delivered ones.

    Those that ran when it was deleted are moved when their leases have ended.
    """
    for state in _MOVED:
        rows = tx.all(
            "jobs_to_move", consumer_seq=seq, to=to, state=int(state), n=limits.SWEEP_ROWS
        )
        if not rows:
            continue
        here = [row["seq"] for row in rows if row["present"]]
        tx.run("delete_moved", seqs=json.dumps(here), consumer_seq=seq)
        _move(tx, [row for row in rows if not row["present"]], seq, to, now)
        return len(rows)
    return tx.run("delete_delivered", consumer_seq=seq, n=limits.SWEEP_ROWS)


def _move(tx: Tx, rows: Sequence[Row], seq: int, to: int, now: int) -> None:
    keyed = [{"consumer_seq": to, "ordering_key": row["ordering_key"]} for row in rows]
    lock_keys(tx, keyed)
    seqs = json.dumps([row["seq"] for row in rows])
    tx.run("move_jobs", seqs=seqs, consumer_seq=seq, to=to)
    # The first of a key waits no more, if nothing of it was there; the others wait behind it.
    finish_keys(tx, keyed, now)
    tx.ring([to])
