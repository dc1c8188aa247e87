"""What the database has of the messages of a stream: the jobs of those that failed, or have to wait.

A message that is delivered leaves nothing here. One whose call failed becomes a message and a job like any
other, and is acknowledged in the stream: from then on retries, dead letters and notices are those of all
channels. So does one whose ordering key has an unfinished job, which it has to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from ... import ids, limits
from ...models import ClaimedJob, Consumer, NewMessage, digest_of
from ...policy import push_lease_s
from ...states import TERMINAL, Event, Hold, State
from ...store import Tx
from ..moves import Move, apply_moves, load, lock_keys
from ..push import results as push_results
from ..push.results import Called, Written

__all__ = [
    "set_aside",
    "store_failures",
    "unfinished_keys",
]


def unfinished_keys(tx: Tx, consumer_seq: int) -> frozenset[str] | None:
    """The ordering keys of which the consumer has unfinished jobs; None: too many to be named."""
    most = limits.STREAM_KEYS_MAX
    rows = tx.all("unfinished_keys", consumer_seq=consumer_seq, n=most + 1)
    return None if len(rows) > most else frozenset(row["ordering_key"] for row in rows)


def store_failures(
    tx: Tx,
    consumer: Consumer,
    calls: Sequence[Called],
    now: int,
    random: Callable[[], float],
    *,
    gone: bool,
) -> Written:
    """Make the jobs of those of ``calls`` that failed, and store what became of them as of any job.

    Of the others only is noted that the endpoint works.
    """
    failed = [call for call in calls if not call.ok]
    _lock(tx, consumer, [call.job for call in failed])
    adopted = []
    for call in failed:
        job = _adopt(tx, consumer, call.job, now, State.INFLIGHT)
        if job is not None:
            adopted.append(replace(call, job=job))
    well = [call for call in calls if call.ok]
    return push_results.write_streamed(tx, consumer, adopted, well, now, random, gone=gone)


def set_aside(tx: Tx, consumer: Consumer, messages: Sequence[ClaimedJob], now: int) -> set[int]:
    """Make jobs of the messages, in order, whose ordering keys have unfinished ones; returns which."""
    _lock(tx, consumer, messages)
    done = set()
    for message in messages:
        key = message.ordering_key
        if tx.one("any_of_key", consumer_seq=consumer.seq, ordering_key=key) is not None:
            _adopt(tx, consumer, message, now, State.QUEUED)
            done.add(message.seq)
    return done


def _lock(tx: Tx, consumer: Consumer, messages: Sequence[ClaimedJob]) -> None:
    lock_keys(
        tx,
        [
            {"consumer_seq": consumer.seq, "ordering_key": message.ordering_key}
            for message in messages
        ],
    )


def _adopt(
    tx: Tx, consumer: Consumer, message: ClaimedJob, now: int, state: State
) -> ClaimedJob | None:
    """The message as a job in ``state``; None if it is one already, which goes on or is handed out again."""
    message_seq = _stored(tx, consumer, message, now)
    leased = state is State.INFLIGHT
    lease = ids.new_lease() if leased else None
    expires = now + round(push_lease_s(consumer.settings.timeout_s) * 1e6)
    row = tx.one(
        "adopt_job",
        message_seq=message_seq,
        consumer_seq=consumer.seq,
        state=int(state),
        hold=int(Hold.READY if leased else Hold.BLOCKED),
        ordering_key=message.ordering_key,
        claims=int(leased),
        now=now,
        lease=lease,
        lease_started=now if leased else None,
        lease_expires=expires if leased else None,
        created=message.created_us,
    )
    if row is not None:
        return msgspec.structs.replace(
            message, seq=row["seq"], lease=lease or "", deadline_us=expires, message_seq=message_seq
        )
    (known,) = tx.all("job_of_message", message_seq=message_seq, consumer_seq=consumer.seq)
    found = load(tx, [known["seq"]])[known["seq"]]
    if found["state"] in TERMINAL:
        # It was delivered, or given up, and the stream has been replayed since.
        apply_moves(tx, [Move(row=found, event=Event.REPLAY)], now)
    return None


def _stored(tx: Tx, consumer: Consumer, message: ClaimedJob, now: int) -> int:
    """The number of the stored message, which another consumer may have needed before."""
    as_new = NewMessage(
        payload=message.payload,
        content_type=message.content_type,
        message_id=message.message_id,
        headers=message.headers,
        ordering_key=message.ordering_key,
    )
    (channel_seq, message_id) = consumer.channel_seq, message.message_id
    shown = {
        "place": 0,
        "channel_seq": channel_seq,
        "producer_seq": None,
        "message_id": message_id,
        "at": 0,
        "size": len(message.payload),
        "content_type": message.content_type,
        "priority": 0,
        "ordering_key": message.ordering_key,
        "headers": msgspec.json.encode(message.headers).decode(),
        "digest": digest_of(as_new),
        "scheduled_us": None,
    }
    items = msgspec.json.encode([shown]).decode()
    row = tx.one("insert_messages", items=items, payloads=message.payload, now=now)
    if row is None:
        row = tx.one("get_message", channel_seq=channel_seq, message_id=message_id)
    if row is None:
        raise AssertionError("a message that is neither new nor there")
    return int(row["seq"])
