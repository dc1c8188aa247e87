"""Claims of one job, and completions, of many workers at once: one transaction, few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ... import ids
from ...errors import JobsError
from ...models import Consumer
from ...states import State
from ...store import Brief, Done, NotRememberedError, Outcome, Part, Row, Tx
from ..definitions.consumers import authorised_consumer, authorised_pull_consumer
from ..notices import FAILING_FROM
from .claiming import claim_each, claimed_job
from .leases import Held, Result, complete, named_leases

__all__ = ["Caller", "ClaimOne", "Completion", "claim_all", "complete_all"]


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

    def remembered(self, tx: Tx, consumer: Consumer) -> dict[str, Any]:
        """What a statement makes sure of, which goes by this consumer."""
        row: Row | None = tx.once(("consumer", self.channel_id, self.consumer_id), lambda: None)
        if row is None:
            raise NotRememberedError
        return {
            "consumer_seq": consumer.seq,
            "version": consumer.updated_us,
            "channel_id": self.channel_id,
            "channel_hash": row["channel_token_hash"],
        }

    def _named(self) -> tuple[str, str, str, str]:
        return self.channel_id, self.consumer_id, self.channel_token, self.consumer_token


@dataclass(frozen=True, slots=True)
class ClaimOne:
    """A worker wants one job, for ``lease_s`` seconds."""

    caller: Caller
    lease_s: float


@dataclass(frozen=True, slots=True)
class Completion:
    """A worker has done these jobs, each named once."""

    caller: Caller
    held: tuple[Held, ...]


def _claim_all(tx: Tx, items: Sequence[ClaimOne]) -> Sequence[Outcome]:
    """For each its consumer and the claimed jobs, one or none: who came first gets the first."""
    now = tx.now_us()
    outcomes, consumers = _callers(tx, [item.caller.consumer for item in items])
    groups: dict[tuple[int, float], list[int]] = {}
    for place, consumer in consumers.items():
        groups.setdefault((consumer.seq, items[place].lease_s), []).append(place)
    for (_, lease_s), places in groups.items():
        consumer = consumers[places[0]]
        jobs = claim_each(tx, consumer, len(places), lease_s, now)
        for at, place in enumerate(places):
            outcomes[place] = Outcome((consumer, jobs[at : at + 1]))
    return [outcomes[place] for place in range(len(items))]


def _complete_all(tx: Tx, items: Sequence[Completion]) -> Sequence[Outcome]:
    """For each its consumer and the results, in the order of its jobs."""
    now = tx.now_us()
    outcomes, consumers = _callers(tx, [item.caller.holder for item in items])
    groups: dict[int, list[int]] = {}
    named: set[int] = set()
    again: list[int] = []
    for place, consumer in consumers.items():
        seqs = {held.seq for held in items[place].held}
        if named & seqs:
            again.append(place)  # said twice at once: the second is told that it was said before
            continue
        named |= seqs
        groups.setdefault(consumer.seq, []).append(place)
    for places in (*groups.values(), *([place] for place in again)):
        consumer = consumers[places[0]]
        held = [one for place in places for one in items[place].held]
        results: list[Result] = complete(tx, consumer, held, now)
        for place in places:
            count = len(items[place].held)
            outcomes[place] = Outcome((consumer, results[:count]))
            results = results[count:]
    return [outcomes[place] for place in range(len(items))]


def _claim_briefly(tx: Tx, items: Sequence[ClaimOne]) -> list[Part]:
    """The same by one statement for each consumer; not where one is paused or has jobs that are due."""
    groups: dict[tuple[int, float], tuple[Consumer, dict[str, Any], list[int]]] = {}
    for place, item in enumerate(items):
        try:
            consumer = item.caller.consumer(tx)
            values = item.caller.remembered(tx, consumer)
        except (JobsError, NotRememberedError):
            continue
        if not consumer.paused and consumer.disabled_us is None:
            groups.setdefault((consumer.seq, item.lease_s), (consumer, values, []))[2].append(place)
    return [
        _claim_part(consumer, values, lease_s, places)
        for (_, lease_s), (consumer, values, places) in groups.items()
    ]


def _claim_part(
    consumer: Consumer, values: dict[str, Any], lease_s: float, places: list[int]
) -> Part:
    def read(rows: Sequence[Row]) -> Done:
        if not rows:
            return Done({})
        taken = sorted(
            (row for row in rows if row["seq"] is not None),
            key=lambda row: (-row["priority"], row["seq"]),
        )
        jobs = [claimed_job(row, row, row["lease"], row["lease_expires_us"]) for row in taken]
        return Done(
            {place: Outcome((consumer, jobs[at : at + 1])) for at, place in enumerate(places)}
        )

    lease = {"lease": ids.new_lease(), "lease_us": round(lease_s * 1e6), "n": len(places)}
    return Part(places, "claim_briefly", {**values, **lease}, read)


def _complete_briefly(tx: Tx, items: Sequence[Completion]) -> list[Part]:
    """The same by one statement for each consumer, of jobs that are held and have no key."""
    groups: dict[int, tuple[Consumer, dict[str, Any], list[int]]] = {}
    named: set[int] = set()
    for place, item in enumerate(items):
        try:
            consumer = item.caller.holder(tx)
            values = item.caller.remembered(tx, consumer)
        except (JobsError, NotRememberedError):
            continue
        seqs = {held.seq for held in item.held}
        if seqs and not named & seqs and not consumer.settings.outcomes:
            named |= seqs
            groups.setdefault(consumer.seq, (consumer, values, []))[2].append(place)
    return [
        _complete_part(consumer, values, items, places)
        for consumer, values, places in groups.values()
    ]


def _complete_part(
    consumer: Consumer, values: dict[str, Any], items: Sequence[Completion], places: list[int]
) -> Part:
    def read(rows: Sequence[Row]) -> Done:
        done = {row["seq"] for row in rows}
        return Done(
            {
                place: Outcome(
                    (
                        consumer,
                        [
                            Result(held.seq, 200, "ok", State.DELIVERED)
                            for held in items[place].held
                        ],
                    )
                )
                for place in places
                if all(held.seq in done for held in items[place].held)
            }
        )

    held = [one for place in places for one in items[place].held]
    more = {**named_leases(held), "failing": FAILING_FROM}
    return Part(places, "complete_briefly", {**values, **more}, read)


claim_all: Final = Brief(_claim_all, _claim_briefly)
"""For each request its consumer and the claimed jobs, one or none."""
complete_all: Final = Brief(_complete_all, _complete_briefly)
"""For each request its consumer and the results, in the order of its jobs."""


def _callers(
    tx: Tx, callers: Sequence[Callable[[Tx], Consumer]]
) -> tuple[dict[int, Outcome], dict[int, Consumer]]:
    """The outcomes of those who are refused, and the consumers of the others, by place."""
    outcomes, consumers = {}, {}
    for place, caller in enumerate(callers):
        try:
            consumers[place] = caller(tx)
        except JobsError as error:
            outcomes[place] = Outcome(error=error)
    return outcomes, consumers
