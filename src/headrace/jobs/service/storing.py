"""Messages stored, and fanned out: a job for each consumer of the channel that wants the message.

Channels without filters ask no consumer what it wants; ``channel.filtered`` tells them apart. It may say that
there is a filter when the last one has gone with its consumer: that is only slower.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from .. import ids
from ..errors import JobsError
from ..matching.filters import MessageFilter, Takes, compiled
from ..matching.payloads import document_of
from ..matching.unique import UniqueKey
from ..models import NewMessage, Published, digest_of
from ..states import State
from ..store import Row, Tx

__all__ = ["Fanned", "Fresh", "fan_out", "note_filters", "store_messages"]

_WHOLE: Final = 2**31 - 1
_WAITING: Final = 101


@dataclass(frozen=True, slots=True)
class Fresh:
    """A message to be stored, and where.

    ``filtered``: a consumer of the channel may have a filter. With ``replay`` (an ``Idempotency-Key``) the
    same message again gets the first answer.
    """

    channel_seq: int
    producer_seq: int | None
    message: NewMessage
    filtered: bool
    replay: bool = False
    message_id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "message_id", self.message.message_id or ids.new_message_id())


@dataclass(frozen=True, slots=True)
class Fanned:
    """A stored message: its number, and what decides about its jobs.

    ``payload``: ``None`` if it is not at hand; it is read where a filter looks into it.
    """

    seq: int
    channel_seq: int
    filtered: bool
    priority: int
    headers: Mapping[str, str]
    ordering_key: str | None = None
    payload: bytes | None = None


class _Settings(msgspec.Struct):
    """Of a consumer's settings, what is needed here."""

    filter: MessageFilter = MessageFilter()


def store_messages(tx: Tx, messages: Sequence[Fresh], now: int) -> list[Published | JobsError]:
    """Store messages with their jobs. Returns what became of each.

    Refused are an id that exists already (409), and with ``replay`` one that was used for a different message
    (422). A message that is the same as an earlier one, by what is unique in it, is not stored again.
    """
    _lock(tx, messages)
    found: list[Published | JobsError] = []
    for run in _runs(messages):
        found += _store_run(tx, run, now)
    return found


def _lock(tx: Tx, messages: Sequence[Fresh]) -> None:
    """Lock all keys at once and in order: no two transactions wait for each other."""
    keys = set()
    for one in messages:
        if one.message.ordering_key is not None:
            keys.add(f"{one.channel_seq} {one.message.ordering_key}")
        if one.message.unique is not None:
            keys.add(f"unique {one.channel_seq} {one.message.unique.digest}")
    if keys:
        tx.all("lock_keys", keys=json.dumps(sorted(keys)))


def _runs(messages: Sequence[Fresh]) -> Iterator[list[Fresh]]:
    """Parts of ``messages``, in order: one that is to be unique sees those of an earlier part."""
    run: list[Fresh] = []
    seen: set[tuple[int, str]] = set()
    for one in messages:
        unique = one.message.unique
        key = None if unique is None else (one.channel_seq, unique.digest)
        if key is not None:
            if key in seen:
                yield run
                run, seen = [], set()
            seen.add(key)
        run.append(one)
    yield run


def _store_run(tx: Tx, run: Sequence[Fresh], now: int) -> list[Published | JobsError]:
    found: dict[int, Published | JobsError] = {}
    for place, one in enumerate(run):
        unique = one.message.unique
        if unique is not None and (known := _same(tx, one.channel_seq, unique, now)) is not None:
            found[place] = known
    fresh = {place: one for place, one in enumerate(run) if place not in found}
    seqs = _insert(tx, fresh, now) if fresh else {}
    uniques = [
        {"message_seq": seq, "channel_seq": one.channel_seq, "digest": one.message.unique.digest}
        for place, seq in seqs.items()
        if (one := fresh[place]).message.unique is not None
    ]
    if uniques:
        tx.run_many("put_unique", uniques)
    jobs = _make_jobs(
        tx,
        [
            _fanned(seq, fresh[place])
            for place, seq in seqs.items()
            if fresh[place].message.scheduled_us is None
        ],
        now,
    )
    for place, one in fresh.items():
        seq = seqs.get(place)
        found[place] = (
            _known(tx, one)
            if seq is None
            else Published(
                message_id=one.message_id,
                scheduled=one.message.scheduled_us is not None,
                jobs=jobs[seq],
            )
        )
    return [found[place] for place in range(len(run))]


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


def _known(tx: Tx, one: Fresh) -> Published | JobsError:
    """The answer for a message whose id is taken."""
    if not one.replay:
        return JobsError(
            409,
            "message_exists",
            "the channel has a message with this id",
            "X-Broker-Message-ID",
        )
    known = tx.one("get_digest", channel_seq=one.channel_seq, message_id=one.message_id)
    if known is None or known["digest"] != digest_of(one.message):
        return JobsError(
            422, "key_reused", "this key was used for a different message", "Idempotency-Key"
        )
    return Published(
        message_id=one.message_id,
        scheduled=known["scheduled_us"] is not None,
        jobs=0,
        replayed=True,
    )


def _insert(tx: Tx, fresh: Mapping[int, Fresh], now: int) -> dict[int, int]:
    """The numbers of the messages that are new, by place."""
    shown: list[dict[str, Any]] = []
    at = 0
    for place, one in fresh.items():
        message, size = one.message, len(one.message.payload)
        shown.append(
            {
                "place": place,
                "channel_seq": one.channel_seq,
                "producer_seq": one.producer_seq,
                "message_id": one.message_id,
                "at": at,
                "size": size,
                "content_type": message.content_type,
                "priority": message.priority,
                "ordering_key": message.ordering_key,
                "headers": json.dumps(message.headers) if message.headers else "{}",
                "digest": digest_of(message),
                "scheduled_us": message.scheduled_us,
            }
        )
        at += size
    payloads = b"".join(one.message.payload for one in fresh.values())
    items = msgspec.json.encode(shown).decode()
    rows = tx.all("insert_messages", items=items, payloads=payloads, now=now)
    # Of two with one id the first is stored.
    places: dict[tuple[int, str], int] = {}
    for place, one in fresh.items():
        places.setdefault((one.channel_seq, one.message_id), place)
    return {places[row["channel_seq"], row["message_id"]]: row["seq"] for row in rows}


def _fanned(seq: int, one: Fresh) -> Fanned:
    message = one.message
    return Fanned(
        seq,
        one.channel_seq,
        one.filtered,
        message.priority,
        message.headers,
        message.ordering_key,
        message.payload,
    )


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
    return _make_jobs(tx, messages, now, but)


def fan_out_to_others(
    tx: Tx, seq: int, channel_seq: int, message: NewMessage, but: Collection[int], now: int
) -> int:
    """Make jobs of a stored message for the consumers that want it and are not in ``but``; how many."""
    one = _fanned(seq, Fresh(channel_seq, None, message, filtered=True))
    return fan_out(tx, [one], now, but=but)[seq]


def _make_jobs(
    tx: Tx, messages: Sequence[Fanned], now: int, but: Collection[int] = ()
) -> Counter[int]:
    """As :func:`fan_out`, with the keys locked."""
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
    """For each of these messages the consumers whose filter it fits."""
    seen: set[tuple[int, str]] = set()  # consumers and keys of which one of these is a job
    items: list[dict[str, Any]] = []
    for place, one in enumerate(messages):
        consumers = tx.once(("filters", one.channel_seq), partial(_consumers, tx, one.channel_seq))
        headers = {name.lower(): value for name, value in one.headers.items()}
        document = _Document(tx, one)
        items += (
            {
                "place": place,
                "seq": one.seq,
                "consumer": seq,
                "priority": one.priority,
                "ordering_key": one.ordering_key,
                "behind": _comes_behind(seen, seq, one.ordering_key),
            }
            for seq, takes in consumers
            if seq not in but and takes(headers, document)
        )
    return items


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
    """After a change of a consumer's settings: note whether a consumer of the channel has a filter."""
    # Whoever changes another one waits here, and then sees this change.
    tx.run("hold_channel", seq=channel_seq)
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    filtered = any(not _wanted(row["settings"]).takes_all for row in rows)
    tx.run("note_filtered", seq=channel_seq, filtered=int(filtered))


def _consumers(tx: Tx, channel_seq: int) -> list[tuple[int, Takes]]:
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    return [(row["seq"], _takes(row["settings"])) for row in rows]


@lru_cache(4096)
def _takes(settings: str) -> Takes:
    return compiled(_wanted(settings))


def _wanted(settings: str) -> MessageFilter:
    return msgspec.json.decode(settings, type=_Settings).filter
