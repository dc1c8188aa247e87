"""Feeds as the database has them: up to where each has made jobs of its stream, and from where to go again.

A feed's place is stored in the transaction that stores its messages, so both are true or neither is. The
durable consumer at the broker is only how messages come: where the two disagree, the place is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ...identity import Mark, MessageIdentity, with_mark
from ..errors import JobsError, bad_request, not_found
from ..models import NewMessage, Waiting
from ..store import Row, Tx
from .auditing import note_event
from .definitions.channels import find_channel
from .fanning import last_waiting
from .processes import take_lead
from .publishing import publishing

__all__ = [
    "LEAD_S",
    "Again",
    "Feed",
    "NotLeadingError",
    "Standing",
    "Taken",
    "ask_again",
    "find",
    "lead",
    "listed",
    "note",
    "place",
    "resign",
    "take",
    "unfinished",
]

LEAD_S: Final = 10.0
"""Seconds that a process that has gone silent keeps a feed from the others."""

_SEQUENCE_MAX: Final = 2**63 - 1


class Again(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place from where to make jobs again: a sequence of the stream, or a time (microseconds since 1970)."""

    sequence: int | None = None
    since_us: int | None = None

    def __str__(self) -> str:
        return (
            "the time that was asked for" if self.sequence is None else f"sequence {self.sequence}"
        )


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Last sight of the process that feeds.

    ``state``: ``feeding``, ``backlog`` (the channel has as many unfinished jobs as the feed allows), or
    ``failing`` (``problem`` says why). ``lag``: messages of the stream that are still to come. ``goes_back``:
    whether the stream keeps what was taken from it.
    """

    state: str
    filter: str
    group: str
    problem: str | None = None
    lag: int | None = None
    first: int | None = None
    last: int | None = None
    unfinished: int | None = None
    unfinished_max: int | None = None
    goes_back: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A feed.

    ``place``: the last message that was made jobs of; sequence 0: before all; -1: nothing was fed yet.
    ``marks`` are the places of some messages before, the newest last: enough to find where a stream that
    has lost its end still is the same. Up to ``again_until`` messages that are known are made jobs of again.
    """

    seq: int
    channel_id: str
    feed_id: str
    place: MessageIdentity
    marks: tuple[Mark, ...]
    again: Again | None
    again_until: int
    standing: Standing | None
    seen_us: int

    @property
    def task(self) -> str:
        """Name under which processes agree on which of them feeds."""
        return _task(self.channel_id, self.feed_id)


def _task(channel_id: str, feed_id: str) -> str:
    return f"feed {channel_id} {feed_id}"


class NotLeadingError(JobsError):
    """Refusal, as another process feeds, or the place was changed: nothing was stored; read all anew."""

    def __init__(self) -> None:
        super().__init__(409, "feed_moved", "another process feeds, or from another place")


@dataclass(frozen=True, slots=True)
class Taken:
    """Counts of messages that were new, of jobs made, and of those unfinished now.

    ``waiting``: the last message whose jobs are still to be made.
    """

    feed: Feed
    new: int
    jobs: int
    unfinished: int
    waiting: Waiting | None


def _feed(row: Row) -> Feed:
    again, standing = row["again"], row["standing"]
    return Feed(
        seq=row["seq"],
        channel_id=row["channel_id"],
        feed_id=row["feed_id"],
        place=MessageIdentity(row["stream"], row["sequence"], row["stored_ns"]),
        marks=msgspec.json.decode(row["marks"], type=tuple[Mark, ...]),
        again=None if again is None else msgspec.json.decode(again, type=Again),
        again_until=row["again_until"],
        standing=None if standing is None else msgspec.json.decode(standing, type=Standing),
        seen_us=row["seen_us"],
    )


def lead(tx: Tx, channel_id: str, feed_id: str, stream: str, node: str) -> Feed | None:
    """The feed, if process ``node`` is the one that feeds for the next ``LEAD_S``; None: another one is."""
    (row,) = tx.all("begin_feed", channel_id=channel_id, feed_id=feed_id, stream=stream)
    feed = _feed(row)
    return feed if take_lead(tx, feed.task, node, LEAD_S, tx.now_us()) else None


def resign(tx: Tx, channel_id: str, feed_id: str, node: str) -> None:
    """Process ``node`` feeds no more."""
    tx.run("drop_lead", task=_task(channel_id, feed_id), holder=node)


def find(tx: Tx, channel_id: str, feed_id: str) -> Feed:
    """The feed; 404 if the channel or the feed does not exist."""
    find_channel(tx, channel_id)
    row = tx.one("get_feed", channel_id=channel_id, feed_id=feed_id)
    if row is None:
        raise not_found("feed", "feedId")
    return _feed(row)


def listed(tx: Tx, channel_id: str | None = None) -> list[Feed]:
    """List all feeds, or those of a channel; 404 if it does not exist."""
    if channel_id is not None:
        find_channel(tx, channel_id)
    feeds = [_feed(row) for row in tx.all("list_feeds")]
    return [feed for feed in feeds if channel_id in (None, feed.channel_id)]


def ask_again(tx: Tx, channel_id: str, feed_id: str, again: Again, now: int) -> Feed:
    """Make jobs again of what the stream still has from there on; 404, 400, 409 if it keeps nothing.

    The process that feeds goes back; a message that is known gets jobs for the consumers that have none, and
    its finished ones are handed out again, but for those that were cancelled.
    """
    if (again.sequence is None) == (again.since_us is None):
        raise bad_request("no_place", "a `sequence` is accepted, or a time `since`", "body")
    if again.sequence is not None and not 1 <= again.sequence <= _SEQUENCE_MAX:
        raise bad_request("invalid_sequence", "1 or more is accepted", "sequence")
    feed = find(tx, channel_id, feed_id)
    if feed.standing is not None and feed.standing.goes_back is False:
        raise JobsError(
            409,
            "stream_keeps_nothing",
            f"the stream {feed.place.stream} keeps no message that was taken from it; known jobs are handed "
            "out again by a replay",
            "feedId",
        )
    tx.run("ask_feed_again", seq=feed.seq, again=msgspec.json.encode(again).decode())
    detail = f"{feed.feed_id}: jobs are made again from {again} on"
    note_event(tx, "feed_again", now, detail, feed.channel_id)
    return find(tx, channel_id, feed_id)


def place(
    tx: Tx, feed: Feed, sequence: int, stored_ns: int, told: str | None, *, again_until: int
) -> Feed:
    """Put the feed there, with what marks are before it; ``told`` is an event of why.

    What was asked for ``again`` has happened by this.
    """
    marks = [mark for mark in feed.marks if mark[0] <= sequence]
    tx.run(
        "place_feed",
        seq=feed.seq,
        sequence=sequence,
        stored_ns=stored_ns,
        marks=msgspec.json.encode(marks).decode(),
        again_until=again_until,
    )
    if feed.again is not None:
        text = msgspec.json.encode(feed.again).decode()
        tx.run("end_feed_again", seq=feed.seq, again=text)
    if told is not None:
        note_event(tx, "feed_moved", tx.now_us(), f"{feed.feed_id}: {told}", feed.channel_id)
    return find(tx, feed.channel_id, feed.feed_id)


def take(
    tx: Tx, feed: Feed, node: str, messages: Sequence[tuple[MessageIdentity, NewMessage]]
) -> Taken:
    """Store messages of the stream, in its order, with their jobs and the place of the last one.

    Those that are known already are left alone, unless they are to be made jobs of again. Raises
    NotLeadingError, and JobsError if there is no such channel, or it is drained.
    """
    now = tx.now_us()
    if not take_lead(tx, feed.task, node, LEAD_S, now):
        raise NotLeadingError
    marks, at = feed.marks, feed.place
    last = max((identity for identity, _ in messages), key=lambda one: one.sequence)
    if last.sequence > at.sequence:
        at = last
        marks = with_mark(marks, (at.sequence, at.timestamp_ns))
    moved = tx.run(
        "move_feed",
        seq=feed.seq,
        sequence=at.sequence,
        stored_ns=at.timestamp_ns,
        marks=msgspec.json.encode(marks).decode(),
        was=feed.place.sequence,
        was_ns=feed.place.timestamp_ns,
    )
    if not moved:
        raise NotLeadingError
    again = frozenset(
        message.message_id
        for identity, message in messages
        if feed.place.sequence < identity.sequence <= feed.again_until
    )
    new, jobs = publishing.feed(
        tx, feed.channel_id, [message for _, message in messages], now, again=again
    )
    moved_feed = Feed(
        seq=feed.seq,
        channel_id=feed.channel_id,
        feed_id=feed.feed_id,
        place=at,
        marks=marks,
        again=None,
        again_until=feed.again_until,
        standing=feed.standing,
        seen_us=feed.seen_us,
    )
    channel = find_channel(tx, feed.channel_id)
    waiting = last_waiting(tx, channel.seq)
    return Taken(moved_feed, new, jobs, unfinished(tx, feed.channel_id), waiting)


def unfinished(tx: Tx, channel_id: str) -> int:
    """Count the jobs of the channel that wait or run; 404 if it does not exist."""
    channel = find_channel(tx, channel_id)
    (row,) = tx.all("unfinished_of_channel", channel_seq=channel.seq)
    return int(row["n"])


def note(tx: Tx, feed: Feed, standing: Standing, node: str) -> bool:
    """Note what was seen. Returns whether ``node`` still feeds from there; False: read all anew."""
    now = tx.now_us()
    if not take_lead(tx, feed.task, node, LEAD_S, now):
        return False
    tx.run("note_feed", seq=feed.seq, standing=msgspec.json.encode(standing).decode(), now=now)
    row = tx.one("get_feed", channel_id=feed.channel_id, feed_id=feed.feed_id)
    if row is None:
        return False
    found = _feed(row)
    return found.again is None and found.place[1:] == feed.place[1:]
