"""Jobs of stored messages: one for each consumer of the channel that wants the message.

Channels without filters ask no consumer what it wants; ``channel.filtered`` tells them apart. It may say that
there is a filter when the last one has gone with its consumer: that is only slower.

One transaction makes a limited number of jobs, so that nobody waits long for the writer. The following ones
make the rest. Until then a message is *accepted* (status 101, without a time), as is whatever comes after it
in its channel: the jobs of a channel are made in the order of its messages. Whoever has stored the messages
goes on; if that one is gone, upkeep does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from .. import limits
from ..matching.filters import Effort, MessageFilter, Takes, compiled
from ..matching.payloads import document_of
from ..models import Waiting
from ..store import Row, Tx

__all__ = [
    "Fanned",
    "Slice",
    "fan_out",
    "follow_later",
    "jobs_made",
    "last_waiting",
    "make_jobs",
    "make_some",
    "matched",
    "next_slice",
    "note_filters",
    "stored",
    "waiting_channels",
]

_WHOLE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fanned:
    """A stored message: its number, and what decides about its jobs.

    ``payload``: ``None`` if it is not at hand; it is read where a filter looks into it. ``takers``: the
    consumers whose filter it fits, if that was found before.
    """

    seq: int
    channel_seq: int
    filtered: bool
    priority: int
    headers: Mapping[str, str]
    ordering_key: str | None = None
    payload: bytes | None = None
    takers: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages of a channel whose jobs are made next, and for whom each of them is."""

    channel_id: str
    messages: Sequence[Fanned]


class _Settings(msgspec.Struct):
    """Settings of a consumer that are needed here."""

    filter: MessageFilter = MessageFilter()


class _Wanting(NamedTuple):
    """A consumer, what it takes, and the effort of asking it."""

    seq: int
    takes: Takes
    effort: Effort


def follow_later(tx: Tx, sizes: Mapping[int, Sequence[int]]) -> set[int]:
    """The channels, of these with messages of such sizes, whose messages are only accepted by now.

    Their jobs are too much for one transaction, or earlier messages wait for theirs. The keys are locked.
    """
    if not sizes:
        return set()
    rows = tx.all("fan_out_work", channels=json.dumps(sorted(sizes)))
    work = {
        row["channel_seq"]: sum(_work(tx, row, size) for size in sizes[row["channel_seq"]])
        for row in rows
    }
    left = tx.once("jobs that may be made", lambda: [limits.FAN_OUT_MAX])  # by all of a transaction
    later = {row["channel_seq"] for row in rows if row["waiting"]}
    for seq in sorted(work, key=lambda seq: work[seq]):  # few do not wait behind many
        if seq in later or work[seq] > left[0]:
            later.add(seq)
        else:
            left[0] -= work[seq]
    return later


def _work(tx: Tx, channel: Row, size: int) -> int:
    """Weigh making the jobs of a message of this size: one for each, more for costly filters."""
    if not channel["filtered"]:
        return int(channel["consumers"])
    return sum(each.effort.of(size) for each in _wanting(tx, channel["channel_seq"]))


def matched(tx: Tx, messages: Sequence[tuple[Fanned, int]]) -> list[Fanned]:
    """The first of these messages, of which sizes, each with the consumers whose filter it fits.

    As many as may have their jobs made together; at least one. This reads only, so that nobody waits for the
    writer meanwhile, however much there is in filters and payloads.
    """
    seqs = sorted({one.channel_seq for one, _ in messages})
    channels = {
        row["channel_seq"]: row for row in tx.all("fan_out_work", channels=json.dumps(seqs))
    }
    found: list[Fanned] = []
    work = 0
    for one, size in messages:
        work += _work(tx, channels[one.channel_seq], size)
        if found and work > limits.FAN_OUT_MAX:
            break
        found.append(replace(one, takers=_takers(tx, one)) if one.filtered else one)
    return found


def next_slice(tx: Tx, until: Waiting) -> Slice | None:
    """The messages of the channel whose jobs are made next, up to this one; None: there is none."""
    channel_seq, message_seq = until
    channel = tx.one("fan_out_work", channels=json.dumps([channel_seq]))
    if channel is None:  # it was removed, with its messages
        return None
    n = max(1, limits.FAN_OUT_MAX // max(1, channel["consumers"]))
    rows = tx.all("accepted_messages", channel_seq=channel_seq, until=message_seq, n=n)
    if not rows:
        return None
    filtered = bool(channel["filtered"])
    return Slice(channel["channel_id"], matched(tx, [stored(row, filtered) for row in rows]))


def stored(row: Row, filtered: bool) -> tuple[Fanned, int]:
    """A message that is in the database, and its size."""
    headers = json.loads(row["headers"])
    fanned = Fanned(
        row["seq"], row["channel_seq"], filtered, row["priority"], headers, row["ordering_key"]
    )
    return fanned, row["size"]


def make_some(tx: Tx, messages: Sequence[Fanned], now: int) -> Counter[int]:
    """Make the jobs of those of these messages that still wait for theirs. Returns how many, by number."""
    seqs = json.dumps([one.seq for one in messages])
    left = {row["seq"] for row in tx.all("lock_waiting", seqs=seqs)}
    if not left:  # another process was quicker
        return Counter()
    tx.run("dispatch_messages", seqs=seqs, now=now)
    made = fan_out(tx, [one for one in messages if one.seq in left], now)
    return Counter({seq: made[seq] for seq in left})


def last_waiting(tx: Tx, channel_seq: int) -> Waiting | None:
    """The last message of a channel that waits for its jobs."""
    (row,) = tx.all("last_accepted", channel_seq=channel_seq)
    return None if row["seq"] is None else Waiting(channel_seq, row["seq"])


def waiting_channels(tx: Tx) -> list[int]:
    """The channels that have messages waiting for their jobs."""
    return [row["seq"] for row in tx.all("waiting_channels")]


def jobs_made(tx: Tx, messages: Collection[int]) -> Counter[int]:
    """Count the jobs of each of these messages, by its number."""
    rows = tx.all("count_jobs_of_messages", seqs=json.dumps(sorted(messages)))
    return Counter({row["message_seq"]: int(row["n"]) for row in rows})


def fan_out(
    tx: Tx, messages: Sequence[Fanned], now: int, *, but: Collection[int] = ()
) -> Counter[int]:
    """Make the jobs of these messages. Returns how many each has, by its number.

    ``but``: consumers that get none of those that are filtered.
    """
    keys = {
        f"{one.channel_seq} {one.ordering_key}" for one in messages if one.ordering_key is not None
    }
    if keys:
        # A transaction that finishes a job of this key waits for this one, or the other way round.
        tx.all("lock_keys", keys=json.dumps(sorted(keys)))
    return make_jobs(tx, messages, now, but)


def make_jobs(
    tx: Tx, messages: Sequence[Fanned], now: int, but: Collection[int] = ()
) -> Counter[int]:
    """Do what :func:`fan_out` says, with the keys locked."""
    seen: set[tuple[int, str]] = set()  # channels and keys of which one of these has jobs
    shown = [
        {
            "place": place,
            "seq": one.seq,
            "channel_seq": one.channel_seq,
            "priority": one.priority,
            "ordering_key": one.ordering_key,
            "behind": _comes_behind(seen, one.channel_seq, one.ordering_key),
        }
        for place, one in enumerate(messages)
        if not one.filtered
    ]
    made: list[Row] = []
    if shown:
        made += tx.all("fan_out_messages", items=msgspec.json.encode(shown).decode(), now=now)
    if chosen := _chosen(tx, [one for one in messages if one.filtered], but):
        made += tx.all("fan_out_chosen", items=msgspec.json.encode(chosen).decode(), now=now)
    if made:
        tx.ring(sorted({row["consumer_seq"] for row in made}))
    return Counter(row["message_seq"] for row in made)


def _comes_behind(seen: set[tuple[int, str]], whose: int, key: str | None) -> int:
    """Whether an earlier one of these has the same key: no job of it is there yet."""
    if key is None:
        return 0
    behind = (whose, key) in seen
    seen.add((whose, key))
    return int(behind)


def _chosen(tx: Tx, messages: Sequence[Fanned], but: Collection[int]) -> list[dict[str, Any]]:
    """List for each of these messages the consumers whose filter it fits."""
    seen: set[tuple[int, str]] = set()  # consumers and keys of which one of these is a job
    items: list[dict[str, Any]] = []
    for place, one in enumerate(messages):
        takers = _takers(tx, one) if one.takers is None else one.takers
        items += (
            {
                "place": place,
                "seq": one.seq,
                "consumer": seq,
                "priority": one.priority,
                "ordering_key": one.ordering_key,
                "behind": _comes_behind(seen, seq, one.ordering_key),
            }
            for seq in takers
            if seq not in but
        )
    return items


def _takers(tx: Tx, one: Fanned) -> list[int]:
    """The consumers whose filter a message fits."""
    headers = {name.lower(): value for name, value in one.headers.items()}
    document = _Document(tx, one)
    return [each.seq for each in _wanting(tx, one.channel_seq) if each.takes(headers, document)]


class _Document:
    """The JSON of a message's payload, read once, and only if it is asked for."""

    def __init__(self, tx: Tx, of: Fanned) -> None:
        self._tx, self._of = tx, of
        self._found: list[Any] = []

    def __call__(self) -> Any:
        if not self._found:
            payload = self._of.payload
            if payload is None:
                seqs = json.dumps([self._of.seq])
                (row,) = self._tx.all("messages_of", seqs=seqs, bytes=_WHOLE)
                payload = row["payload"]
            self._found.append(document_of(payload))
        return self._found[0]


def note_filters(tx: Tx, channel_seq: int) -> None:
    """Note, after a change of a consumer's settings, whether a consumer of the channel has a filter."""
    # Whoever changes another one waits here, and then sees this change.
    tx.run("hold_channel", seq=channel_seq)
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    filtered = any(not _wanted(row["settings"]).takes_all for row in rows)
    tx.run("note_filtered", seq=channel_seq, filtered=int(filtered))


def _wanting(tx: Tx, channel_seq: int) -> list[_Wanting]:
    """The consumers of a channel, read once in a transaction."""
    return tx.once(("filters", channel_seq), partial(_consumers, tx, channel_seq))


def _consumers(tx: Tx, channel_seq: int) -> list[_Wanting]:
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    return [_Wanting(row["seq"], *_takes(row["settings"])) for row in rows]


@lru_cache(4096)
def _takes(settings: str) -> tuple[Takes, Effort]:
    wanted = _wanted(settings)
    return compiled(wanted), wanted.effort


def _wanted(settings: str) -> MessageFilter:
    return msgspec.json.decode(settings, type=_Settings).filter
