"""Channels that live in a stream: in which, what they refuse, and from where they deliver again."""

from __future__ import annotations

import secrets

import msgspec

from ...channel_stream import ChannelStream, refused
from ...errors import JobsError, bad_request
from ...models import NewMessage
from ...store import Tx
from ..definitions.channels import find_channel
from ..definitions.consumers import DEFINITIONS, find_consumer
from ..definitions.definitions import next_version
from ..stream_positions import Cursor, Replay, cursor_of

__all__ = ["ask_replay", "refuse_message", "set_stream"]


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


def _touch(tx: Tx, consumer_seq: int, now: int) -> None:
    """Let the process that pushes to the consumer read what is new."""
    tx.one("lock_consumer", seq=consumer_seq)
    row = tx.one("version_of_consumer", seq=consumer_seq)
    if row is not None:
        updated = next_version(row["updated_us"], now)
        tx.run("version_consumer", seq=consumer_seq, updated=updated)
        tx.ring([consumer_seq, DEFINITIONS])
