"""What the database has of channels that live in a stream: where consumers are in it, and what failed.

A message that is delivered leaves nothing here. One whose call failed becomes a message and a job like any
other, and is acknowledged in the stream: from then on retries, dead letters and notices are those of all
channels. So does one whose ordering key has an unfinished job, which it has to wait for.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from .. import ids, limits
from ..channel_stream import ChannelStream, refused
from ..errors import JobsError, bad_request
from ..models import ClaimedJob, Consumer, NewMessage
from ..policy import push_lease_s
from ..states import TERMINAL, Event, Hold, State
from ..store import Tx
from . import push_results
from .consumers import DEFINITIONS, find_consumer
from .cursors import Cursor, Replay, cursor_of
from .definitions import find_channel, next_version
from .moves import Move, apply_moves, load, lock_keys
from .publishing import digest_of
from .push_results import Called, Written

__all__ = [
    "ask_replay",
    "refuse_message",
    "set_aside",
    "set_stream",
    "store_failures",
    "unfinished_keys",
]


def set_stream(tx: Tx, channel_id: str, stream: ChannelStream, now: int) -> None:
    """Let a channel live in a stream, or publish to and deliver other subjects of it; 404, 400.

    409 for a channel that has messages or pull consumers, is told of events, or lives in another stream:
    what it has would stay where it is.
    """
    stream.check()
    channel = find_channel(tx, channel_id)
    tx.run("hold_channel", seq=channel.seq)
    channel = find_channel(tx, channel_id)
    if channel.stream == stream:
        return
    if channel.stream is None:
        _refuse_used(tx, channel.seq)
    elif channel.stream.name != stream.name:
        raise JobsError(
            409,
            "other_stream",
            f"the channel lives in the stream {channel.stream.name}; make another channel for another stream",
            "stream.name",
        )
    updated = next_version(channel.updated_us, now)
    text = msgspec.json.encode(stream).decode()
    tx.run("set_channel_stream", seq=channel.seq, stream=text, updated=updated)
    for row in tx.all("list_consumers_of_channel", channel_seq=channel.seq):
        _touch(tx, row["seq"], now)


def _refuse_used(tx: Tx, channel_seq: int) -> None:
    told_by = tx.one("told_by", seq=channel_seq)
    if told_by is not None:
        why = f"is told of the events of {told_by['channel_id']}"
    elif tx.all("list_consumers_of_channel", channel_seq=channel_seq):
        why = "has consumers"
    elif tx.one("any_message", channel_seq=channel_seq) is not None:
        why = "has messages"
    elif tx.one("any_schedule", channel_seq=channel_seq) is not None:
        why = "has schedules"
    else:
        return
    raise JobsError(
        409,
        "channel_in_use",
        f"the channel {why} in the database: name the stream of a new channel",
        "stream",
    )


def _touch(tx: Tx, consumer_seq: int, now: int) -> None:
    """Let the process that pushes to the consumer read what is new."""
    tx.one("lock_consumer", seq=consumer_seq)
    row = tx.one("version_of_consumer", seq=consumer_seq)
    if row is not None:
        updated = next_version(row["updated_us"], now)
        tx.run("version_consumer", seq=consumer_seq, updated=updated)
        tx.ring([consumer_seq, DEFINITIONS])


def ask_replay(tx: Tx, channel_id: str, consumer_id: str, replay: Replay, now: int) -> Cursor:
    """Deliver again from there on; 404, 400. The process that pushes does it when its calls have ended."""
    if (replay.sequence is None) == (replay.since_us is None):
        raise bad_request("no_place", "a `sequence` is accepted, or a time `since`", "body")
    if replay.sequence is not None and not 1 <= replay.sequence < 2**63:
        raise bad_request("invalid_sequence", "1 or more is accepted", "sequence")
    consumer = find_consumer(tx, channel_id, consumer_id)
    cursor_of(tx, consumer.seq)
    asked = msgspec.structs.replace(replay, asked=secrets.token_hex(4))
    text = msgspec.json.encode(asked).decode()
    tx.run("ask_replay", consumer_seq=consumer.seq, replay=text)
    tx.run(
        "insert_event",
        now=now,
        kind="stream_replayed",
        channel_id=channel_id,
        consumer_id=consumer_id,
        detail="delivers again what the stream has from the "
        + ("time that was asked for" if replay.sequence is None else f"sequence {replay.sequence}"),
    )
    _touch(tx, consumer.seq, now)
    return cursor_of(tx, consumer.seq)


def refuse_message(message: NewMessage) -> None:
    """400 for what a stream does not do with a message."""
    if message.scheduled_us is not None:
        raise refused(
            "it has no scheduled messages; publish when it is time", "X-Broker-Scheduled-For"
        )
    if message.priority:
        raise refused("it has an order, and no priorities", "X-Broker-Message-Priority")
    if message.unique is not None:
        raise refused(
            "an Idempotency-Key is unique within the stream's duplicate window", "X-Broker-Unique"
        )


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
    row = tx.one(
        "insert_message",
        channel_seq=consumer.channel_seq,
        producer_seq=None,
        message_id=message.message_id,
        payload=message.payload,
        content_type=message.content_type,
        priority=0,
        ordering_key=message.ordering_key,
        headers=msgspec.json.encode(message.headers).decode(),
        digest=digest_of(as_new),
        status=102,
        now=now,
        dispatched_us=now,
        scheduled_us=None,
    )
    if row is None:
        row = tx.one("get_message", channel_seq=consumer.channel_seq, message_id=message.message_id)
    if row is None:
        raise AssertionError("a message that is neither new nor there")
    return int(row["seq"])
