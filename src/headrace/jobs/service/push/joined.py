"""What many push lanes ask at once: one transaction for the claims and the results of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ... import ids
from ...models import ClaimedJob, Consumer
from ...states import State
from ...store import Brief, Done, Outcome, Part, Row, Tx
from ..leases import claiming
from ..leases.claiming import claimed_job
from ..leases.leases import Held, Result, named_leases
from ..notices import FAILING_FROM
from . import results as push_results
from .lanes import TakenError
from .results import Called, Written

__all__ = ["PushClaim", "PushNotes", "note_all", "push_claim_all"]

_BRIEFLY_MAX: Final = 20
"""Jobs of one claim whose payloads are not added up before; for more a lane asks again."""


@dataclass(frozen=True, slots=True)
class PushClaim:
    """A lane wants up to ``n`` jobs. ``check`` raises :class:`.lanes.TakenError` if it may not push.

    The process of a lane is ``node``; without it, only ``check`` can tell whether it may.
    """

    consumer: Consumer
    n: int
    lease_s: float
    check: Callable[[Tx], None]
    node: str | None


@dataclass(slots=True)
class PushNotes:
    """The results of a lane's calls. Those that are stored are in ``stored``, by the job's number."""

    consumer: Consumer
    calls: Sequence[Called]
    random: Callable[[], float]
    stored: dict[int, Result] = field(default_factory=dict)

    def left(self) -> list[Called]:
        """The calls whose results are not stored yet."""
        return [call for call in self.calls if call.job.seq not in self.stored]

    def written(self, rest: Written) -> Written:
        """What was stored in all, with the ``rest``."""
        return Written([*self.stored.values(), *rest.delivered], rest.failed, rest.disabled)


def _push_claim_all(tx: Tx, items: Sequence[PushClaim]) -> Sequence[Outcome]:
    outcomes = []
    for item in items:
        try:
            item.check(tx)
        except TakenError as error:
            outcomes.append(Outcome(error=error))
            continue
        jobs = claiming.claim(tx, item.consumer, item.n, item.lease_s, tx.now_us())
        outcomes.append(Outcome(jobs))
    return outcomes


def _push_claim_briefly(tx: Tx, items: Sequence[PushClaim]) -> list[Part]:
    del tx
    return [
        _claim_part(place, item)
        for place, item in enumerate(items)
        if item.node is not None and not item.consumer.paused and item.consumer.disabled_us is None
    ]


def _claim_part(place: int, item: PushClaim) -> Part:
    def read(rows: Sequence[Row]) -> Done:
        if not rows:
            return Done({})
        taken = sorted(
            (row for row in rows if row["seq"] is not None),
            key=lambda row: (-row["priority"], row["seq"]),
        )
        jobs: list[ClaimedJob] = [
            claimed_job(row, row, row["lease"], row["lease_expires_us"]) for row in taken
        ]
        return Done({place: Outcome(jobs)})

    values = {
        "consumer_seq": item.consumer.seq,
        "version": item.consumer.updated_us,
        "node": item.node,
        "n": min(item.n, _BRIEFLY_MAX),
        "lease": ids.new_lease(),
        "lease_us": round(item.lease_s * 1e6),
    }
    return Part([place], "push_claim_briefly", values, read)


def _note_all(tx: Tx, items: Sequence[PushNotes]) -> Sequence[Outcome]:
    return [Outcome(_noted(tx, item)) for item in items]


def _noted(tx: Tx, item: PushNotes) -> Written:
    left = item.left()
    gone = any(call.status == push_results.GONE for call in left)
    rest = push_results.write(tx, item.consumer, left, tx.now_us(), item.random, gone=gone)
    return item.written(rest)


def _note_briefly(tx: Tx, items: Sequence[PushNotes]) -> list[Part]:
    del tx
    return [
        _note_part(place, item, calls)
        for place, item in enumerate(items)
        if item.consumer.failing_since_us is None
        and not item.consumer.settings.outcomes
        and (calls := [call for call in item.left() if call.ok])
    ]


def _note_part(place: int, item: PushNotes, calls: Sequence[Called]) -> Part:
    def read(rows: Sequence[Row]) -> Done:
        for row in rows:
            item.stored[row["seq"]] = Result(row["seq"], 200, "ok", State.DELIVERED)
        if item.left():
            return Done({})
        return Done({place: Outcome(item.written(Written([], [], None)))})

    held = [Held(call.job.seq, call.job.lease) for call in calls]
    values = {
        "consumer_seq": item.consumer.seq,
        "version": item.consumer.updated_us,
        **named_leases(held),
        "items": json.dumps([push_results.attempt_of(call) for call in calls]),
        "failing": FAILING_FROM,
    }
    return Part([place], "push_note_briefly", values, read)


push_claim_all: Final = Brief(_push_claim_all, _push_claim_briefly)
"""For each lane the jobs it has claimed."""
note_all: Final = Brief(_note_all, _note_briefly)
"""For each lane what became of its jobs."""
