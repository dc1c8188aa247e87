"""Messages stored, with the jobs that :mod:`.fanning` makes of them at once, or afterwards."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from .. import ids
from ..errors import JobsError
from ..matching.unique import UniqueKey
from ..models import NewMessage, Published, Waiting, digest_of
from ..states import State
from ..store import Tx
from .fanning import Fanned, fan_out, follow_later, make_jobs

__all__ = ["Fresh", "fan_out_to_others", "store_messages"]

_WAITING: Final = 101
_DISPATCHED: Final = 102


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


def store_messages(tx: Tx, messages: Sequence[Fresh], now: int) -> list[Published | JobsError]:
    """Store messages with their jobs. Returns what became of each.

    Where these are too many for a transaction, they are made afterwards: :func:`.fanning.make_some`.

    Refused are an id that exists already (409), and with ``replay`` one that was used for a different message
    (422). A message that is the same as an earlier one, by what is unique in it, is not stored again.
    """
    _lock(tx, messages)
    sizes: dict[int, list[int]] = {}
    for one in messages:
        if one.message.scheduled_us is None:
            sizes.setdefault(one.channel_seq, []).append(len(one.message.payload))
    later = follow_later(tx, sizes)
    found: list[Published | JobsError] = []
    for run in _runs(messages):
        found += _store_run(tx, run, now, later)
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


def _store_run(
    tx: Tx, run: Sequence[Fresh], now: int, later: Set[int]
) -> list[Published | JobsError]:
    found: dict[int, Published | JobsError] = {}
    for place, one in enumerate(run):
        unique = one.message.unique
        if unique is not None and (known := _same(tx, one.channel_seq, unique, now)) is not None:
            found[place] = known
    fresh = {place: one for place, one in enumerate(run) if place not in found}
    seqs = _insert(tx, fresh, now, later) if fresh else {}
    uniques = [
        {"message_seq": seq, "channel_seq": one.channel_seq, "digest": one.message.unique.digest}
        for place, seq in seqs.items()
        if (one := fresh[place]).message.unique is not None
    ]
    if uniques:
        tx.run_many("put_unique", uniques)
    jobs = make_jobs(
        tx,
        [
            _fanned(seq, fresh[place])
            for place, seq in seqs.items()
            if not _waits(fresh[place], later)
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
                waiting=Waiting(one.channel_seq, seq) if _is_behind(one, later) else None,
            )
        )
    return [found[place] for place in range(len(run))]


def _is_behind(one: Fresh, later: Set[int]) -> bool:
    """Whether the jobs of a message that waits for no time are made afterwards."""
    return one.message.scheduled_us is None and one.channel_seq in later


def _waits(one: Fresh, later: Set[int]) -> bool:
    return one.message.scheduled_us is not None or one.channel_seq in later


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


def _insert(tx: Tx, fresh: Mapping[int, Fresh], now: int, later: Set[int]) -> dict[int, int]:
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
                "status": _WAITING if _waits(one, later) else _DISPATCHED,
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


def fan_out_to_others(
    tx: Tx, seq: int, channel_seq: int, message: NewMessage, but: Collection[int], now: int
) -> int:
    """Make jobs of a stored message for the consumers that want it and are not in ``but``; how many."""
    one = _fanned(seq, Fresh(channel_seq, None, message, filtered=True))
    return fan_out(tx, [one], now, but=but)[seq]
