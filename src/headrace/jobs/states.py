"""The life of a job: one table of states and events, and the specification's rules for asking.

        claim            complete
 QUEUED ────▶ INFLIGHT ──────────▶ DELIVERED
   ▲  ▲ retry   │  │  ▲
   │  └─────────┘  │  │ revive (counted as a retry)
   │    expire     ▼  │
   └──────────── DEAD ┘
      requeue     (bury, or exhaust when no retry is left)

Pure: everything that changes a job asks :func:`follow` first; SQL only carries out the answer. The numbers
are on disk and on the wire (`job-status`), so they never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from .errors import JobsError

__all__ = [
    "TERMINAL",
    "TRANSITIONS",
    "Count",
    "Event",
    "Hold",
    "Rule",
    "State",
    "failure_event",
    "follow",
    "requested_event",
]


class State(IntEnum):
    """Where a job stands."""

    QUEUED = 1001
    INFLIGHT = 1002
    DELIVERED = 1003
    DEAD = 1004


class Hold(IntEnum):
    """Why a QUEUED job is not handed out yet."""

    READY = 0
    DELAYED = 1  # until its due time
    BLOCKED = 2  # until the unfinished jobs before it, with the same ordering key, are finished


class Event(Enum):
    """What can happen to a job."""

    CLAIM = "claim"
    COMPLETE = "complete"
    BURY = "bury"  # the consumer says it can never be done
    RETRY = "retry"  # failed or timed out, retries are left
    EXHAUST = "exhaust"  # failed or timed out, none is left
    RELEASE = "release"  # given back undone; not counted
    REVIVE = "revive"  # taken straight from the dead letters
    REQUEUE = "requeue"  # sent back from the dead letters, with all its retries


class Count(Enum):
    """What an event does to the count of retries."""

    KEEP = "keep"
    ADD = "add"
    RESET = "reset"

    def after(self, retries: int) -> int:
        """The new count."""
        return {Count.KEEP: retries, Count.ADD: retries + 1, Count.RESET: 0}[self]


@dataclass(frozen=True, slots=True)
class Rule:
    """Where an event leads, and what becomes of the count of retries."""

    target: State
    count: Count = Count.KEEP


TRANSITIONS: Final[dict[tuple[State, Event], Rule]] = {
    (State.QUEUED, Event.CLAIM): Rule(State.INFLIGHT),
    (State.INFLIGHT, Event.COMPLETE): Rule(State.DELIVERED),
    (State.INFLIGHT, Event.BURY): Rule(State.DEAD),
    (State.INFLIGHT, Event.RETRY): Rule(State.QUEUED, Count.ADD),
    (State.INFLIGHT, Event.EXHAUST): Rule(State.DEAD),
    (State.INFLIGHT, Event.RELEASE): Rule(State.QUEUED),
    (State.DEAD, Event.REVIVE): Rule(State.INFLIGHT, Count.ADD),
    (State.DEAD, Event.REQUEUE): Rule(State.QUEUED, Count.RESET),
}

TERMINAL: Final = frozenset({State.DELIVERED, State.DEAD})

_ASKED: Final = {
    (State.QUEUED, State.INFLIGHT): Event.CLAIM,
    (State.DEAD, State.INFLIGHT): Event.REVIVE,
    (State.INFLIGHT, State.DELIVERED): Event.COMPLETE,
    (State.INFLIGHT, State.DEAD): Event.BURY,
}


def follow(state: State, event: Event) -> Rule:
    """Where ``event`` leads from ``state``; 400 ``invalid_transition`` when it leads nowhere."""
    rule = TRANSITIONS.get((state, event))
    if rule is None:
        raise _invalid(f"a job that is {state.name} cannot {event.value}")
    return rule


def failure_event(retries: int, retries_max: int) -> Event:
    """What a failure or an expired lease is: a retry, or the end when ``retries_max`` are used up."""
    return Event.RETRY if retries < retries_max else Event.EXHAUST


def requested_event(state: State, asked: str, incremental_s: int) -> Event | None:
    """What a consumer's ``NextState`` means for a job, by the specification's rules.

    ``None`` means accepted without any change: the job is in that state already. An ``incremental_s``
    of 0 is the same as none. Raises 400 for a timeout where none is allowed, and for any other pair.
    """
    if incremental_s and (asked != State.INFLIGHT.name or state is State.INFLIGHT):
        raise JobsError(
            400,
            "timeout_not_allowed",
            "IncrementalTimeout is only accepted with NextState INFLIGHT on a job that is not INFLIGHT",
            "IncrementalTimeout",
        )
    if asked == state.name:
        return None
    target = State.__members__.get(asked)
    event = None if target is None else _ASKED.get((state, target))
    if event is None:
        raise _invalid(f"a job that is {state.name} cannot become {asked!r}")
    return event


def _invalid(sentence: str) -> JobsError:
    return JobsError(
        400, "invalid_transition", f"invalid transition request: {sentence}", "NextState"
    )
