"""Broadcasting: messages are checked, stored once, and fanned out to every consumer in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import ids, limits
from ..errors import JobsError, bad_request, forbidden, not_found
from ..matching.unique import UniqueKey
from ..models import NewMessage, Options, Published
from ..states import State
from ..store import Row, Tx
from .filtering import Fanned, fan_out_filtered

__all__ = [
    "Dispatched",
    "LivesInStreamError",
    "broadcast",
    "cancel_scheduled",
    "check_message",
    "digest_of",
    "dispatch_due",
    "feed",
    "known_before",
    "lock_all",
    "publisher",
    "refuse_streamed",
]

_WAITING = 101


def publisher(
    tx: Tx,
    channel_id: str,
    channel_token: str,
    producer_id: str,
    producer_token: str,
    *,
    granted: bool = False,
) -> Row:
    """The channel and producer, checked in the specification's order: 404, 403, 401, 403.

    ``granted``: an API key stands for both tokens, and no producer has to be named.
    """
    row = tx.once(
        ("producer", channel_id, producer_id),
        lambda: tx.one("get_publisher", channel_id=channel_id, producer_id=producer_id),
    )
    if row is None:
        raise not_found("channel", "channelId")
    if not granted and not ids.token_matches(row["channel_token_hash"], channel_token):
        raise forbidden("X-Broker-Channel-Token")
    if row["producer_seq"] is None and (producer_id or not granted):
        raise JobsError(
            401, "unknown_producer", "there is no such producer", "X-Broker-Producer-ID"
        )
    if not granted and not ids.token_matches(row["producer_token_hash"], producer_token):
        raise forbidden("X-Broker-Producer-Token")
    refuse_drained(row)
    return row


def refuse_drained(channel: Row) -> None:
    """409 for a channel that is drained."""
    if channel["draining"]:
        raise JobsError(
            409,
            "channel_draining",
            "the channel is being drained: it takes no more messages",
            "channelId",
        )


class LivesInStreamError(JobsError):
    """The channel lives in a stream: the database has no place for its messages."""

    def __init__(self) -> None:
        super().__init__(
            409, "stream_channel", "the channel lives in a stream: publish to that", "channelId"
        )


def refuse_streamed(channel: Row) -> None:
    """:class:`LivesInStreamError` for a channel that lives in a stream."""
    if channel["stream"] is not None:
        raise LivesInStreamError


def check_message(message: NewMessage, options: Options, now: int) -> None:
    """Reject invalid messages: 400, 412 (scheduled too soon), 413."""
    if not message.payload:
        raise bad_request("empty_payload", "a message needs a payload", "body")
    if len(message.payload) > options.payload_bytes_max:
        raise JobsError(
            413,
            "payload_too_large",
            f"at most {options.payload_bytes_max} bytes are accepted",
            "body",
        )
    if message.message_id is not None:
        ids.check_id(message.message_id, "X-Broker-Message-ID")
    if not 0 <= message.priority <= limits.PRIORITY_MAX:
        raise bad_request(
            "invalid_priority",
            f"0 to {limits.PRIORITY_MAX} is accepted",
            "X-Broker-Message-Priority",
        )
    if message.ordering_key is not None:
        ids.check_text(message.ordering_key, "X-Broker-Ordering-Key", limits.ORDERING_KEY_CHARS_MAX)
    ids.check_text(message.content_type, "Content-Type", limits.CONTENT_TYPE_CHARS_MAX)
    if len(message.headers) > limits.METADATA_HEADERS_MAX or (
        sum(len(name) + len(value) for name, value in message.headers.items())
        > limits.METADATA_BYTES_MAX
    ):
        raise bad_request(
            "too_many_headers",
            f"at most {limits.METADATA_HEADERS_MAX} headers of {limits.METADATA_BYTES_MAX} bytes are stored",
            "X-Broker-Metadata-Headers",
        )
    earliest = now + round(options.schedule_min_delay_s * 1e6)
    if message.scheduled_us is not None and message.scheduled_us < earliest:
        raise JobsError(
            412,
            "scheduled_too_soon",
            f"a message is scheduled at least {options.schedule_min_delay_s:g} s ahead",
            "X-Broker-Scheduled-For",
        )


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


def feed(tx: Tx, channel_id: str, messages: Sequence[NewMessage], now: int) -> tuple[int, int]:
    """Store messages from a stream; those already stored are left alone.

    Their ids contain the stream and the sequence, so a redelivery adds nothing. Returns how many were new,
    and how many jobs they have.
    """
    channel = tx.one("get_channel", channel_id=channel_id)
    if channel is None:
        raise not_found("channel", "channelId")
    refuse_drained(channel)
    refuse_streamed(channel)
    new = jobs = 0
    for message in messages:
        if message.message_id is None:
            raise AssertionError("a message from a stream has an id made of its sequence")
        seq = _insert(
            tx, channel["seq"], None, message.message_id, message, digest_of(message), now
        )
        if seq is None:
            continue
        new += 1
        if channel["filtered"]:
            fanned = _fanned(seq, channel["seq"], message)
            jobs += fan_out_filtered(tx, [fanned], now)[seq]
        else:
            jobs += _fan_out(tx, seq, channel["seq"], message.priority, message.ordering_key, now)
    return new, jobs


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


def digest_of(message: NewMessage) -> str:
    """What tells whether two messages are the same."""
    parts = (
        message.content_type,
        str(message.priority),
        message.ordering_key or "",
        str(message.scheduled_us),
        json.dumps(message.headers, sort_keys=True) if message.headers else "{}",
    )
    made = hashlib.sha256("\0".join(parts).encode())
    made.update(message.payload)
    return made.hexdigest()
