"""Broadcasting: messages are checked, stored once, and fanned out to every consumer in one transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ... import ids, limits
from ...errors import JobsError, not_found
from ...matching.unique import UniqueKey
from ...models import NewMessage, Published, digest_of
from ...states import TERMINAL, Event, State
from ...store import Tx
from ..filtering import Fanned, fan_out_filtered
from ..moves import Move, apply_moves, load
from .accepting import refuse_drained

__all__ = [
    "Dispatched",
    "broadcast",
    "cancel_scheduled",
    "dispatch_due",
    "feed",
    "known_before",
    "lock_all",
]

_WAITING = 101


def broadcast(
    tx: Tx,
    channel_seq: int,
    producer_seq: int | None,
    message: NewMessage,
    now: int,
    *,
    replay: bool,
    filtered: bool = False,
) -> Published:
    """Store one message and create its jobs.

    A message id that exists already is 409. With ``replay`` (an ``Idempotency-Key``) the same message again
    gets the first answer, and a different message under the same key is 422. ``filtered``: a consumer of the
    channel may have a filter.
    """
    if message.unique is not None:
        _lock(tx, [*unique_lock(channel_seq, message), *ordering_lock(channel_seq, message)])
        if (known := _same(tx, channel_seq, message.unique, now)) is not None:
            return known
    message_id = message.message_id or ids.new_message_id()
    digest = digest_of(message)
    seq = _insert(tx, channel_seq, producer_seq, message_id, message, digest, now)
    scheduled = message.scheduled_us is not None
    if seq is None:
        return known_before(tx, channel_seq, message_id, digest, replay=replay)
    if message.unique is not None:
        tx.run("put_unique", message_seq=seq, channel_seq=channel_seq, digest=message.unique.digest)
    if scheduled:
        jobs = 0
    elif filtered:
        jobs = fan_out_filtered(tx, [_fanned(seq, channel_seq, message)], now)[seq]
    else:
        jobs = _fan_out(tx, seq, channel_seq, message.priority, message.ordering_key, now)
    return Published(message_id=message_id, scheduled=scheduled, jobs=jobs)


def lock_all(tx: Tx, channel_seq: int, messages: Sequence[NewMessage]) -> None:
    """Lock what these messages need, all at once and in order: no two batches wait for each other."""
    keys = {
        key
        for message in messages
        for key in (*unique_lock(channel_seq, message), *ordering_lock(channel_seq, message))
    }
    if keys:
        _lock(tx, sorted(keys))


def ordering_lock(channel_seq: int, message: NewMessage) -> list[str]:
    """What is locked for the ordering key of a message."""
    key = message.ordering_key
    return [] if key is None else [f"{channel_seq} {key}"]


def unique_lock(channel_seq: int, message: NewMessage) -> list[str]:
    """What is locked so that of two messages that are the same, the second sees the first."""
    key = message.unique
    return [] if key is None else [f"unique {channel_seq} {key.digest}"]


def _lock(tx: Tx, keys: Sequence[str]) -> None:
    tx.all("lock_keys", keys=json.dumps(keys))


def _same(tx: Tx, channel_seq: int, key: UniqueKey, now: int) -> Published | None:
    """The answer for a message that is there already; None if it is new. Its key is locked."""
    row = tx.one("find_unique", channel_seq=channel_seq, digest=key.digest)
    if row is None:
        return None
    if key.within_us is not None and now - row["received_us"] >= key.within_us:
        return None
    if key.states is not None:
        states = {found["state"] for found in tx.all("states_of_message", message_seq=row["seq"])}
        if row["status"] == _WAITING:
            states.add(State.QUEUED)
        if not states & set(key.states):
            return None
    scheduled = row["scheduled_us"] is not None
    return Published(
        message_id=row["message_id"], scheduled=scheduled, jobs=0, replayed=True, duplicate=True
    )


def known_before(
    tx: Tx, channel_seq: int, message_id: str, digest: str, *, replay: bool
) -> Published:
    """The answer for a message whose id is taken; see :func:`broadcast`."""
    if not replay:
        raise JobsError(
            409,
            "message_exists",
            "the channel has a message with this id",
            "X-Broker-Message-ID",
        )
    known = tx.one("get_digest", channel_seq=channel_seq, message_id=message_id)
    if known is None or known["digest"] != digest:
        raise JobsError(
            422, "key_reused", "this key was used for a different message", "Idempotency-Key"
        )
    return Published(
        message_id=message_id,
        scheduled=known["scheduled_us"] is not None,
        jobs=0,
        replayed=True,
    )


def feed(
    tx: Tx,
    channel_id: str,
    messages: Sequence[NewMessage],
    now: int,
    *,
    again: Collection[str | None] = (),
) -> tuple[int, int]:
    """Store messages from a stream; those already stored are left alone, unless their ids are in ``again``.

    Their ids contain the stream, the sequence and the time, so a redelivery adds nothing. Returns how many
    were new, and how many jobs were made or are handed out again.
    """
    channel = tx.one("get_channel", channel_id=channel_id)
    if channel is None:
        raise not_found("channel", "channelId")
    refuse_drained(channel)
    new = jobs = 0
    for message in messages:
        if message.message_id is None:
            raise AssertionError("a message from a stream has an id made of its sequence")
        seq = _insert(
            tx, channel["seq"], None, message.message_id, message, digest_of(message), now
        )
        if seq is None:
            if message.message_id in again:
                jobs += _once_more(tx, channel["seq"], message, now)
            continue
        new += 1
        if channel["filtered"]:
            fanned = _fanned(seq, channel["seq"], message)
            jobs += fan_out_filtered(tx, [fanned], now)[seq]
        else:
            jobs += _fan_out(tx, seq, channel["seq"], message.priority, message.ordering_key, now)
    return new, jobs


def _once_more(tx: Tx, channel_seq: int, message: NewMessage, now: int) -> int:
    """Jobs of a known message for the consumers that have none, and its finished ones once more; how many."""
    known = tx.one("get_message", channel_seq=channel_seq, message_id=message.message_id)
    if known is None:
        raise AssertionError("a message that is neither new nor there")
    rows = tx.all("jobs_of_messages", seqs=json.dumps([known["seq"]]))
    locked = load(tx, [row["seq"] for row in rows])
    moves = [
        Move(row=row, event=Event.REPLAY)
        for row in locked.values()
        if row["state"] in TERMINAL and row["cancelled_us"] is None
    ]
    apply_moves(tx, moves, now)
    fanned = _fanned(known["seq"], channel_seq, message)
    have = {row["consumer_seq"] for row in rows}
    return len(moves) + fan_out_filtered(tx, [fanned], now, but=have)[known["seq"]]


@dataclass(frozen=True, slots=True)
class Dispatched:
    """How many messages were fanned out, how late the latest of them was, the new jobs by channel."""

    messages: int
    late_us: int
    jobs: Mapping[str, int]


def dispatch_due(tx: Tx, now: int) -> Dispatched:
    """Fan out a limited number of the scheduled messages that are due."""
    rows = tx.all("due_messages", now=now, n=limits.SWEEP_ROWS // 10)
    late, jobs = 0, Counter[str]()
    for row in rows:
        tx.run("dispatch_message", seq=row["seq"], now=now)
        seq, channel_seq, priority, key = (
            row[column] for column in ("seq", "channel_seq", "priority", "ordering_key")
        )
        if row["filtered"]:
            fanned = Fanned(seq, channel_seq, priority, json.loads(row["headers"]), key)
            made = fan_out_filtered(tx, [fanned], now)[seq]
        else:
            made = _fan_out(tx, seq, channel_seq, priority, key, now)
        jobs[row["channel_id"]] += made
        late = max(late, now - row["scheduled_us"])
    return Dispatched(len(rows), late, jobs)


def cancel_scheduled(tx: Tx, channel_seq: int, message_id: str) -> None:
    """Cancel a scheduled message; 404 if no such message is waiting."""
    if not tx.run("cancel_message", channel_seq=channel_seq, message_id=message_id):
        raise not_found("scheduled message that still waits", "messageId")


def _insert(
    tx: Tx,
    channel_seq: int,
    producer_seq: int | None,
    message_id: str,
    message: NewMessage,
    digest: str,
    now: int,
) -> int | None:
    waiting = message.scheduled_us is not None
    row = tx.one(
        "insert_message",
        channel_seq=channel_seq,
        producer_seq=producer_seq,
        message_id=message_id,
        payload=message.payload,
        content_type=message.content_type,
        priority=message.priority,
        ordering_key=message.ordering_key,
        headers=json.dumps(message.headers) if message.headers else "{}",
        digest=digest,
        status=101 if waiting else 102,
        now=now,
        dispatched_us=None if waiting else now,
        scheduled_us=message.scheduled_us,
    )
    return None if row is None else int(row["seq"])


def _fan_out(tx: Tx, seq: int, channel_seq: int, priority: int, key: str | None, now: int) -> int:
    if key is None:
        rows = tx.all(
            "fan_out", message_seq=seq, channel_seq=channel_seq, priority=priority, now=now
        )
    else:
        # A transaction that finishes a job of this key waits for this one, or the other way round.
        _lock(tx, [f"{channel_seq} {key}"])
        rows = tx.all(
            "fan_out_keyed",
            message_seq=seq,
            channel_seq=channel_seq,
            priority=priority,
            ordering_key=key,
            now=now,
        )
    tx.ring([row["consumer_seq"] for row in rows])
    return len(rows)


def _fanned(seq: int, channel_seq: int, message: NewMessage) -> Fanned:
    return Fanned(
        seq, channel_seq, message.priority, message.headers, message.ordering_key, message.payload
    )
