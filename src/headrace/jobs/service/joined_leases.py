"""Claims of one job, and completions, of many workers at once: one transaction, few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import JobsError
from ..models import Consumer
from ..store import Outcome, Tx
from .consumers import authorised_consumer, authorised_pull_consumer
from .leases import Held, Result, claim_each, complete

__all__ = ["Caller", "ClaimOne", "Completion", "claim_all", "complete_all"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who says to be a worker of which consumer."""

    channel_id: str
    consumer_id: str
    channel_token: str
    consumer_token: str

    def consumer(self, tx: Tx) -> Consumer:
        """The consumer; see :func:`.consumers.authorised_pull_consumer` for what is refused."""
        return authorised_pull_consumer(
            tx, self.channel_id, self.consumer_id, self.channel_token, self.consumer_token
        )

    def holder(self, tx: Tx) -> Consumer:
        """The consumer of leased jobs. One that became a push consumer finishes those that it has."""
        return authorised_consumer(
            tx, self.channel_id, self.consumer_id, self.channel_token, self.consumer_token
        )


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


def claim_all(tx: Tx, items: Sequence[ClaimOne]) -> Sequence[Outcome]:
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


def complete_all(tx: Tx, items: Sequence[Completion]) -> Sequence[Outcome]:
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
