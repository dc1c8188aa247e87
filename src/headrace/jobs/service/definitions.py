"""Producers and channels: read, written under a precondition, authenticated by their tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

from .. import ids, limits
from ..channel_stream import ChannelStream, refused, stream_of
from ..errors import JobsError, bad_request, not_found
from ..models import http_date
from ..store import Row, Tx

__all__ = [
    "Change",
    "Definition",
    "Precondition",
    "drain_channel",
    "events_channel_of",
    "find_channel",
    "find_producer",
    "next_version",
    "put_channel",
    "put_producer",
    "tell_channel",
]

_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Precondition:
    """The version that the caller believes to be current: a ``Last-Modified`` or an ``ETag``."""

    unmodified_since: str | None = None
    etag: str | None = None

    def check(self, updated_us: int) -> None:
        """400 if it is missing, 412 if it is another version."""
        if self.etag is not None:
            if self.etag.strip('"') == str(updated_us):
                return
            raise JobsError(
                412, "changed_meanwhile", "the definition was changed meanwhile", "If-Match"
            )
        if self.unmodified_since is None:
            raise bad_request(
                "precondition_missing",
                "changing what exists needs `If-Unmodified-Since` with its Last-Modified "
                "(or `If-Match` with its ETag)",
                "If-Unmodified-Since",
            )
        if self.unmodified_since != http_date(updated_us):
            raise JobsError(
                412,
                "changed_meanwhile",
                "the definition was changed meanwhile",
                "If-Unmodified-Since",
            )


@dataclass(frozen=True, slots=True)
class Change:
    """The fields of a PUT; ``None`` keeps the stored value (or takes the default for a new definition)."""

    name: str | None = None
    token: str | None = None

    def check(self) -> None:
        if self.name is not None:
            ids.check_text(self.name, "name", limits.NAME_CHARS_MAX)
        if self.token is not None:
            ids.check_token(self.token, "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A producer or a channel. ``token`` is present only if this request set or created it."""

    seq: int
    public_id: str
    name: str
    updated_us: int
    token: str | None = None
    draining: bool = False
    stream: ChannelStream | None = None


def find_producer(tx: Tx, producer_id: str) -> Definition:
    """The producer; 404 if it does not exist."""
    row = tx.one("get_producer", producer_id=producer_id)
    if row is None:
        raise not_found("producer", "producerId")
    return _definition(row, "producer_id")


def find_channel(tx: Tx, channel_id: str) -> Definition:
    """The channel; 404 if it does not exist."""
    row = tx.one("get_channel", channel_id=channel_id)
    if row is None:
        raise not_found("channel", "channelId")
    return replace(
        _definition(row, "channel_id"),
        draining=bool(row["draining"]),
        stream=stream_of(row["stream"]),
    )


def put_producer(
    tx: Tx, producer_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    """Create, or change if the precondition holds. Fields that are not given keep their values, also the
    token.
    """
    return _put(tx, "producer", producer_id, change, precondition, now)


def put_channel(
    tx: Tx, channel_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    """Create, or change if the precondition holds. Fields that are not given keep their values, also the
    token.
    """
    return _put(tx, "channel", channel_id, change, precondition, now)


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
    target = _definition(row, "channel_id")
    if row["stream"] is not None:
        raise refused("events go to one of the database", "events_channel")
    return target


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


def _put(
    tx: Tx, what: str, public_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    column = f"{what}_id"
    ids.check_id(public_id, f"{what}Id")
    change.check()
    row = tx.one(f"lock_{what}", **{column: public_id})
    if row is None:
        token = change.token or ids.new_token()
        name = change.name or public_id
        made = tx.one(
            f"insert_{what}",
            **{column: public_id},
            name=name,
            token_hash=ids.hash_token(token),
            now=now,
        )
        if made is not None:
            return Definition(
                seq=made["seq"], public_id=public_id, name=name, updated_us=now, token=token
            )
        # Another process created it between the two statements.
        row = cast(Row, tx.one(f"lock_{what}", **{column: public_id}))
    precondition.check(row["updated_us"])
    name = change.name or row["name"]
    token_hash = ids.hash_token(change.token) if change.token else row["token_hash"]
    updated = next_version(row["updated_us"], now)
    tx.run(f"update_{what}", seq=row["seq"], name=name, token_hash=token_hash, updated=updated)
    return Definition(
        seq=row["seq"], public_id=public_id, name=name, updated_us=updated, token=change.token
    )


def _definition(row: Row, column: str) -> Definition:
    values: dict[str, Any] = {
        "seq": row["seq"],
        "name": row["name"],
        "updated_us": row["updated_us"],
    }
    return Definition(public_id=row[column], **values)


def next_version(updated_us: int, now: int) -> int:
    """A time in a later *second* than the last, so that every version has its own HTTP date."""
    return max(now, (updated_us // _SECOND_US + 1) * _SECOND_US)
