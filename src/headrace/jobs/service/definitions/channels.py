"""Channels: read, written under a precondition, drained, and which of them tells which other one."""

from __future__ import annotations

from dataclasses import replace

from ...errors import JobsError, bad_request, not_found
from ...store import Tx
from .definitions import (
    Change,
    Definition,
    Precondition,
    definition_of,
    next_version,
    put_definition,
)

__all__ = [
    "drain_channel",
    "events_channel_of",
    "find_channel",
    "find_producer",
    "put_channel",
    "put_producer",
    "tell_channel",
]


def find_channel(tx: Tx, channel_id: str) -> Definition:
    """The channel; 404 if it does not exist."""
    row = tx.one("get_channel", channel_id=channel_id)
    if row is None:
        raise not_found("channel", "channelId")
    return replace(definition_of(row, "channel_id"), draining=bool(row["draining"]))


def put_channel(
    tx: Tx, channel_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    """Create, or change if the precondition holds. Fields that are not given keep their values, also the
    token.
    """
    return put_definition(tx, "channel", channel_id, change, precondition, now)


def drain_channel(tx: Tx, channel_id: str, draining: bool, now: int) -> None:
    """Take no more messages, or take them again; 404. What was accepted is delivered."""
    row = tx.one("lock_channel", channel_id=channel_id)
    if row is None:
        raise not_found("channel", "channelId")
    if bool(row["draining"]) != draining:
        updated = next_version(row["updated_us"], now)
        tx.run("drain_channel", seq=row["seq"], draining=int(draining), updated=updated)


def tell_channel(tx: Tx, channel_id: str, events_channel: str | None, now: int) -> None:
    """Tell another channel what happens to the jobs of this one, or none; 404, 400 if it cannot be."""
    channel = find_channel(tx, channel_id)
    target = None if events_channel is None else _target(tx, events_channel)
    for seq in sorted({channel.seq, *([] if target is None else [target.seq])}):
        tx.run("hold_channel", seq=seq)
    channel = find_channel(tx, channel_id)
    if target is not None:
        _refuse_a_chain(tx, channel, target)
    updated = next_version(channel.updated_us, now)
    events_seq = None if target is None else target.seq
    tx.run("set_events_channel", seq=channel.seq, events_seq=events_seq, updated=updated)


def events_channel_of(tx: Tx, channel_seq: int) -> str | None:
    """The id of the channel that is told what happens to the jobs of this one."""
    row = tx.one("events_channel_of", seq=channel_seq)
    return None if row is None else str(row["channel_id"])


def _target(tx: Tx, events_channel: str) -> Definition:
    row = tx.one("get_channel", channel_id=events_channel)
    if row is None:
        raise JobsError(404, "not_found", "there is no such channel", "events_channel")
    return definition_of(row, "channel_id")


def _refuse_a_chain(tx: Tx, channel: Definition, target: Definition) -> None:
    """Otherwise a consumer of events that fails would make events without end."""
    further = events_channel_of(tx, target.seq)
    before = tx.one("told_by", seq=channel.seq)
    if target.seq == channel.seq:
        why = "name another channel than this one"
    elif further is not None:
        why = f"{target.public_id} tells {further}: a channel that is told tells no other"
    elif before is not None:
        why = f"{before['channel_id']} tells this channel: a channel that is told tells no other"
    else:
        return
    raise bad_request("events_of_events", why, "events_channel")


def find_producer(tx: Tx, producer_id: str) -> Definition:
    """The producer; 404 if it does not exist."""
    row = tx.one("get_producer", producer_id=producer_id)
    if row is None:
        raise not_found("producer", "producerId")
    return definition_of(row, "producer_id")


def put_producer(
    tx: Tx, producer_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    """Create, or change if the precondition holds. Fields that are not given keep their values, also the
    token.
    """
    return put_definition(tx, "producer", producer_id, change, precondition, now)
