"""What many clients ask at once, done by one transaction and few statements; each has its own outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ... import ids
from ...errors import JobsError
from ...models import NewMessage, Options, Published, digest_of
from ...store import Brief, Done, NotRememberedError, Outcome, Part, Row, Tx
from ..filtering import Fanned, fan_out_filtered
from .accepting import check_message, publisher
from .publishing import broadcast, known_before

__all__ = ["Publication", "publish_all", "publish_one", "store_plain"]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message without an ordering key, from whom it is, and where to.

    ``message`` is the reason if the request was malformed, which only those learn who may publish. With
    ``replay`` the same message again gets the first answer.
    """

    channel_id: str
    channel_token: str
    producer_id: str
    producer_token: str
    message: NewMessage | JobsError
    replay: bool
    options: Options
    granted: bool = False


@dataclass(frozen=True, slots=True)
class _Taken:
    """A message that may be stored."""

    place: int
    channel_seq: int
    producer_seq: int | None
    message_id: str
    message: NewMessage
    digest: str
    replay: bool
    filtered: bool


def _publish_all(tx: Tx, items: Sequence[Publication]) -> Sequence[Outcome]:
    """Store these messages with their jobs; see :func:`.publishing.broadcast` for each outcome."""
    now = tx.now_us()
    outcomes: dict[int, Outcome] = {}
    taken = []
    for place, item in enumerate(items):
        try:
            allowed, message = _checked(tx, item, now)
        except JobsError as error:
            outcomes[place] = Outcome(error=error)
            continue
        taken.append(_taken(place, allowed, message, replay=item.replay))
    outcomes.update(_store(tx, taken, now))
    return [outcomes[place] for place in range(len(items))]


def store_plain(
    tx: Tx, allowed: Row, messages: Sequence[NewMessage], replays: Sequence[bool], now: int
) -> list[Outcome]:
    """Store messages of one publisher that were checked and have no keys; an outcome for each."""
    taken = [
        _taken(place, allowed, message, replay=replay)
        for place, (message, replay) in enumerate(zip(messages, replays, strict=True))
    ]
    outcomes = _store(tx, taken, now)
    return [outcomes[place] for place in range(len(messages))]


def _taken(place: int, allowed: Row, message: NewMessage, *, replay: bool) -> _Taken:
    return _Taken(
        place=place,
        channel_seq=allowed["channel_seq"],
        producer_seq=allowed["producer_seq"],
        message_id=message.message_id or ids.new_message_id(),
        message=message,
        digest=digest_of(message),
        replay=replay,
        filtered=bool(allowed["filtered"]),
    )


def _store(tx: Tx, taken: Sequence[_Taken], now: int) -> dict[int, Outcome]:
    """What became of each, by place."""
    outcomes: dict[int, Outcome] = {}
    seqs = _insert_all(tx, taken, now) if taken else {}
    jobs = _fan_out_all(tx, taken, seqs, now)
    for one in taken:
        seq = seqs.get(one.place)
        if seq is None:
            outcomes[one.place] = _known(tx, one)
            continue
        scheduled = one.message.scheduled_us is not None
        outcomes[one.place] = Outcome(
            Published(message_id=one.message_id, scheduled=scheduled, jobs=jobs[seq])
        )
    return outcomes


def _publish_briefly(tx: Tx, items: Sequence[Publication]) -> list[Part]:
    """The same of those that are neither scheduled nor filtered, by one statement."""
    publishers: dict[tuple[str, str], tuple[int, Row]] = {}
    shown: list[dict[str, Any]] = []
    payloads: list[bytes] = []
    places: dict[tuple[int, str], int] = {}
    at = 0
    for place, item in enumerate(items):
        try:
            allowed, message = _checked(tx, item, 0)
        except (JobsError, NotRememberedError):
            continue
        if allowed["filtered"] or message.scheduled_us is not None:
            continue
        key = item.channel_id, item.producer_id
        number, _ = publishers.setdefault(key, (len(publishers), allowed))
        message_id = message.message_id or ids.new_message_id()
        named = allowed["channel_seq"], message_id
        if named in places:
            continue  # of two with one id the first is stored
        places[named] = place
        size = len(message.payload)
        shown.append(
            {
                "place": place,
                "publisher": number,
                "message_id": message_id,
                "at": at,
                "size": size,
                "content_type": message.content_type,
                "priority": message.priority,
                "headers": json.dumps(message.headers) if message.headers else "{}",
                "digest": digest_of(message),
            }
        )
        payloads.append(message.payload)
        at += size
    if not shown:
        return []

    def read(rows: Sequence[Row]) -> Done:
        jobs: Counter[tuple[int, str]] = Counter()
        for row in rows:
            jobs[row["channel_seq"], row["message_id"]] += row["consumer_seq"] is not None
        outcomes = {
            places[named]: Outcome(Published(message_id=named[1], scheduled=False, jobs=count))
            for named, count in jobs.items()
        }
        return Done(outcomes, {row["consumer_seq"] for row in rows} - {None})

    values = {
        "publishers": msgspec.json.encode(
            [_publisher(key, number, row) for key, (number, row) in publishers.items()]
        ).decode(),
        "items": msgspec.json.encode(shown).decode(),
        "payloads": b"".join(payloads),
    }
    return [Part(list(places.values()), "publish_briefly", values, read)]


def _publisher(key: tuple[str, str], place: int, row: Row) -> dict[str, Any]:
    """What is remembered of who publishes; the statement makes sure of it."""
    return {
        "place": place,
        "channel_seq": row["channel_seq"],
        "channel_id": key[0],
        "channel_hash": row["channel_token_hash"],
        "producer_seq": row["producer_seq"],
        "producer_id": key[1],
        "producer_hash": row["producer_token_hash"],
    }


publish_all: Final = Brief(_publish_all, _publish_briefly)
"""Store messages without keys, each of a request, with their jobs."""


def publish_one(tx: Tx, item: Publication) -> Published:
    """The same for one message, which may have an ordering key."""
    now = tx.now_us()
    allowed, message = _checked(tx, item, now)
    return broadcast(
        tx,
        allowed["channel_seq"],
        allowed["producer_seq"],
        message,
        now,
        replay=item.replay,
        filtered=bool(allowed["filtered"]),
    )


def _checked(tx: Tx, item: Publication, now: int) -> tuple[Row, NewMessage]:
    allowed = publisher(
        tx,
        item.channel_id,
        item.channel_token,
        item.producer_id,
        item.producer_token,
        granted=item.granted,
    )
    if isinstance(item.message, JobsError):
        raise item.message
    check_message(item.message, item.options, now)
    return allowed, item.message


def _insert_all(tx: Tx, taken: Sequence[_Taken], now: int) -> dict[int, int]:
    """The numbers of the messages that are new, by place."""
    shown: list[dict[str, Any]] = []
    at = 0
    for one in taken:
        message, size = one.message, len(one.message.payload)
        shown.append(
            {
                "place": one.place,
                "channel_seq": one.channel_seq,
                "producer_seq": one.producer_seq,
                "message_id": one.message_id,
                "at": at,
                "size": size,
                "content_type": message.content_type,
                "priority": message.priority,
                "headers": json.dumps(message.headers),
                "digest": one.digest,
                "scheduled_us": message.scheduled_us,
            }
        )
        at += size
    payloads = b"".join(one.message.payload for one in taken)
    rows = tx.all("insert_messages", items=json.dumps(shown), payloads=payloads, now=now)
    # Of two with one id the first is stored.
    places = {(one.channel_seq, one.message_id): one.place for one in reversed(taken)}
    return {places[row["channel_seq"], row["message_id"]]: row["seq"] for row in rows}


def _fan_out_all(tx: Tx, taken: Sequence[_Taken], seqs: dict[int, int], now: int) -> Counter[int]:
    """How many jobs each of the new messages has, by its number."""
    new = [one for one in taken if one.place in seqs and one.message.scheduled_us is None]
    shown = [
        {
            "seq": seqs[one.place],
            "channel_seq": one.channel_seq,
            "priority": one.message.priority,
        }
        for one in new
        if not one.filtered
    ]
    chosen = [
        Fanned(
            seqs[one.place],
            one.channel_seq,
            one.message.priority,
            one.message.headers,
            payload=one.message.payload,
        )
        for one in new
        if one.filtered
    ]
    jobs = fan_out_filtered(tx, chosen, now) if chosen else Counter[int]()
    if not shown:
        return jobs
    rows = tx.all("fan_out_messages", items=json.dumps(shown), now=now)
    tx.ring(sorted({row["consumer_seq"] for row in rows}))
    jobs.update(row["message_seq"] for row in rows)
    return jobs


def _known(tx: Tx, one: _Taken) -> Outcome:
    """The outcome of a message whose id is taken."""
    try:
        return Outcome(
            known_before(tx, one.channel_seq, one.message_id, one.digest, replay=one.replay)
        )
    except JobsError as error:
        return Outcome(error=error)
