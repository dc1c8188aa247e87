"""Fan-out in channels where a consumer has a filter: each message's jobs are for those whose filter it fits.

Channels without filters go a shorter way, which asks no consumer; ``channel.filtered`` tells them apart. It
may say that there is a filter when the last one has gone with its consumer: that is only slower.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from ..matching.filters import MessageFilter, Takes, compiled
from ..matching.payloads import document_of
from ..store import Tx

__all__ = ["Fanned", "fan_out_filtered", "note_filters"]

_WHOLE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fanned:
    """A stored message: its number, and what decides about its jobs.

    ``payload``: ``None`` if it is not at hand; it is read where a filter looks into it.
    """

    seq: int
    channel_seq: int
    priority: int
    headers: Mapping[str, str]
    ordering_key: str | None = None
    payload: bytes | None = None


class _Settings(msgspec.Struct):
    """Of a consumer's settings, what is needed here."""

    filter: MessageFilter = MessageFilter()


def fan_out_filtered(
    tx: Tx, messages: Sequence[Fanned], now: int, *, but: Collection[int] = ()
) -> Counter[int]:
    """Make the jobs of these messages. Returns how many each has, by its number.

    ``but``: consumers that get none. Of messages with one ordering key there may be one only.
    """
    keys = {f"{one.channel_seq} {one.ordering_key}" for one in messages if one.ordering_key}
    if keys:
        # A transaction that finishes a job of this key waits for this one, or the other way round.
        tx.all("lock_keys", keys=json.dumps(sorted(keys)))
    consumers: dict[int, list[tuple[int, Takes]]] = {}
    items: list[dict[str, Any]] = []
    for one in messages:
        if one.channel_seq not in consumers:
            consumers[one.channel_seq] = _consumers(tx, one.channel_seq)
        headers = {name.lower(): value for name, value in one.headers.items()}
        document = _Document(tx, one)
        items += (
            {
                "seq": one.seq,
                "consumer": seq,
                "priority": one.priority,
                "ordering_key": one.ordering_key,
            }
            for seq, takes in consumers[one.channel_seq]
            if seq not in but and takes(headers, document)
        )
    if not items:
        return Counter()
    rows = tx.all("fan_out_chosen", items=json.dumps(items), now=now)
    tx.ring(sorted({row["consumer_seq"] for row in rows}))
    return Counter(row["message_seq"] for row in rows)


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
