"""The leased API: claim many jobs at once. Every claim has a new lease token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ... import ids, limits
from ...errors import JobsError
from ...models import ClaimedJob, Consumer
from ...states import Event
from ...store import Outcome, Row, Tx
from ..definitions.consumers import authorised_consumer, authorised_pull_consumer
from ..moves import Move, apply_moves

__all__ = ["Caller", "Claim", "Who", "claim_all", "consumers_of"]

_SECOND_US: Final = 1_000_000
_NO_LIMIT: Final = 2**62

Who = Callable[[Tx], Consumer]
"""Finds the consumer whose jobs are meant; raises JobsError for who may not have them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who says to be a worker of which consumer."""

    channel_id: str
    consumer_id: str
    channel_token: str
    consumer_token: str
    granted: bool = False

    def consumer(self, tx: Tx) -> Consumer:
        """The consumer; see :func:`..definitions.consumers.authorised_pull_consumer` for what is refused."""
        return authorised_pull_consumer(tx, *self._named(), granted=self.granted)

    def holder(self, tx: Tx) -> Consumer:
        """The consumer of leased jobs. One that became a push consumer finishes those that it has."""
        return authorised_consumer(tx, *self._named(), granted=self.granted)

    def _named(self) -> tuple[str, str, str, str]:
        return self.channel_id, self.consumer_id, self.channel_token, self.consumer_token


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody wants up to ``n`` jobs of a consumer, for ``lease_s`` seconds."""

    who: Who
    n: int
    lease_s: float


def consumers_of(tx: Tx, who: Sequence[Who]) -> tuple[dict[int, Outcome], dict[int, Consumer]]:
    """The outcomes of those who are refused, and the consumers of the others, by place."""
    outcomes, consumers = {}, {}
    for place, find in enumerate(who):
        try:
            consumers[place] = find(tx)
        except JobsError as error:
            outcomes[place] = Outcome(error=error)
    return outcomes, consumers


def claim_all(tx: Tx, claims: Sequence[Claim]) -> list[Outcome]:
    """Lease ready jobs: for each claim its consumer, and up to ``n`` jobs.

    The highest priority goes first, and within a priority the oldest; who came first gets the first. The jobs
    of one claim have about ``CLAIM_BYTES_MAX`` of payload at most: fewer than ``n`` may be given where more
    are ready.

    Nothing is claimed if the definition has changed since the consumer was read: ``n`` may be by a limit that
    no longer holds, and the consumer may be paused. Whoever changes it rings for those who wait for its jobs.
    """
    now = tx.now_us()
    outcomes, consumers = consumers_of(tx, [claim.who for claim in claims])
    groups: dict[tuple[int, int], list[int]] = {}
    for place, consumer in consumers.items():
        groups.setdefault((consumer.seq, consumer.updated_us), []).append(place)
    given: dict[int, list[Row]] = {}
    for places in groups.values():
        given |= _share(tx, consumers[places[0]], {place: claims[place].n for place in places}, now)
    leases = {place: ids.new_lease() for place in given}
    ends = {place: now + round(claims[place].lease_s * _SECOND_US) for place in given}
    moves = [
        Move(row=row, event=Event.CLAIM, lease=leases[place], lease_expires_us=ends[place])
        for place, rows in given.items()
        for row in rows
    ]
    apply_moves(tx, moves, now)
    payloads = _payloads(tx, [move.row for move in moves])
    for place, rows in given.items():
        lease, end = leases[place], ends[place]
        jobs = [_claimed(row, payloads, lease, end) for row in rows]
        outcomes[place] = Outcome((consumers[place], jobs))
    return [outcomes[place] for place in range(len(claims))]


def _share(tx: Tx, consumer: Consumer, wanted: dict[int, int], now: int) -> dict[int, list[Row]]:
    """The ready jobs of a consumer that each claim gets, by its place. ``wanted``: how many at most."""
    given: dict[int, list[Row]] = {place: [] for place in wanted}
    if consumer.paused or consumer.disabled_us is not None:
        return given
    tx.run("promote_due", consumer_seq=consumer.seq, now=now, n=limits.SWEEP_ROWS)
    n = sum(wanted.values())
    rows = iter(
        tx.all(
            "ready_jobs",
            consumer_seq=consumer.seq,
            version=consumer.updated_us,
            n=n,
            bytes=limits.CLAIM_BYTES_MAX // n if n > 1 else _NO_LIMIT,
        )
    )
    for place, most in wanted.items():
        total = 0
        while len(given[place]) < most and total < limits.CLAIM_BYTES_MAX:
            row = next(rows, None)
            if row is None:
                return given
            given[place].append(row)
            total += row["size"]
    return given


def _payloads(tx: Tx, rows: Sequence[Row]) -> dict[int, bytes]:
    """The payloads that were too large to be read with their jobs, by the number of the message."""
    missing = [row["message_seq"] for row in rows if row["payload"] is None]
    if not missing:
        return {}
    found = tx.all("messages_of", seqs=json.dumps(missing), bytes=_NO_LIMIT)
    return {row["seq"]: row["payload"] for row in found}


def _claimed(row: Row, payloads: dict[int, bytes], lease: str, expires: int) -> ClaimedJob:
    payload = row["payload"]
    return ClaimedJob(
        seq=row["seq"],
        lease=lease,
        deadline_us=expires,
        attempt=row["claims"] + 1,
        retries=row["retries"],
        priority=row["priority"],
        created_us=row["created_us"],
        message_seq=row["message_seq"],
        message_id=row["message_id"],
        payload=payloads[row["message_seq"]] if payload is None else payload,
        content_type=row["content_type"],
        headers=_headers(row["headers"]),
        ordering_key=row["ordering_key"],
    )


def _headers(text: str) -> dict[str, str]:
    return {} if text == "{}" else msgspec.json.decode(text, type=dict[str, str])
